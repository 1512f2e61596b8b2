/** Answers of texts and of stored contents between them, put together while they are sent. */
import { scanBytes } from '../core/outgoing.ts'
import { encodeTexts } from '../core/utf8.ts'
import type { AttachmentAnswer } from './database.ts'
import { base64Length, base64Of, inflated, type ReadContent } from './stored-content.ts'

export type Piece = string | Uint8Array | ContentPiece

/** A stored content, or a stretch of its stored bytes. */
export interface ContentPiece {
  readonly content: AttachmentAnswer
  /** `decoded` and `base64` undo its coding. */
  readonly form: 'stored' | 'decoded' | 'base64'
  /** Offsets in the stored bytes, `end` not included; with the form `stored` alone. Absent: all of them. */
  readonly range?: { readonly start: number; readonly end: number }
}

/** Short pieces are gathered into chunks of about so many bytes: smaller ones where others wait (core/outgoing.ts). */
const CHUNK_BYTES = 256 * 1024

/** How many bytes pieces come to. */
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
 * The bytes of pieces, in chunks neither tiny nor larger than a piece or a step of a content.
 * @throws what `read` throws, such as no_attachment
 */
export async function* pieceChunks(
  pieces: Iterable<Piece> | AsyncIterable<Piece>,
  read: ReadContent,
): AsyncGenerator<Uint8Array> {
  const gathered = new Gathering()
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

/** Short pieces on their way into one chunk. */
export class Gathering {
  #parts: Uint8Array[] = []
  /** Behind the parts. */
  #texts: string[] = []
  #length = 0

  /** Whether there is enough now for a chunk. */
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

  /** What was added since the last time. */
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
