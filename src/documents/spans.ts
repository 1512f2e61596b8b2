/**
 * Finds the documents in the body of a bulk request while it streams in, so that no string ever holds more than one
 * document (architecture.md, "Bodies"). Inside a value, only strings and the depth of brackets are followed, since each
 * value is parsed separately later; everything between values is checked here. So a body is JSON if and only if it is
 * accepted here and each of its elements is JSON.
 */
import { Buffer } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { decodeUtf8, parseJson } from './body.ts'
import { MAX_VALUES, tooManyValues } from './json-scanner.ts'

const QUOTE = 0x22
const OPEN_BRACKET = 0x5b

export interface SpanOptions {
  /** Name of the top-level array whose elements are wanted, such as `docs`. */
  member: string
  /** The maximum length of an element, in bytes. */
  maxSpan: number
  /** Maximum total length of all other members, with names and values, in bytes. */
  maxOther: number
  /** Maximum number of elements; unbounded by default. */
  maxSpans?: number
}

/** A list of spans: from the byte `starts[i]` up to, not including, `ends[i]`, counted from the body's start. */
export interface SpanList {
  /** May be longer than `count`, as may `ends`. */
  readonly starts: Float64Array
  readonly ends: Float64Array
  readonly count: number
}

export interface Spans extends SpanList {
  /** Whether the member exists and is an array. */
  readonly arrayFound: boolean
  /** The raw JSON text of the member if it is not an array; valid JSON. */
  readonly memberOther: string | undefined
  /** The raw JSON text of all other members of the top level, by name; valid JSON. */
  readonly others: ReadonlyMap<string, string>
  /** Elements of arrays that a later member of the same name replaced: they must be JSON, but are not used. */
  readonly replaced: SpanList
}

/** The role of a value. */
type Role = 'top' | 'name' | 'other' | 'element'
/** The positions between values. */
type PositionName =
  | ('top' | 'firstName' | 'name' | 'colon' | 'value' | 'afterMember' | 'end')
  | ('firstElement' | 'element' | 'afterElement')

interface Position {
  /** The position after each byte. */
  readonly next: ReadonlyMap<number, PositionName>
  /** The role of a value that begins here, if one may. */
  readonly role: Role | undefined
}

const POSITIONS: Readonly<Record<PositionName, Position>> = {
  top: position('top', { '{': 'firstName' }),
  firstName: position('name', { '}': 'end' }),
  name: position('name'),
  colon: position(undefined, { ':': 'value' }),
  value: position('other'),
  afterMember: position(undefined, { ',': 'name', '}': 'end' }),
  firstElement: position('element', { ']': 'afterMember' }),
  element: position('element'),
  afterElement: position(undefined, { ',': 'element', ']': 'afterMember' }),
  end: position(undefined),
}
const AFTER: Readonly<Record<Role, PositionName>> = {
  top: 'end',
  name: 'colon',
  other: 'afterMember',
  element: 'afterElement',
}

/**
 * Finds the spans of the elements of one top-level array. Chunks may be cut anywhere. Every method throws CouchError
 * `invalid_json`, `body_not_object`, `document_too_large`, `bulk_docs_count`, `too_large` or `too_deep`; the scanner
 * cannot be used after an error.
 */
export class SpanScanner {
  readonly #options: SpanOptions
  readonly #walker = new ValueWalker()
  readonly #others = new Map<string, string>()
  readonly #replaced = new GrowingSpans()
  #spans = new GrowingSpans()
  #position: PositionName = 'top'
  /** The role of the value being read, if any. */
  #role: Role | undefined
  #name = ''
  #isObject: boolean = true
  #arrayFound = false
  #memberOther: string | undefined
  /** Bytes pushed before the current chunk. */
  #before = 0
  /** The start of the value being read, in the body. */
  #start = 0
  /** The bytes of the value being read, unless it is an element. */
  #held = Buffer.alloc(256)
  #heldLength = 0
  #otherBytes = 0

  constructor(options: SpanOptions) {
    this.#options = options
  }

  /** @param chunk the next bytes of the body; they are not kept */
  push(chunk: Uint8Array): void {
    const bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength)
    let at = 0
    while (at < bytes.length) {
      if (this.#role !== undefined) at = this.#within(bytes, at, this.#role)
      else at = this.#between(bytes, at)
    }
    this.#before += bytes.length
  }

