/**
 * Where the parts lie in a multipart body, found while it streams in (RFC 2046 5.1). What is between them and around
 * them is left out, and no part is looked into: that a part is itself multipart is nobody's business here.
 */
import { Buffer } from 'node:buffer'
import { CouchError } from '../core/errors.ts'

/** A part: its content goes from the byte `start` up to, not including, `end`, counted from the body's start. */
export interface Part {
  /** By name in lower case; of a repeated one the last. */
  readonly headers: ReadonlyMap<string, string>
  readonly start: number
  readonly end: number
}

/** Ours: CouchDB sets no bounds, but these are held in memory until the whole body has come. */
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
 * In what a byte lies: `text` is the preamble or a part's content, in which a delimiter is looked for; the next three
 * are of a line that has begun as a delimiter, behind the boundary, behind its first dash, and behind its return.
 */
type Place = 'text' | 'boundary' | 'dash' | 'return' | 'headers' | 'epilogue'

/**
 * Finds the parts of one body. Slices may be cut anywhere; every method throws CouchError `bad_request`, after which
 * the scanner is of no more use.
 *
 * A line that begins with the boundary and goes on with anything but white space is content: so the boundary `x` does
 * not end a part at a line `--xy`. A delimiter may stand right behind the empty line that ends the headers.
 */
export class MultipartScanner {
  readonly #delimiter: Buffer
  readonly #parts: Part[] = []
  readonly #header = Buffer.alloc(MAX_HEADER_BYTES)
  #headerLength = 0
  /** The part whose content is being read; null in the preamble. */
  #open: Omit<Part, 'end'> | null = null
  #place: Place = 'text'
  /** The last bytes of the text so far that may begin a delimiter. The body's start counts as a line's. */
  #tail: Buffer = CRLF
  /** Where the delimiter that is being read begins. */
  #delimiterStart = 0
  /** Bytes pushed before the present slice. */
  #before = 0

  /** @throws bad_request for what cannot be a boundary */
  constructor(boundary: string) {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what no boundary may hold
    if (boundary === '' || boundary.length > MAX_BOUNDARY || /[\u0000-\u001f\u007f]/.test(boundary)) {
      throw new CouchError('bad_request', 'The multipart boundary is missing, or is none.')
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

  /** The parts in their order, once the whole body has been pushed. */
  end(): readonly Part[] {
    if (this.#place === 'epilogue') return this.#parts
    throw new CouchError('bad_request', 'The multipart body ends before its last boundary.')
  }

  #step(bytes: Buffer, at: number): number {
    switch (this.#place) {
      case 'text':
        return this.#text(bytes, at)
      case 'headers':
        return this.#headers(bytes, at)
      case 'epilogue':
        return bytes.length
      default:
        return this.#line(bytes[at] as number, at, this.#place)
    }
  }

  /** Looks for the next delimiter; tells where to go on behind it, or at the slice's end. */
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
    this.#place = 'boundary'
    this.#tail = NONE
    return at + this.#delimiter.length
  }

  /** One byte of a line that has begun as a delimiter. */
  #line(byte: number, at: number, place: 'boundary' | 'dash' | 'return'): number {
    if (place === 'boundary') {
      if (byte === RETURN) this.#place = 'return'
      else if (byte === DASH && this.#before + at === this.#delimiterStart + this.#delimiter.length) {
        this.#place = 'dash'
      } else if (byte !== SPACE && byte !== TAB) return this.#backToText(at)
      return at + 1
    }
    if (byte !== (place === 'dash' ? DASH : LINE_FEED)) return this.#backToText(at)
    this.#closePart()
    this.#place = place === 'dash' ? 'epilogue' : 'headers'
    return at + 1
  }

  /** It was no delimiter: none of its bytes can begin another. */
  #backToText(at: number): number {
    this.#place = 'text'
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

  /** Takes header lines up to the empty one. */
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
        this.#place = 'text'
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

/** @param text header lines, each with its end, and the empty one */
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
    if (colon < 1) throw new CouchError('bad_request', 'A header in the multipart body is none.')
    last = line.slice(0, colon).trim().toLowerCase()
    headers.set(last, line.slice(colon + 1).trim())
  }
  return headers
}

const PARAMETER = /;\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s"]*))/g

/**
 * A parameter of a header such as `multipart/related; boundary="x"`, unquoted (RFC 2045 5.1, RFC 2183 2).
 * @param name in lower case
 * @returns undefined when it is not there
 */
export function headerParameter(value: string, name: string): string | undefined {
  for (const [, found = '', quoted, token] of value.matchAll(PARAMETER)) {
    if (found.toLowerCase() === name) return quoted?.replace(/\\(.)/g, '$1') ?? token
  }
  return undefined
}
