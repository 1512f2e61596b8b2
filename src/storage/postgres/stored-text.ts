/**
 * Ids and keys as PostgreSQL stores them. Its texts cannot contain NUL, and ids can. So NUL and the character after it
 * are escaped, in a way that keeps the order of the bytes: 00 becomes 01 01, and 01 becomes 01 02.
 */
import { CouchError } from '../../core/errors.ts'

/**
 * The bytes that the texts of a key may have together, as they are stored: an id and a revision, or the kind and the key of a record. A row of an index has at most 2,704, numbers
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

/** As {@link refuseLongKey}, for a record. @throws bad_request */
export function refuseLongRecord(kind: string, key: string): void {
  if (Buffer.byteLength(storedText(kind)) + Buffer.byteLength(storedText(key)) <= MAX_KEY_BYTES) return
  throw new CouchError(
    'bad_request',
    'A name is too long for this server, which stores its data in PostgreSQL.',
  )
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

/** How the JSON of an attachment ends, whose last members are numbers: see `NamedContents` of group-write.ts. */
const ENDS = {
  blob: '"blob":([0-9]+)[}]$',
  storedLength: '"storedLength":([0-9]+),"blob":[0-9]+[}]$',
} as const
/** Characters in which such an end has its place. */
const MAX_END = 80

/**
 * A number of an attachment, as an expression of SQL. It is read from the end of the text. PostgreSQL's `->` and `->>` decode all
 * texts before it, and fail on the escapes of NUL and of lone surrogates, which are legal in JSON.
 * @param element an element of a list of attachments as `doc` and `revision` store it, as JSON
 */
export function attachmentNumber(element: string, member: keyof typeof ENDS): string {
  return `substring(right(${element}::text, ${MAX_END}) FROM '${ENDS[member]}')::bigint`
}
