/** Connections to PostgreSQL: shared ones for reads, and one for each write that is under way. */
import pg from 'pg'
import { CouchError } from '../../core/errors.ts'
import type { StoreAddress } from '../store-address.ts'
import { clientOptions } from './client-options.ts'
import { isAnswer, isEnd, LostAnswer, storeFault } from './store-fault.ts'

/** A statement that is prepared once for each connection. Equal names mean equal texts. */
export interface Statement {
  readonly name: string
  readonly text: string
}

/** A statement with its values. A list of texts, numbers or booleans is an array of PostgreSQL. */
export interface Query extends Statement {
  readonly values: readonly unknown[]
  /** It is part of no call, so it is not told to {@link ConnectionsOptions.onOperation}. */
  readonly isBackground?: true
}

/**
 * The columns of a row. `bigint` is a number, `bigint[]` a list of numbers, `bytea` a Buffer, and JSON stays text.
 */
export type Row = readonly unknown[]

/** Runs statements inside a transaction. */
export type Run = <R extends Row = Row>(query: Query) => Promise<R[]>

export interface ConnectionsOptions {
  readonly address: StoreAddress
  /** The maximum number of connections. Two of them are for reads, unless there are fewer. */
  readonly size: number
  /** Called before each statement of a call; if it throws, the statement is not sent. For fault tests. */
  readonly onOperation?: ((operation: string) => void) | undefined
}

/** How long a connection may take, in ms. */
const CONNECT_MS = 5000
/** How long PostgreSQL may work on a statement, in ms. */
const STATEMENT_MS = 10_000
/** How long an answer may take, in ms. Beyond this the connection is given up, as if the network were cut. */
const ANSWER_MS = 12_000
/** How long a write waits for a connection, in ms. */
const WAIT_MS = 10_000
/** The maximum number of writes that wait for a connection. */
const MAX_WAITING = 10_000
/** How long it is not tried to connect again after it has failed, in ms. */
const RETRY_MS = 250
/** Statements that a connection for reads may have before another is opened. */
const ENOUGH_READS = 4

const INT8 = 20
const INT8_LIST: number = 1016
const JSON_TYPES: ReadonlySet<number> = new Set([114, 3802])

/** Numbers of settee are below 2^53. JSON is parsed by whoever needs it. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid, format) => {
    if (oid === INT8) return Number
    if (oid === INT8_LIST) return numbersOf
    if (JSON_TYPES.has(oid)) return String
    return pg.types.getTypeParser(oid, format)
  },
}

/** @param list as `{1,2}`, without nulls */
function numbersOf(list: string): number[] {
  return list.length > 2 ? list.slice(1, -1).split(',').map(Number) : []
}

/**
 * Settings of a connection. A plan that is made while tables are empty stays bad when they have grown: scans of whole tables are
 * never right here. A plan for each set of values costs more than most of the statements.
 */
export const SESSION_SETTINGS: readonly string[] = [
  'enable_seqscan = off',
  'enable_bitmapscan = off',
  'jit = off',
  'enable_hashjoin = off',
  'enable_mergejoin = off',
  'max_parallel_workers_per_gather = 0',
  'plan_cache_mode = force_generic_plan',
  'search_path = settee',
  'extra_float_digits = 0',
]
const SESSION = SESSION_SETTINGS.map((setting) => `SET ${setting}`).join('; ')

/** A connection, and how many statements it has not answered. */
interface Line {
  readonly client: pg.Client
  readonly ready: Promise<void>
  pending: number
  isBroken: boolean
  /** Whether statements are held back until the end of the turn. */
  isGathering: boolean
}

interface Answer<R extends Row> {
  readonly rows: R[]
  /** The tag of the command, such as COMMIT. */
  readonly command: string
}

interface Waiting {
  readonly resolve: (line: Line) => void
  readonly reject: (error: unknown) => void
  readonly timer: NodeJS.Timeout
}

export class Connections {
  readonly #options: ConnectionsOptions
  readonly #maxReads: number
  readonly #reads: Line[] = []
  readonly #idle: Line[] = []
  readonly #busy = new Set<Line>()
  readonly #waiting: Waiting[] = []
  /** The last fault of a connection that could not be made, and until when it is not tried again. */
  #refusal: { readonly cause: unknown; readonly until: number } | null = null
  #isClosed = false

  constructor(options: ConnectionsOptions) {
    this.#options = options
    this.#maxReads = options.size < 4 ? 1 : 2
  }

