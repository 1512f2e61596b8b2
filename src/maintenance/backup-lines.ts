/**
 * Lines of a couchbackup file, however long: each is made the body of a `_bulk_docs`, in memory while it is short and
 * else in a file that has no name.
 */
import { type FileHandle, open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { newUuid } from '../core/ids.ts'

/** Longer lines go to a file. */
const MEMORY_BYTES = 1024 * 1024
/** What tells of a line that is no list of documents: the first, and a marker of couchbackup's. */
const HEAD_BYTES = 4096
const LINE_END = 0x0a

const BEFORE = Buffer.from('{"new_edits":false,"docs":')
const AFTER = Buffer.from('}')

export interface BackupLine {
  /** From 1 on. */
  readonly number: number
  /** Its first and its last characters, or all of it. */
  readonly head: string
  readonly tail: string
  /** Good until the next line is asked for. */
  readonly body: { readonly bytes: Uint8Array } | { readonly file: number; readonly length: number }
}

/**
 * Cuts what arrives into lines; empty ones are left out.
 * @param tmpDir where files may be made
 * @throws what the source throws, and the file system's errors
 */
export async function* backupLines(
  source: AsyncIterable<Uint8Array>,
  tmpDir: string,
): AsyncGenerator<BackupLine> {
  let number = 1
  let line = new LineInMaking(tmpDir)
  try {
    for await (const chunk of source) {
      for (let from = 0; from < chunk.length; ) {
        const end = chunk.indexOf(LINE_END, from)
        await line.add(chunk.subarray(from, end === -1 ? chunk.length : end))
        if (end === -1) break
        if (line.length > 0) yield await line.finish(number)
        await line.close()
        line = new LineInMaking(tmpDir)
        number += 1
        from = end + 1
      }
    }
    if (line.length > 0) yield await line.finish(number)
  } finally {
    await line.close()
  }
}

class LineInMaking {
  readonly #tmpDir: string
  /** In memory, until there is a file. */
  #chunks: Uint8Array[] = [BEFORE]
  #file: FileHandle | undefined
  #written = 0
  #head: Buffer = Buffer.alloc(0)
  #tail: Buffer = Buffer.alloc(0)
  length = 0

  constructor(tmpDir: string) {
    this.#tmpDir = tmpDir
  }

  async add(bytes: Uint8Array): Promise<void> {
    if (bytes.length === 0) return
    if (this.#head.length < HEAD_BYTES) {
      this.#head = Buffer.concat([this.#head, bytes.subarray(0, HEAD_BYTES - this.#head.length)])
    }
    this.#tail = Buffer.from(Buffer.concat([this.#tail, bytes.subarray(-HEAD_BYTES)]).subarray(-HEAD_BYTES))
    this.length += bytes.length
    this.#chunks.push(bytes)
    if (this.length > MEMORY_BYTES) await this.#spool()
  }

  async #spool(): Promise<void> {
    this.#file ??= await openUnnamed(this.#tmpDir)
    for (const chunk of this.#chunks.splice(0)) {
      for (let at = 0; at < chunk.length; ) {
        const { bytesWritten } = await this.#file.write(chunk, at, chunk.length - at, this.#written)
        at += bytesWritten
        this.#written += bytesWritten
      }
    }
  }

  async finish(number: number): Promise<BackupLine> {
    this.#chunks.push(AFTER)
    if (this.#file !== undefined) await this.#spool()
    const body =
      this.#file === undefined
        ? { bytes: Buffer.concat(this.#chunks) }
        : { file: this.#file.fd, length: this.#written }
    return { number, head: this.#head.toString(), tail: this.#tail.toString(), body }
  }

  async close(): Promise<void> {
    await this.#file?.close()
    this.#file = undefined
  }
}

async function openUnnamed(folder: string): Promise<FileHandle> {
  const path = join(folder, `import-${newUuid()}`)
  const file = await open(path, 'wx+', 0o600)
  await rm(path)
  return file
}
