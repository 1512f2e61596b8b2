/** How the contents of attachments are coded: gzip that comes, and gzip that `[attachments]` asks for (protocol.md 7.1). */
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip, createGzip } from 'node:zlib'
import { Breath } from '../core/breath.ts'
import { CouchError } from '../core/errors.ts'
import type { CompressionRules } from '../core/types.ts'

/** Bytes that go into zlib, or come out of it, in one step; it works at them on a thread of its own. */
export const CODING_STEP = 64 * 1024

/**
 * Whether a content that comes as it is, is stored as gzip.
 * @param type the attachment's; parameters such as a charset do not count (couch_util:is_compressible)
 */
export function isCompressible(type: string, { level, types }: CompressionRules): boolean {
  if (level === 0) return false
  const [name = ''] = type.split(';', 1)
  const asked = name.trim().toLowerCase()
  return types.some((pattern) => matches(asked, pattern.toLowerCase()))
}

/** A `*` stands for any characters. */
function matches(type: string, pattern: string): boolean {
  const [first = '', ...rest] = pattern.split('*')
  const last = rest.pop()
  if (last === undefined) return type === first
  if (!type.startsWith(first)) return false
  let at = first.length
  for (const part of rest) {
    const found = type.indexOf(part, at)
    if (found === -1) return false
    at = found + part.length
  }
  return type.length - last.length >= at && type.endsWith(last)
}

/**
 * A content as gzip, in steps.
 * @param pieces stay as they are until the next is asked for
 * @param level from 1 to 9
 */
export async function* gzipped(pieces: Iterable<Uint8Array>, level: number): AsyncGenerator<Uint8Array> {
  const gzip = createGzip({ level, chunkSize: CODING_STEP })
  const fed = pipeline(Readable.from(pieces, { objectMode: false }), gzip)
  // What fails it comes out of the iteration as well.
  fed.catch(() => undefined)
  try {
    yield* gzip as AsyncIterable<Buffer>
  } finally {
    gzip.destroy()
    await fed.catch(() => undefined)
  }
}

/** A content in memory as gzip. */
export async function gzippedBytes(bytes: Uint8Array, level: number): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  let length = 0
  for await (const chunk of gzipped(steps(bytes), level)) {
    chunks.push(chunk)
    length += chunk.length
  }
  const whole = Buffer.allocUnsafeSlow(length)
  const breath = new Breath()
  let at = 0
  for (const chunk of chunks) {
    whole.set(chunk, at)
    at += chunk.length
    if (breath.isDue) await breath.take()
  }
  return whole
}

function* steps(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += CODING_STEP) yield bytes.subarray(at, at + CODING_STEP)
}

/**
 * How long a gzipped content is when it is inflated; nothing is kept of it.
 * @param pieces as of {@link gzipped}
 * @param name the attachment's, for the refusal
 * @throws attachment_too_large beyond `limit`, gzip_body
 */
export async function inflatedLength(
  pieces: Iterable<Uint8Array>,
  name: string,
  limit: number,
): Promise<number> {
  let length = 0
  const count = async (inflated: AsyncIterable<Uint8Array>) => {
    for await (const chunk of inflated) {
      length += chunk.length
      if (length > limit) return
    }
  }
  try {
    await pipeline(Readable.from(pieces), createGunzip({ chunkSize: CODING_STEP }), count)
  } catch (error) {
    // Going no further breaks the pipeline off.
    if (length <= limit) throw inflateFailure(error)
  }
  if (length > limit) throw new CouchError('attachment_too_large', name)
  return length
}

function inflateFailure(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException
  return code.startsWith('Z_') ? new CouchError('gzip_body', undefined, { cause: error }) : error
}
