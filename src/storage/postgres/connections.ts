/** Connections to PostgreSQL: shared ones for reads, and one for each write that is under way. */
import type pg from 'pg'
import { CouchError } from '../../core/errors.ts'
import type { StoreAddress } from '../store-address.ts'
import type { Row } from './prepared-query.ts'
import { StoreConnection } from './store-connection.ts'
import { EndedByServer, isAnswer, LostAnswer, storeFault } from './store-fault.ts'

/** A statement that is prepared once for each connection. Equal names mean equal texts. */
export interface Statement {
  readonly name: string
  readonly text: string
}

/** A statement with its values. A list of texts, numbers or booleans is an array of PostgreSQL. */
export interface Query extends Statement {
  readonly values: readonly unknown[]
  /** Part of no call, so it is not reported to {@link ConnectionsOptions.onOperation}. */
  readonly isBackground?: true
}

/** Runs statements inside a transaction. */
export type Run = <R extends Row = Row>(query: Query) => Promise<R[]>

export interface ConnectionsOptions {
  readonly address: StoreAddress
  /** The maximum number of connections. Two of them are for reads, unless there are fewer. */
  readonly size: number
  /** Called before each statement of a call; if it throws, the statement is not sent. For fault tests. */
  readonly onOperation?: ((operation: string) => void) | undefined
}

/** How long a write waits for a connection, in ms. */
const WAIT_MS = 10_000
/** The maximum number of writes that wait for a connection. */
const MAX_WAITING = 10_000
/** The delay before it connects again after a failure, in ms. */
const RETRY_MS = 250
/** Statements that a connection for reads may have before another is opened. */
const ENOUGH_READS = 4

interface Waiting {
  readonly resolve: (connection: StoreConnection) => void
  readonly reject: (error: unknown) => void
  readonly timer: NodeJS.Timeout
}