  /**
   * Reads with one statement. Reads share connections and are sent without waiting for the answers to earlier ones, so a
   * read must be short. A read whose connection breaks is sent again: all of them may have been broken by the same fault.
   * @throws the error of {@link storeFault}
   */
  async read<R extends Row = Row>(query: Query): Promise<R[]> {
    const [rows] = await this.#reading((line) => [this.#send<R>(line, query)])
    return rows as R[]
  }

  /**
   * Reads with several statements, which all see one moment, in one round trip.
   * @returns the rows of each
   * @throws as {@link read}
   */
  snapshot(queries: readonly Query[]): Promise<Row[][]> {
    return this.#reading<Row>((line) => [
      this.#command(line, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY'),
      ...queries.map((query) => this.#send(line, query)),
      this.#command(line, 'COMMIT'),
    ]).then((answers) => answers.slice(1, -1))
  }

  async #reading<R extends Row>(send: (line: Line) => Promise<R[]>[]): Promise<R[][]> {
    for (let attempt = 0; ; attempt++) {
      const line = this.#readLine()
      try {
        await line.ready
        return await settled(send(line))
      } catch (cause) {
        if (attempt < this.#maxReads && line.isBroken && !isAnswer(cause) && !(cause instanceof CouchError))
          continue
        throw storeFault(cause)
      }
    }
  }

  /**
   * Writes with one statement, which is a transaction of its own.
   * @throws LostAnswer when it may be stored or not; the error of {@link storeFault} when it is not
   */
  async write<R extends Row = Row>(query: Query): Promise<R[]> {
    const line = await this.#take()
    try {
      return await this.#send<R>(line, query)
    } catch (cause) {
      throw isLost(line, cause) ? new LostAnswer(cause) : storeFault(cause)
    } finally {
      this.#release(line)
    }
  }

  /**
   * Runs a transaction at READ COMMITTED. A throw of `work` rolls it back and is thrown.
   * @param work awaits nothing but statements, so that locks are held for a bounded time
   * @param isBackground as of a {@link Query}
   * @throws as {@link write}
   */
  async transaction<T>(work: (run: Run) => Promise<T>, isBackground = false): Promise<T> {
    const line = await this.#begun()
    let isCommitting = false
    try {
      const result = await work((query) =>
        this.#send(line, isBackground ? { ...query, isBackground } : query),
      )
      isCommitting = true
      if (!isBackground) this.#options.onOperation?.('commit')
      await this.#commit(line)
      return result
    } catch (cause) {
      if (isCommitting && isLost(line, cause)) throw new LostAnswer(cause)
      // A connection whose transaction cannot be ended is of no use.
      await this.#command(line, 'ROLLBACK').catch(() => this.#break(line))
      throw storeFault(cause)
    } finally {
      this.#release(line)
    }
  }

  /** A connection with a transaction. One that broke while it was idle has carried out nothing, and another one is taken. */
  async #begun(): Promise<Line> {
    for (let tries = 0; ; tries++) {
      const line = await this.#take()
      try {
        await this.#command(line, 'BEGIN')
        return line
      } catch (cause) {
        if (!line.isBroken) this.#break(line)
        this.#release(line)
        if (isAnswer(cause) || tries > this.#options.size) throw storeFault(cause)
      }
    }
  }

  /** After an error inside the transaction, COMMIT is answered as if it had succeeded, with the tag ROLLBACK. */
  async #commit(line: Line): Promise<void> {
    const { command } = await this.#ask(line, { text: 'COMMIT' })
    if (command !== 'COMMIT') throw new CouchError('internal_server_error', undefined, { cause: command })
  }

  /**
   * A connection of its own, which the caller ends, such as one that listens.
   * @throws the error of {@link storeFault}
   */
  async dedicated(): Promise<pg.Client> {
    const line = this.#connect(true)
    try {
      await line.ready
      return line.client
    } catch (cause) {
      throw storeFault(cause)
    }
  }

  /** Ends all connections, after the statements under way. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const { reject, timer } of this.#waiting.splice(0)) {
      clearTimeout(timer)
      reject(new CouchError('unavailable'))
    }
    const lines = [...this.#reads.splice(0), ...this.#idle.splice(0), ...this.#busy]
    await Promise.all(lines.map(({ client }) => client.end().catch(() => undefined)))
  }

  #readLine(): Line {
    if (this.#isClosed) throw new CouchError('unavailable')
    const [least] = this.#reads.toSorted((a, b) => a.pending - b.pending)
    const isEnough = this.#reads.length >= this.#maxReads || (least?.pending ?? Infinity) < ENOUGH_READS
    if (least !== undefined && isEnough) return least
    const line = this.#connect()
    this.#reads.push(line)
    return line
  }

  /** @throws store_unavailable if no connection becomes free in time; the fault of a connection that cannot be made */
  async #take(): Promise<Line> {
    if (this.#isClosed) throw new CouchError('unavailable')
    const idle = this.#idle.pop()
    if (idle !== undefined) {
      this.#busy.add(idle)
      return idle
    }
    if (this.#busy.size + this.#maxReads >= Math.max(this.#options.size, this.#maxReads + 1))
      return this.#wait()
    const line = this.#connect()
    this.#busy.add(line)
    try {
      await line.ready
      return line
    } catch (cause) {
      this.#release(line)
      throw storeFault(cause)
    }
  }

  #wait(): Promise<Line> {
    if (this.#waiting.length >= MAX_WAITING) throw new CouchError('store_unavailable')
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        const at = this.#waiting.indexOf(entry)
        if (at >= 0) this.#waiting.splice(at, 1)
        reject(new CouchError('store_unavailable'))
      }, WAIT_MS)
      const entry = { resolve, reject, timer }
      this.#waiting.push(entry)
    })
  }

  #release(line: Line): void {
    this.#busy.delete(line)
    const next = this.#waiting.shift()
    if (next !== undefined) clearTimeout(next.timer)
    if (line.isBroken) {
      // Whoever waits may connect instead.
      if (next !== undefined) this.#take().then(next.resolve, next.reject)
    } else if (next !== undefined) {
      this.#busy.add(line)
      next.resolve(line)
    } else if (!this.#isClosed) this.#idle.push(line)
  }

  #connect(isBackground = false): Line {
    const client = new pg.Client({
      ...clientOptions(this.#options.address),
      types,
      pipeline: true,
      keepAlive: true,
      connectionTimeoutMillis: CONNECT_MS,
      statement_timeout: STATEMENT_MS,
      idle_in_transaction_session_timeout: STATEMENT_MS,
      query_timeout: ANSWER_MS,
    })
    const line: Line = {
      client,
      ready: this.#begin(client, isBackground),
      pending: 0,
      isBroken: false,
      isGathering: false,
    }
    // Its statements reject as well; without a listener the process would end.
    client.on('error', () => this.#break(line))
    client.on('end', () => this.#break(line))
    line.ready.catch(() => this.#break(line))
    return line
  }

  async #begin(client: pg.Client, isBackground: boolean): Promise<void> {
    if (this.#refusal !== null && performance.now() < this.#refusal.until) throw this.#refusal.cause
    if (!isBackground) this.#options.onOperation?.('connect')
    try {
      await client.connect()
      await client.query(SESSION)
      this.#refusal = null
    } catch (cause) {
      this.#refusal = { cause, until: performance.now() + RETRY_MS }
      throw cause
    }
  }

  #break(line: Line): void {
    line.isBroken = true
    for (const lines of [this.#reads, this.#idle]) {
      const at = lines.indexOf(line)
      if (at >= 0) lines.splice(at, 1)
    }
    line.client.end().catch(() => undefined)
  }

  async #send<R extends Row>(line: Line, { name, text, values, isBackground }: Query): Promise<R[]> {
    if (!isBackground) this.#options.onOperation?.(name)
    const { rows } = await this.#ask<R>(line, { name, text, values: values as unknown[] })
    return rows
  }

  async #command(line: Line, text: string): Promise<never[]> {
    await this.#ask(line, { text })
    return []
  }

  async #ask<R extends Row>(line: Line, query: pg.QueryConfig): Promise<Answer<R>> {
    line.pending += 1
    gather(line)
    try {
      return (await line.client.query({ ...query, rowMode: 'array' })) as unknown as Answer<R>
    } catch (cause) {
      // After anything but an answer, such as no answer in time, nobody knows what the next one would belong to.
      if (!isAnswer(cause) || isEnd(cause)) this.#break(line)
      throw cause
    } finally {
      line.pending -= 1
    }
  }
}

/** Sends the statements of a turn together: 16 readers at once take 13 us of CPU time for each instead of 19. */
function gather(line: Line): void {
  if (line.isGathering) return
  line.isGathering = true
  const { stream } = line.client.connection
  stream.cork()
  setImmediate(() => {
    line.isGathering = false
    stream.uncork()
  })
}

/**
 * Whether the connection broke while a statement was under way. A server that ends a connection may have committed before,
 * also while it waited for a standby.
 */
function isLost(line: Line, cause: unknown): boolean {
  return line.isBroken && !(cause instanceof CouchError)
}

/** Waits for all, so that no rejection stays unhandled. @throws the first error */
async function settled<T>(promises: readonly Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(promises)
  const failed = results.find((result) => result.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return results.map((result) => (result as PromiseFulfilledResult<T>).value)
}
