/** The indexes of one open database. Design documents with the same definitions share an index. */
import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { CouchError } from '../core/errors.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { IndexStores } from '../storage/index-store.ts'
import { COLLATION_VERSION } from './collation/collation-table.ts'
import { type Grow, type IndexProgress, IndexUpdater, type RowSource } from './index-updater.ts'

/** Changes with the tables of a store, so that indexes of another version are built again. */
const FORMAT = 1
/** The maximum number of indexes that are remembered while nobody uses them. */
const MAX_REMEMBERED = 100

/** What is known of an index that has a file. */
export interface IndexState {
  /** On disk. */
  readonly bytes: number
  /** The last update of the database that it includes; null: it was not built yet. */
  readonly seq: number | null
  /** The number of rows of each of its indexes. */
  readonly rows: readonly number[]
  readonly isUpdating: boolean
  readonly progress: IndexProgress | null
  /** In ms since 1970; null: unknown. */
  readonly lastUse: number | null
}

export class DesignIndexes {
  readonly #store: DatabaseStore
  readonly #stores: IndexStores
  readonly #grow: Grow | undefined
  readonly #updaters = new LRUCache<string, IndexUpdater>({ max: MAX_REMEMBERED })
  /** They must not be forgotten: two of one index would undo each other's progress. */
  readonly #running = new Map<string, IndexUpdater>()

  /** @param grow as of {@link IndexUpdater} */
  constructor(store: DatabaseStore, stores: IndexStores, grow?: Grow) {
    this.#store = store
    this.#stores = stores
    this.#grow = grow
  }

  /** @param make is called for an index that is not in use */
  use(signature: string, make: () => RowSource): IndexUpdater {
    const known = this.#running.get(signature) ?? this.#updaters.get(signature)
    if (known !== undefined) {
      this.#stores.open(signature, known.index.indexes)
      return known
    }
    const source = make()
    const updater = new IndexUpdater(
      this.#store,
      this.#stores.open(signature, source.indexes),
      source,
      this.#grow,
    )
    this.#updaters.set(signature, updater)
    return updater
  }

  /** Empties an index that was found damaged, if there is one of this signature. */
  async discard(signature: string): Promise<void> {
    if ((await this.#stores.signatures()).includes(signature)) await this.#stores.discard?.(signature)
  }

  /**
   * Reads what is known of an index, and builds nothing.
   * @param built the signatures of all indexes that have a file
   * @param indexes the number of its indexes
   * @returns null if it has no file
   */
  async state(signature: string, built: ReadonlySet<string>, indexes: number): Promise<IndexState | null> {
    if (!built.has(signature)) return null
    const updater = this.#running.get(signature) ?? this.#updaters.peek(signature)
    const index = this.#stores.open(signature, updater?.index.indexes ?? indexes)
    const [{ position }, { file }] = await Promise.all([index.status(), index.sizes()])
    const rows: number[] = []
    for (let at = 0; at < indexes; at++) rows.push((await index.counts(at, [])).total)
    return {
      bytes: file,
      seq: position?.seq ?? null,
      rows,
      isUpdating: updater?.isRunning ?? false,
      progress: updater?.progress ?? null,
      lastUse: updater?.lastUse ?? null,
    }
  }

  /** The signatures of all indexes that have a file. */
  async built(): Promise<ReadonlySet<string>> {
    return new Set(await this.#stores.signatures())
  }

  /**
   * Includes everything that was written before the call. A first build that passes a quota leaves nothing.
   * @throws the errors of {@link IndexUpdater.update}
   */
  async update(signature: string, updater: IndexUpdater): Promise<void> {
    this.#running.set(signature, updater)
    try {
      await updater.update()
    } catch (error) {
      const isRefused = error instanceof CouchError && error.code === 'forbidden'
      if (isRefused && updater.isUnfinished && !updater.isRunning) await this.#remove(signature)
      throw error
    } finally {
      if (!updater.isRunning && this.#running.get(signature) === updater) this.#running.delete(signature)
    }
  }

  /** Removes the indexes that no design document uses. @param used the signatures of all others */
  async removeOthers(used: ReadonlySet<string>): Promise<void> {
    for (const signature of await this.#stores.signatures()) {
      if (used.has(signature)) continue
      await this.#remove(signature)
    }
  }

  async #remove(signature: string): Promise<void> {
    this.#updaters.delete(signature)
    await this.#stores.remove(signature)
  }

  /** Bytes on disk. */
  fileBytes(): Promise<number> {
    return this.#stores.fileBytes()
  }
}

/** Identifies an index by everything that determines its rows. */
export function signatureOf(definition: unknown): string {
  return createHash('md5')
    .update(JSON.stringify([FORMAT, COLLATION_VERSION, definition]))
    .digest('hex')
}
