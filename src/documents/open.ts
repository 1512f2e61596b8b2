/** Reads one document, or one of its attachments, by id and revision. */
import { createHash } from 'node:crypto'
import { encodeTexts } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { leafRev, sortLeaves } from '../revisions/branch.ts'
import { isKnown, leavesBelow } from '../revisions/branch-index.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'
import { type DocReadSet, namedRevisions } from '../storage/read-set.ts'
import type {
  AttachmentAnswer,
  DocumentReader,
  OpenedDocument,
  OpenedParts,
  OpenOptions,
} from './database.ts'
import { filledPieces, pieceChunks, piecesLength } from './pieces.ts'
import {
  type ContentForm,
  hasEtag,
  type RenderedDocument,
  type RenderOptions,
  renderInTexts,
  renderLocal,
} from './render.ts'
import { requireMember } from './security.ts'
import { type ReadContent, readContent } from './stored-content.ts'
import { MAX_WHOLE_BYTES } from './whole-text.ts'

const NO_OPTIONS: OpenOptions = {}

/**
 * GET of a document, protocol.md 3.1.
 * @throws attachment_too_large if its attachments do not fit into one text in memory
 */
export async function openDocument(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  options: OpenOptions,
): Promise<OpenedDocument> {
  const opened = await openParts(store, user, id, options, 'data')
  if (opened.parts.length === 0) return { etag: opened.etag, json: opened.json }
  const pieces = filledPieces(opened)
  if (piecesLength(pieces) > MAX_WHOLE_BYTES) throw new CouchError('attachment_too_large', id)
  const chunks: Uint8Array[] = []
  const read: ReadContent = (content, start, end) => readContent(store, content, start, end)
  for await (const chunk of pieceChunks(pieces, read)) chunks.push(chunk)
  return { etag: opened.etag, json: Buffer.concat(chunks) }
}

/** A document's JSON, and separately the attachments that come with their content. */
export async function openParts(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  options: OpenOptions,
  form: ContentForm,
): Promise<OpenedParts> {
  if (isLocalId(id)) return openLocal(store, user, id, options)
  const render = renderOptions(options, form)
  const [opened] = await store.readDocs(
    [id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      const rev = chooseRevision(doc, options)
      const state = doc as DocState
      return {
        etag: hasEtag(state, render) ? `"${rev}"` : null,
        document: renderInTexts(state, rev, form, { ...render, revsLimit: view.revsLimit }),
      }
    },
    readSetOf(options, render),
  )
  if (opened === undefined) throw new CouchError('not_found')
  return inBytes(opened.etag, opened.document)
}

const WINNER: DocReadSet = { body: true, branches: true }

function readSetOf({ rev, latest }: OpenOptions, { revs, revsInfo, attsSince }: RenderOptions): DocReadSet {
  const hasPath = revs || revsInfo || attsSince !== undefined || latest
  if (rev === undefined) {
    return hasPath ? { body: true, branches: true, ancestry: 'winner', revisions: revsInfo } : WINNER
  }
  const ancestry = hasPath ? 'leaves' : undefined
  return { body: true, branches: true, ancestry, of: () => namedRevisions([rev]) }
}

function renderOptions(options: OpenOptions, form: ContentForm): RenderOptions {
  // With `rev`, CouchDB ignores these options, and clients can tell (protocol.md 3.1).
  const { revsInfo, localSeq, conflicts, deletedConflicts } = options.rev === undefined ? options : NO_OPTIONS
  return {
    revs: options.revs,
    attachments: options.attachments,
    attsSince: options.attsSince?.map(parseRev),
    // A reader of parts needs their encodings even if it did not request them. CouchDB sends them, too.
    attEncodingInfo: form === 'follows' || options.attEncodingInfo,
    revsInfo,
    localSeq,
    conflicts,
    deletedConflicts,
  }
}

/** A rendered document in bytes. @param etag null without an ETag */
export function inBytes(etag: string | null, { texts, contents }: RenderedDocument): OpenedParts {
  const json = encodeTexts([...texts, '\n'])
  if (contents.length === 0) return { etag, json, holes: [], parts: [] }
  const holes: number[] = []
  let length = 0
  for (const text of texts.slice(0, -1)) {
    length += Buffer.byteLength(text)
    holes.push(length)
  }
  const parts = contents.map(({ name, type, length, encoding, storedLength, digest, blob }) => {
    return { name, type, length, encoding, storedLength, digest, blob }
  })
  return { etag, json, holes, parts }
}

function chooseRevision(doc: DocState | null, options: OpenOptions): string {
  const requested = options.rev === undefined ? null : parseRev(options.rev)
  if (doc === null) throw new CouchError('not_found')
  if (requested === null) {
    if (doc.deleted && !options.deleted) throw new CouchError('deleted')
    return doc.rev
  }
  const rev = formatRev(requested.pos, requested.id)
  if (options.latest) {
    const [best] = sortLeaves(leavesBelow(doc.branches, requested))
    if (best === undefined) throw new CouchError('not_found')
    return leafRev(best)
  }
  if (rev !== doc.rev && !isKnown(doc.branches, requested)) throw new CouchError('not_found')
  return rev
}

/** @param options.rev no revision can be read by its name, not even the stored one */
async function openLocal(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  { rev, revs }: OpenOptions,
): Promise<OpenedParts> {
  requireMember(user, (await store.view()).security)
  const [doc] = await store.readLocals([id])
  if (doc === null || doc === undefined || rev !== undefined) throw new CouchError('not_found')
  const text = renderLocal(doc, revs)
  const etag = `"${createHash('md5').update(text).digest('base64')}"`
  return { etag, json: Buffer.from(`${text}\n`), holes: [], parts: [] }
}

/** An attachment of a revision, protocol.md 7.4. */
export async function openAttachment(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  name: string,
  rev: string | undefined,
): Promise<AttachmentAnswer> {
  const [answer] = await store.readDocs(
    [id],
    (doc, _id, view) => {
      requireMember(user, view.security)
      const opened = chooseRevision(doc, rev === undefined ? {} : { rev })
      const state = doc as DocState
      if (state.body(opened) === null) throw new CouchError('not_found')
      const found = state.attachments(opened).find((attachment) => attachment.name === name)
      if (found === undefined) throw new CouchError('no_attachment')
      const { type, length, encoding, storedLength, digest, blob } = found
      return { type, length, encoding, storedLength, digest, blob }
    },
    readSetOf(rev === undefined ? {} : { rev }, {}),
  )
  return answer as AttachmentAnswer
}
