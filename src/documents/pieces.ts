/**
 * Assembles answers from texts and stored contents while they are sent, also as multipart/related (protocol.md 7.3) and
 * multipart/mixed (3.2, 4.2).
 */
import { randomBytes } from 'node:crypto'
import { encodeTexts, scanBytes } from '../core/bytes.ts'
import type { AttachmentAnswer, AttachmentPart, OpenedParts } from './database.ts'
import type { RenderedDocument } from './render.ts'
import { base64Length, base64Of, inflated, type ReadContent } from './stored-content.ts'

export type Piece = string | Uint8Array | ContentPiece

/** A stored content, or a range of its stored bytes. */
interface ContentPiece {
  readonly content: AttachmentAnswer
  /** `decoded` and `base64` inflate it. */
  readonly form: 'stored' | 'decoded' | 'base64'
  /** Offsets in the stored bytes, `end` not included; only with the form `stored`. All bytes by default. */
  readonly range?: { readonly start: number; readonly end: number }
}

/**
 * Short pieces are joined to chunks of about this size; chunks are smaller while many unsent bytes wait
 * (core/bytes.ts).
 */
const CHUNK_BYTES = 256 * 1024

/** The total length of pieces in bytes. */
export function piecesLength(pieces: Iterable<Piece>): number {
  let length = 0
  for (const piece of pieces) length += pieceLength(piece)
  return length
}

function pieceLength(piece: Piece): number {
  if (typeof piece === 'string') return Buffer.byteLength(piece)
  if (piece instanceof Uint8Array) return piece.length
  const { content, form, range } = piece
  if (form === 'base64') return base64Length(content.length)
  if (form === 'decoded') return content.length
  return range === undefined ? content.storedLength : range.end - range.start
}

/**
 * Encodes pieces in chunks that are neither tiny nor larger than a piece or a step of a content.
 * @throws the errors of `read`, such as no_attachment
 */
export async function* pieceChunks(
  pieces: Iterable<Piece> | AsyncIterable<Piece>,
  read: ReadContent,
): AsyncGenerator<Uint8Array> {
  const gathered = new ChunkBuffer()
  for await (const piece of pieces) {
    if (typeof piece === 'string' || piece instanceof Uint8Array) {
      gathered.add(piece)
      if (gathered.isLarge) yield gathered.take()
      continue
    }
    for await (const bytes of contentBytes(piece, read)) {
      gathered.add(bytes)
      if (gathered.isLarge) yield gathered.take()
    }
  }
  const last = gathered.take()
  if (last.length > 0) yield last
}

function contentBytes({ content, form, range }: ContentPiece, read: ReadContent): AsyncIterable<Uint8Array> {
  const { start, end } = range ?? { start: 0, end: content.storedLength }
  const stored = read(content, start, end)
  if (form === 'stored') return stored
  const decoded = content.encoding === 'gzip' ? inflated(stored, content.length) : stored
  return form === 'base64' ? base64Of(decoded) : decoded
}

/** Joins short pieces to a chunk. */
export class ChunkBuffer {
  #parts: Uint8Array[] = []
  /** Texts not yet encoded; they follow the parts. */
  #texts: string[] = []
  #length = 0

  /** Whether there are enough bytes for a chunk. */
  get isLarge(): boolean {
    return this.#length >= scanBytes(CHUNK_BYTES)
  }

  add(piece: string | Uint8Array): void {
    if (typeof piece === 'string') this.#texts.push(piece)
    else {
      this.#flushTexts()
      this.#parts.push(piece)
    }
    this.#length += piece.length
  }

  /** Returns the bytes added since the last call. */
  take(): Uint8Array {
    this.#flushTexts()
    const chunk = this.#parts.length === 1 ? (this.#parts[0] as Uint8Array) : Buffer.concat(this.#parts)
    this.#parts = []
    this.#length = 0
    return chunk
  }

  #flushTexts(): void {
    if (this.#texts.length > 0) this.#parts.push(encodeTexts(this.#texts))
    this.#texts = []
  }
}

/** Multipart answers always contain contents and their encodings, as in CouchDB. */
export const MULTIPART_OPTIONS = { attachments: true, attEncodingInfo: true }

/** A boundary of 32 random hex digits, so that contents cannot contain it. */
export function newBoundary(): string {
  return randomBytes(16).toString('hex')
}

/**
 * A document with its attachments after it, byte for byte as CouchDB frames it.
 * @param json the document's JSON, whose attachments say `follows`
 * @param parts in the order of the JSON; their bytes are sent as stored
 */
export function relatedPieces(
  json: string | Uint8Array,
  parts: readonly AttachmentPart[],
  boundary: string,
): Piece[] {
  const between = `\r\n--${boundary}`
  return [
    `--${boundary}\r\nContent-Type: application/json\r\n\r\n`,
    json,
    between,
    ...parts.flatMap((part): Piece[] => [partHeader(part), { content: part, form: 'stored' }, between]),
    '--',
  ]
}

/** A document as a part of multipart/mixed, without the delimiters around it; protocol.md 3.2 and 4.2. */
export function documentPart(
  document: RenderedDocument,
  relatedHeader: (boundary: string) => string,
): Piece[] {
  const json = document.texts.join('')
  if (document.contents.length === 0) return ['\r\nContent-Type: application/json\r\n\r\n', json]
  const inner = newBoundary()
  return [`\r\n${relatedHeader(inner)}\r\n\r\n`, ...relatedPieces(json, document.contents, inner)]
}

/** An error as a part of multipart/mixed, without the delimiters around it. */
export function errorPart(error: object): string {
  return `\r\nContent-Type: application/json; error="true"\r\n\r\n${JSON.stringify(error)}`
}

function partHeader({ name, type, storedLength, encoding }: AttachmentPart): string {
  const coding = encoding === null ? '' : `Content-Encoding: ${encoding}\r\n`
  return (
    `\r\nContent-Disposition: attachment; filename="${headerSafe(name).replaceAll('"', '%22')}"\r\n` +
    `Content-Type: ${headerType(type)}\r\nContent-Length: ${storedLength}\r\n${coding}\r\n`
  )
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what must not stand in a header
const CONTROL = /[\0-\x1f\x7f]/g

/**
 * Escapes a text for the header of a part. Control characters are percent-encoded (`%0D`), as in HTML's
 * multipart/form-data, which also escapes quotes. Characters outside ASCII are unchanged, as in CouchDB.
 */
export function headerSafe(text: string): string {
  return text.replace(
    CONTROL,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`,
  )
}

/** An attachment's type if it fits into the header of a part. */
function headerType(type: string): string {
  return type === '' || headerSafe(type) !== type ? 'application/octet-stream' : type
}

/** Joins a document's JSON with its attachments' contents as base64. */
export function inlinePieces({ texts, contents }: RenderedDocument): Piece[] {
  return texts.flatMap((text, at): Piece[] => {
    const content = contents[at]
    return content === undefined ? [text] : [text, { content, form: 'base64' }]
  })
}

/** As {@link inlinePieces}, for a document whose JSON is in bytes, with holes for the contents. */
export function filledPieces({ json, holes, parts }: OpenedParts): Piece[] {
  return [...holes, json.length].flatMap((end, at): Piece[] => {
    const text = json.subarray(at === 0 ? 0 : holes[at - 1], end)
    const content = parts[at]
    return content === undefined ? [text] : [text, { content, form: 'base64' }]
  })
}
