/**
 * Splits and assembles the JSON text of documents, which is stored as sent and never parsed for a read
 * (architecture.md, "Bodies").
 */
import { Buffer, isAscii, isUtf8 } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isTooDeep, MAX_JSON_DEPTH, quoted } from '../core/json.ts'
import { DocumentScanner, type IsCut, type ScannedDocument } from './json-scanner.ts'
import type { LeftContents } from './left-contents.ts'

/** A document split into its special members and its body. */
export interface SplitDocument {
  /** The JSON texts of the top-level members that begin with `_`, by name; of duplicates, the last. */
  special: ReadonlyMap<string, string>
  /** The JSON object text of all other members, without white space between tokens, otherwise as sent. */
  body: string
  /** The number of JSON values. */
  values: number
  /** The contents of attachments that the text was read without. */
  contents?: LeftContents
}

/** A document's JSON text, and the contents of attachments that it was read without. */
export interface DocumentText {
  readonly text: string
  readonly contents?: LeftContents
}

/** The parts of a stored document's answer. */
interface DocumentParts {
  id: string
  /** null: without `_rev`. */
  rev: string | null
  /** As in SplitDocument. */
  body: string
  deleted?: boolean
  /** JSON members to add at the end, such as `"_revisions":{...},"_conflicts":[...]`. */
  extra?: string
}

/** Names that begin with `_` but belong to the body, protocol.md 2.4. */
const BODY_NAMES = new Set([
  '_access',
  '_replication_id',
  '_replication_state',
  '_replication_state_time',
  '_replication_state_reason',
  '_replication_stats',
])

