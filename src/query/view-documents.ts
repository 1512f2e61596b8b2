/** The documents of view rows, for `include_docs`; protocol.md 9.3. */
import { BatchSize } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { damagedMember, type RenderedDocument, renderInTexts, unlessDamaged } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import { pinContents } from '../documents/stored-content.ts'
import { wholeText } from '../documents/whole-text.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import { type IndexRow, idOfRow } from '../storage/index-store.ts'
import type { ViewQuery } from './view-query.ts'

/** The maximum number of documents that are read at once. */
const MAX_BATCH = 64
/** Characters of documents after which the batches do not grow. */
const MAX_BATCH_CHARS = 256 * 1024

/**
 * Reads the document of each row, or the one that its value links to; `null` if it is missing or deleted.
 * @returns a function that returns the documents of rows in their order, in batches
 */
export function linkedDocuments(
  store: DatabaseStore,
  user: UserCtx,
  { conflicts, attachments, attEncodingInfo }: ViewQuery,
): (rows: readonly IndexRow[]) => AsyncGenerator<string[]> {
  const readSet = { body: true, branches: conflicts }
  const options = { conflicts, attachments, attEncodingInfo }
  const render = (doc: DocState | null, rev: string | undefined): RenderedDocument | string | null => {
    return unlessDamaged(() => {
      if (doc === null || (rev === undefined && doc.deleted)) return null
      if (rev !== undefined && doc.body(rev) === null) return null
      return renderInTexts(doc, rev ?? doc.rev, 'data', options)
    }, damagedMember)
  }
  return async function* (rows) {
    const size = new BatchSize(attachments ? 1 : 8, attachments ? 1 : MAX_BATCH)
    for (let at = 0; at < rows.length; ) {
      const since = performance.now()
      const links = rows.slice(at, at + size.size).map(linkOf)
      at += links.length
      // A document is read once, though several rows may link to revisions of it.
      const revsOf = new Map<string, (string | undefined)[]>()
      for (const link of links) if (link !== null) add(revsOf, link)
      const ids = [...revsOf.keys()]
      const read = await store.readDocs(
        ids,
        (doc, id, view) => {
          requireMember(user, view.security)
          return (revsOf.get(id) ?? []).map((rev) => [nameOf({ id, rev }), render(doc, rev)] as const)
        },
        { ...readSet, of: (place) => ({ revs: namedRevs(revsOf.get(ids[place] as string)) }) },
      )
      const texts = await wholeTexts(store, read.flat())
      const docs = links.map((link) => (link === null ? 'null' : (texts.get(nameOf(link)) ?? 'null')))
      yield docs
      if (docs.reduce((sum, { length }) => sum + length, 0) < MAX_BATCH_CHARS) size.adapt(since)
      else size.size = Math.max(1, size.size >> 1)
    }
  }
}

interface Link {
  readonly id: string
  readonly rev: string | undefined
}

function add(revsOf: Map<string, (string | undefined)[]>, { id, rev }: Link): void {
  const revs = revsOf.get(id)
  if (revs === undefined) revsOf.set(id, [rev])
  else revs.push(rev)
}

/** The text of each document that was read just now, by its name; of a damaged one as {@link damagedMember}. */
async function wholeTexts(
  store: DatabaseStore,
  read: readonly (readonly [string, RenderedDocument | string | null])[],
): Promise<Map<string, string>> {
  const pins = await pinContents(
    store,
    read.flatMap(([, document]) => (typeof document === 'string' ? [] : (document?.contents ?? []))),
  )
  try {
    const texts = new Map<string, string>()
    for (const [name, document] of read) {
      const isText = typeof document === 'string' || document === null
      texts.set(name, isText ? (document ?? 'null') : await wholeText(store, document))
    }
    return texts
  } finally {
    for (const pin of pins) pin.release()
  }
}

function namedRevs(revs: readonly (string | undefined)[] = []): string[] {
  return revs.filter((rev) => rev !== undefined)
}

/** A unique text for each link. Revisions have no space. */
function nameOf({ id, rev = '' }: Link): string {
  return `${rev} ${id}`
}

/**
 * The document that a row's value names with `_id`, `_rev` or both; by default the one that emitted the row.
 * @returns null if the value names none that could exist
 */
function linkOf(row: IndexRow): Link | null {
  const { valueText } = row
  if (!valueText.startsWith('{') || !/"_(?:id|rev)"/.test(valueText))
    return { id: idOfRow(row), rev: undefined }
  const { _id: id = idOfRow(row), _rev: rev } = JSON.parse(valueText) as Record<string, unknown>
  if (typeof id !== 'string' || (rev !== undefined && typeof rev !== 'string')) return null
  return { id, rev }
}
