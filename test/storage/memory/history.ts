/** What documents were, in the engine in memory. */
import type { Page, Paging, StoreView } from '../../../src/storage/engine.ts'
import type {
  DocHistory,
  HistoryPaging,
  HistoryReadSet,
  HistoryStore,
} from '../../../src/storage/history-store.ts'
import { feedAbove, idsInRange, type State, type StoredDoc } from './state.ts'
import type { PageRead } from './store.ts'

/** How the store reads. */
export interface HistoryReads {
  read<T>(read: (state: State, view: StoreView) => T): Promise<T>
  page<T, R>(rows: readonly T[], paging: Paging, view: StoreView, read: PageRead<T, R>): Page<R>
  callWith<R>(
    doc: StoredDoc | undefined,
    readSet: HistoryReadSet | undefined,
    use: (doc: DocHistory | null) => R,
    countChars?: (chars: number) => void,
  ): R
}

/** @param madeAt when the database was made, in ms since 1970 */
export function memoryHistory({ read, page, callWith }: HistoryReads, madeAt: number): HistoryStore {
  const paged = <R>(
    docs: (state: State) => readonly StoredDoc[],
    paging: HistoryPaging,
    each: (doc: DocHistory, view: StoreView) => R,
  ) =>
    read((state, view) =>
      page(docs(state), paging, view, (row, count) =>
        callWith(row, paging.readSet, (doc) => each(doc as DocHistory, view), count),
      ),
    )
  return {
    horizon: () =>
      read(({ historySince, docs }) => {
        const times = [...docs.values()].flatMap(({ rows }) => [...rows.values()].map((row) => row.storedAt))
        const begun = times.reduce((least, time) => Math.min(least, time), madeAt)
        return { whole: historySince, timed: 0, begun }
      }),
    readDocs: (ids, each, readSet) =>
      read((state, view) =>
        ids.map((id) => callWith(state.docs.get(id), readSet, (doc) => each(doc, id, view))),
      ),
    readRange: (range, paging, each) =>
      paged(
        (state) => idsInRange(state.docs.keys(), range).map((id) => state.docs.get(id) as StoredDoc),
        paging,
        each,
      ),
    readNewest: (before, paging, each) =>
      paged(
        (state) =>
          feedAbove(state, 0)
            .filter(({ seq }) => seq < before)
            .reverse(),
        paging,
        each,
      ),
  }
}
