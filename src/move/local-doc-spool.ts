/** `_local` documents on their way: read before the documents are copied, stored after them, and in a file in between. */
import { createInterface } from 'node:readline'
import { Readable } from 'node:stream'
import { COPYING_USER } from '../auth/accounts.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import { TemporaryFile } from '../documents/temporary-file.ts'
import { parsed, partsIn } from '../replication/json-parts.ts'

/** A `_local` document without its revision. */
export interface LocalDoc {
  readonly id: string
  /** JSON text, as the server sent it. */
  readonly text: string
}

export class LocalDocSpool {
  readonly #file: TemporaryFile
  count = 0

  private constructor(file: TemporaryFile) {
    this.#file = file
  }

  /** @throws insufficient_storage */
  static async open(files: BodyFiles): Promise<LocalDocSpool> {
    return new LocalDocSpool(await TemporaryFile.open(files.folder, files.allocation('move', COPYING_USER)))
  }

  /** @param doc with its `_id` @throws PeerError if it is not JSON; insufficient_storage */
  async add(doc: Buffer): Promise<void> {
    const members = (await Array.fromAsync(partsIn(doc))).filter(({ member }) => member !== '_rev')
    const found = members.find(({ member }) => member === '_id')
    const id: unknown = found === undefined ? null : parsed(found.bytes)
    if (typeof id !== 'string') return
    const texts = members.map(({ member, bytes }) => `${JSON.stringify(member)}:${String(bytes)}`)
    // Base64, since a text may have anything that ends a line.
    const line = [id, `{${texts.join()}}`].map((text) => Buffer.from(text).toString('base64'))
    await this.#file.append(Buffer.from(`${line.join(' ')}\n`))
    this.count += 1
  }

  /** Forgets what was added, because it is read again. */
  async empty(): Promise<void> {
    await this.#file.empty()
    this.count = 0
  }

  async *read(): AsyncGenerator<LocalDoc> {
    for await (const line of createInterface({
      input: Readable.from(this.#file.read(), { objectMode: false }),
    })) {
      const [id = '', text = ''] = line.split(' ').map((part) => Buffer.from(part, 'base64').toString())
      yield { id, text }
    }
  }

  /** Idempotent. */
  async remove(): Promise<void> {
    await this.#file.close()
  }
}