  /** Returns the result, after the whole body has been pushed. */
  end(): Spans {
    if (this.#role === 'top') this.#finish('top', this.#before)
    if (this.#position !== 'end') throw new CouchError('invalid_json')
    if (!this.#isObject) throw new CouchError('body_not_object')
    const { starts, ends, count } = this.#spans
    const [arrayFound, memberOther] = [this.#arrayFound, this.#memberOther]
    return { starts, ends, count, arrayFound, memberOther, others: this.#others, replaced: this.#replaced }
  }

  /** Reads white space, and one byte that is not part of a value. @returns where to continue */
  #between(bytes: Buffer, start: number): number {
    const length = bytes.length
    let at = start
    let c = bytes[at]!
    while (isSpace(c) && ++at < length) c = bytes[at]!
    return at === length ? at : this.#punctuation(c, at)
  }

  #punctuation(c: number, at: number): number {
    const { next, role } = POSITIONS[this.#position]
    const isWantedArray = role === 'other' && c === OPEN_BRACKET && this.#name === this.#options.member
    const nextPosition = isWantedArray ? 'firstElement' : next.get(c)
    if (isWantedArray) this.#replaceSpans(true, undefined)
    if (nextPosition === undefined) return this.#begin(role, c, at)
    this.#position = nextPosition
    return at + 1
  }

  #begin(role: Role | undefined, c: number, at: number): number {
    if (role === undefined || (role === 'name' && c !== QUOTE)) throw new CouchError('invalid_json')
    this.#role = role
    this.#start = this.#before + at
    this.#heldLength = 0
    this.#walker.begin(c)
    if (role === 'element') this.#checkCount()
    return at
  }

  #checkCount(): void {
    const limit = this.#options.maxSpans
    if (limit !== undefined && this.#spans.count + this.#replaced.count >= limit)
      throw new CouchError('bulk_docs_count', String(limit))
  }

  #within(bytes: Buffer, at: number, role: Role): number {
    const end = this.#walker.walk(bytes, at)
    const length = this.#before + end - this.#start
    if (role !== 'element') this.#hold(bytes.subarray(at, end), role)
    else if (length > this.#options.maxSpan) throw new CouchError('document_too_large')
    if (this.#walker.isDone) this.#finish(role, this.#before + end)
    return end
  }

  #hold(bytes: Buffer, role: Role): void {
    this.#otherBytes += bytes.length
    const isTooMuch = this.#otherBytes > this.#options.maxOther
    if (isTooMuch) throw new CouchError(role === 'top' ? 'body_not_object' : 'too_large')
    const length = this.#heldLength + bytes.length
    if (length > this.#held.length) this.#held = Buffer.concat([this.#held], 2 * length)
    this.#held.set(bytes, this.#heldLength)
    this.#heldLength = length
  }

  #finish(role: Role, end: number): void {
    this.#role = undefined
    this.#position = AFTER[role]
    if (role === 'element') {
      this.#spans.push(this.#start, end)
      return
    }
    const text = decodeUtf8(this.#held.subarray(0, this.#heldLength))
    const value = parseJson(text)
    if (role === 'name') this.#name = String(value)
    else if (role === 'top') this.#isObject = false
    else if (this.#name === this.#options.member) this.#replaceSpans(false, text)
    else this.#others.set(this.#name, text)
  }

  #replaceSpans(arrayFound: boolean, memberOther: string | undefined): void {
    this.#replaced.append(this.#spans)
    if (this.#spans.count > 0) this.#spans = new GrowingSpans()
    this.#arrayFound = arrayFound
    this.#memberOther = memberOther
  }
}

class GrowingSpans implements SpanList {
  starts: Float64Array = new Float64Array(16)
  ends: Float64Array = new Float64Array(16)
  count = 0

  push(start: number, end: number): void {
    if (this.count === this.starts.length) {
      this.starts = grown(this.starts)
      this.ends = grown(this.ends)
    }
    this.starts[this.count] = start
    this.ends[this.count] = end
    this.count += 1
  }

  append(list: SpanList): void {
    for (let i = 0; i < list.count; i += 1) this.push(list.starts[i]!, list.ends[i]!)
  }
}

function grown(array: Float64Array): Float64Array {
  const larger = new Float64Array(2 * array.length)
  larger.set(array)
  return larger
}

function position(role: Role | undefined, next: Record<string, PositionName> = {}): Position {
  return { role, next: new Map(Object.entries(next).map(([byte, name]) => [byte.charCodeAt(0), name])) }
}

/** json-scanner.ts refuses any document with deeper nesting, so reading on is useless. */
const MAX_DEPTH = 2000
/** A string is read byte by byte up to this length. Then a native search, which is slow to start, takes over. */
const NEAR = 32

const COMMA = 0x2c
const COLON = 0x3a
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/**
 * Follows one JSON value to its end, over chunks that may be cut anywhere. For text that is not JSON the end is
 * arbitrary.
 */
class ValueWalker {
  isDone: boolean = false
  #isScalar: boolean = false
  #depth = 0
  #values = 0
  #inString: boolean = false
  /** Whether the last byte so far was a backslash that escapes the next byte. */
  #isEscaped: boolean = false

  /**
   * @param c the value's first byte, which `walk` sees again
   * @throws CouchError `invalid_json` where no value begins with it
   */
  begin(c: number): void {
    if (c === COLON || isScalarEnd(c)) throw new CouchError('invalid_json')
    this.isDone = false
    this.#isScalar = c !== QUOTE && c !== OPEN_BRACE && c !== OPEN_BRACKET
    this.#depth = 0
    this.#values = 0
  }

  /**
   * @param start where in the chunk to continue
   * @returns the index after the value, or the chunk's end if the value continues (see `isDone`)
   * @throws CouchError `too_deep` above 2000 levels, document_too_large for a document of more than 2,000,000 values
   */
  walk(bytes: Buffer, start: number): number {
    if (this.#isScalar) return this.#scalar(bytes, start)
    if (!this.#inString) return this.#nested(bytes, start)
    const at = stringEnd(bytes, this.#isEscaped ? start + 1 : start)
    return at > bytes.length || this.#depth === 0 ? this.#pause(bytes, at) : this.#nested(bytes, at)
  }

  #nested(bytes: Buffer, start: number): number {
    let depth = this.#depth
    let values = this.#values
    let at = start
    while (at < bytes.length) {
      const c = bytes[at]!
      at += 1
      // Only the bit 0x20 differs between [ and {, and between ] and }; parsing checks later whether they match.
      if (c === QUOTE) at = stringEnd(bytes, at)
      else if ((c | 0x20) === OPEN_BRACE) {
        depth += 1
        values += 1
      } else if ((c | 0x20) === CLOSE_BRACE) depth -= 1
      else {
        if (c === COMMA) values += 1
        continue
      }
      if (depth === 0) break
      if (depth > MAX_DEPTH) throw new CouchError('too_deep')
    }
    this.#depth = depth
    this.#values = values
    if (values > MAX_VALUES) throw tooManyValues()
    return this.#pause(bytes, at)
  }

  /** @param at the result of stringEnd, or the index after a bracket or after the chunk */
  #pause(bytes: Buffer, at: number): number {
    this.#inString = at > bytes.length
    this.#isEscaped = at === bytes.length + 2
    this.isDone = this.#depth === 0 && !this.#inString
    return Math.min(at, bytes.length)
  }

  #scalar(bytes: Buffer, start: number): number {
    let at = start
    while (at < bytes.length && !isScalarEnd(bytes[at]!)) at += 1
    this.isDone = at < bytes.length
    return at
  }
}

/**
 * The index after the quote that ends a string. If the string does not end in the chunk: the chunk's length + 1, or +
 * 2 if the chunk's last byte escapes the next chunk's first.
 */
export function stringEnd(bytes: Buffer, start: number): number {
  let at = start
  for (;;) {
    for (const near = Math.min(at + NEAR, bytes.length); at < near; at += 1) {
      const c = bytes[at]!
      if (c === QUOTE) return at + 1
      if (c === BACKSLASH) at += 1
    }
    if (at >= bytes.length) return at + 1
    const quote = bytes.indexOf(QUOTE, at)
    const end = quote < 0 ? bytes.length : quote
    const isEscaped = endsInEscape(bytes, at, end)
    if (quote < 0) return isEscaped ? end + 2 : end + 1
    if (!isEscaped) return end + 1
    at = end + 1
  }
}

function endsInEscape(bytes: Buffer, start: number, end: number): boolean {
  let at = end
  while (at > start && bytes[at - 1] === BACKSLASH) at -= 1
  return (end - at) % 2 === 1
}

/** Whether a byte is white space between tokens, RFC 8259 2. */
function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09
}

function isScalarEnd(c: number): boolean {
  return c === COMMA || c === CLOSE_BRACKET || c === CLOSE_BRACE || isSpace(c)
}
