/** Refuses documents that are too large before their text is decoded, which for 100 MB blocks a thread for 0.1 s. */
import { Buffer } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { Limits } from '../core/types.ts'
import { stringEnd } from './spans.ts'

/** What the members that the size does not count may have besides the contents of attachments, in bytes. */
const OVERHEAD = 1024 * 1024
/** Shorter strings among the attachments are no contents that matter. */
const MIN_CONTENT = 1024

const QUOTE = 0x22
const COMMA = 0x2c
const OPEN_LIST = 0x5b
const CLOSE_LIST = 0x5d
const OPEN_OBJECT = 0x7b
const CLOSE_OBJECT = 0x7d
const ATTACHMENTS = Buffer.from('_attachments')
const NONE = Buffer.alloc(0)

/** A text with more bytes than the limit and these may be a document if what its size does not count is taken away. */
export function isSuspect(length: number, { maxDocumentSize }: Pick<Limits, 'maxDocumentSize'>): boolean {
  return length > maxDocumentSize + OVERHEAD
}

/**
 * Refuses a JSON text that cannot be a document within `couchdb/max_document_size`. A text that passes may still be too
 * large (incoming-document.ts).
 * @param slices of the text, each valid until the next is requested
 * @param name of the document, for the refusal
 * @throws document_too_large
 */
export async function requireLength(
  slices: Iterable<Uint8Array>,
  limits: Pick<Limits, 'maxDocumentSize'>,
  name: string,
): Promise<void> {
  const scanner = new LengthScanner()
  const yielder = new Yielder()
  for (const slice of slices) {
    scanner.push(slice)
    if (isSuspect(scanner.length, limits)) throw new CouchError('document_too_large', name)
    if (yielder.isDue) await yielder.yieldIfDue()
  }
}

/** Counts the bytes of a JSON text without white space between tokens and without the contents of its attachments. */
export class LengthScanner {
  length = 0
  #depth = 0
  #isInString = false
  #isEscaped = false
  /** Bytes of the string that is being read, without its quotes. */
  #stringLength = 0
  /** Whether the next string at the top level is the name of a member. */
  #isName = false
  /** The beginning of that name. */
  #name: Buffer = NONE
  #isInAttachments = false

  /** @param slice the next bytes; they are not kept */
  push(slice: Uint8Array): void {
    const bytes = Buffer.from(slice.buffer, slice.byteOffset, slice.byteLength)
    for (let at = 0; at < bytes.length; ) {
      at = this.#isInString ? this.#string(bytes, at) : this.#token(bytes[at] as number, at)
    }
  }

  #token(byte: number, at: number): number {
    if (byte <= 0x20) return at + 1
    this.length += 1
    if (byte === QUOTE) {
      this.#isInString = true
      this.#stringLength = 0
      this.#name = NONE
    } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
      this.#depth += 1
      if (this.#depth === 1) this.#isName = true
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) this.#depth -= 1
    else if (byte === COMMA && this.#depth === 1) this.#isName = true
    return at + 1
  }

  /** @returns the index after the string, or the end of the slice */
  #string(bytes: Buffer, start: number): number {
    const isName = this.#isName && this.#depth === 1
    const end = stringEnd(bytes, this.#isEscaped ? start + 1 : start)
    const isOver = end <= bytes.length
    this.#isEscaped = end === bytes.length + 2
    const next = Math.min(end, bytes.length)
    const content = bytes.subarray(start, isOver ? next - 1 : next)
    this.#stringLength += content.length
    if (isName && this.#name.length <= ATTACHMENTS.length) {
      this.#name = Buffer.concat([this.#name, content.subarray(0, ATTACHMENTS.length + 1)])
    }
    // Elsewhere it counts while it comes, so that a long one is refused before its end.
    if (!this.#isInAttachments) this.length += content.length
    if (isOver) this.#endString(isName)
    return next
  }

  #endString(isName: boolean): void {
    this.#isInString = false
    this.length += 1
    if (this.#isInAttachments && this.#stringLength < MIN_CONTENT) this.length += this.#stringLength
    if (!isName) return
    this.#isName = false
    this.#isInAttachments = this.#name.equals(ATTACHMENTS)
  }
}
