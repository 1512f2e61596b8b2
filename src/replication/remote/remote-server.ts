/**
 * Another server as a whole: what it has besides the documents of one database. It is only read. The calls are CouchDB's
 * (protocol.md 4, 12, 15); where a server lacks one, the answer is null.
 */
import { isJsonObject } from '../../core/json.ts'
import { positionOf } from '../checkpoint.ts'
import { parsed } from '../json-parts.ts'
import { PeerError, type PeerFault } from '../peer-error.ts'
import type { Position, RemoteEndpoint } from '../requests/replication-request.ts'
import { type Query, RemoteClient } from './remote-client.ts'
import { ABSENT, isOneOf, partsFrom, RemoteDatabase, textOrNull } from './remote-database.ts'
import type { RemoteOptions } from './remote-pools.ts'
import type { RemoteConnections } from './remote-requests.ts'

export interface RemoteWelcome {
  /** null: the server has none, as CouchDB 1.2 and before. */
  readonly uuid: string | null
  /** The vendor's name, such as `The Apache Software Foundation`. */
  readonly vendor: string | null
  /** Of CouchDB, or the one that the server claims. */
  readonly version: string | null
}

/** A configuration: sections of keys with text values. */
export type RemoteConfig = Readonly<Record<string, Readonly<Record<string, string>>>>

/** A row of `_db_updates`. */
export interface RemoteUpdate {
  readonly database: string
  readonly type: 'created' | 'updated' | 'deleted'
  readonly seq: Position
}

export interface RemoteUpdates {
  readonly updates: readonly RemoteUpdate[]
  /** Where the next page begins. */
  readonly lastSeq: Position
}

const PAGE_NAMES = 1000
const PAGE_UPDATES = 1000
/** The most databases of a server, and the most characters of the name of one: file systems have no longer names. */
const MAX_DATABASES = 1_000_000
const MAX_NAME = 255
const ABSENT_OR_HIDDEN: readonly PeerFault[] = [...ABSENT, 'unauthorized', 'forbidden']
const RESULTS = new Set(['results'])

export class RemoteServer {
  readonly #endpoint: RemoteEndpoint
  readonly #connections: RemoteConnections
  readonly #options: RemoteOptions
  readonly #client: RemoteClient

  /** @param endpoint the root of the server */
  constructor(endpoint: RemoteEndpoint, connections: RemoteConnections, options: RemoteOptions) {
    this.#endpoint = endpoint
    this.#connections = connections
    this.#options = options
    this.#client = new RemoteClient(endpoint, connections, options)
  }

  /** For people, without credentials. */
  get address(): string {
    return this.#client.address
  }

  /** @throws PeerError, also if no CouchDB-compatible server answers */
  async welcome(signal: AbortSignal): Promise<RemoteWelcome> {
    const answer = await this.#client.send({ method: 'GET', path: '', signal })
    const welcome = await this.#client.object(answer)
    const { uuid, vendor, version } = welcome
    if (Object.keys(welcome).length === 0) {
      throw new PeerError('invalid_answer', `${this.address} does not answer as CouchDB does`)
    }
    const name = isJsonObject(vendor) ? vendor.name : null
    return { uuid: textOrNull(uuid), vendor: textOrNull(name), version: textOrNull(version) }
  }

