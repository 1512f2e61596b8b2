/** The text of documents, design.md 3 "Bodies": stored as it came, never parsed again to be read. */
import { Buffer, isAscii, isUtf8 } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { type Edit, MAX_DEPTH, scanDocument } from './json-scanner.ts'

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
  rev: string
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

/**
 * Whatever JSON.parse and JSON.stringify do not give back as it came: `\u` and `\/`; lone surrogates; names that are
 * array indices, which JavaScript moves to the front; and, where a number can begin, -0, trailing zeros, exponents,
 * numbers below 1e-6 and of more than 15 digits (with 15, text -> double -> shortest text is the identity).
 * What looks like it inside a string only costs time, so a number must also end like one where prose and times of
 * day (`10:00.500Z`) would be hit. Every repetition behind the white space ends within 17 characters.
 */
const BENDABLE = new RegExp(
  [
    /\\[u/]/,
    /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/,
    /[{,][ \t\n\r]*"\d+"[ \t\n\r]*:/,
    /[:,[][ \t\n\r]*-?(?:\d{16}|[\d.]{17}|0\.0{6}|\d+(?:\.\d+)?[eE][-+\d]|\d+\.\d*0(?=[ \t\n\r,\]}]))/,
    /[:,[][ \t\n\r]*-0(?=[ \t\n\r,\]}])/,
  ]
    .map((pattern) => pattern.source)
    .join('|'),
)

/**
 * Takes the text of one JSON document apart into its special members and the text to store.
 *
 * @param text JSON text of a document, such as decodeUtf8 gives it
 * @throws CouchError `invalid_json` (a lone surrogate too), `document_not_object`, `too_deep`
 */
export function splitDocument(text: string): SplitDocument {
  return splitFast(text) ?? splitExact(text)
}

/**
 * splitDocument by JSON.parse and JSON.stringify. Exported for the tests that hold the two routes together.
 *
 * @returns undefined where these could bend the text, or where it may be nested too deeply for them
 * @throws CouchError `invalid_json`, `document_not_object`
 */
export function splitFast(text: string): SplitDocument | undefined {
  if (mayBeTooDeep(text) || BENDABLE.test(text)) return undefined
  const special = new Map<string, unknown>()
  // No `__proto__` is ever assigned to it: that name begins with `_`.
  const kept: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(asObject(parseJson(text)))) {
    if (isSpecial(name)) special.set(name, value)
    else kept[name] = value
  }
  return { special, body: JSON.stringify(kept) }
}

/**
 * splitDocument by a scanner of ours that keeps the text. Exported for the tests that hold the two routes together.
 *
 * @throws CouchError `invalid_json`, `document_not_object`, `too_deep`
 */
export function splitExact(text: string): SplitDocument {
  if (!/^[ \t\n\r]*\{/.test(text)) asObject(parseJson(text))
  const { cut, gaps, moves } = scanDocument(text, isSpecial)
  const special = new Map<string, unknown>()
  for (const [name, value] of cut) special.set(name, JSON.parse(value))
  return { special, body: moves.length === 0 ? withoutGaps(text, gaps) : rearranged(text, gaps, moves) }
}

/**
 * The text of a document as it is sent, its members in CouchDB's order (protocol.md 3.1). Nothing is parsed.
 */
export function spliceDocument(parts: DocumentParts): string {
  const members = [`"_id":${JSON.stringify(parts.id)},"_rev":${JSON.stringify(parts.rev)}`]
  if (parts.body.length > 2) members.push(parts.body.slice(1, -1))
  if (parts.deleted === true) members.push('"_deleted":true')
  if (parts.extra) members.push(parts.extra)
  return `{${members.join(',')}}`
}

/**
 * JSON.parse for what clients send.
 *
 * @throws CouchError `invalid_json`
 */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new CouchError('invalid_json', undefined, { cause })
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
  return name.startsWith('_') && !KEPT_NAMES.has(name)
}

function asObject(value: unknown): object {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value
  throw new CouchError('document_not_object')
}

/** Never false for a text that nests too deeply; such a one has more than MAX_DEPTH + 1 brackets, all closed. */
function mayBeTooDeep(text: string): boolean {
  if (text.length < 2 * (MAX_DEPTH + 2)) return false
  let left = MAX_DEPTH + 1
  for (const bracket of ['{', '[']) {
    for (let at = text.indexOf(bracket); at >= 0; at = text.indexOf(bracket, at + 1)) {
      if (left-- === 0) return true
    }
  }
  return false
}

function withoutGaps(text: string, gaps: number[]): string {
  const pieces: string[] = []
  let from = 0
  for (let i = 0; i < gaps.length; i += 2) {
    pieces.push(text.slice(from, gaps[i]))
    from = gaps[i + 1]!
  }
  pieces.push(text.slice(from))
  return pieces.join('')
}

function rearranged(text: string, gaps: number[], moves: Edit[]): string {
  const edits = [...moves]
  for (let i = 0; i < gaps.length; i += 2) edits.push({ start: gaps[i]!, end: gaps[i + 1]!, from: 0, to: 0 })
  edits.sort((a, b) => a.start - b.start)
  const pieces: string[] = []
  applyEdits({ text, edits, pieces }, 0, text.length)
  return pieces.join('')
}

/** Writes the span `start` to `end` of the text with the edits that lie in it; those within an edited span are void. */
function applyEdits(
  job: { text: string; edits: Edit[]; pieces: string[] },
  start: number,
  end: number,
): void {
  const { text, edits, pieces } = job
  let at = start
  let next = firstEditFrom(edits, at, 0)
  for (let edit = edits[next]; edit !== undefined && edit.start < end; edit = edits[next]) {
    pieces.push(text.slice(at, edit.start))
    if (edit.to > edit.from) applyEdits(job, edit.from, edit.to)
    at = edit.end
    next = firstEditFrom(edits, at, next + 1)
  }
  pieces.push(text.slice(at, end))
}

/** Index of the first edit that starts at `position` or behind it, none before index `low` doing so. */
function firstEditFrom(edits: Edit[], position: number, low: number): number {
  const following = edits[low]
  if (following === undefined || following.start >= position) return low
  let below = low
  let high = edits.length
  while (high - below > 1) {
    const middle = (below + high) >> 1
    if (edits[middle]!.start < position) below = middle
    else high = middle
  }
  return high
}
