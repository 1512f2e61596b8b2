/**
 * Compaction. It removes superseded bodies or retains them for the time machine, cuts ancestries to the limit, removes
 * blobs that no revision names, notes checksums that an older settee did not, and returns the free pages to the file
 * system. It works in steps of a few milliseconds,
 * each a write in the group commit. After each step it pauses for as long as the step took, so that other reads and
 * writes wait for at most one step.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { hasForegroundWrite } from '../../core/event-loop.ts'
import type { CompactOptions } from '../upkeep.ts'
import type { Blobs } from './blobs.ts'
import type { Connection } from './connection.ts'
import type { DatabaseAccess } from './database-access.ts'
import type { GarbageCounters, Superseded, SupersededRow } from './garbage.ts'
import type { Revisions } from './revisions.ts'
import type { State } from './state.ts'
import type { Statement } from './statement.ts'
import { SummedRows } from './summed-rows.ts'
import { FIRST_ROW, type RowPosition, walkTables } from './table-walk.ts'
import type { References } from './uploads.ts'

/** The maximum duration of a step, in ms: less than a group commit may take, and shorter during foreground writes. */
const STEP_MS = 3
const SHORT_STEP_MS = 1
/** The pause during foreground writes, as a multiple of the step. */
const FOREGROUND_PAUSE_FACTOR = 2
/** The approximate size of a step's writes, small enough for waiting writes to share its commit. */
const STEP_BYTES = 64 * 1024
const MAX_PAUSE_MS = 10
/** Rows that one query reads. */
const ROWS = 64
/** The same for rows that are mostly skipped. */
const LONG_ROWS = 500
const MINUTE_MS = 60_000
/** Chunks and pages that are removed at once, in less than a millisecond. */
const CHUNKS = 4
const PAGES = 4

/** The share of each part in the whole, in percent, measured with many small documents. */
const PARTS = { superseded: 50, ancestries: 10, blobs: 10, pages: 30 } as const
const TOTAL = 100
const BEFORE = {
  superseded: 0,
  ancestries: PARTS.superseded,
  blobs: PARTS.superseded + PARTS.ancestries,
  pages: TOTAL - PARTS.pages,
} as const

type Listener = NonNullable<CompactOptions['onProgress']>

interface Dependencies {
  readonly access: DatabaseAccess
  readonly revisions: Revisions
  readonly superseded: Superseded
  readonly blobs: Blobs
  readonly references: References
  readonly state: State
  readonly garbage: GarbageCounters
  /** The time, in ms since 1970. */
  now(): number
}

/** The position of a scan of a table. */
interface Position {
  /** The key of the last row that was processed. */
  readonly at: number
  /** A blob that is marked for removal and still has chunks. */
  readonly unfinishedBlob?: number
}

/** The tables that a compaction scans, and their keys. */
const TABLES = { superseded: 'revision', revision: 'num', blob: 'num' } as const

function stepMs(): number {
  return hasForegroundWrite() ? SHORT_STEP_MS : STEP_MS
}

export class Compaction {
  readonly #connection: Connection
  readonly #deps: Dependencies
  readonly #blobs: Statement<{ num: number; state: string }>
  readonly #named: Statement
  readonly #markUnfinished: Statement
  readonly #freePages: Statement<{ freelist_count: number }>
  readonly #listeners = new Set<Listener>()
  #done = 0
  #running: Promise<void> | undefined

