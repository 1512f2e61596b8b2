/** Reads stored attachments in steps: their bytes as stored, decoded, or as base64. */
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { pieceBytes } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import type { BlobReference } from '../storage/blob-leases.ts'
import type { AttachmentAnswer, DocumentReader } from './database.ts'

/** Identifies a stored content. The digest shows whether the blob is still the same. */
type ContentName = Pick<AttachmentAnswer, 'blob' | 'digest'>

/** Reads stored bytes from `start` up to, not including, `end`: {@link readContent}, here or on another thread. */
export type ReadContent = (content: ContentName, start: number, end: number) => AsyncIterable<Uint8Array>

/** Bytes of one step of a download; fewer while many unsent bytes wait for readers (core/bytes.ts). */
const STEP_BYTES = 256 * 1024

/**
 * Yields a stored content in steps. Compaction does not remove the content from the first step until the reader is
 * done.
 * @param start,end offsets in the stored bytes; `end` is not included
 * @throws no_attachment if the blob no longer exists or has been replaced
 */
export async function* readContent(
  store: DocumentReader,
  content: ContentName,
  start: number,
  end: number,
): AsyncGenerator<Uint8Array> {
  const pin = await pinContent(store, content)
  try {
    for (let at = start; at < end; ) {
      // Steps end at multiples of the step size: a step across two of the engine's chunks would be copied from both.
      const max = pieceBytes(STEP_BYTES)
      const step = await store.readBlob(content.blob, at, Math.min(max - (at % max), end - at))
      if (step === null || step.length === 0) throw new CouchError('no_attachment')
      // Counted before the step is passed on, since the receiver may empty it (core/bytes.ts).
      at += step.length
      yield step
    }
  } finally {
    pin.release()
  }
}

/**
 * Pins contents against compaction: all of them, or none.
 * @throws no_attachment if a blob no longer exists or has been replaced
 */
export async function pinContents(
  store: DocumentReader,
  contents: Iterable<ContentName>,
): Promise<readonly BlobReference[]> {
  const pins: BlobReference[] = []
  try {
    for (const content of contents) pins.push(await pinContent(store, content))
    return pins
  } catch (error) {
    for (const pin of pins) pin.release()
    throw error
  }
}

async function pinContent(store: DocumentReader, { blob, digest }: ContentName): Promise<BlobReference> {
  const pin = await store.referenceBlob(blob)
  if (pin?.digest === digest) return pin
  pin?.release()
  throw new CouchError('no_attachment')
}

/**
 * Inflates gzip as the reader takes it.
 * @param length the number of inflated bytes that the answer has announced
 * @throws RangeError for another number of bytes; zlib's errors if the bytes are not gzip
 */
export async function* inflated(
  chunks: AsyncIterable<Uint8Array>,
  length: number,
): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 64 * 1024 })
  const fed = pipeline(Readable.from(chunks, { objectMode: false }), gunzip)
  // The iteration throws the same error.
  fed.catch(() => undefined)
  let left = length
  try {
    for await (const chunk of gunzip as AsyncIterable<Buffer>) {
      left -= chunk.length
      if (left < 0) throw new RangeError('a stored gzip content is longer than its recorded length')
      yield chunk
    }
    if (left > 0) throw new RangeError('a stored gzip content is shorter than its recorded length')
  } finally {
    gunzip.destroy()
    await fed.catch(() => undefined)
  }
}

/** Encodes chunks of any length as base64, in ASCII. */
export async function* base64Of(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let rest: Uint8Array = new Uint8Array(0)
  for await (const chunk of chunks) {
    const bytes = rest.length === 0 ? chunk : Buffer.concat([rest, chunk])
    const whole = bytes.length - (bytes.length % 3)
    if (whole > 0) yield toBase64(bytes.subarray(0, whole))
    rest = bytes.subarray(whole)
  }
  if (rest.length > 0) yield toBase64(rest)
}

function toBase64(bytes: Uint8Array): Uint8Array {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64')
  return Buffer.from(text, 'latin1')
}

/** The length of this many bytes as base64, including padding. */
export function base64Length(bytes: number): number {
  return Math.ceil(bytes / 3) * 4
}
