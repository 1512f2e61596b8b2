/** Reads of one index that notice when another node, or another query, has changed its rows between them. */
import type {
  IndexPosition,
  IndexRow,
  IndexStore,
  KeyRange,
  ReadRange,
  RowCounts,
} from '../storage/index-store.ts'

/** How often reads are repeated that belong together and have not read the same rows. */
const MOST_TRIES = 5

export class IndexReader {
  readonly #store: IndexStore
  readonly #index: number
  #version: number | null = null
  #isMixed = false

  /** @param index the number of the index in its store */
  constructor(store: IndexStore, index: number) {
    this.#store = store
    this.#index = index
  }

  /** Whether the reads so far have read different versions of the rows. */
  get isMixed(): boolean {
    return this.#isMixed
  }

  #note<T extends { readonly version: number }>(read: T): T {
    this.#version ??= read.version
    if (read.version !== this.#version) this.#isMixed = true
    return read
  }

  async read(
    range: ReadRange,
    limit: number,
  ): Promise<{ readonly rows: IndexRow[]; readonly more: boolean }> {
    return this.#note(await this.#store.read(this.#index, range, limit))
  }

  async readValues(
    range: KeyRange,
  ): Promise<{ readonly values: string[]; readonly next: Uint8Array | null }> {
    return this.#note(await this.#store.readValues(this.#index, range))
  }

  async counts(rowKeys: readonly Uint8Array[]): Promise<RowCounts> {
    return this.#note(await this.#store.counts(this.#index, rowKeys))
  }

  async countBefore(rowKey: Uint8Array): Promise<number> {
    return (await this.counts([rowKey])).before[0] as number
  }

  async rowKeyAt(count: number): Promise<Uint8Array | null> {
    return this.#note(await this.#store.rowKeyAt(this.#index, count)).rowKey
  }

  async reducedRanges(range: KeyRange, limit: number): ReturnType<IndexStore['reducedRanges']> {
    return this.#note(await this.#store.reducedRanges(this.#index, range, limit))
  }

  /** Keeps reductions of buckets that a version had. */
  keepReductions(version: number, reductions: Parameters<IndexStore['keepReductions']>[2]): Promise<void> {
    return this.#store.keepReductions(this.#index, version, reductions)
  }
}

/**
 * Repeats reads that belong together until all of them have read the same rows. A change needs a query, a commit and a
 * round trip of its own, so this ends soon; where it does not, the answer of the last try is taken as it is.
 */
export async function inOneVersion<R>(
  { store, index }: { readonly store: IndexStore; readonly index: number },
  work: (reader: IndexReader) => Promise<R>,
): Promise<R> {
  for (let left = MOST_TRIES; ; left--) {
    const reader = new IndexReader(store, index)
    const result = await work(reader)
    if (!reader.isMixed || left <= 1) return result
  }
}

/** The sequence number of what an index includes; 0 for an empty one. */
export function seqOf(position: IndexPosition | null): number {
  return position?.seq ?? 0
}
