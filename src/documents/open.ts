/** Reading documents: by id, by revision, all open revisions, and many at once. */
import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { isKnown, leafRev, leavesBelow } from '../revisions/branch.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import { sortLeaves } from '../revisions/winner.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import type { AttachmentAnswer, OpenedDocument, OpenOptions } from './database.ts'
import { hasEtag, type RenderOptions, renderDocument, renderLocal } from './render.ts'
import { requireMember } from './security.ts'

/** GET of a document, protocol.md 3.1. */
export async function openDocument(
  store: DatabaseStore,
  user: UserCtx,
  id: string,
  options: OpenOptions,
): Promise<OpenedDocument> {
  if (isLocalId(id)) return openLocal(store, user, id)
  const [opened] = await store.readDocs(
    [id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      return openState(doc, options)
    },
    { body: true, branches: true, bytes: options.attachments ?? false },
  )
  if (opened === undefined) throw new CouchError('not_found')
  return { etag: opened.etag, json: Buffer.from(`${opened.text}\n`) }
}

function openState(doc: DocState | null, options: OpenOptions): { etag: string | null; text: string } {
  const rev = chooseRevision(doc, options)
  // With `rev` only `revs` is honoured, a quirk that clients see (protocol.md 3.1).
  const rendered =
    options.rev === undefined ? options : { revs: options.revs, attachments: options.attachments }
  const state = doc as DocState
  return {
    etag: hasEtag(state, rendered) ? `"${rev}"` : null,
    text: renderDocument(state, rev, rendered),
  }
}

function chooseRevision(doc: DocState | null, options: OpenOptions): string {
  const asked = options.rev === undefined ? null : parseRev(options.rev)
  if (doc === null) throw new CouchError('not_found')
  if (asked === null) {
    if (doc.deleted && !options.deleted) throw new CouchError('deleted')
    return doc.rev
  }
  const rev = formatRev(asked.pos, asked.id)
  if (options.latest) {
    const [best] = sortLeaves(leavesBelow(doc.branches, asked))
    if (best === undefined) throw new CouchError('not_found')
    return leafRev(best)
  }
  if (rev !== doc.rev && !isKnown(doc.branches, asked)) throw new CouchError('not_found')
  return rev
}

async function openLocal(store: DatabaseStore, user: UserCtx, id: string): Promise<OpenedDocument> {
  requireMember(user, (await store.view()).security)
  const [doc] = await store.readLocals([id])
  if (doc === null || doc === undefined) throw new CouchError('not_found')
  const text = renderLocal(doc)
  return { etag: `"${createHash('md5').update(text).digest('base64')}"`, json: Buffer.from(`${text}\n`) }
}

/** One of the revisions that `open_revs` or `_bulk_get` was asked for. */
export type OpenRevision = { readonly ok: string } | { readonly missing: string }

/**
 * The revisions asked for of one document, as JSON texts; protocol.md 3.2. Their order is the leaves' or the
 * request's; each leaf comes once.
 * @param revs names as sent, or all leaves
 * @throws invalid_rev
 */
export function openRevisions(
  doc: DocState | null,
  revs: readonly unknown[] | 'all',
  { revs: withPath, attachments, latest, attsSince }: OpenOptions & Pick<RenderOptions, 'attsSince'>,
): OpenRevision[] {
  const render = (rev: string): OpenRevision => ({
    ok: renderDocument(doc as DocState, rev, { revs: withPath, attachments, attsSince }),
  })
  if (revs === 'all') return doc === null ? [] : sortLeaves(doc.branches).map((leaf) => render(leafRev(leaf)))
  const found = new Set<string>()
  const missing: OpenRevision[] = []
  for (const asked of revs.map(parseRev)) {
    const rev = formatRev(asked.pos, asked.id)
    const leaves = latest ? sortLeaves(leavesBelow(doc?.branches ?? [], asked)).map(leafRev) : [rev]
    const present = leaves.filter((leaf) => isPresent(doc, leaf))
    for (const leaf of present) found.add(leaf)
    if (present.length === 0) missing.push({ missing: rev })
  }
  return [...[...found].map(render), ...missing]
}

function isPresent(doc: DocState | null, rev: string): boolean {
  if (doc === null) return false
  return (rev === doc.rev || isKnown(doc.branches, parseRev(rev))) && doc.body(rev) !== null
}

/** `open_revs` as a JSON array. @throws not_found for `all` of an unknown document */
export async function* openRevs(
  store: DatabaseStore,
  user: UserCtx,
  id: string,
  revs: readonly unknown[] | 'all',
  options: OpenOptions,
): AsyncGenerator<Uint8Array> {
  const [rows] = await store.readDocs(
    [id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      if (doc === null && revs === 'all') throw new CouchError('not_found')
      return openRevisions(doc, revs, options).map((row) =>
        'ok' in row ? `{"ok":${row.ok}}` : JSON.stringify(row),
      )
    },
    { branches: true, bytes: options.attachments ?? false },
  )
  for (const [at, row] of (rows ?? []).entries()) yield Buffer.from((at === 0 ? '[' : ',') + row)
  yield Buffer.from(rows?.length ? ']\n' : '[]\n')
}

/** An attachment of a revision, protocol.md 7.4. */
export async function openAttachment(
  store: DatabaseStore,
  user: UserCtx,
  id: string,
  name: string,
  rev: string | undefined,
): Promise<AttachmentAnswer> {
  const [answer] = await store.readDocs([id], (doc, _id, view) => {
    requireMember(user, view.security)
    const opened = chooseRevision(doc, rev === undefined ? {} : { rev })
    const state = doc as DocState
    if (state.body(opened) === null) throw new CouchError('not_found')
    const found = state.attachments(opened).find((attachment) => attachment.name === name)
    if (found === undefined) throw new CouchError('no_attachment')
    const { type, length, digest, blob } = found
    return { type, length, digest, blob }
  })
  return answer as AttachmentAnswer
}

/** Bytes of one step of a download. */
const DOWNLOAD_STEP = 256 * 1024

/** A stored blob's bytes from `start` up to, not including, `end`. */
export async function* readAttachment(
  store: DatabaseStore,
  blob: number,
  start: number,
  end: number,
): AsyncGenerator<Uint8Array> {
  for (let at = start; at < end; ) {
    const step = await store.readBlob(blob, at, Math.min(DOWNLOAD_STEP, end - at))
    if (step === null || step.length === 0) throw new CouchError('no_attachment')
    yield step
    at += step.length
  }
}
