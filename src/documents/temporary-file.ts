/**
 * Bodies in temporary files. A disk that returns a wrong byte must not make settee store it with a right checksum, so each block of a
 * file has a checksum in memory, which is compared when it is read.
 */
import { randomUUID } from 'node:crypto'
import { read, readSync } from 'node:fs'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { crc32 } from 'node:zlib'
import { CouchError } from '../core/errors.ts'

/** Decides how far a file may grow. */
export interface FileRoom {
  /** @param bytes the new size of the file @throws CouchError if there is no room */
  resize(bytes: number): void
  /** Releases the room of a closed file. Idempotent. */
  release(): void
}

/** For files whose size is limited elsewhere. */
export const AMPLE_ROOM: FileRoom = { resize: () => undefined, release: () => undefined }

/** A body in an open file. */
export interface FileBody {
  /** The descriptor of the file. */
  readonly file: number
  readonly length: number
  /** The CRC of each block of {@link BLOCK} bytes; the last one may be shorter. */
  readonly sums: Uint32Array
}

const BLOCK = 64 * 1024
const READ_STEP = 4 * BLOCK
/** How often a block is read before the disk counts as faulty: it may return a wrong byte once. */
const READINGS = 3

/** A file without a name, which is gone when it is closed or the server dies. It grows as far as there is room. */
export class TemporaryFile {
  readonly #file: FileHandle
  readonly #room: FileRoom
  #length = 0
  #sums: number[] = []

  private constructor(file: FileHandle, room: FileRoom) {
    this.#file = file
    this.#room = room
  }

  /** @param folder an existing one @throws insufficient_storage; the file system's error */
  static async open(folder: string, room: FileRoom): Promise<TemporaryFile> {
    const path = join(folder, `body-${randomUUID()}`)
    const file = await open(path, 'wx+', 0o600).catch(fail)
    await unlink(path)
    return new TemporaryFile(file, room)
  }

  /** As the body of a request; valid until the file is closed. */
  get body(): FileBody {
    return { file: this.#file.fd, length: this.#length, sums: Uint32Array.from(this.#sums) }
  }

  /** @throws insufficient_storage, as {@link FileRoom.resize}; the file system's error */
  async append(bytes: Uint8Array): Promise<void> {
    const start = this.#length
    this.#room.resize(start + bytes.length)
    this.#sum(bytes)
    this.#length += bytes.length
    for (let at = 0; at < bytes.length; ) {
      const { bytesWritten } = await this.#file.write(bytes, at, bytes.length - at, start + at).catch(fail)
      at += bytesWritten
    }
  }

  #sum(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) {
      const place = this.#length + at
      const block = Math.floor(place / BLOCK)
      const end = Math.min(bytes.length, at + BLOCK - (place % BLOCK))
      this.#sums[block] = crc32(bytes.subarray(at, end), this.#sums[block] ?? 0)
      at = end
    }
  }

  /** Removes the content. */
  async empty(): Promise<void> {
    await this.#file.truncate(0)
    this.#length = 0
    this.#sums = []
    this.#room.resize(0)
  }

  /** The content from the beginning. Each chunk belongs to the reader. @throws as {@link fileBytes} */
  read(): AsyncGenerator<Buffer> {
    return fileRange(this.body, 0, this.#length)
  }

  /** Gives the room back. Idempotent. */
  async close(): Promise<void> {
    await this.#file.close()
    this.#room.release()
  }
}

function fail(error: unknown): never {
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT')
    throw new CouchError('insufficient_storage', undefined, { cause: error })
  throw error
}

/** Bytes to be read from a place in the file. */
interface Reading {
  readonly into: Uint8Array
  readonly at: number
}

/** The block of a body that was last read in part: the next range often begins in it. */
const lastBlocks = new WeakMap<FileBody, { readonly block: number; readonly bytes: Uint8Array }>()

/**
 * Fills a buffer with a range of a body, by whole blocks. Receives the number of bytes of each reading.
 * @throws disk_fault if a block is not what was written, or ends early; RangeError for a range that ends behind the body
 */
function* readings(body: FileBody, into: Uint8Array, start: number): Generator<Reading, void, number> {
  if (start + into.length > body.length) throw new RangeError('the range ends behind the body')
  for (let at = start; at < start + into.length; ) {
    const block = Math.floor(at / BLOCK)
    const first = block * BLOCK
    const end = Math.min(first + BLOCK, body.length)
    const to = Math.min(end, start + into.length)
    const wanted = into.subarray(at - start, to - start)
    if (wanted.length === end - first) yield* blockReadings(body, wanted, block)
    else wanted.set((yield* keptBlock(body, block, end - first)).subarray(at - first, to - first))
    at = to
  }
}

/** @returns memory that begins with the block, valid until the next turn */
function* keptBlock(body: FileBody, block: number, length: number): Generator<Reading, Uint8Array, number> {
  const last = lastBlocks.get(body)
  if (last?.block === block) return last.bytes
  // While the block is read into the memory of the last one, nobody may find that there.
  lastBlocks.delete(body)
  const bytes = last?.bytes ?? Buffer.allocUnsafeSlow(Math.min(BLOCK, body.length))
  yield* blockReadings(body, bytes.subarray(0, length), block)
  lastBlocks.set(body, { block, bytes })
  return bytes
}

function* blockReadings(
  { sums }: FileBody,
  into: Uint8Array,
  block: number,
): Generator<Reading, void, number> {
  for (let reading = 1; ; reading++) {
    for (let filled = 0; filled < into.length; ) {
      const bytes = yield { into: into.subarray(filled), at: block * BLOCK + filled }
      if (bytes === 0) throw faulty()
      filled += bytes
    }
    if (crc32(into) === sums[block]) return
    if (reading === READINGS) throw faulty()
  }
}

function faulty(): CouchError {
  return new CouchError(
    'disk_fault',
    "The server's disk did not return a temporary file as it was written. Try again.",
  )
}

/**
 * Fills a buffer with a range of a body.
 * @param start of the range; its end must be inside of the body
 * @throws disk_fault if the disk does not return what was written; the file system's error
 */
export function readFileBytes<Bytes extends Uint8Array>(body: FileBody, into: Bytes, start: number): Bytes {
  const steps = readings(body, into, start)
  for (let step = steps.next(); !step.done; ) {
    const { into, at } = step.value
    step = steps.next(readSync(body.file, into, 0, into.length, at))
  }
  return into
}

const readAt = promisify(read)

/** As {@link readFileBytes}, without blocking the thread. @param end of the range */
export async function fileBytes(body: FileBody, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(end - start)
  const steps = readings(body, bytes, start)
  for (let step = steps.next(); !step.done; ) {
    const { into, at } = step.value
    const { bytesRead } = await readAt(body.file, into, 0, into.length, at)
    step = steps.next(bytesRead)
  }
  return bytes
}

/** A range of a body in chunks, each of which belongs to the reader. @throws as {@link readFileBytes} */
export async function* fileRange(body: FileBody, start: number, end: number): AsyncGenerator<Buffer> {
  for (let at = start; at < end; at += READ_STEP)
    yield await fileBytes(body, at, Math.min(at + READ_STEP, end))
}
