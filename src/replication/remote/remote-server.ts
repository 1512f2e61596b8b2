/**
 * Another server as a whole: what it has besides the documents of one database. It is only read. The calls are CouchDB's
 * (protocol.md 4, 12, 15); where a server lacks one, the answer is null.
 */
import { isJsonObject } from '../../core/json.ts'
import { type JsonPart, jsonParts, parsed, partsOf } from '../json-parts.ts'
import { PeerError, type PeerFault } from '../peer-error.ts'
import type { Position, RemoteEndpoint } from '../requests/replication-request.ts'
import { discard, type Query, RemoteClient } from './remote-client.ts'
import { RemotePeer } from './remote-peer.ts'
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

export interface RemoteDatabaseInfo {
  readonly documents: number
  readonly deleted: number
  /** The size of the file, and of what is in use in it, in bytes; null: the server does not say. */
  readonly fileBytes: number | null
  readonly activeBytes: number | null
  readonly updateSeq: Position
  readonly instanceStartTime: string
  readonly isPartitioned: boolean
  readonly purgeSeq: Position
}

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
const PAGE_LOCALS = 100
const PAGE_UPDATES = 1000
/** The most `_local` documents of a database. */
const MAX_LOCALS = 1_000_000
/** The most bytes of one document or of one section of the configuration. */
const MAX_DOCUMENT = 64 * 1024 * 1024
/** The most bytes of a security object. */
const MAX_VALUE = 8 * 1024 * 1024
/** What a server answers that does not have a call. */
const ABSENT: readonly PeerFault[] = ['not_found', 'invalid_answer', 'bad_request', 'rejected']
const ABSENT_OR_HIDDEN: readonly PeerFault[] = [...ABSENT, 'unauthorized', 'forbidden']
const ROWS = new Set(['rows'])
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
    const name = (vendor as { name?: unknown } | undefined)?.name
    return { uuid: textOrNull(uuid), vendor: textOrNull(name), version: textOrNull(version) }
  }

  /** The names of all databases, which only server admins may see. @throws PeerError */
  async *databaseNames(signal: AbortSignal): AsyncIterable<string> {
    let firstName: string | null = null
    for (let last: string | null = null; ; ) {
      const query: Query = {
        limit: String(PAGE_NAMES),
        ...(last !== null && { start_key: JSON.stringify(last) }),
      }
      const before: string | null = last
      let rows = 0
      for await (const { bytes } of this.#parts('/_all_dbs', query, signal)) {
        const name = textOrNull(parsed(bytes))
        if (name === null)
          throw new PeerError('invalid_answer', `${this.address}: _all_dbs is not a list of names`)
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
      for await (const { member, bytes } of this.#parts('/_db_updates', query, signal, RESULTS)) {
        if (member === 'last_seq') lastSeq = parsed<Position>(bytes)
        if (member !== 'results') continue
        const { db_name, type, seq } = parsed<{ db_name: string; type: RemoteUpdate['type']; seq: Position }>(
          bytes,
        )
        updates.push({ database: db_name, type, seq })
        if (updates.length >= PAGE_UPDATES) return { updates, lastSeq: seq }
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

  #parts(
    path: string,
    query: Query,
    signal: AbortSignal,
    lists?: ReadonlySet<string>,
  ): AsyncIterable<JsonPart> {
    return partsFrom(this.#client, { path, query, signal }, lists)
  }
}

/** A database of another server, with what replication does not copy. */
export class RemoteDatabase {
  readonly name: string
  readonly endpoint: RemoteEndpoint
  /** Its documents. */
  readonly peer: RemotePeer
  readonly #client: RemoteClient

  constructor(
    name: string,
    endpoint: RemoteEndpoint,
    connections: RemoteConnections,
    options: RemoteOptions,
  ) {
    this.name = name
    this.endpoint = endpoint
    this.peer = new RemotePeer(endpoint, connections, options)
    this.#client = new RemoteClient(endpoint, connections, options)
  }

  /** @throws PeerError */
  async info(signal: AbortSignal): Promise<RemoteDatabaseInfo> {
    const info = await this.#client.object(await this.#client.send({ method: 'GET', path: '', signal }))
    const {
      doc_count,
      doc_del_count,
      sizes,
      disk_size,
      data_size,
      update_seq,
      purge_seq,
      instance_start_time,
      props,
    } = info
    const { file = disk_size, active = data_size } = (sizes ?? {}) as { file?: unknown; active?: unknown }
    return {
      documents: numberOr(doc_count, 0),
      deleted: numberOr(doc_del_count, 0),
      fileBytes: numberOr(file, null),
      activeBytes: numberOr(active, null),
      updateSeq: typeof update_seq === 'number' ? update_seq : String(update_seq ?? 0),
      instanceStartTime: String(instance_start_time ?? '0'),
      purgeSeq: typeof purge_seq === 'number' ? purge_seq : String(purge_seq ?? 0),
      isPartitioned: (props as { partitioned?: unknown } | undefined)?.partitioned === true,
    }
  }

  /** @returns the text of the security object; null if the server has none @throws PeerError */
  security(signal: AbortSignal): Promise<Buffer | null> {
    return this.#value('/_security', signal)
  }

  /** @returns null if the server has none @throws PeerError */
  async revsLimit(signal: AbortSignal): Promise<number | null> {
    const text = (await this.#value('/_revs_limit', signal))?.toString().trim() ?? ''
    return /^\d+$/.test(text) ? Number(text) : null
  }

  /** @returns the winning revision; null if the document is deleted or missing @throws PeerError */
  async winner(id: string, signal: AbortSignal): Promise<string | null> {
    const call = { path: '/_all_docs', query: { key: JSON.stringify(id) }, signal }
    for await (const { member, bytes } of partsFrom(this.#client, call, ROWS)) {
      if (member !== 'rows') continue
      const { value } = parsed<{ readonly value?: { readonly rev?: unknown; readonly deleted?: unknown } }>(
        bytes,
      )
      return value?.deleted === true ? null : textOrNull(value?.rev)
    }
    return null
  }

  /** The design documents. @throws PeerError */
  async *designDocs(signal: AbortSignal): AsyncGenerator<Readonly<Record<string, unknown>>> {
    const query: Query = { include_docs: 'true', startkey: '"_design/"', endkey: '"_design0"' }
    const call = { path: '/_all_docs', query, signal }
    for await (const { member, bytes } of partsFrom(this.#client, call, ROWS)) {
      if (member !== 'rows') continue
      const doc = partsOf(bytes).find((part) => part.member === 'doc')
      const value: unknown = doc === undefined ? null : parsed(doc.bytes)
      if (isJsonObject(value)) yield value
    }
  }

  /**
   * The `_local` documents as JSON texts, in pages.
   * @returns null if the server cannot list them, as CouchDB 1 and PouchDB's server
   * @throws PeerError
   */
  async localDocs(signal: AbortSignal): Promise<AsyncIterable<Buffer> | null> {
    const query: Query = { limit: '0' }
    const answer = await this.#client.send({ method: 'GET', path: '/_local_docs', query, signal })
    try {
      const { rows } = await this.#client.object(answer)
      if (!Array.isArray(rows)) return null
    } catch (error) {
      if (isOneOf(ABSENT, error)) return null
      throw error
    }
    return this.#pagesOfLocalDocs(signal)
  }

  async *#pagesOfLocalDocs(signal: AbortSignal): AsyncGenerator<Buffer> {
    let all = 0
    for (let last: string | null = null; ; ) {
      const query: Query = {
        include_docs: 'true',
        limit: String(PAGE_LOCALS),
        ...(last !== null && { start_key: JSON.stringify(last) }),
      }
      const before: string | null = last
      let rows = 0
      for await (const { member, bytes } of partsFrom(
        this.#client,
        { path: '/_local_docs', query, signal },
        ROWS,
      )) {
        if (member !== 'rows') continue
        const row = new Map(partsOf(bytes).map((part) => [part.member, part.bytes]))
        const id: Buffer | undefined = row.get('id')
        const doc = row.get('doc')
        if (id === undefined) continue
        rows += 1
        last = parsed<string>(id)
        if (last !== before && doc !== undefined && doc.toString('latin1') !== 'null') yield doc
      }
      if (rows < PAGE_LOCALS || last === before) return
      all += rows
      if (all > MAX_LOCALS) {
        throw new PeerError('invalid_answer', `${this.#client.address}_local_docs does not end`)
      }
    }
  }

  /** @param id without `_local/` @returns the document's JSON text; null if there is none @throws PeerError */
  localDoc(id: string, signal: AbortSignal): Promise<Buffer | null> {
    return this.#value(`/_local/${encodeURIComponent(id)}`, signal)
  }

  /** @returns null if the server does not have it */
  async #value(path: string, signal: AbortSignal): Promise<Buffer | null> {
    const answer = await this.#client.send({ method: 'GET', path, signal })
    if (answer.status === 404 || answer.status === 405) {
      await discard(answer)
      return null
    }
    await this.#client.expect(answer)
    const chunks: Uint8Array[] = []
    let bytes = 0
    for await (const chunk of answer.chunks) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > MAX_VALUE) {
        throw new PeerError(
          'invalid_answer',
          `${this.#client.address}${path} has more than ${MAX_VALUE} bytes`,
        )
      }
    }
    return Buffer.concat(chunks)
  }
}

async function* partsFrom(
  client: RemoteClient,
  call: { readonly path: string; readonly query: Query; readonly signal: AbortSignal },
  lists?: ReadonlySet<string>,
): AsyncGenerator<JsonPart> {
  const answer = await client.send({ method: 'GET', ...call })
  await client.expect(answer)
  yield* jsonParts(answer.chunks, { maxPart: MAX_DOCUMENT, ...(lists && { lists }) })
}

function isOneOf(faults: readonly PeerFault[], error: unknown): boolean {
  return error instanceof PeerError && faults.includes(error.fault)
}

/** Without members that are not texts. */
function configOf(found: Readonly<Record<string, unknown>>): RemoteConfig {
  const sections = Object.entries(found).map(([section, keys]) => {
    const texts = Object.entries(keys ?? {}).filter(([, value]) => typeof value === 'string')
    return [section, Object.fromEntries(texts)] as const
  })
  return Object.fromEntries(sections)
}

function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

function numberOr<Otherwise>(value: unknown, otherwise: Otherwise): number | Otherwise {
  return typeof value === 'number' ? value : otherwise
}
