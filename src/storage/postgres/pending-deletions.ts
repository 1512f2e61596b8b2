/** Removes the rows of deleted databases, a few at a time. Any node does it, each for another database. */
import { setTimeout as rest } from 'node:timers/promises'
import type { Connections, Run } from './connections.ts'

/** How long a database is deleted before its rows are, in ms: statements under way have ended then, and add no more. */
const DELAY_MS = 60_000
/** The interval between two looks for deleted databases, in ms. */
const LOOK_MS = 10_000
/** Rows of one statement, and how long it should take, in ms. */
const MIN_ROWS = 16
const MAX_ROWS = 2000
const QUICK_MS = 20
const SLOW_MS = 100

/** Of whatever part of settee: all tables whose rows belong to a database. */
const FIND_TABLES = {
  name: 'find_tables_of_databases',
  text: `SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'settee'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'db' AND NOT a.attisdropped
      AND c.relname NOT IN ('entry', 'leaving', 'database') ORDER BY 1`,
}
const TAKE = {
  name: 'take_leaving',
  text: `SELECT db FROM leaving WHERE since < now() - $1 * interval '1 ms' ORDER BY db LIMIT 1
    FOR UPDATE SKIP LOCKED`,
}
/** Makes PostgreSQL go to the rows by their places, not look at all rows of the database for each step. */
const BY_PLACE = {
  name: 'remove_by_place',
  text: `SELECT set_config('cpu_index_tuple_cost', '1000000', true)`,
}
const FORGET = { name: 'forget_leaving', text: 'DELETE FROM leaving WHERE db = $1' }

interface PendingDeletionsOptions {
  readonly connections: Connections
  /** By default {@link DELAY_MS} and {@link LOOK_MS}; for tests. */
  readonly delayMs?: number | undefined
  readonly lookMs?: number | undefined
}

export class PendingDeletions {
  readonly #connections: Connections
  readonly #delayMs: number
  readonly #lookMs: number
  readonly #ending = new AbortController()
  #work: Promise<void> | null = null

  constructor({ connections, delayMs = DELAY_MS, lookMs = LOOK_MS }: PendingDeletionsOptions) {
    this.#connections = connections
    this.#delayMs = delayMs
    this.#lookMs = lookMs
  }

  /** Begins to look for deleted databases. Idempotent. */
  start(): void {
    this.#work ??= this.#run()
  }

  /** Ends after the step under way. Idempotent. */
  async close(): Promise<void> {
    this.#ending.abort()
    await this.#work
  }

  async #run(): Promise<void> {
    while (!this.#ending.signal.aborted) {
      // A store that is not reached now is asked again later.
      await this.#removeAll().catch(() => undefined)
      await this.#pause(this.#lookMs)
    }
  }

  async #removeAll(): Promise<void> {
    const tables = await this.#connections.read<[table: string]>({
      ...FIND_TABLES,
      values: [],
      isBackground: true,
    })
    const steps = tables.map(([table]) => new TableStep(table))
    while (!this.#ending.signal.aborted) {
      const since = performance.now()
      if (!(await this.#connections.transaction((run) => this.#step(run, steps), true))) return
      // Half of the time is left to others.
      await this.#pause(performance.now() - since)
    }
  }

  /** @returns false if there is nothing to do */
  async #step(run: Run, steps: readonly TableStep[]): Promise<boolean> {
    const [taken] = await run<[db: number]>({ ...TAKE, values: [this.#delayMs] })
    if (taken === undefined) return false
    await run({ ...BY_PLACE, values: [] })
    for (const step of steps) if (await step.remove(run, taken[0])) return true
    await run({ ...FORGET, values: taken })
    return true
  }

  #pause(ms: number): Promise<unknown> {
    return rest(ms, undefined, { signal: this.#ending.signal }).catch(() => undefined)
  }
}

/** The removal of rows from one table. */
class TableStep {
  readonly #table: string
  #rows = MIN_ROWS

  constructor(table: string) {
    this.#table = table
  }

  /** @returns whether there were rows of the database */
  async remove(run: Run, db: number): Promise<boolean> {
    const name = `remove_of_${this.#table}`
    const table = `"${this.#table}"`
    const text = `DELETE FROM ${table} WHERE db = $1 AND ctid = ANY(ARRAY(
      SELECT ctid FROM ${table} WHERE db = $1 LIMIT $2)) RETURNING 1`
    const since = performance.now()
    const removed = await run({ name, text, values: [db, this.#rows] })
    const took = performance.now() - since
    if (took > SLOW_MS) this.#rows = Math.max(MIN_ROWS, this.#rows >> 1)
    else if (took < QUICK_MS) this.#rows = Math.min(MAX_ROWS, this.#rows * 2)
    return removed.length > 0
  }
}
