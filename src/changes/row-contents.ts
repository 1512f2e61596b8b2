/** Reads the contents of attachments for the rows of a page, with `attachments=true`. */
import { scanBytes } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { pinContents } from '../documents/stored-content.ts'
import { wholeText } from '../documents/whole-text.ts'
import type { BlobReference } from '../storage/blob-leases.ts'
import {
  type ChangesOptions,
  documentMember,
  errorMember,
  type FeedReader,
  type FeedRows,
  PAGE_TEXT,
  type Row,
} from './rows.ts'

/**
 * Completes rows, up to the characters of a page, at least one. A row whose contents cannot be read gets an error instead:
 * its document was changed meanwhile, and comes again, or it does not fit into one text.
 * @param found rows that were read just now
 * @returns the same if no row lacks its document
 */
export async function fillRows(
  store: FeedReader,
  found: FeedRows,
  options: ChangesOptions,
): Promise<FeedRows> {
  if (found.rows.every(({ document }) => document === undefined)) return found
  const pinned = await Promise.all(found.rows.map((row) => pin(store, row)))
  try {
    const rows: Row[] = []
    const maxText = scanBytes(PAGE_TEXT)
    for (let text = 0; rows.length < found.rows.length && text <= maxText; ) {
      const row = await filled(store, found.rows[rows.length] as Row, options)
      rows.push(row)
      text += row.members.length
    }
    const last = rows.at(-1)
    if (last === undefined || rows.length === found.rows.length) return { ...found, rows }
    return { rows, view: found.view, more: true, end: last.seq }
  } finally {
    for (const pins of pinned) for (const each of pins) each.release()
  }
}

/** If the contents of a row are not all there, none are pinned: the row becomes an error when they are read. */
async function pin(store: FeedReader, { document }: Row): Promise<readonly BlobReference[]> {
  try {
    return document === undefined ? [] : await pinContents(store, document.contents)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_attachment') return []
    throw error
  }
}

async function filled(
  store: FeedReader,
  { seq, members, document }: Row,
  options: ChangesOptions,
): Promise<Row> {
  if (document === undefined) return { seq, members }
  try {
    return { seq, members: members + documentMember(await wholeText(store, document), options) }
  } catch (thrown) {
    return { seq, members: members + errorMember(thrown) }
  }
}
