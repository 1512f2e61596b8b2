/** The sizes of a database: of its file, from counters, and of its parts, from a scan. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { GarbageCounts, SizePart, StoreSizes } from '../upkeep.ts'
import type { Connection } from './connection.ts'
import type { DatabaseAccess } from './database-access.ts'
import type { GarbageCounters } from './garbage.ts'
import { fileBytes, logOf } from './page-copy.ts'
import type { State } from './state.ts'
import type { Statement } from './statement.ts'

/** How long a scan works before it yields, in ms. */
const TURN_MS = 3
/** The approximate size of a superseded revision besides its body: its rows in a table and two indexes. */
const ROW_BYTES = 200
/** Rows that one query reads. */
const ROWS = 200

interface Dependencies {
  readonly access: DatabaseAccess
  readonly state: State
  readonly garbage: GarbageCounters
}

/** A row's key, which of the counts it belongs to, and its bytes. */
type Counted = readonly [key: number | string, kind: number, bytes: number]

/** The queries of the scans. Bodies are live (0), tombstones (1) or neither (2); all other rows are 0. */
const WALKS = {
  bodies:
    'SELECT num, CASE WHEN leaf THEN deleted ELSE 2 END, octet_length(body) FROM revision ' +
    'WHERE num > ? ORDER BY num LIMIT ?',
  blobs: 'SELECT num, 0, length FROM blob WHERE num > ? ORDER BY num LIMIT ?',
  locals: 'SELECT id, 0, octet_length(body) FROM local WHERE id > ? ORDER BY id LIMIT ?',
} as const

export class Sizes {
  readonly #connection: Connection
  readonly #path: string
  readonly #deps: Dependencies
  readonly #pageCount: Statement<{ page_count: number }>
  readonly #freeCount: Statement<{ freelist_count: number }>
  #garbage: GarbageCounts | undefined

  /** @param path of the file */
  constructor(connection: Connection, path: string, deps: Dependencies) {
    this.#connection = connection
    this.#path = path
    this.#deps = deps
    this.#pageCount = connection.prepare('PRAGMA page_count')
    this.#freeCount = connection.prepare('PRAGMA freelist_count')
  }

  /** For the database's information object. */
  info(): { readonly file: number; readonly active: number; readonly external: number } {
    const { state, garbage } = this.#deps
    const used = this.#pages() - this.#free()
    return {
      file: this.#file(),
      active: Math.max(0, used * this.#connection.pageSize - garbage.counts.retainedBytes),
      external: state.externalBytes,
    }
  }

  /** Called regularly: reads nothing unless the database was written to. */
  garbage(): GarbageCounts {
    if (this.#garbage?.writes !== this.#deps.garbage.writes) this.#garbage = this.#readGarbage()
    return this.#garbage
  }

  #readGarbage(): GarbageCounts {
    const { state, garbage } = this.#deps
    const { supersededRows, supersededBytes, maybeUnreferencedBytes, oldestRetained, compactedAt } =
      garbage.counts
    const { compactedPurge, longestAncestry } = garbage.counts
    return {
      writes: garbage.writes,
      storedBytes: this.#pages() * this.#connection.pageSize,
      freeBytes: this.#free() * this.#connection.pageSize,
      supersededBytes: supersededBytes + supersededRows * ROW_BYTES,
      maybeUnreferencedBytes,
      oldestRetained: oldestRetained === 0 ? null : oldestRetained,
      compactedAt,
      needsCompaction:
        state.purgeSeq > compactedPurge ||
        longestAncestry > state.view.revsLimit ||
        garbage.counts.unsummed > 0,
    }
  }

  /** Scans bodies, contents and `_local` documents in short turns. @throws unavailable when the store is closed */
  async count(): Promise<StoreSizes> {
    const [live, tombstones] = await this.#walk('bodies', 0)
    const [attachments] = await this.#walk('blobs', 0)
    const [local] = await this.#walk('locals', '')
    return this.#deps.access.read(() => this.#whole({ live, tombstones, attachments, local }))
  }

  #whole(walked: Pick<StoreSizes, 'live' | 'tombstones' | 'attachments' | 'local'>): StoreSizes {
    const { supersededRows, supersededBytes, retainedRows, retainedBytes } = this.#deps.garbage.counts
    const old = { count: supersededRows, bytes: supersededBytes }
    const kept = { count: retainedRows, bytes: retainedBytes }
    const count = this.#free()
    const free = { count, bytes: count * this.#connection.pageSize }
    const parts = [...Object.values(walked), old, kept, free]
    const pages = this.#pages() * this.#connection.pageSize
    const indexes = { bytes: Math.max(0, pages - parts.reduce((sum, { bytes }) => sum + bytes, 0)) }
    const file = this.#file()
    // A page is in the file, in the log, or in both.
    return { file, ...walked, old, kept, indexes, free, log: { bytes: file - pages } }
  }

  async #walk(what: keyof typeof WALKS, first: number | string): Promise<[SizePart, SizePart]> {
    const page = this.#connection.prepareTuples<Counted>(WALKS[what])
    const sums = [new Sum(), new Sum(), new Sum()] as const
    let last: number | string | null = first
    while (last !== null) {
      const from: number | string = last
      last = this.#deps.access.read(() => stretch(page, from, sums))
      await nextTurn()
    }
    return [sums[0], sums[1]].map(({ count, bytes }) => ({ count, bytes })) as [SizePart, SizePart]
  }

  #pages(): number {
    return this.#pageCount.get()?.page_count ?? 0
  }

  #free(): number {
    return this.#freeCount.get()?.freelist_count ?? 0
  }

  /** The size of the file and its log, in bytes. */
  #file(): number {
    return fileBytes(this.#path) + fileBytes(logOf(this.#path))
  }
}

class Sum {
  count = 0
  bytes = 0
}

/** Counts as many rows as a turn has time for. @returns the last key; null at the end */
function stretch(
  page: Statement<Counted>,
  first: number | string,
  sums: readonly [Sum, Sum, Sum],
): number | string | null {
  const until = performance.now() + TURN_MS
  for (let last = first; ; ) {
    const rows = page.all(last, ROWS)
    for (const [key, kind, bytes] of rows) {
      const sum = sums[kind] as Sum
      sum.count += 1
      sum.bytes += bytes
      last = key
    }
    if (rows.length < ROWS) return null
    if (performance.now() > until) return last
  }
}
