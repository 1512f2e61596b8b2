/** The connection for notices: it listens to those of other nodes, and sends. It is made again whenever it breaks. */
import { setTimeout as rest } from 'node:timers/promises'
import type pg from 'pg'
import type { Connections } from './connections.ts'

const CHANNEL = 'settee'
/** How long the connection may be silent before it is checked, in ms, and how long the answer may take. */
const SILENCE_MS = 4000
const ANSWER_MS = 3000
/** How long it is waited before another connection is made, in ms. */
const MIN_RETRY_MS = 100
const MAX_RETRY_MS = 2000
/**
 * PostgreSQL ends the connection of a node that takes no notices for this long: those that it has not taken would fill the queue
 * of all nodes. Some systems and Unix sockets do not have this limit.
 */
const LIMIT = "SET tcp_user_timeout = '20s'"
/** A notice gets a transaction's number, and its commit would wait for the disk. Nothing of it outlasts the server anyway. */
const NO_WAIT = 'SET synchronous_commit = off'
const SEND = 'SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload'

interface NoticeChannelOptions {
  readonly connections: Pick<Connections, 'dedicated'>
  onNotice(payload: string): void
  /** It listens from now on: earlier notices were missed. */
  onListening(): void
}

export class NoticeChannel {
  readonly #options: NoticeChannelOptions
  readonly #ending = new AbortController()
  #client: pg.Client | null = null
  /** When it was last heard of the server, in ms of `performance.now()`. */
  #heardAt = 0
  #running: Promise<void> | null = null

  constructor(options: NoticeChannelOptions) {
    this.#options = options
  }

  /** Begins to listen. Idempotent. */
  start(): void {
    this.#running ??= this.#run()
  }

  /**
   * Sends notices, if there is a connection.
   * @param payloads of less than 8,000 bytes each
   * @returns whether they were sent; never rejects
   */
  async send(payloads: readonly string[]): Promise<boolean> {
    const client = this.#client
    if (client === null) return false
    try {
      await client.query({ name: 'notify', text: SEND, values: [CHANNEL, payloads] })
      this.#heardAt = performance.now()
      return true
    } catch {
      return false
    }
  }

  /** Checks a silent connection, since a network that is cut tells nobody. */
  check(): void {
    const client = this.#client
    if (client === null || performance.now() - this.#heardAt < SILENCE_MS) return
    this.#heardAt = performance.now()
    const query: pg.QueryConfig & { query_timeout: number } = { text: 'SELECT 1', query_timeout: ANSWER_MS }
    client.query(query).then(
      () => {
        this.#heardAt = performance.now()
      },
      () => client.end().catch(() => undefined),
    )
  }

  /** Idempotent. */
  async close(): Promise<void> {
    this.#ending.abort()
    await this.#client?.end().catch(() => undefined)
    await this.#running
  }

  async #run(): Promise<void> {
    const { signal } = this.#ending
    for (let retryMs = MIN_RETRY_MS; !signal.aborted; retryMs = Math.min(2 * retryMs, MAX_RETRY_MS)) {
      const since = performance.now()
      await this.#listen().catch(() => undefined)
      if (performance.now() - since > MAX_RETRY_MS) retryMs = MIN_RETRY_MS
      // All nodes lose their connections at the same moment.
      await rest(retryMs * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined)
    }
  }

  /** Resolves when the connection has ended. @throws an error of a connection that cannot be made */
  async #listen(): Promise<void> {
    const client = await this.#options.connections.dedicated()
    const ended = new Promise<void>((resolve) => {
      client.once('end', resolve)
    })
    try {
      client.on('notification', ({ payload = '' }) => {
        this.#heardAt = performance.now()
        this.#options.onNotice(payload)
      })
      await client.query(LIMIT).catch(() => undefined)
      await client.query(NO_WAIT)
      await client.query(`LISTEN ${CHANNEL}`)
      if (this.#ending.signal.aborted) return
      this.#client = client
      this.#heardAt = performance.now()
      this.#options.onListening()
      await ended
    } finally {
      this.#client = null
      await client.end().catch(() => undefined)
    }
  }
}