const UNDERSCORE = 0x5f
const OBJECT_START = /^[ \t\n\r]*\{/
const VALUE_START = /^[ \t\n\r]*[["\-\dtfn]/
/** Maximum number of characters that are split in one step; the worst case took 6 ms. */
const SHORT_TEXT = 64 * 1024
/** Maximum number of characters in a value that JSON.parse reads in one step. */
const MAX_VALUE = 512 * 1024
const PIECES_AT_ONCE = 4096

/**
 * Splits the text of a JSON document into its special members and the text to store (architecture.md, "Bodies").
 * JSON.parse and JSON.stringify would not be faster for texts that they leave unchanged: the check and both calls take
 * 11 us for a 1 kB note, the scanner 7 us.
 *
 * @param text JSON text of a document, as decodeUtf8 returns it
 * @throws CouchError `invalid_json` (also for a lone surrogate), `document_not_object`, `too_deep` (512 levels),
 * `document_too_large` for too many members
 */
export function splitDocument(text: string): SplitDocument {
  checkStart(text)
  return splitMembers(text, isSpecial)
}

/**
 * Like {@link splitDocument}: synchronous for a short text, and in steps for a longer one, so that the thread is not
 * blocked. For thousands of short documents, promises would cost more than the split itself.
 */
export function splitAnyDocument(text: string): SplitDocument | Promise<SplitDocument> {
  if (text.length <= SHORT_TEXT) return splitDocument(text)
  checkStart(text)
  return splitInSteps(text, isSpecial)
}

/** Like {@link splitAnyDocument}; the contents of attachments stay where they are. */
export function splitDocumentText({ text, contents }: DocumentText): SplitDocument | Promise<SplitDocument> {
  const split = splitAnyDocument(text)
  if (contents === undefined) return split
  return Promise.resolve(split).then((parts) => ({ ...parts, contents }))
}

/**
 * Takes chosen members out of a JSON object.
 * @param isTaken whether a top-level member is taken out, by its decoded name
 * @returns the members, and the text of the others unchanged
 * @throws CouchError as {@link splitDocument}
 */
export function splitMembers(text: string, isTaken: IsCut): SplitDocument {
  const scanner = new DocumentScanner(text, 0, isTaken)
  scanner.advance()
  scanner.end()
  return { special: scanner.cut, body: copyAtOnce(text, scanner, 0, text.length), values: scanner.values }
}

/** Like {@link splitMembers}, in steps. */
export async function splitInSteps(text: string, isTaken: IsCut): Promise<SplitDocument> {
  const scanner = new DocumentScanner(text, 0, isTaken)
  const yielder = new Yielder()
  await scanInSteps(scanner, yielder)
  scanner.end()
  const body = await copyInSteps(text, scanner, 0, text.length, yielder)
  return { special: scanner.cut, body, values: scanner.values }
}

async function scanInSteps(scanner: DocumentScanner, yielder: Yielder): Promise<void> {
  while (!scanner.advance(() => yielder.isDue)) await yielder.yieldNow()
}

/** A document split from a longer text. */
export interface SplitElement extends SplitDocument {
  readonly start: number
  readonly end: number
}

/**
 * Like {@link splitAnyDocument}, for a document that begins at `start` in a longer text.
 * @param yielder of the work on the whole text
 */
export function splitElement(
  text: string,
  start: number,
  yielder: Yielder,
): SplitElement | Promise<SplitElement> {
  const scanner = new DocumentScanner(text, start, isSpecial)
  const isAtEnd = scanner.advance(() => yielder.isDue)
  const end = scanner.position
  if (!isAtEnd || end - start > SHORT_TEXT) return longElement(text, start, scanner, yielder)
  const body = copyAtOnce(text, scanner, start, end)
  return { special: scanner.cut, body, values: scanner.values, start, end }
}

async function longElement(
  text: string,
  start: number,
  scanner: DocumentScanner,
  yielder: Yielder,
): Promise<SplitElement> {
  await scanInSteps(scanner, yielder)
  const end = scanner.position
  const body = await copyInSteps(text, scanner, start, end, yielder)
  return { special: scanner.cut, body, values: scanner.values, start, end }
}

/** @throws CouchError `document_not_object` for JSON of another kind, `invalid_json` for text that is not JSON */
function checkStart(text: string): void {
  if (OBJECT_START.test(text)) return
  // Reading a long text to its end would only give a better reason.
  if (text.length <= SHORT_TEXT) parsed(text)
  throw new CouchError(VALUE_START.test(text) ? 'document_not_object' : 'invalid_json')
}

/**
 * The value of a member that was cut out.
 * @returns undefined without the member; null also for a list or an object of more than 512 KiB, since no valid one
 * is that long
 */
export function memberValue(cut: ReadonlyMap<string, string>, name: string): unknown {
  const json = cut.get(name)
  if (json === undefined) return undefined
  // For ids and revisions, plain strings, this takes a third of JSON.parse's time.
  if (json.startsWith('"') && !json.includes('\\')) return json.slice(1, -1)
  return json.length > MAX_VALUE && !json.startsWith('"') ? null : JSON.parse(json)
}

/** The text of a document as sent to clients, its members in CouchDB's order (protocol.md 3.1). Nothing is parsed. */
export function spliceDocument({ id, rev, body, deleted, extra }: DocumentParts): string {
  const name = rev === null ? '' : `,"_rev":${quoted(rev)}`
  const own = body.length > 2 ? `,${body.slice(1, -1)}` : ''
  const mark = deleted === true ? ',"_deleted":true' : ''
  return `{"_id":${quoted(id)}${name}${own}${mark}${extra ? `,${extra}` : ''}}`
}

/** A shorter text cannot have too many levels. */
const SURELY_SHALLOW = 2 * MAX_JSON_DEPTH

/**
 * JSON.parse for texts from clients.
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
    // Without its cause: V8's message quotes the text, which may contain a password.
    throw new CouchError('invalid_json')
  }
}

/**
 * Decodes bytes that must be UTF-8. A byte order mark is kept and makes the text invalid JSON, as RFC 8259 8.1 allows.
 * @throws CouchError `invalid_json` for other bytes
 */
export function decodeUtf8(bytes: Uint8Array): string {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (isAscii(buffer)) return buffer.toString('latin1')
  if (isUtf8(buffer)) return buffer.toString('utf8')
  throw new CouchError('invalid_json')
}

function isSpecial(name: string): boolean {
  return name.charCodeAt(0) === UNDERSCORE && !BODY_NAMES.has(name)
}

/** Copies the text between two positions without the omitted parts. Yields from time to time. */
function* copied(
  text: string,
  { gaps, moves }: ScannedDocument,
  start: number,
  end: number,
): Generator<undefined, string> {
  const output = new PiecedText(text)
  if (moves.length > 0) {
    const inOrder = moves.toSorted((a, b) => a.start - b.start)
    yield* rearranged(output, { gaps, moves: inOrder }, start, end)
    return output.end()
  }
  let from = start
  for (let i = 0; i < gaps.length; i += 2) {
    if (output.copy(from, gaps[i]!)) yield
    from = gaps[i + 1]!
  }
  output.copy(from, end)
  return output.end()
}

function copyAtOnce(text: string, scanned: ScannedDocument, start: number, end: number): string {
  const copying = copied(text, scanned, start, end)
  for (;;) {
    const { done, value } = copying.next()
    if (done) return value
  }
}

async function copyInSteps(
  text: string,
  scanned: ScannedDocument,
  start: number,
  end: number,
  yielder: Yielder,
): Promise<string> {
  const copying = copied(text, scanned, start, end)
  for (;;) {
    const { done, value } = copying.next()
    if (done) return value
    await yielder.yieldIfDue()
  }
}

/** Copies the span `start` to `end` with the edits inside it; edits inside a replaced span are ignored. */
function* rearranged(
  output: PiecedText,
  edits: Pick<ScannedDocument, 'gaps' | 'moves'>,
  start: number,
  end: number,
): Generator<undefined> {
  const { gaps, moves } = edits
  let at = start
  let gap = 0
  let move = 0
  for (;;) {
    gap = firstFrom(at, gap, gaps.length / 2, (i) => gaps[2 * i]!)
    move = firstFrom(at, move, moves.length, (i) => moves[i]!.start)
    const gapStart = gaps[2 * gap] ?? end
    const moved = moves[move]
    if (moved !== undefined && moved.start < Math.min(gapStart, end)) {
      if (output.copy(at, moved.start)) yield
      yield* rearranged(output, edits, moved.from, moved.to)
      at = moved.end
    } else if (gapStart < end) {
      if (output.copy(at, gapStart)) yield
      at = gaps[2 * gap + 1]!
    } else break
  }
  if (output.copy(at, end)) yield
}

/** The first index, from `low`, whose start is at `position` or later; `count` if there is none. */
function firstFrom(position: number, low: number, count: number, startOf: (index: number) => number): number {
  if (low >= count || startOf(low) >= position) return low
  let first = low + 1
  let beyond = count
  while (first < beyond) {
    const middle = (first + beyond) >> 1
    if (startOf(middle) < position) first = middle + 1
    else beyond = middle
  }
  return first
}

/** Joins spans of one text, a few thousand at a time: millions at once take five times as long. */
class PiecedText {
  readonly #text: string
  #pieces: string[] = []
  #joined = ''

  constructor(text: string) {
    this.#text = text
  }

  /** @returns whether some thousands have just been joined */
  copy(start: number, end: number): boolean {
    if (this.#pieces.push(this.#text.slice(start, end)) < PIECES_AT_ONCE) return false
    this.end()
    return true
  }

  end(): string {
    this.#joined += this.#pieces.join('')
    this.#pieces = []
    return this.#joined
  }
}
