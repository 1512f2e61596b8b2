import { randomUUID } from 'node:crypto'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { CouchError } from '../core/errors.ts'

/** Decides how far a file may grow. */
export interface FileRoom {
  /** @param bytes the new size of the file @throws CouchError if there is no room */
  resize(bytes: number): void
  /** Releases the room of a closed file. Idempotent. */
  release(): void
}

const READ_STEP = 256 * 1024

/** A file without a name, which is gone when it is closed or the server dies. It grows as far as there is room. */
export class TemporaryFile {
  readonly #file: FileHandle
  readonly #room: FileRoom
  #length = 0

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
  get body(): { readonly file: number; readonly length: number } {
    return { file: this.#file.fd, length: this.#length }
  }

  /** @throws insufficient_storage, as {@link FileRoom.resize}; the file system's error */
  async append(bytes: Uint8Array): Promise<void> {
    this.#room.resize(this.#length + bytes.length)
    this.#length += bytes.length
    await this.#file.appendFile(bytes).catch(fail)
  }

  /** Removes the content. */
  async empty(): Promise<void> {
    await this.#file.truncate(0)
    this.#length = 0
    this.#room.resize(0)
  }

  /** The content from the beginning. Each chunk belongs to the reader. */
  async *read(): AsyncGenerator<Buffer> {
    for (let at = 0; at < this.#length; ) {
      const { bytesRead, buffer } = await this.#file.read(Buffer.allocUnsafe(READ_STEP), 0, READ_STEP, at)
      if (bytesRead === 0) throw new Error('A temporary file is shorter than it was written.')
      at += bytesRead
      yield buffer.subarray(0, bytesRead)
    }
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
