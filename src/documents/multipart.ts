/**
 * Finds the parts of a multipart body while it streams in (RFC 2046 5.1). Text between and around the parts is skipped.
 * Parts are not read, even if they are multipart themselves.
 */
import { Buffer } from 'node:buffer'
import { CouchError } from '../core/errors.ts'

/** A part: its content is the byte range from `start` up to, not including, `end`, counted from the body's start. */
export interface Part {
  /** Header values by lower-case name; the last one of repeated headers. */
  readonly headers: ReadonlyMap<string, string>
  readonly start: number
  readonly end: number
}

/** CouchDB has no such limits. settee has them because headers stay in memory until the whole body has arrived. */
const MAX_HEADER_BYTES = 16 * 1024
const MAX_PARTS = 10_000
/** RFC 2046 allows 70. */
const MAX_BOUNDARY = 256

const CRLF = Buffer.from('\r\n')
const TAB = 0x09
const LINE_FEED = 0x0a
const RETURN = 0x0d
const SPACE = 0x20
const DASH = 0x2d
const NONE = Buffer.alloc(0)

/**
 * What the next byte belongs to. `text` is the preamble or a part's content, in which the scanner searches for a
 * delimiter. The next three are states in a line that began as a delimiter: after the boundary, after its first dash,
 * and after its carriage return.
 */
type State = 'text' | 'boundary' | 'dash' | 'return' | 'headers' | 'epilogue'

/**
 * Finds the parts of one body. Slices may be cut anywhere. Every method throws CouchError `bad_request`; the scanner
 * cannot be used after an error.
 *
 * A line that begins with the boundary and continues with anything but white space is content: the boundary `x` does
 * not end a part at the line `--xy`. A delimiter may directly follow the empty line that ends the headers.
 */
export class MultipartScanner {
  readonly #delimiter: Buffer
  readonly #parts: Part[] = []
  readonly #header = Buffer.alloc(MAX_HEADER_BYTES)
  #headerLength = 0
  /** The part whose content is being read; null in the preamble. */
  #open: Omit<Part, 'end'> | null = null
  #state: State = 'text'
  /**
   * The last bytes of the text so far, which may begin a delimiter. The start of the body counts as the start of a
   * line.
   */
  #tail: Buffer = CRLF
  /** The start of the delimiter that is being read. */
  #delimiterStart = 0
  /** Bytes pushed before the current slice. */
  #before = 0