  /** The names of all databases, which only server admins may see. @throws PeerError */
  async *databaseNames(signal: AbortSignal): AsyncIterable<string> {
    let firstName: string | null = null
    let count = 0
    for (let last: string | null = null; ; ) {
      const query: Query = {
        limit: String(PAGE_NAMES),
        ...(last !== null && { start_key: JSON.stringify(last) }),
      }
      const before: string | null = last
      let rows = 0
      for await (const { bytes } of partsFrom(this.#client, { path: '/_all_dbs', query, signal })) {
        const name = textOrNull(parsed(bytes))
        if (name === null || name.length > MAX_NAME)
          throw new PeerError('invalid_answer', `${this.address}: _all_dbs is not a list of names`)
        count += 1
        if (count > MAX_DATABASES)
          throw new PeerError(
            'invalid_answer',
            `${this.address}: _all_dbs has more than ${MAX_DATABASES} names`,
          )
        // A server that has no pages sends the first one again.
        if (before !== null && rows === 0 && name === firstName && name !== before) return
        firstName ??= name
        rows += 1
        last = name
        if (name !== before) yield name
      }
      if (rows !== PAGE_NAMES || last === before) return
    }
  }

  /** @param name of a database, which may be missing */
  database(name: string): RemoteDatabase {
    const path = `${encodeURIComponent(name)}/`
    const endpoint = {
      ...this.#endpoint,
      url: new URL(path, this.#endpoint.url).href,
      shown: this.#endpoint.shown + path,
    }
    return new RemoteDatabase(name, endpoint, this.#connections, this.#options)
  }

  /**
   * The end of the request log, which CouchDB 1 and PouchDB's server serve.
   * @param bytes of the log that are read at most
   * @throws PeerError, also if there is none
   */
  async *log(bytes: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    const query = { bytes: String(bytes) }
    const answer = await this.#client.send({ method: 'GET', path: '/_log', query, signal })
    await this.#client.expect(answer)
    yield* answer.chunks
  }

  /** The configuration; null if these credentials may not read it. @throws PeerError */
  async config(signal: AbortSignal): Promise<RemoteConfig | null> {
    for (const path of ['/_node/_local/_config', '/_config']) {
      const answer = await this.#client.send({ method: 'GET', path, signal })
      try {
        return configOf(await this.#client.object(answer))
      } catch (error) {
        if (!isOneOf(ABSENT_OR_HIDDEN, error)) throw error
      }
    }
    return null
  }

  /**
   * A page of `_db_updates`.
   * @param since null: from the beginning
   * @param waits whether to wait at the end, up to the server's own limit of time
   * @returns null if the server has no such feed
   * @throws PeerError
   */
  async updates(
    since: Position | null,
    { waits, signal }: { readonly waits: boolean; readonly signal: AbortSignal },
  ): Promise<RemoteUpdates | null> {
    const heartbeat = String(Math.max(1000, Math.floor(this.#client.timeoutMs / 3)))
    const query: Query = {
      limit: String(PAGE_UPDATES),
      ...(since !== null && { since: String(since) }),
      ...(waits && { feed: 'longpoll', heartbeat }),
    }
    const updates: RemoteUpdate[] = []
    let lastSeq: Position | null = null
    try {
      const call = { path: '/_db_updates', query, mayWait: waits, signal }
      for await (const { member, bytes } of partsFrom(this.#client, call, RESULTS)) {
        if (member === 'last_seq') lastSeq = positionOf(parsed(bytes))
        if (member !== 'results') continue
        const update = updateOf(parsed(bytes))
        if (update === null)
          throw new PeerError('invalid_answer', `${this.address}: a row of _db_updates is not valid`)
        updates.push(update)
        if (updates.length >= PAGE_UPDATES) return { updates, lastSeq: update.seq }
      }
    } catch (error) {
      if (isOneOf(ABSENT, error)) return null
      throw error
    }
    const reached = lastSeq ?? updates.at(-1)?.seq ?? since
    if (reached === null)
      throw new PeerError('invalid_answer', `${this.address}: _db_updates has no last_seq`)
    return { updates, lastSeq: reached }
  }
}

/** @returns null for anything else than a row of `_db_updates` */
function updateOf(row: unknown): RemoteUpdate | null {
  const { db_name, type, seq } = isJsonObject(row) ? row : {}
  const position = positionOf(seq)
  if (typeof db_name !== 'string' || db_name.length > MAX_NAME || position === null) return null
  if (type !== 'created' && type !== 'updated' && type !== 'deleted') return null
  return { database: db_name, type, seq: position }
}

/** Reads a configuration from an answer: sections without values that are not texts. */
export function configOf(found: unknown): RemoteConfig {
  const sections = isJsonObject(found) ? Object.entries(found) : []
  return Object.fromEntries(
    sections.map(([section, keys]) => {
      const texts = Object.entries(isJsonObject(keys) ? keys : {}).filter(
        ([, value]) => typeof value === 'string',
      )
      return [section, Object.fromEntries(texts) as Record<string, string>] as const
    }),
  )
}
