/**
 * Ids and keys as PostgreSQL stores them. Its texts cannot contain NUL, and ids can. So NUL and the character after it
 * are escaped, in a way that keeps the order of the bytes: 00 becomes 01 01, and 01 becomes 01 02.
 */
import { CouchError } from '../../core/errors.ts'

/**
 * The bytes that an id and a revision may have together, as they are stored. A row of an index has at most 2,704, numbers
 * and lengths included (PostgreSQL's manual, "B-Tree Indexes", for pages of 8 kB).
 */
const MAX_KEY_BYTES = 2600

const NUL = '\u0000'
const ESCAPE = '\u0001'
const ESCAPED_NUL = '\u0001\u0001'
const ESCAPED_ESCAPE = '\u0001\u0002'

/** @param text an id, a name or a key @returns the text to store and to compare with */
export function storedText(text: string): string {
  if (!text.includes(NUL) && !text.includes(ESCAPE)) return text
  return text.replaceAll(ESCAPE, ESCAPED_ESCAPE).replaceAll(NUL, ESCAPED_NUL)
}

/**
 * Refuses what no index of PostgreSQL can hold.
 * @param revs revisions of the document
 * @throws illegal_docid
 */
export function refuseLongKey(id: string, revs: readonly string[] = []): void {
  const bytes = Buffer.byteLength(storedText(id))
  for (const rev of ['', ...revs]) {
    if (bytes + Buffer.byteLength(storedText(rev)) <= MAX_KEY_BYTES) continue
    const reason = `A document id and a revision have at most ${MAX_KEY_BYTES} bytes together on this server.`
    throw new CouchError('illegal_docid', reason)
  }
}

/** The text that {@link storedText} has made this from. */
export function textOf(stored: string): string {
  if (!stored.includes(ESCAPE)) return stored
  let text = ''
  let from = 0
  for (let at = stored.indexOf(ESCAPE); at >= 0; at = stored.indexOf(ESCAPE, from)) {
    text += stored.slice(from, at) + (stored.startsWith(ESCAPED_NUL, at) ? NUL : ESCAPE)
    from = at + ESCAPED_NUL.length
  }
  return text + stored.slice(from)
}
