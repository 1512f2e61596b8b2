/**
 * Cuts a JSON answer into its parts while it streams in, so that no answer is parsed as a whole and documents keep their
 * text as the source sent it (architecture.md, "Bodies").
 */
import { Buffer } from 'node:buffer'
import { Yielder } from '../core/event-loop.ts'
import { MAX_JSON_DEPTH } from '../core/json.ts'
import { PeerError } from './peer-error.ts'

/** The deepest document, and the row of a list around it. */
const MAX_DEPTH = MAX_JSON_DEPTH + 8

/** An element of an array, or the value of a member. */
export interface JsonPart {
  /** The name of the member, or of the array's member; null for elements of an array that is the whole answer. */
  readonly member: string | null
  /** JSON text; or {@link TOO_LONG}. */
  readonly bytes: Buffer
}

/** In place of a part that is longer than {@link JsonPartsOptions.skipsAbove}. */
export const TOO_LONG: Buffer = Buffer.alloc(0)

const QUOTE = 0x22
const BACKSLASH = 0x5c
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_LIST = 0x5b
const CLOSE_LIST = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d

const NONE: ReadonlySet<string> = new Set()

interface JsonPartsOptions {
  /** Members whose arrays are cut into elements. */
  readonly lists?: ReadonlySet<string>
  /** The most bytes of one part. */
  readonly maxPart?: number
  /** Of a part with more bytes none is kept. */
  readonly skipsAbove?: number
  /** The most levels of one part. */
  readonly maxDepth?: number
}

const MAX_PART = 128 * 1024 * 1024
/** The most bytes of one part that is parsed: JSON.parse takes up to 40 ms for them. */
const MAX_PARSED = 1024 * 1024

/** Finds the parts of one JSON text that comes in slices. The parts themselves are not checked. */
export class JsonParts {
  readonly #lists: ReadonlySet<string>
  readonly #maxPart: number
  readonly #skipsAbove: number
  readonly #maxDepth: number
  /** The top-level container: its closing byte; 0 before it begins, -1 after its end. */
  #closes = 0
  /** The member whose array is being cut. */
  #list: string | null = null
  /** The name of the current member, once it has been read. */
  #name: string | null = null
  #isAfterName = false
  /** Bytes of the current part from earlier slices. */
  #pieces: Buffer[] = []
  #pieceBytes = 0
  #isInPart = false
  #isScalar = false
  /** Open containers within the part. */
  #depth = 0
  #isInString = false
  #isEscaped = false

  constructor({
    lists = NONE,
    maxPart = MAX_PART,
    skipsAbove = Number.POSITIVE_INFINITY,
    maxDepth = Number.POSITIVE_INFINITY,
  }: JsonPartsOptions = {}) {
    this.#lists = lists
    this.#maxPart = maxPart
    this.#skipsAbove = skipsAbove
    this.#maxDepth = maxDepth
  }

