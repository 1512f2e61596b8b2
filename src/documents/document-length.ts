/**
 * Refuses documents that are too large before their text is decoded, which for 100 MB blocks a thread for 0.1 s; and finds
 * the contents of attachments, which need not be decoded with it.
 */
import { Buffer, isAscii } from 'node:buffer'
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { Limits } from '../core/types.ts'
import type { ContentRanges } from './left-contents.ts'
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
const DATA = Buffer.from('data')
/** The levels of the document and of an attachment in `_attachments`. */
const DOCUMENT = 1
const ATTACHMENT = 3
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
 * @returns where the contents of its attachments are
 * @throws document_too_large
 */
export async function requireLength(
  slices: Iterable<Uint8Array>,
  limits: Pick<Limits, 'maxDocumentSize'>,
  name: string,
): Promise<ContentRanges> {
  const scanner = new LengthScanner()
  const yielder = new Yielder()
  for (const slice of slices) {
    scanner.push(slice)
    if (isSuspect(scanner.length, limits)) throw new CouchError('document_too_large', name)
    if (yielder.isDue) await yielder.yieldIfDue()
  }
  return scanner.contents
}

/**
 * Counts the bytes of a JSON text without white space between tokens and without the contents of its attachments. One that
 * is not ASCII is no base64, and counts.
 */
export class LengthScanner {
  length = 0
  readonly contents = { starts: [] as number[], ends: [] as number[] }
  /** Bytes of the slices before this one. */
  #before = 0
  #depth = 0
  #isInString = false
  #isEscaped = false
  /** Bytes of the string that is being read, without its quotes. */
  #stringLength = 0
  /** Where that string begins. */
  #stringStart = 0
  #isAscii = true
  /** Whether the next string, of the document or of an attachment, is the name of a member. */
  #isName = false
  /** The beginning of that name. */
  #name: Buffer = NONE
  #isInAttachments = false
  /** Whether what is read at the level of attachments is an object, and the current member of it is `data`. */
  #isAttachment = false
  #isData = false

  /** @param slice the next bytes; they are not kept */
  push(slice: Uint8Array): void {
    const bytes = Buffer.from(slice.buffer, slice.byteOffset, slice.byteLength)
    for (let at = 0; at < bytes.length; ) {
      at = this.#isInString ? this.#string(bytes, at) : this.#token(bytes[at] as number, at)
    }
    this.#before += bytes.length
  }

  #token(byte: number, at: number): number {
    if (byte <= 0x20) return at + 1
    this.length += 1
    if (byte === QUOTE) {
      this.#isInString = true
      this.#stringLength = 0
      this.#stringStart = this.#before + at + 1
      this.#isAscii = true
      this.#name = NONE
    } else if (byte === OPEN_OBJECT || byte === OPEN_LIST) {
      this.#depth += 1
      if (this.#depth === ATTACHMENT) this.#isAttachment = byte === OPEN_OBJECT
      this.#isName = this.#hasNames
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_LIST) this.#depth -= 1
    else if (byte === COMMA) this.#isName = this.#hasNames
    return at + 1
  }

  /** Whether the members that are read now have names that matter. */
  get #hasNames(): boolean {
    return this.#depth === DOCUMENT || (this.#depth === ATTACHMENT && this.#isAttachment)
  }

  /** @returns the index after the string, or the end of the slice */
  #string(bytes: Buffer, start: number): number {
    const isName = this.#isName
    const end = stringEnd(bytes, this.#isEscaped ? start + 1 : start)
    const isOver = end <= bytes.length
    this.#isEscaped = end === bytes.length + 2
    const next = Math.min(end, bytes.length)
    const content = bytes.subarray(start, isOver ? next - 1 : next)
    this.#stringLength += content.length
    this.#isAscii &&= isAscii(content)
    if (isName && this.#name.length <= ATTACHMENTS.length) {
      this.#name = Buffer.concat([this.#name, content.subarray(0, ATTACHMENTS.length + 1)])
    }
    // Elsewhere it counts while it comes, so that a long one is refused before its end.
    if (!this.#isInAttachments) this.length += content.length
    if (isOver) this.#endString(isName, this.#before + next - 1)
    return next
  }

  #endString(isName: boolean, end: number): void {
    this.#isInString = false
    this.length += 1
    const isShort = this.#stringLength < MIN_CONTENT
    if (this.#isInAttachments && isShort) this.length += this.#stringLength
    if (isName) {
      this.#isName = false
      if (this.#depth === DOCUMENT) this.#isInAttachments = this.#name.equals(ATTACHMENTS)
      else this.#isData = this.#name.equals(DATA)
    } else if (!isShort && this.#isContent) {
      if (this.#isAscii) {
        this.contents.starts.push(this.#stringStart)
        this.contents.ends.push(end)
      } else this.length += this.#stringLength
    }
  }

  get #isContent(): boolean {
    return this.#isInAttachments && this.#depth === ATTACHMENT && this.#isAttachment && this.#isData
  }
}
