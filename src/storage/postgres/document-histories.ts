/** Documents with their earlier versions: history-store.ts. */
import { CouchError } from '../../core/errors.ts'
import type { IdRange, Page, Paging, StoreView } from '../engine.ts'
import type { DocHistory, HistoryReadSet, HistoryStore, StoreHorizon } from '../history-store.ts'
import { DocumentLoader } from './document-loader.ts'
import { DocumentPages } from './document-pages.ts'
import type { OpenDatabase } from './open-database.ts'
import { RangeTotals } from './range-totals.ts'

const HORIZON = {
  name: 'horizon',
  text: 'SELECT d.history_since, d.created_at FROM database d WHERE d.db = $1',
}

export class DocumentHistories implements HistoryStore {
  readonly #database: OpenDatabase
  readonly #refuseIfClosed: () => void
  readonly #pages: DocumentPages

  /** @param refuseIfClosed throws once the store is closed or its database gone */
  constructor(database: OpenDatabase, refuseIfClosed: () => void) {
    this.#database = database
    this.#refuseIfClosed = refuseIfClosed
    this.#pages = new DocumentPages(new DocumentLoader(database, true), new RangeTotals(database))
  }

  /** All versions have times. */
  async horizon(): Promise<StoreHorizon> {
    this.#refuseIfClosed()
    const values = [this.#database.db]
    const [row] = await this.#database.connections.read<[number, number]>({ ...HORIZON, values })
    if (row === undefined) throw new CouchError('no_database')
    const [whole, createdAt] = row
    return { whole, timed: 0, begun: createdAt * 1000 }
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocHistory | null, id: string, view: StoreView) => R,
    readSet?: HistoryReadSet,
  ): Promise<R[]> {
    this.#refuseIfClosed()
    return this.#pages.readDocs(ids, read, readSet)
  }

  async readRange<R>(
    range: IdRange,
    paging: Paging & { readonly readSet?: HistoryReadSet },
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#refuseIfClosed()
    return this.#pages.readRange(range, paging, read, true)
  }

  async readNewest<R>(
    before: number,
    paging: Paging & { readonly readSet?: HistoryReadSet },
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#refuseIfClosed()
    return this.#pages.readChanges({ since: 0, before, descending: true }, paging, read)
  }
}
