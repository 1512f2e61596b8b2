/**
 * The `_local` documents of a database on their way from the primary. They are read before the documents are copied and
 * stored after it, so that no checkpoint says more than is here. In between they are in a file.
 */
import { COPYING_USER } from '../auth/accounts.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import { TemporaryFile } from '../documents/temporary-file.ts'
import { jsonParts, parsed, partsOf } from '../replication/json-parts.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { claimedTokens, epochOf } from './checkpoint-rule.ts'

/** Documents and bytes of one write. */
const PAGE_DOCS = 200
const PAGE_BYTES = 1024 * 1024
/** Ids of one database that are in memory at once. Of a database with more, documents that are gone stay here. */
const MAX_IDS = 100_000
/** Epochs of one database whose origin is remembered. */
const MAX_EPOCHS = 1000
const LINE_FEED = 0x0a
const ROWS = new Set(['rows'])

/** Knows which epochs belong to the primary's database. */
export class OwnEpochs {
  readonly #known = new Map<string, boolean>()
  readonly #ask: (token: string) => Promise<boolean>

  /** @param ask whether the primary knows a token */
  constructor(ask: (token: string) => Promise<boolean>) {
    this.#ask = ask
  }

  async has(token: string): Promise<boolean> {
    const epoch = epochOf(token)
    if (epoch === null) return false
    let isOwn = this.#known.get(epoch)
    if (isOwn === undefined) {
      isOwn = await this.#ask(token)
      if (this.#known.size >= MAX_EPOCHS) this.#known.clear()
      this.#known.set(epoch, isOwn)
    }
    return isOwn
  }
}

export class LocalDocuments {
  readonly #file: TemporaryFile
  /** null: there are too many. */
  readonly #ids: ReadonlySet<string> | null

  private constructor(file: TemporaryFile, ids: ReadonlySet<string> | null) {
    this.#file = file
    this.#ids = ids
  }

  /**
   * Reads all of them.
   * @returns null if the primary cannot list them
   * @throws PeerError; insufficient_storage
   */
  static async read(
    remote: RemoteDatabase,
    epochs: OwnEpochs,
    files: BodyFiles,
    signal: AbortSignal,
  ): Promise<LocalDocuments | null> {
    const docs = await remote.localDocs(signal)
    if (docs === null) return null
    const file = await TemporaryFile.open(files.folder, files.allocation('standby', COPYING_USER))
    const ids = new Set<string>()
    let count = 0
    try {
      for await (const bytes of docs) {
        const text = bytes.toString()
        if (!(await isStored(text, epochs))) continue
        count += 1
        if (count <= MAX_IDS) ids.add(idOf(bytes))
        // A line break in JSON is white space.
        await file.append(Buffer.from(`${text.replaceAll(/[\r\n]/g, ' ')}\n`))
      }
    } catch (error) {
      await file.close()
      throw error
    }
    return new LocalDocuments(file, count <= MAX_IDS ? ids : null)
  }

  /** Stores them, and removes those that the primary no longer has. @throws CouchError; the signal's reason */
  async store(database: DatabaseHandle, signal: AbortSignal): Promise<void> {
    let page: string[] = []
    let bytes = 0
    const flush = async () => {
      signal.throwIfAborted()
      if (page.length > 0) await database.copyLocals(COPYING_USER, page, [])
      page = []
      bytes = 0
    }
    for await (const line of linesOf(this.#file.read())) {
      page.push(line)
      bytes += line.length
      if (page.length >= PAGE_DOCS || bytes >= PAGE_BYTES) await flush()
    }
    await flush()
    const gone = this.#ids === null ? [] : await idsBeside(database, this.#ids)
    signal.throwIfAborted()
    if (gone.length > 0) await database.copyLocals(COPYING_USER, [], gone)
  }

  /** Removes the file. */
  async discard(): Promise<void> {
    await this.#file.close()
  }
}

/** Node's readline would also end a line at U+2028, which JSON may contain. */
async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<string> {
  let pieces: Buffer[] = []
  for await (const chunk of chunks) {
    let at = 0
    for (let end = chunk.indexOf(LINE_FEED); end !== -1; end = chunk.indexOf(LINE_FEED, at)) {
      yield Buffer.concat([...pieces, chunk.subarray(at, end)]).toString()
      pieces = []
      at = end + 1
    }
    pieces.push(chunk.subarray(at))
  }
}

async function isStored(text: string, epochs: OwnEpochs): Promise<boolean> {
  const tokens = claimedTokens(text)
  if (tokens === null) return true
  if (tokens === 'foreign') return false
  for (const token of tokens) if (!(await epochs.has(token))) return false
  return true
}

function idOf(doc: Uint8Array): string {
  const id = partsOf(doc).find(({ member }) => member === '_id')
  return id === undefined ? '' : parsed<string>(id.bytes)
}

async function idsBeside(database: DatabaseHandle, known: ReadonlySet<string>): Promise<string[]> {
  const found: string[] = []
  const rows = jsonParts(database.allDocs(COPYING_USER, 'local', {}, null), { lists: ROWS })
  for await (const { member, bytes } of rows) {
    if (member !== 'rows') continue
    const { id } = parsed<{ id: string }>(bytes)
    if (!known.has(id)) found.push(id)
  }
  return found
}
