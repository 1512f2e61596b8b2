/** One connection to PostgreSQL, with the settings and types of settee. */
import pg from 'pg'
import type { StoreAddress } from '../store-address.ts'
import { clientOptions } from './client-options.ts'
import {
  type Answer,
  type AskedStatement,
  decoderOf,
  type KnownColumns,
  PreparedQuery,
  type Row,
} from './prepared-query.ts'
import { isAnswer } from './store-fault.ts'

/** How long a connection may take, in ms. */
const CONNECT_MS = 5000
/** How long PostgreSQL may work on a statement, in ms. */
const STATEMENT_MS = 10_000
/**
 * After how much silence the kernel asks whether the server is there, in ms; Node lets it ask ten times, a second apart. So networks
 * that forget silent connections, after minutes, do not forget these, and one that is cut is known to be.
 */
const KEEP_ALIVE_MS = 10_000
/** How long an answer may take, in ms. Beyond this the connection is given up, as if the network were cut. */
const ANSWER_MS = 12_000

/**
 * Settings of a connection. A plan that is made while tables are empty stays bad when they have grown: scans of whole tables are
 * never right here.
 */
export const SESSION_SETTINGS: readonly string[] = [
  'enable_seqscan = off',
  'enable_bitmapscan = off',
  'jit = off',
  'enable_hashjoin = off',
  'enable_mergejoin = off',
  'max_parallel_workers_per_gather = 0',
  'search_path = settee',
  'extra_float_digits = 0',
  // Roles and databases may have another default, with which writes at the same time would fail.
  "default_transaction_isolation = 'read committed'",
]
/**
 * A plan for each set of values costs more than most of the statements. But Citus can plan many statements only once it knows
 * the database.
 */
const GENERIC_PLANS = `SELECT set_config('plan_cache_mode', 'force_generic_plan', false)
  WHERE to_regclass('pg_catalog.pg_dist_partition') IS NULL`
const SESSION = [...SESSION_SETTINGS.map((setting) => `SET ${setting}`), GENERIC_PLANS].join('; ')

interface ConnectionOptions {
  readonly address: StoreAddress
  /** Called before it is made; if it throws, it is not made. */
  before(): void
  /** Called when it cannot be used any more. */
  onBroken(connection: StoreConnection): void
  /** Called when a statement was not answered in time: the network may be cut. */
  onSilent(): void
  /** Whether statements are sent by its `client`, which then limits their time. */
  readonly isDedicated: boolean
}

export class StoreConnection {
  readonly client: pg.Client
  /** Rejects with an error of pg if it cannot be made. */
  readonly ready: Promise<void>
  readonly #known: KnownColumns = new Map()
  /** When the statements were sent that are not answered, in the order of their answers. */
  readonly #sent: number[] = []
  #timer: NodeJS.Timeout | undefined
  #isReady = false
  #isBroken = false
  /** Whether statements are held back until the end of the turn. */
  #isGathering = false
  readonly #onBroken: (connection: StoreConnection) => void
  readonly #onSilent: () => void

  constructor({ address, before, onBroken, onSilent, isDedicated }: ConnectionOptions) {
    this.#onBroken = onBroken
    this.#onSilent = onSilent
    this.client = new pg.Client({
      ...clientOptions(address),
      types: { getTypeParser: (type) => decoderOf(type) ?? String },
      pipeline: true,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
      connectionTimeoutMillis: CONNECT_MS,
      statement_timeout: STATEMENT_MS,
      idle_in_transaction_session_timeout: STATEMENT_MS,
      ...(isDedicated && { query_timeout: ANSWER_MS }),
    })
    // Its statements reject as well; without a listener the process would end.
    this.client.on('error', () => this.break())
    this.client.on('end', () => this.break())
    this.ready = this.#begin(before)
    this.ready.catch(() => this.break())
  }

  async #begin(before: () => void): Promise<void> {
    before()
    await this.client.connect()
    await this.client.query(SESSION)
    this.#isReady = true
  }

  get isReady(): boolean {
    return this.#isReady
  }

  /** The number of statements that are not answered. */
  get pending(): number {
    return this.#sent.length
  }

  get isBroken(): boolean {
    return this.#isBroken
  }

  /**
   * Sends a statement, without waiting for the answers to earlier ones.
   * @throws an error of pg
   */
  ask<R extends Row>(statement: AskedStatement): Promise<Answer<R>> {
    return new Promise((resolve, reject) => {
      this.#sent.push(performance.now())
      this.#timer ??= this.#watch(ANSWER_MS)
      this.#gather()
      const query = new PreparedQuery(statement, this.#known, (error, answer) => {
        this.#sent.shift()
        if (answer !== undefined) return resolve(answer as Answer<R>)
        // After anything but an answer, such as a cut connection, nobody knows what the next one would belong to.
        if (!isAnswer(error)) this.break()
        reject(error)
      })
      this.client.query(query)
    })
  }

  /** Gives the connection up if its oldest statement is not answered in time. One timer for all costs least. */
  #watch(ms: number): NodeJS.Timeout {
    const timer = setTimeout(() => {
      const [oldest] = this.#sent
      const left = oldest === undefined ? null : oldest + ANSWER_MS - performance.now()
      this.#timer = left === null || left <= 0 ? undefined : this.#watch(left)
      if (left === null || left > 0) return
      this.destroy()
      this.#onSilent()
    }, ms)
    return timer.unref()
  }

  /** Sends the statements of a turn together: 16 readers at once take 13 us of CPU time for each instead of 19. */
  #gather(): void {
    if (this.#isGathering) return
    this.#isGathering = true
    const { stream } = this.client.connection
    stream.cork()
    setImmediate(() => {
      this.#isGathering = false
      stream.uncork()
    })
  }

  /** Gives it up without a word to the server, who may not be there. Idempotent. */
  destroy(): void {
    this.break()
    this.client.connection.stream.destroy()
  }

  /** Gives it up. Idempotent. */
  break(): void {
    if (this.#isBroken) return
    this.#isBroken = true
    this.#onBroken(this)
    this.client.end().catch(() => undefined)
  }
}