  /**
   * @param slice the next bytes; parts may refer to them
   * @returns the parts that end in this slice
   * @throws PeerError for a text that is not JSON, or a part that is too long
   */
  push(slice: Uint8Array): JsonPart[] {
    const bytes = Buffer.from(slice.buffer, slice.byteOffset, slice.byteLength)
    const found: JsonPart[] = []
    let start = this.#isInPart ? 0 : -1
    let at = 0
    while (at < bytes.length) {
      if (this.#isInPart) {
        const end = this.#endOfPart(bytes, at)
        if (end === -1) break
        this.#finish(bytes.subarray(start, end), found)
        start = -1
        at = end
      } else {
        const begins = this.#between(bytes[at] as number)
        if (begins) start = at
        else at += 1
      }
    }
    if (this.#isInPart) this.#keep(bytes.subarray(start))
    return found
  }

  /** @throws PeerError if the text has not ended */
  end(): void {
    if (this.#closes !== -1) throw invalidJson('the answer ended before it was complete')
  }

  #keep(bytes: Buffer): void {
    this.#pieceBytes += bytes.length
    if (this.#pieceBytes > this.#maxPart) throw tooLong(this.#maxPart)
    if (this.#pieceBytes > this.#skipsAbove) this.#pieces = []
    else this.#pieces.push(bytes)
  }

  /** Handles a byte between parts. @returns whether a part begins with it */
  #between(byte: number): boolean {
    if (byte <= 0x20 || byte === COMMA) return false
    if (this.#closes === 0) {
      if (byte !== OPEN_OBJECT && byte !== OPEN_LIST) throw invalidJson('the answer is not JSON')
      this.#closes = byte + 2
      return false
    }
    if (this.#closes === -1) throw invalidJson('the answer has text after its end')
    if (this.#list !== null && byte === CLOSE_LIST) {
      this.#list = null
      this.#name = null
      return false
    }
    if (this.#list === null) {
      if (byte === this.#closes) {
        this.#closes = -1
        return false
      }
      if (byte === COLON && this.#name !== null && !this.#isAfterName) {
        this.#isAfterName = true
        return false
      }
      if (byte === OPEN_LIST && this.#isAfterName && this.#lists.has(this.#name as string)) {
        this.#list = this.#name
        this.#isAfterName = false
        return false
      }
    }
    this.#begin(byte)
    return true
  }

  #begin(byte: number): void {
    this.#isInPart = true
    this.#isScalar = byte !== OPEN_OBJECT && byte !== OPEN_LIST && byte !== QUOTE
    this.#depth = 0
    this.#isInString = false
    this.#isEscaped = false
  }

  /** @returns the end of the part; -1 if it goes on in the next slice */
  #endOfPart(bytes: Buffer, from: number): number {
    let at = from
    while (at < bytes.length) {
      if (this.#isInString) {
        const end = this.#endOfString(bytes, at)
        if (end === -1) return -1
        at = end
        if (this.#depth === 0) return at
        continue
      }
      const byte = bytes[at] as number
      if (byte === QUOTE) {
        this.#isInString = true
      } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
        this.#depth += 1
        if (this.#depth > this.#maxDepth) throw tooDeep()
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) {
        if (this.#isScalar) return at
        this.#depth -= 1
        if (this.#depth === 0) return at + 1
      } else if (this.#isScalar && (byte <= 0x20 || byte === COMMA)) {
        return at
      }
      at += 1
    }
    return -1
  }

  /** @returns the position after the closing quote; -1 if it is not in these bytes */
  #endOfString(bytes: Buffer, from: number): number {
    let at = from
    if (this.#isEscaped) {
      this.#isEscaped = false
      at += 1
    }
    for (;;) {
      const quote = bytes.indexOf(QUOTE, at)
      const end = quote === -1 ? bytes.length : quote
      let slashes = 0
      while (end - slashes > at && bytes[end - slashes - 1] === BACKSLASH) slashes += 1
      const isEscaped = slashes % 2 === 1
      if (quote === -1) {
        this.#isEscaped = isEscaped
        return -1
      }
      at = quote + 1
      if (!isEscaped) {
        this.#isInString = false
        return at
      }
    }
  }

  #finish(last: Buffer, found: JsonPart[]): void {
    this.#isInPart = false
    const isSkipped = this.#pieceBytes + last.length > this.#skipsAbove
    const bytes = isSkipped ? TOO_LONG : joined([...this.#pieces, last])
    this.#pieces = []
    this.#pieceBytes = 0
    if (this.#list !== null || this.#closes === CLOSE_LIST) {
      found.push({ member: this.#list, bytes })
    } else if (this.#isAfterName) {
      found.push({ member: this.#name, bytes })
      this.#name = null
      this.#isAfterName = false
    } else {
      const name = parsed<unknown>(bytes)
      if (typeof name !== 'string') throw invalidJson('the answer is not JSON')
      this.#name = name
    }
  }
}

/** One buffer of several, without a copy if they lie side by side, as the slices of a text in memory do. */
function joined(pieces: readonly Buffer[]): Buffer {
  const [first] = pieces as [Buffer]
  let end = first.byteOffset
  for (const { buffer, byteOffset, length } of pieces) {
    if (buffer !== first.buffer || byteOffset !== end) return Buffer.concat(pieces)
    end += length
  }
  return Buffer.from(first.buffer, first.byteOffset, end - first.byteOffset)
}

/**
 * Cuts an answer that streams in.
 * @throws PeerError as {@link JsonParts}; what the chunks throw
 */
export async function* jsonParts(
  chunks: AsyncIterable<Uint8Array>,
  options?: JsonPartsOptions,
): AsyncGenerator<JsonPart> {
  const scanner = new JsonParts(options)
  const yielder = new Yielder()
  for await (const chunk of chunks) {
    for (const part of scanner.push(chunk)) {
      yield part
      if (yielder.isDue) await yielder.yieldNow()
    }
    if (yielder.isDue) await yielder.yieldNow()
  }
  scanner.end()
}

/** Bytes that are scanned at once: at most 5 ms. */
const SLICE = 256 * 1024

/** The parts of a JSON text in memory, which may be long: found in slices. @throws PeerError */
export async function* partsIn(bytes: Buffer, options?: JsonPartsOptions): AsyncGenerator<JsonPart> {
  if (bytes.length <= SLICE) yield* partsOf(bytes, options)
  else yield* jsonParts(slicesOf(bytes), options)
}

/** The first member of that name in a JSON text, which may be long; null if there is none. @throws PeerError */
export async function memberIn(bytes: Buffer, name: string): Promise<Buffer | null> {
  for await (const part of partsIn(bytes)) if (part.member === name) return part.bytes
  return null
}

export const NULL = Buffer.from('null')

async function* slicesOf(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += SLICE) yield bytes.subarray(at, at + SLICE)
}

/** The parts of a short JSON text in memory. @throws PeerError */
export function partsOf(bytes: Uint8Array, options?: JsonPartsOptions): readonly JsonPart[] {
  const scanner = new JsonParts(options)
  const parts = scanner.push(bytes)
  scanner.end()
  return parts
}

/**
 * Parses one part.
 * @throws PeerError if it is not JSON, has more than 1 MB, or is nested deeper than {@link MAX_DEPTH}
 */
export function parsed<T>(bytes: Uint8Array): T {
  if (bytes.length > MAX_PARSED) throw tooLong(MAX_PARSED)
  // JSON.parse takes ten times as long for nested lists as for others, and whatever recurses over them fails.
  if (bytes.length > MAX_DEPTH) requireShallow(bytes)
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()) as T
  } catch {
    throw invalidJson('the answer is not JSON')
  }
}

const LIST = Buffer.from([OPEN_LIST])

function requireShallow(bytes: Uint8Array): void {
  const scanner = new JsonParts({ maxDepth: MAX_DEPTH })
  scanner.push(LIST)
  scanner.push(bytes)
}

function tooLong(bytes: number): PeerError {
  return new PeerError('invalid_answer', `a part of the answer has more than ${bytes} bytes`)
}

function tooDeep(): PeerError {
  return new PeerError('invalid_answer', `the answer is nested deeper than ${MAX_DEPTH} levels`)
}

function invalidJson(reason: string): PeerError {
  return new PeerError('invalid_json', reason)
}
