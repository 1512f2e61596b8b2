/**
 * Where the documents lie in the body of a bulk request, found while it streams in: no string is ever made of more
 * than one of them (architecture.md, "Bodies"). Inside a value only strings and brackets are followed, since each is parsed by
 * itself later; all between them is checked here. So a body is JSON if and only if it is accepted here and each of
 * its elements is JSON.
 */
import { Buffer } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { decodeUtf8, parseJson } from './body.ts'
import { isSpace, ValueWalker } from './value-walker.ts'

const QUOTE = 0x22
const OPEN_BRACKET = 0x5b

export interface SpanOptions {
  /** Name of the top-level array whose elements are wanted, such as `docs`. */
  member: string
  /** The longest element, in bytes. */
  maxSpan: number
  /** How long all other members may be together, names and values, in bytes. */
  maxOther: number
  /** How many elements there may be; as many as come if absent. */
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
  /** Whether the member is there and an array. */
  readonly arrayFound: boolean
  /** The raw JSON text of the member when it is no array; known to be valid. */
  readonly memberOther: string | undefined
  /** The raw JSON text of all other members of the top level, by name; known to be valid. */
  readonly others: ReadonlyMap<string, string>
  /** Elements of arrays that a later member of the same name replaced: they must be JSON, and are not used. */
  readonly replaced: SpanList
}

/** What a value is. */
type Role = 'top' | 'name' | 'other' | 'element'
/** Where one can be between values. */
type PlaceName =
  | ('top' | 'firstName' | 'name' | 'colon' | 'value' | 'afterMember' | 'end')
  | ('firstElement' | 'element' | 'afterElement')

interface Place {
  /** Where a byte leads. */
  readonly next: ReadonlyMap<number, PlaceName>
  /** What a value is that begins here, if one may. */
  readonly role: Role | undefined
}

const PLACES: Readonly<Record<PlaceName, Place>> = {
  top: place('top', { '{': 'firstName' }),
  firstName: place('name', { '}': 'end' }),
  name: place('name'),
  colon: place(undefined, { ':': 'value' }),
  value: place('other'),
  afterMember: place(undefined, { ',': 'name', '}': 'end' }),
  firstElement: place('element', { ']': 'afterMember' }),
  element: place('element'),
  afterElement: place(undefined, { ',': 'element', ']': 'afterMember' }),
  end: place(undefined),
}
const AFTER: Readonly<Record<Role, PlaceName>> = {
  top: 'end',
  name: 'colon',
  other: 'afterMember',
  element: 'afterElement',
}

/**
 * Finds the spans of the elements of one top-level array. Chunks may be cut anywhere; every method throws CouchError
 * `invalid_json`, `body_not_object`, `document_too_large`, `bulk_docs_count`, `too_large` or `too_deep`, after which the scanner is of
 * no more use.
 */
export class SpanScanner {
  readonly #options: SpanOptions
  readonly #walker = new ValueWalker()
  readonly #others = new Map<string, string>()
  readonly #replaced = new GrowingSpans()
  #spans = new GrowingSpans()
  #place: PlaceName = 'top'
  /** The value being read, if any. */
  #role: Role | undefined
  #name = ''
  #isObject: boolean = true
  #arrayFound = false
  #memberOther: string | undefined
  /** Bytes pushed before the present chunk. */
  #before = 0
  /** Where the value being read begins in the body. */
  #start = 0
  /** What has come of the value being read, unless it is an element. */
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

  /** What was found, once the whole body has been pushed. */
  end(): Spans {
    if (this.#role === 'top') this.#finish('top', this.#before)
    if (this.#place !== 'end') throw new CouchError('invalid_json')
    if (!this.#isObject) throw new CouchError('body_not_object')
    const { starts, ends, count } = this.#spans
    const [arrayFound, memberOther] = [this.#arrayFound, this.#memberOther]
    return { starts, ends, count, arrayFound, memberOther, others: this.#others, replaced: this.#replaced }
  }

  /** Takes white space, and one byte that is not part of a value; tells where to go on. */
  #between(bytes: Buffer, start: number): number {
    const length = bytes.length
    let at = start
    let c = bytes[at]!
    while (isSpace(c) && ++at < length) c = bytes[at]!
    return at === length ? at : this.#punctuation(c, at)
  }

  #punctuation(c: number, at: number): number {
    const { next, role } = PLACES[this.#place]
    const isWantedArray = role === 'other' && c === OPEN_BRACKET && this.#name === this.#options.member
    const nextPlace = isWantedArray ? 'firstElement' : next.get(c)
    if (isWantedArray) this.#replaceSpans(true, undefined)
    if (nextPlace === undefined) return this.#begin(role, c, at)
    this.#place = nextPlace
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
    this.#place = AFTER[role]
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

function place(role: Role | undefined, next: Record<string, PlaceName> = {}): Place {
  return { role, next: new Map(Object.entries(next).map(([byte, name]) => [byte.charCodeAt(0), name])) }
}