  constructor(connection: Connection, deps: Dependencies) {
    this.#connection = connection
    this.#deps = deps
    this.#blobs = connection.prepare(`SELECT num, state FROM blob WHERE num > ? ORDER BY num LIMIT ${ROWS}`)
    this.#named = connection.prepare('SELECT 1 FROM attachment WHERE blob = ? LIMIT 1')
    // An unfinished upload: no query finds it, and after a crash the next opening removes its remaining chunks.
    this.#markUnfinished = connection.prepare(
      "UPDATE blob SET sha256 = NULL, state = 'staging' WHERE num = ?",
    )
    this.#freePages = connection.prepare('PRAGMA freelist_count')
  }

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /**
   * Compacts, or joins the running compaction, which keeps its own options.
   * @throws unavailable when the store is closed during the compaction, insufficient_storage, internal_server_error
   */
  run({ onProgress, ...options }: CompactOptions): Promise<void> {
    if (onProgress !== undefined) this.#listeners.add(onProgress)
    this.#running ??= this.#all(options).finally(() => {
      this.#running = undefined
      this.#listeners.clear()
    })
    return this.#running
  }

  /** Resolves when no compaction is running; never rejects. */
  async ended(): Promise<void> {
    await this.#running?.catch(() => undefined)
  }

  async #all({ keepSince = Infinity, keepBytes = Infinity }: CompactOptions): Promise<void> {
    this.#done = -1
    this.#reportProgress(0)
    const { access, state, garbage } = this.#deps
    const { maybeUnreferencedBytes, longestAncestry } = access.read(() => garbage.counts)
    const { purgeSeq } = state
    const { revsLimit } = state.view
    let kept = await this.#clearSuperseded(keepSince)
    if (access.read(() => garbage.counts.retainedBytes) > keepBytes) {
      kept = await this.#clearSuperseded(await this.#keepSinceFor(keepBytes))
    }
    if (longestAncestry > revsLimit) await this.#cutAncestries(revsLimit)
    await this.#scan('blob', 'blobs', (above, last) => this.#removeUnnamed(above, last))
    if (access.read(() => garbage.counts.unsummed) > 0) await this.#noteChecksums()
    await this.#step(() =>
      garbage.compacted({
        unsummed: 0,
        oldestRetained: kept.oldest,
        maybeUnreferencedBytes,
        compactedPurge: purgeSeq,
        longestAncestry: Math.max(revsLimit, state.view.revsLimit),
        compactedAt: this.#deps.now(),
      }),
    )
    await this.#returnPages()
    access.read(() => this.#connection.checkpoint())
    this.#reportProgress(TOTAL)
  }

  /** @returns when the oldest retained revision was superseded, in ms since 1970; 0 if none is retained */
  async #clearSuperseded(keepSince: number): Promise<{ readonly oldest: number }> {
    const kept = { oldest: 0 }
    const note = (at: number) => {
      kept.oldest = kept.oldest === 0 ? at : Math.min(kept.oldest, at)
    }
    await this.#scan('superseded', 'superseded', (above, last) =>
      this.#walk(
        (at) => this.#deps.superseded.page(at, ROWS),
        { above, last },
        (row) => {
          if (row.at > keepSince) note(row.at)
          this.#clear(row, keepSince)
        },
      ),
    )
    return kept
  }

  /** @returns the time, in ms since 1970, such that all bodies superseded after it fit into `bytes` together */
  async #keepSinceFor(bytes: number): Promise<number> {
    const { access, superseded } = this.#deps
    const byMinute = new Map<number, number>()
    for (let at: number | null = 0; at !== null; await nextTurn()) {
      const above: number = at
      const rows = access.read(() => superseded.page(above, LONG_ROWS))
      for (const { at, kept, bytes } of rows) {
        const minute = Math.floor(at / MINUTE_MS)
        byMinute.set(minute, (byMinute.get(minute) ?? 0) + kept * bytes)
      }
      at = rows.at(-1)?.revision ?? null
    }
    let left = bytes
    for (const [minute, minuteBytes] of [...byMinute].sort(([a], [b]) => b - a)) {
      left -= minuteBytes
      if (left < 0) return (minute + 1) * MINUTE_MS - 1
    }
    return 0
  }

  #clear({ revision, at, kept }: SupersededRow, keepSince: number): void {
    if (at <= keepSince) this.#deps.revisions.expire(revision)
    else if (kept === 0) this.#deps.superseded.keep(revision, at)
  }

  /** Reads all leaves, so it runs only after the limit was lowered. */
  async #cutAncestries(revsLimit: number): Promise<void> {
    const { revisions } = this.#deps
    await this.#scan('revision', 'ancestries', (above, last) =>
      this.#walk(
        (at) => revisions.ancestries(at, LONG_ROWS),
        { above, last },
        (row) => revisions.cutAncestry(row, revsLimit),
      ),
    )
  }

  async #noteChecksums(): Promise<void> {
    const tables = new SummedRows(this.#connection).tablesToFill()
    for (let next: RowPosition | null = FIRST_ROW; next !== null; ) {
      const position: RowPosition = next
      next = await this.#step(() =>
        walkTables(this.#connection, tables, position, performance.now() + stepMs()),
      )
    }
  }

  /** Processes the current rows of a table, in steps. */
  async #scan(
    table: keyof typeof TABLES,
    part: keyof typeof PARTS,
    step: (above: number, last: number) => Position,
  ): Promise<void> {
    const last = this.#deps.access.read(() => this.#lastOf(table))
    for (let at = 0; at < last; ) {
      const position = await this.#step(() => step(at, last))
      if (position.unfinishedBlob !== undefined) await this.#removeRest(position.unfinishedBlob)
      at = position.at
      this.#reportProgress(BEFORE[part] + Math.floor((PARTS[part] * Math.min(at, last)) / last))
    }
  }

  /** Processes as many rows as a step has time for, and at least one page. */
  #walk<Row extends { readonly revision: number }>(
    page: (above: number) => readonly Row[],
    { above, last }: { readonly above: number; readonly last: number },
    each: (row: Row) => void,
  ): Position {
    const until = performance.now() + stepMs()
    for (let at = above; ; ) {
      const rows = page(at)
      for (const row of rows) {
        each(row)
        at = row.revision
        if (performance.now() > until) return { at }
      }
      if (rows.length === 0) return { at: last }
    }
  }

  #lastOf(table: keyof typeof TABLES): number {
    const sql = `SELECT coalesce(max(${TABLES[table]}), 0) AS num FROM ${table}`
    return this.#connection.prepare<{ num: number }>(sql).get()?.num ?? 0
  }

  async #step<R>(work: () => R): Promise<R> {
    const began = performance.now()
    const result = await this.#deps.access.writeOne(STEP_BYTES, work)
    const worked = performance.now() - began
    await sleep(Math.min(hasForegroundWrite() ? FOREGROUND_PAUSE_FACTOR * worked : worked, MAX_PAUSE_MS))
    return result
  }

  #removeUnnamed(above: number, last: number): Position {
    const until = performance.now() + stepMs()
    for (let at = above; ; ) {
      const rows = this.#blobs.all(at)
      for (const { num, state } of rows) {
        at = num
        if (this.#isWanted(num, state)) continue
        this.#markUnfinished.run(num)
        if (!this.#deps.blobs.removeSome(num, CHUNKS)) return { at, unfinishedBlob: num }
        if (performance.now() > until) return { at }
      }
      if (rows.length < ROWS) return { at: last }
      if (performance.now() > until) return { at }
    }
  }

  #isWanted(blob: number, state: string): boolean {
    return (
      state !== 'stored' || this.#deps.references.isReferenced(blob) || this.#named.get(blob) !== undefined
    )
  }

  async #removeRest(blob: number): Promise<void> {
    for (let isRemoved = false; !isRemoved; ) isRemoved = await this.#step(() => this.#removeChunks(blob))
  }

  /** @returns whether the whole blob is removed */
  #removeChunks(blob: number): boolean {
    const until = performance.now() + stepMs()
    while (performance.now() < until) if (this.#deps.blobs.removeSome(blob, CHUNKS)) return true
    return false
  }

  /** Returns only the pages that are free now. Otherwise writers that free more pages could make this endless. */
  async #returnPages(): Promise<void> {
    const all = this.#deps.access.read(() => this.#free())
    for (let left = all; left > 0; ) {
      const returned = await this.#step(() => this.#returnSome())
      if (returned === 0) return
      left -= returned
      this.#reportProgress(BEFORE.pages + Math.floor((PARTS.pages * Math.min(all - left, all)) / all))
    }
  }

  /** @returns the number of pages returned to the file system */
  #returnSome(): number {
    const until = performance.now() + stepMs()
    const before = this.#free()
    let free = before
    while (free > 0 && performance.now() < until) {
      this.#connection.exec(`PRAGMA incremental_vacuum(${PAGES})`)
      const after = this.#free()
      if (after >= free) break
      free = after
    }
    return before - free
  }

  #free(): number {
    return this.#freePages.get()?.freelist_count ?? 0
  }

  #reportProgress(done: number): void {
    if (done <= this.#done) return
    this.#done = done
    for (const listener of this.#listeners) listener({ done, total: TOTAL })
  }
}
