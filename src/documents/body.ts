/** The text of documents, design.md 3 "Bodies": stored as it came, never parsed again to be read. */
import { Buffer, isAscii, isUtf8 } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { isTooDeep, MAX_JSON_DEPTH } from '../core/json-depth.ts'
import { quoted } from '../core/json-text.ts'
import { type Edit, type ScannedDocument, scanDocument, scanElement } from './json-scanner.ts'

/** One document taken apart. */
export interface SplitDocument {
  /** Members of the top level that begin with `_`, by name, with their JSON values; of duplicates, the last. */
  special: ReadonlyMap<string, unknown>
  /** The JSON object text of all other members, without white space between tokens, otherwise as it came. */
  body: string
}

/** What a stored document is sent back from. */
export interface DocumentParts {
  id: string
  /** null: without `_rev`. */
  rev: string | null
  /** As SplitDocument has it. */
  body: string
  deleted?: boolean
  /** Ready JSON members that come last, such as `"_revisions":{...},"_conflicts":[...]`. */
  extra?: string
}

/** Names that begin with `_` and yet belong to the body, protocol.md 2.4. */
const KEPT_NAMES = new Set([
  '_access',
  '_replication_id',
  '_replication_state',
  '_replication_state_time',
  '_replication_state_reason',
  '_replication_stats',
])

const UNDERSCORE = 0x5f
const OBJECT_START = /^[ \t\n\r]*\{/
const PIECES_AT_ONCE = 4096

/**
 * Takes the text of one JSON document apart into its special members and the text to store (design.md 3). There is
 * no second route by JSON.parse and JSON.stringify for texts that these do not bend: finding out that they do not,
 * and then doing it, takes longer than the scanner (1 kB notes: 11 us and 7 us).
 *
 * @param text JSON text of a document, such as decodeUtf8 gives it
 * @throws CouchError `invalid_json` (also for a lone surrogate), `document_not_object`, `too_deep` (512 levels)
 */
export function splitDocument(text: string): SplitDocument {
  if (!OBJECT_START.test(text)) {
    parsed(text)
    throw new CouchError('document_not_object')
  }
  return splitScanned(text, 0, text.length, scanDocument(text, isSpecial))
}

/**
 * Takes chosen members out of a stored text.
 * @param body as {@link SplitDocument} has it
 * @param isTaken tells by its decoded name whether a member of the top level is taken out
 * @returns the members, and the text of the others as it was
 */
export function splitMembers(body: string, isTaken: (name: string) => boolean): SplitDocument {
  return splitScanned(body, 0, body.length, scanDocument(body, isTaken))
}

/** A document that stands in a longer text. */
export interface SplitElement extends SplitDocument {
  readonly start: number
  readonly end: number
}

/** As {@link splitDocument}, of a document that begins at `start` in a longer text, and ends where it ends. */
export function splitElement(text: string, start: number): SplitElement {
  const scanned = scanElement(text, start, isSpecial)
  const { end } = scanned
  const { special, body } = splitScanned(text, start, end, scanned)
  return { special, body, start, end }
}

function splitScanned(
  text: string,
  start: number,
  end: number,
  { cut, gaps, moves }: ScannedDocument,
): SplitDocument {
  const special = new Map<string, unknown>()
  for (const [name, value] of cut) special.set(name, parsedValue(value))
  const output = new PiecedText(text)
  if (moves.length > 0) rearrange(output, sortedEdits(gaps, moves), start, end)
  else leaveOut(output, gaps, start, end)
  return { special, body: output.end() }
}

/** JSON.parse for a text that is known to be JSON; ids and revisions, plain strings, take a third of its time. */
function parsedValue(json: string): unknown {
  return json.startsWith('"') && !json.includes('\\') ? json.slice(1, -1) : JSON.parse(json)
}

/**
 * The text of a document as it is sent, its members in CouchDB's order (protocol.md 3.1). Nothing is parsed.
 */
export function spliceDocument({ id, rev, body, deleted, extra }: DocumentParts): string {
  const name = rev === null ? '' : `,"_rev":${quoted(rev)}`
  const own = body.length > 2 ? `,${body.slice(1, -1)}` : ''
  const mark = deleted === true ? ',"_deleted":true' : ''
  return `{"_id":${quoted(id)}${name}${own}${mark}${extra ? `,${extra}` : ''}}`
}

/** A text that is shorter has no room for more levels than there may be. */
const SURELY_SHALLOW = 2 * MAX_JSON_DEPTH

/**
 * JSON.parse for what clients send.
 *
 * @throws CouchError `invalid_json`, `too_deep` (512 levels)
 */
export function parseJson(text: string): unknown {
  const value = parsed(text)
  if (text.length > SURELY_SHALLOW && isTooDeep(value)) throw new CouchError('too_deep')
  return value
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Without its cause: what V8 says quotes the text, and that may hold a password.
    throw new CouchError('invalid_json')
  }
}

/**
 * The text of bytes that must be UTF-8. A byte order mark stays, which makes it invalid JSON, as RFC 8259 8.1 lets us.
 *
 * @throws CouchError `invalid_json` where they are not UTF-8
 */
export function decodeUtf8(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (isAscii(buffer)) return buffer.toString('latin1')
  if (isUtf8(buffer)) return buffer.toString('utf8')
  throw new CouchError('invalid_json')
}

function isSpecial(name: string): boolean {
  return name.charCodeAt(0) === UNDERSCORE && !KEPT_NAMES.has(name)
}

function leaveOut(output: PiecedText, gaps: readonly number[], start: number, end: number): void {
  let from = start
  for (let i = 0; i < gaps.length; i += 2) {
    output.copy(from, gaps[i]!)
    from = gaps[i + 1]!
  }
  output.copy(from, end)
}

function sortedEdits(gaps: readonly number[], moves: readonly Edit[]): Edit[] {
  const edits = [...moves]
  for (let i = 0; i < gaps.length; i += 2) edits.push({ start: gaps[i]!, end: gaps[i + 1]!, from: 0, to: 0 })
  return edits.sort((a, b) => a.start - b.start)
}

/** Copies the span `start` to `end` with the edits that lie in it; those inside a span that is edited are void. */
function rearrange(output: PiecedText, edits: readonly Edit[], start: number, end: number): void {
  let at = start
  let next = firstEditFrom(edits, at, 0)
  for (let edit = edits[next]; edit !== undefined && edit.start < end; edit = edits[next]) {
    output.copy(at, edit.start)
    if (edit.to > edit.from) rearrange(output, edits, edit.from, edit.to)
    at = edit.end
    next = firstEditFrom(edits, at, next + 1)
  }
  output.copy(at, end)
}

/** Index of the first edit, from index `low` on, that starts at `position` or behind it. */
function firstEditFrom(edits: readonly Edit[], position: number, low: number): number {
  let first = low
  let beyond = edits.length
  if (low < beyond && edits[low]!.start >= position) return low
  while (first < beyond) {
    const middle = (first + beyond) >> 1
    if (edits[middle]!.start < position) first = middle + 1
    else beyond = middle
  }
  return first
}

/** Spans of one text put together. Joined a few thousand at a time: millions at once take five times as long. */
class PiecedText {
  readonly #text: string
  #pieces: string[] = []
  #joined = ''

  constructor(text: string) {
    this.#text = text
  }

  copy(start: number, end: number): void {
    if (this.#pieces.push(this.#text.slice(start, end)) === PIECES_AT_ONCE) this.end()
  }

  end(): string {
    this.#joined += this.#pieces.join('')
    this.#pieces = []
    return this.#joined
  }
}
