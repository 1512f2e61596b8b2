/** The index stores of one database in the tables of PostgreSQL. */
import { CouchError } from '../../core/errors.ts'
import type { IndexStore, IndexStores } from '../index-store.ts'
import type { OpenDatabase } from './open-database.ts'
import { PostgresIndexStore } from './postgres-index-store.ts'
import { LostAnswer } from './store-fault.ts'

/** Rows of stores that are gone that one statement removes. */
const SWEPT_ROWS = 1000

const SIGNATURES = {
  name: 'index_signatures',
  text: 'SELECT signature FROM index_store WHERE db = $1 ORDER BY signature',
}
const BYTES = {
  name: 'index_bytes',
  text: 'SELECT coalesce(sum(bytes), 0)::bigint FROM index_store WHERE db = $1',
}
const REMOVE = { name: 'index_remove', text: 'SELECT index_remove($1, $2)' }
const SWEEP = { name: 'index_sweep', text: 'SELECT index_sweep($1, $2)' }

export class PostgresIndexes implements IndexStores {
  readonly #database: Pick<OpenDatabase, 'db' | 'connections' | 'opener'>
  readonly #stores = new Map<string, PostgresIndexStore>()
  #sweep: Promise<void> | null = null
  #isClosed = false

  constructor(database: Pick<OpenDatabase, 'db' | 'connections' | 'opener'>) {
    this.#database = database
  }

  open(signature: string, indexes: number): IndexStore {
    const known = this.#stores.get(signature)
    if (known !== undefined) return known
    const onUnusedRows = () => this.#startSweep()
    const store = new PostgresIndexStore({ database: this.#database, signature, indexes, onUnusedRows })
    if (this.#isClosed) store.close()
    else this.#stores.set(signature, store)
    return store
  }

  async signatures(): Promise<string[]> {
    const { db, connections } = this.#database
    this.#refuseIfClosed()
    const rows = await connections.read<[string]>({ ...SIGNATURES, values: [db] })
    return rows.map(([signature]) => signature)
  }

  async remove(signature: string): Promise<void> {
    const { db, connections } = this.#database
    this.#refuseIfClosed()
    this.#stores.get(signature)?.close()
    this.#stores.delete(signature)
    try {
      await connections.write({ ...REMOVE, values: [db, signature] })
    } catch (error) {
      // Whoever removes unused stores next finds it if it is still there.
      if (!(error instanceof LostAnswer)) throw error
    }
    this.#startSweep()
  }

  async fileBytes(): Promise<number> {
    const { db, connections } = this.#database
    this.#refuseIfClosed()
    const [row] = await connections.read<[number]>({ ...BYTES, values: [db] })
    return row?.[0] ?? 0
  }

  close(): void {
    this.#isClosed = true
    for (const store of this.#stores.values()) store.close()
    this.#stores.clear()
  }

  #refuseIfClosed(): void {
    if (this.#isClosed) throw new CouchError('unavailable')
  }

  /** Removes the rows of stores that are gone, step by step. What an error leaves is removed the next time. */
  #startSweep(): void {
    this.#sweep ??= this.#sweepAll()
      .catch(() => undefined)
      .finally(() => {
        this.#sweep = null
      })
  }

  async #sweepAll(): Promise<void> {
    const { db, connections } = this.#database
    for (let more: boolean | undefined = true; more && !this.#isClosed; ) {
      const [row] = await connections.write<[boolean]>({
        ...SWEEP,
        values: [db, SWEPT_ROWS],
        isBackground: true,
      })
      more = row?.[0]
    }
  }
}
