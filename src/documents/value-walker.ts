/**
 * Finds where a JSON value ends in bytes that come in chunks. Only strings and the depth of brackets are followed: a
 * text that is no JSON may get any end, one that is gets the right one.
 */
import type { Buffer } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { MAX_VALUES, tooManyValues } from './json-scanner.ts'

/** Nothing nested deeper is accepted of any document (json-scanner.ts), so there is no use in reading on. */
const MAX_DEPTH = 2000
/** A string is looked at byte by byte for so long before a native search, slow to start, takes over. */
const NEAR = 32

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/** Follows one JSON value to its end, over chunks that may be cut anywhere. */
export class ValueWalker {
  isDone: boolean = false
  #isScalar: boolean = false
  #depth = 0
  #values = 0
  #inString: boolean = false
  /** Whether the last byte so far was a backslash that takes the next byte's meaning. */
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
   * @param start where in the chunk to go on
   * @returns the index behind the value, or behind the chunk if the value goes on (`isDone` tells)
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
      // The bit 0x20 is all that divides [ from { and ] from }; whether they match is seen when the value is parsed.
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

  /** @param at what stringEnd gave, or the index behind a bracket or behind the chunk */
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
 * Index behind the quote that ends a string; the chunk's length and 1 if it does not end in it, and 2 if, besides,
 * the chunk's last byte escapes the next chunk's first.
 */
function stringEnd(bytes: Buffer, start: number): number {
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
export function isSpace(c: number): boolean {
  return c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09
}

function isScalarEnd(c: number): boolean {
  return c === COMMA || c === CLOSE_BRACKET || c === CLOSE_BRACE || isSpace(c)
}
