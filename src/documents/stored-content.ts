/** The bytes of stored attachments, read in steps: as they are stored, decoded, or as base64. */
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { CouchError } from '../core/errors.ts'
import { pieceBytes } from '../core/outgoing.ts'
import type { BlobReference } from '../storage/engine.ts'
import type { AttachmentAnswer, DocumentReader } from './database.ts'

/** Names a stored content, and says what it must be. */
type ContentName = Pick<AttachmentAnswer, 'blob' | 'digest'>

/** Reads stored bytes from `start` up to, not including, `end`; {@link readContent}, here or over a port. */
export type ReadContent = (content: ContentName, start: number, end: number) => AsyncIterable<Uint8Array>

/** Bytes of one step of a download; fewer when much waits for readers (core/outgoing.ts). */
const STEP_BYTES = 256 * 1024

/**
 * A stored content's bytes in steps, held against compaction from the first step until the reader is done.
 * @param start,end offsets in the stored bytes; `end` is not included
 * @throws no_attachment when the blob is gone, or is another one by now
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
      // To the next multiple: a step that lies across two of the engine's chunks is put together from both.
      const most = pieceBytes(STEP_BYTES)
      const step = await store.readBlob(content.blob, at, Math.min(most - (at % most), end - at))
      if (step === null || step.length === 0) throw new CouchError('no_attachment')
      // Before it is handed on: whoever takes it may empty it (core/outgoing.ts).
      at += step.length
      yield step
    }
  } finally {
    pin.release()
  }
}

/**
 * Holds contents, all or none.
 * @throws no_attachment when one is gone, or is another one by now
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
 * Undoes gzip, at the pace of the reader.
 * @param length bytes that must come out; more or fewer would break the answer that has promised them
 * @throws RangeError when it is another number; zlib's errors when the bytes are not gzip
 */
export async function* inflated(
  chunks: AsyncIterable<Uint8Array>,
  length: number,
): AsyncGenerator<Uint8Array> {
  const gunzip = createGunzip({ chunkSize: 64 * 1024 })
  const fed = pipeline(Readable.from(chunks, { objectMode: false }), gunzip)
  // What fails it comes out of the iteration as well.
  fed.catch(() => undefined)
  let left = length
  try {
    for await (const chunk of gunzip as AsyncIterable<Buffer>) {
      left -= chunk.length
      if (left < 0) throw new RangeError('a stored gzip content is longer than it was said to be')
      yield chunk
    }
    if (left > 0) throw new RangeError('a stored gzip content is shorter than it was said to be')
  } finally {
    gunzip.destroy()
    await fed.catch(() => undefined)
  }
}

/** Base64 of bytes that come in chunks of any length, as ASCII. */
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

/** Characters of base64, padding included, of so many bytes. */
export function base64Length(bytes: number): number {
  return Math.ceil(bytes / 3) * 4
}
