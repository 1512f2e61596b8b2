/** Reading the bytes of a request's body, wherever they are, a bounded piece at a time. */

import { readSync } from 'node:fs'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json-object.ts'
import { decodeUtf8, parseJson } from './body.ts'
import type { Body } from './database.ts'

/** The longest JSON that is read as one text: V8 ends at 512 MB, and an answer needs room beside it. */
export const MAX_TEXT_BYTES = 400_000_000

export function bodyLength(body: Body): number {
  return 'bytes' in body ? body.bytes.length : body.length
}

/** A stretch of the body; of one in memory, no copy. */
export function bodyBytes(body: Body, start: number, end: number): Uint8Array {
  if ('bytes' in body) return body.bytes.subarray(start, end)
  return readFully(body.file, Buffer.allocUnsafe(end - start), start)
}

/**
 * A stretch of the body, a step after the other. Each is good until the next is asked for.
 * @param step bytes of a step, but for the last
 */
export function* bodySteps(body: Body, start: number, end: number, step: number): Generator<Uint8Array> {
  const memory = 'bytes' in body ? null : Buffer.allocUnsafeSlow(Math.min(step, end - start))
  for (let at = start; at < end; at += step) {
    const next = Math.min(at + step, end)
    yield 'bytes' in body ? body.bytes.subarray(at, next) : readInto(memory as Buffer, body, at, next)
  }
}

/**
 * A stretch of a body in a file, read into memory that is used again: a large upload would else leave hundreds of
 * megabytes to be collected.
 */
export function readInto(
  memory: Buffer,
  { file }: Extract<Body, { readonly file: number }>,
  start: number,
  end: number,
): Uint8Array {
  return readFully(file, memory.subarray(0, end - start), start)
}

function readFully(file: number, bytes: Buffer, start: number): Buffer {
  for (let at = 0; at < bytes.length; ) {
    const read = readSync(file, bytes, at, bytes.length - at, start + at)
    if (read === 0) throw new RangeError('a spooled body is shorter than it was')
    at += read
  }
  return bytes
}

/** A stretch of the body as text. @throws invalid_json when it is not UTF-8, document_too_large */
export function bodyText(body: Body, start = 0, end = bodyLength(body)): string {
  if (end - start > MAX_TEXT_BYTES) throw new CouchError('document_too_large')
  return decodeUtf8(bodyBytes(body, start, end))
}

/** A list of ids, keys or revisions: so many bytes hold about a million. */
const MAX_LIST_BYTES = 64 * 1024 * 1024

/**
 * The whole body as a JSON object.
 * @param maxBytes the longest body that is worth it; by default a list's
 * @throws invalid_json, body_not_object, too_deep, too_large
 */
export function bodyObject(body: Body, maxBytes = MAX_LIST_BYTES): Record<string, unknown> {
  if (bodyLength(body) > maxBytes) {
    throw new CouchError(
      'too_large',
      `the request entity is too large: the limit of this call is ${maxBytes} bytes`,
    )
  }
  const value = parseJson(bodyText(body))
  if (!isJsonObject(value)) throw new CouchError('body_not_object')
  return value
}