  /** @throws bad_request for an invalid boundary */
  constructor(boundary: string) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what no boundary may hold
    if (boundary === '' || boundary.length > MAX_BOUNDARY || /[\u0000-\u001f\u007f]/.test(boundary)) {
      throw new CouchError('bad_request', 'The multipart boundary is missing or invalid.')
    }
    this.#delimiter = Buffer.from(`\r\n--${boundary}`)
  }

  /** @param slice the next bytes of the body; they are not kept */
  push(slice: Uint8Array): void {
    const bytes = Buffer.from(slice.buffer, slice.byteOffset, slice.byteLength)
    let at = 0
    while (at < bytes.length) at = this.#step(bytes, at)
    this.#before += bytes.length
  }

  /** Returns the parts in their order, after the whole body has been pushed. */
  end(): readonly Part[] {
    if (this.#state === 'epilogue') return this.#parts
    throw new CouchError('bad_request', 'The multipart body ends before its last boundary.')
  }

  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case 'text':
        return this.#text(bytes, at)
      case 'headers':
        return this.#headers(bytes, at)
      case 'epilogue':
        return bytes.length
      default:
        return this.#line(bytes[at] as number, at, this.#state)
    }
  }

  /** Searches for the next delimiter. @returns where to continue: after it, or at the slice's end */
  #text(bytes: Buffer, at: number): number {
    const { length } = this.#delimiter
    const seam = Buffer.concat([this.#tail, bytes.subarray(at, at + length - 1)])
    const inSeam = seam.indexOf(this.#delimiter)
    if (inSeam !== -1) return this.#foundDelimiter(at - this.#tail.length + inSeam)
    const found = bytes.indexOf(this.#delimiter, at)
    if (found !== -1) return this.#foundDelimiter(found)
    const rest = bytes.length - at < length ? seam : bytes
    this.#tail = Buffer.from(rest.subarray(Math.max(0, rest.length - length + 1)))
    return bytes.length
  }

  #foundDelimiter(at: number): number {
    this.#delimiterStart = this.#before + at
    this.#state = 'boundary'
    this.#tail = NONE
    return at + this.#delimiter.length
  }

  /** Reads one byte of a line that began as a delimiter. */
  #line(byte: number, at: number, state: 'boundary' | 'dash' | 'return'): number {
    if (state === 'boundary') {
      if (byte === RETURN) this.#state = 'return'
      else if (byte === DASH && this.#before + at === this.#delimiterStart + this.#delimiter.length) {
        this.#state = 'dash'
      } else if (byte !== SPACE && byte !== TAB) return this.#backToText(at)
      return at + 1
    }
    if (byte !== (state === 'dash' ? DASH : LINE_FEED)) return this.#backToText(at)
    this.#closePart()
    this.#state = state === 'dash' ? 'epilogue' : 'headers'
    return at + 1
  }

  /** The line is not a delimiter, and none of its bytes can begin another. */
  #backToText(at: number): number {
    this.#state = 'text'
    return at
  }

  #closePart(): void {
    if (this.#open === null) return
    if (this.#parts.length === MAX_PARTS) {
      throw new CouchError('bad_request', `The multipart body has more than ${MAX_PARTS} parts.`)
    }
    const { start } = this.#open
    this.#parts.push({ ...this.#open, end: Math.max(start, this.#delimiterStart) })
    this.#open = null
  }

  /** Reads header lines up to the empty line. */
  #headers(bytes: Buffer, start: number): number {
    let at = start
    while (at < bytes.length) {
      if (this.#headerLength === MAX_HEADER_BYTES) {
        throw new CouchError('bad_request', 'The headers of a part of the multipart body are too long.')
      }
      const byte = bytes[at++] as number
      this.#header[this.#headerLength++] = byte
      if (byte === LINE_FEED && this.#headersEnd()) {
        this.#open = {
          headers: parseHeaders(this.#header.toString('utf8', 0, this.#headerLength)),
          start: this.#before + at,
        }
        this.#headerLength = 0
        this.#state = 'text'
        this.#tail = CRLF
        return at
      }
    }
    return at
  }

  #headersEnd(): boolean {
    const end = this.#header.subarray(Math.max(0, this.#headerLength - 4), this.#headerLength)
    return end.equals(CRLF) || end.equals(Buffer.from('\r\n\r\n'))
  }
}

/** @param text header lines, each with its end, and the empty line */
function parseHeaders(text: string): Map<string, string> {
  const headers = new Map<string, string>()
  let last = ''
  for (const line of text.split('\r\n')) {
    if (line === '') continue
    if (line.startsWith(' ') || line.startsWith('\t')) {
      headers.set(last, `${headers.get(last) ?? ''} ${line.trim()}`)
      continue
    }
    const colon = line.indexOf(':')
    if (colon < 1) throw new CouchError('bad_request', 'A header in the multipart body is invalid.')
    last = line.slice(0, colon).trim().toLowerCase()
    headers.set(last, line.slice(colon + 1).trim())
  }
  return headers
}

const PARAMETER = /;\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))/g

/**
 * A parameter of a header such as `multipart/related; boundary="x"`, unquoted (RFC 2045 5.1, RFC 2183 2).
 * @param name in lower case
 * @returns undefined without the parameter
 */
export function headerParameter(value: string, name: string): string | undefined {
  for (const [, found = '', quoted, token] of value.matchAll(PARAMETER)) {
    if (found.toLowerCase() === name) return quoted?.replace(/\\(.)/g, '$1') ?? token
  }
  return undefined
}