export class Connections {
  readonly #options: ConnectionsOptions
  readonly #maxReads: number
  readonly #reads: StoreConnection[] = []
  readonly #idle: StoreConnection[] = []
  readonly #busy = new Set<StoreConnection>()
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
    for (let attempt = 0; ; attempt++) {
      const connection = this.#readConnection()
      try {
        if (!connection.isReady) await made(connection)
        return await this.#send<R>(connection, query)
      } catch (cause) {
        const isOver = attempt >= this.#maxReads || !connection.isBroken
        if (isOver || isAnswer(cause) || cause instanceof CouchError) throw storeFault(cause)
      }
    }
  }

  /**
   * Writes with one statement, which is a transaction of its own.
   * @throws LostAnswer when it may be stored or not; the error of {@link storeFault} when it is not
   */
  async write<R extends Row = Row>(query: Query): Promise<R[]> {
    const connection = await this.#take()
    try {
      return await this.#send<R>(connection, query)
    } catch (cause) {
      throw isLost(connection, cause) ? new LostAnswer(cause) : storeFault(cause)
    } finally {
      this.#release(connection)
    }
  }

  /**
   * Runs a transaction at READ COMMITTED. A throw of `work` rolls it back and is thrown.
   * @param work awaits nothing but statements, so that locks are held for a bounded time
   * @param isBackground as of a {@link Query}
   * @throws as {@link write}
   */
  async transaction<T>(work: (run: Run) => Promise<T>, isBackground = false): Promise<T> {
    const connection = await this.#begun()
    let isCommitting = false
    try {
      const result = await work((query) =>
        this.#send(connection, isBackground ? { ...query, isBackground } : query),
      )
      isCommitting = true
      if (!isBackground) this.#options.onOperation?.('commit')
      await this.#commit(connection)
      return result
    } catch (cause) {
      if (isCommitting && isLost(connection, cause)) throw new LostAnswer(cause)
      // A connection whose transaction cannot be ended is of no use.
      await this.#command(connection, 'ROLLBACK').catch(() => connection.break())
      throw storeFault(cause)
    } finally {
      this.#release(connection)
    }
  }

  /** A connection with a transaction. One that broke while it was idle has carried out nothing, and another one is taken. */
  async #begun(): Promise<StoreConnection> {
    for (let tries = 0; ; tries++) {
      const connection = await this.#take()
      try {
        await this.#command(connection, 'BEGIN')
        return connection
      } catch (cause) {
        if (!connection.isBroken) connection.break()
        this.#release(connection)
        if (isAnswer(cause) || tries > this.#options.size) throw storeFault(cause)
      }
    }
  }

  /** After an error inside the transaction, COMMIT is answered as if it had succeeded, with the tag ROLLBACK. */
  async #commit(connection: StoreConnection): Promise<void> {
    const { command } = await connection.ask({ text: 'COMMIT' })
    if (command !== 'COMMIT') throw new CouchError('internal_server_error', undefined, { cause: command })
  }

  /**
   * A connection of its own, which the caller ends, such as one that listens.
   * @throws the error of {@link storeFault}
   */
  async dedicated(): Promise<pg.Client> {
    const connection = this.#connect(true)
    try {
      await connection.ready
      return connection.client
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

  #readConnection(): StoreConnection {
    if (this.#isClosed) throw new CouchError('unavailable')
    let least = this.#reads[0]
    for (const each of this.#reads) if (each.pending < (least?.pending ?? Infinity)) least = each
    const isEnough = this.#reads.length >= this.#maxReads || (least?.pending ?? Infinity) < ENOUGH_READS
    if (least !== undefined && isEnough) return least
    const connection = this.#connect()
    this.#reads.push(connection)
    return connection
  }

  /** @throws store_unavailable if no connection becomes free in time; the fault of a connection that cannot be made */
  async #take(): Promise<StoreConnection> {
    if (this.#isClosed) throw new CouchError('unavailable')
    const idle = this.#idle.pop()
    if (idle !== undefined) {
      this.#busy.add(idle)
      return idle
    }
    if (this.#busy.size + this.#maxReads >= Math.max(this.#options.size, this.#maxReads + 1))
      return this.#wait()
    const connection = this.#connect()
    this.#busy.add(connection)
    try {
      await made(connection)
      return connection
    } catch (cause) {
      this.#release(connection)
      throw storeFault(cause)
    }
  }

  #wait(): Promise<StoreConnection> {
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

  #release(connection: StoreConnection): void {
    this.#busy.delete(connection)
    const next = this.#waiting.shift()
    if (next !== undefined) clearTimeout(next.timer)
    if (connection.isBroken) {
      // Whoever waits may connect instead.
      if (next !== undefined) this.#take().then(next.resolve, next.reject)
    } else if (next !== undefined) {
      this.#busy.add(connection)
      next.resolve(connection)
    } else if (!this.#isClosed) this.#idle.push(connection)
  }

  #connect(isBackground = false): StoreConnection {
    const refusal = this.#refusal !== null && performance.now() < this.#refusal.until ? this.#refusal : null
    const connection = new StoreConnection({
      address: this.#options.address,
      before: () => {
        if (refusal !== null) throw refusal.cause
        if (!isBackground) this.#options.onOperation?.('connect')
      },
      onBroken: (broken) => this.#remove(broken),
      // Idle ones may be cut as well, and the next write on each would wait as long.
      onSilent: () => {
        for (const idle of [...this.#idle]) idle.destroy()
      },
      isDedicated: isBackground,
    })
    if (refusal === null) this.#noteRefusal(connection.ready)
    return connection
  }

  #noteRefusal(ready: Promise<void>): void {
    ready.then(
      () => {
        this.#refusal = null
      },
      (cause: unknown) => {
        this.#refusal = { cause, until: performance.now() + RETRY_MS }
      },
    )
  }

  #remove(broken: StoreConnection): void {
    for (const lines of [this.#reads, this.#idle]) {
      const at = lines.indexOf(broken)
      if (at >= 0) lines.splice(at, 1)
    }
  }

  async #send<R extends Row>(
    connection: StoreConnection,
    { name, text, values, isBackground }: Query,
  ): Promise<R[]> {
    if (!isBackground) this.#options.onOperation?.(name)
    const { rows } = await connection.ask<R>({ name, text, values: values as unknown[] })
    return rows
  }

  async #command(connection: StoreConnection, text: string): Promise<never[]> {
    await connection.ask({ text })
    return []
  }
}

/** Waits for a connection. @throws EndedByServer if the server refuses it; an error of pg */
async function made(connection: StoreConnection): Promise<void> {
  try {
    await connection.ready
  } catch (cause) {
    throw isAnswer(cause) ? new EndedByServer(cause) : cause
  }
}

/**
 * Whether the connection broke while a statement was under way. A server that ends a connection may have committed before,
 * also while it waited for a standby.
 */
function isLost(connection: StoreConnection, cause: unknown): boolean {
  return connection.isBroken && !(cause instanceof CouchError)
}
