/**
 * Compaction: superseded bodies go, then blobs that nothing names, and the pages they took go back to the file
 * system. It works in steps of a few milliseconds, each a write among others in the group commit, and rests
 * between two for as long as the step took, so that whoever reads and writes meanwhile is held up by one step.
 */
import { setTimeout as rest } from 'node:timers/promises'
import type { CompactionProgress } from '../engine.ts'
import type { Access } from './access.ts'
import type { Blobs } from './blobs.ts'
import type { Connection } from './connection.ts'
import type { Documents } from './documents.ts'
import type { Holds } from './holds.ts'
import type { Statement } from './statement.ts'

/** How long one step works, in ms: less than a group of writes may take. */
const STEP_MS = 3
/** About the bytes a step writes: few enough for the writes that have arrived to share its commit. */
const STEP_BYTES = 64 * 1024
const LONGEST_REST_MS = 10
/** Rows looked at in one query. */
const ROWS = 64
/** Chunks, and pages, that go at once: less than a millisecond's work. */
const CHUNKS = 4
const PAGES = 4

/** What each part takes of the whole, in hundredths, by the measure of many small documents. */
const PARTS = { revisions: 60, blobs: 10, pages: 30 } as const
const TOTAL = 100

type Listener = (progress: CompactionProgress) => void

interface Surroundings {
  readonly access: Access
  readonly documents: Documents
  readonly blobs: Blobs
  readonly holds: Holds
}

/** Where a walk over a table stands. */
interface Place {
  /** The last row that is done with. */
  readonly at: number
  /** A blob that is found no more, and not yet gone. */
  readonly left?: number
}

export class Compaction {
  readonly #connection: Connection
  readonly #around: Surroundings
  readonly #revisions: Statement<{ num: number; leaf: number }>
  readonly #blobs: Statement<{ num: number; state: string }>
  readonly #named: Statement
  readonly #condemn: Statement
  readonly #freePages: Statement<{ freelist_count: number }>
  readonly #listeners = new Set<Listener>()
  #done = 0
  #running: Promise<void> | undefined

  constructor(connection: Connection, around: Surroundings) {
    this.#connection = connection
    this.#around = around
    this.#revisions = connection.prepare(
      `SELECT num, leaf FROM revision WHERE num > ? ORDER BY num LIMIT ${ROWS}`,
    )
    this.#blobs = connection.prepare(`SELECT num, state FROM blob WHERE num > ? ORDER BY num LIMIT ${ROWS}`)
    this.#named = connection.prepare('SELECT 1 FROM attachment WHERE blob = ? LIMIT 1')
    // As a content that never arrived whole: nobody finds it, and what a crash leaves of it the next opening sweeps.
    this.#condemn = connection.prepare("UPDATE blob SET sha256 = NULL, state = 'staging' WHERE num = ?")
    this.#freePages = connection.prepare('PRAGMA freelist_count')
  }

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /**
   * Compacts, or joins the compaction that is at work.
   * @param onProgress called now and then; must not throw
   * @throws unavailable when the store is closed meanwhile, insufficient_storage, internal_server_error
   */
  run(onProgress?: Listener): Promise<void> {
    if (onProgress !== undefined) this.#listeners.add(onProgress)
    this.#running ??= this.#all().finally(() => {
      this.#running = undefined
      this.#listeners.clear()
    })
    return this.#running
  }

  /** Resolves when none is at work, whatever came of it. */
  async ended(): Promise<void> {
    await this.#running?.catch(() => undefined)
  }

  async #all(): Promise<void> {
    this.#done = -1
    this.#tell(0)
    await this.#scan('revision', PARTS.revisions, 0, (above, last) => this.#removeSuperseded(above, last))
    await this.#scan('blob', PARTS.blobs, PARTS.revisions, (above, last) => this.#removeUnnamed(above, last))
    await this.#returnPages(TOTAL - PARTS.pages)
    this.#around.access.read(() => this.#connection.checkpoint())
    this.#tell(TOTAL)
  }

  /** Walks over the rows that a table has now, in steps. */
  async #scan(
    table: 'revision' | 'blob',
    weight: number,
    before: number,
    step: (above: number, last: number) => Place,
  ): Promise<void> {
    const last = this.#around.access.read(() => this.#lastOf(table))
    for (let at = 0; at < last; ) {
      const place = await this.#step(() => step(at, last))
      if (place.left !== undefined) await this.#removeRest(place.left)
      at = place.at
      this.#tell(before + Math.floor((weight * Math.min(at, last)) / last))
    }
  }

  #lastOf(table: 'revision' | 'blob'): number {
    const sql = `SELECT coalesce(max(num), 0) AS num FROM ${table}`
    return this.#connection.prepare<{ num: number }>(sql).get()?.num ?? 0
  }

  async #step<R>(work: () => R): Promise<R> {
    const began = performance.now()
    const result = await this.#around.access.writeOne(STEP_BYTES, work)
    await rest(Math.min(performance.now() - began, LONGEST_REST_MS))
    return result
  }

  #removeSuperseded(above: number, last: number): Place {
    const until = performance.now() + STEP_MS
    for (let at = above; ; ) {
      const rows = this.#revisions.all(at)
      for (const { num, leaf } of rows) {
        at = num
        if (leaf === 1) continue
        this.#around.documents.expireRevision(num)
        if (performance.now() > until) return { at }
      }
      if (rows.length < ROWS) return { at: last }
      if (performance.now() > until) return { at }
    }
  }

  #removeUnnamed(above: number, last: number): Place {
    const until = performance.now() + STEP_MS
    for (let at = above; ; ) {
      const rows = this.#blobs.all(at)
      for (const { num, state } of rows) {
        at = num
        if (this.#isWanted(num, state)) continue
        this.#condemn.run(num)
        if (!this.#around.blobs.removeSome(num, CHUNKS)) return { at, left: num }
        if (performance.now() > until) return { at }
      }
      if (rows.length < ROWS) return { at: last }
      if (performance.now() > until) return { at }
    }
  }

  #isWanted(blob: number, state: string): boolean {
    return state !== 'stored' || this.#around.holds.isHeld(blob) || this.#named.get(blob) !== undefined
  }

  async #removeRest(blob: number): Promise<void> {
    for (let isGone = false; !isGone; ) isGone = await this.#step(() => this.#removeChunks(blob))
  }

  /** @returns whether the blob is gone */
  #removeChunks(blob: number): boolean {
    const until = performance.now() + STEP_MS
    while (performance.now() < until) if (this.#around.blobs.removeSome(blob, CHUNKS)) return true
    return false
  }

  /** As many pages as are free now, so that writers that free others cannot make this endless. */
  async #returnPages(before: number): Promise<void> {
    const all = this.#around.access.read(() => this.#free())
    for (let left = all; left > 0; ) {
      const returned = await this.#step(() => this.#returnSome())
      if (returned === 0) return
      left -= returned
      this.#tell(before + Math.floor((PARTS.pages * Math.min(all - left, all)) / all))
    }
  }

  /** @returns how many pages there are less */
  #returnSome(): number {
    const until = performance.now() + STEP_MS
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

  #tell(done: number): void {
    if (done <= this.#done) return
    this.#done = done
    for (const listener of this.#listeners) listener({ done, total: TOTAL })
  }
}
