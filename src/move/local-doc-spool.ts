/** `_local` documents on their way: read before the documents are copied, stored after them, and in a file in between. */
import { randomUUID } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { parsed, partsIn } from '../replication/json-parts.ts'

/** A `_local` document without its revision. */
export interface LocalDoc {
  readonly id: string
  /** JSON text, as the server sent it. */
  readonly text: string
}

export class LocalDocSpool {
  readonly #path: string
  readonly #file: FileHandle
  count = 0

  private constructor(path: string, file: FileHandle) {
    this.#path = path
    this.#file = file
  }

  /** @param tmpDir an existing folder, which is emptied at each start of the server */
  static async open(tmpDir: string): Promise<LocalDocSpool> {
    const path = join(tmpDir, `move-${randomUUID()}`)
    return new LocalDocSpool(path, await open(path, 'ax', 0o600))
  }

  /** @param doc with its `_id` @throws PeerError if it is not JSON */
  async add(doc: Buffer): Promise<void> {
    const members = (await Array.fromAsync(partsIn(doc))).filter(({ member }) => member !== '_rev')
    const found = members.find(({ member }) => member === '_id')
    const id: unknown = found === undefined ? null : parsed(found.bytes)
    if (typeof id !== 'string') return
    const texts = members.map(({ member, bytes }) => `${JSON.stringify(member)}:${String(bytes)}`)
    // Base64, since a text may have anything that ends a line.
    const line = [id, `{${texts.join()}}`].map((text) => Buffer.from(text).toString('base64'))
    await this.#file.appendFile(`${line.join(' ')}\n`)
    this.count += 1
  }

  /** Forgets what was added, because it is read again. */
  async empty(): Promise<void> {
    await this.#file.truncate(0)
    this.count = 0
  }

  async *read(): AsyncGenerator<LocalDoc> {
    for await (const line of createInterface({ input: createReadStream(this.#path) })) {
      const [id = '', text = ''] = line.split(' ').map((part) => Buffer.from(part, 'base64').toString())
      yield { id, text }
    }
  }

  /** Idempotent. */
  async remove(): Promise<void> {
    await this.#file.close()
    await unlink(this.#path).catch(() => undefined)
  }
}
