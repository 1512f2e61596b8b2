/** The server that a standby follows, over HTTP. It is only read, but for documents that its disk has damaged. */
import type { TokenPage } from '../auth/token-copies.ts'
import { tokenOfRecord, type UsedToken, useOf } from '../auth/token-record.ts'
import { isLegalDatabaseName } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { jsonParts, parsed } from '../replication/json-parts.ts'
import { PeerError } from '../replication/peer-error.ts'
import { type Query, RemoteClient } from '../replication/remote/remote-client.ts'
import type { RemoteOptions } from '../replication/remote/remote-pools.ts'
import type { RemoteConnections } from '../replication/remote/remote-requests.ts'
import { configOf, RemoteServer } from '../replication/remote/remote-server.ts'
import type { Position, RemoteEndpoint } from '../replication/requests/replication-request.ts'
import type { CopiedSettings } from './settings-copy.ts'

/** The primary is another server, or its database another one, than before. Copying it could destroy what is here. */
export class PrimaryChangedError extends Error {
  override readonly name = 'PrimaryChangedError'
}

interface PrimarySettings {
  readonly settings: CopiedSettings
  /** Of the credentials in `_replicator`; null: the primary has none. */
  readonly sealingKey: string | null
  /** Ids of documents that its disk has damaged, by their databases. */
  readonly damaged: ReadonlyMap<string, readonly string[]>
}

/** A purge of one document. */
export interface Purge {
  readonly id: string
  readonly revs: readonly string[]
}

/** Purges that are read at once. */
const MAX_PURGES = 10_000
const MAX_PURGE_BYTES = 16 * 1024 * 1024
const PURGED_INFOS = new Set(['purged_infos'])
/** Databases, and documents of each, that are sent back at once. */
const MAX_DAMAGED = 100
const VENDOR = 'settee'

export class Primary {
  readonly server: RemoteServer
  readonly #client: RemoteClient

  /** @param endpoint the root of the server */
  constructor(endpoint: RemoteEndpoint, connections: RemoteConnections, options: RemoteOptions) {
    this.#client = new RemoteClient(endpoint, connections, options)
    this.server = new RemoteServer(endpoint, connections, options)
  }

  /** For people, without credentials. */
  get address(): string {
    return this.server.address
  }

  /** @returns its uuid @throws PrimaryChangedError if it is no settee; PeerError */
  async uuid(signal: AbortSignal): Promise<string> {
    const { uuid, vendor } = await this.server.welcome(signal)
    if (vendor !== VENDOR || uuid === null) throw new PrimaryChangedError(`${this.address} is no settee`)
    return uuid
  }

  /** The names of all its databases. @throws PeerError, also for a name that no settee gives a database */
  async databaseNames(signal: AbortSignal): Promise<ReadonlySet<string>> {
    const names = new Set<string>()
    for await (const name of this.server.databaseNames(signal)) {
      this.requireName(name)
      names.add(name)
    }
    return names
  }

  /** @throws PeerError for a name that no settee gives a database */
  requireName(name: string): void {
    if (isLegalDatabaseName(name)) return
    throw new PeerError('invalid_answer', `${this.address} lists a database whose name is not valid`)
  }

  /** The settings that a standby takes, with secrets. @throws PeerError; `not_found` from a settee without them */
  async settings(signal: AbortSignal): Promise<PrimarySettings> {
    const { settings, sealing_key, damaged } = await this.#read('/_settee/standby/settings', {}, signal)
    return {
      settings: configOf(settings),
      sealingKey: typeof sealing_key === 'string' ? sealing_key : null,
      damaged: idsByDatabase(damaged),
    }
  }

  /** All device tokens in pages, in the order of their ids: hashes, no secrets. @throws PeerError */
  async *tokens(signal: AbortSignal): AsyncGenerator<TokenPage> {
    for (let start: string | null = null; ; ) {
      const query: Query = start === null ? {} : { start_key: start }
      const answer = await this.#read('/_settee/standby/tokens', query, signal)
      const tokens = Array.isArray(answer.tokens) ? answer.tokens.flatMap(tokenOf) : []
      const last = tokens.at(-1)?.id
      if (last !== undefined) yield { tokens, last }
      const next: unknown = answer.next
      if (typeof next !== 'string') return
      if (start !== null && next <= start) {
        throw new PeerError('invalid_answer', `${this.address}: the pages of tokens do not go on`)
      }
      start = next
    }
  }

  /** Where the feed of updates ends now. @throws PeerError */
  async updatesEnd(signal: AbortSignal): Promise<Position> {
    const answer = await this.server.updates('now', { waits: false, signal })
    return answer?.lastSeq ?? 0
  }

  /**
   * Whether a sequence token is one that a database has given out, and has not taken back by a restore.
   * @throws PeerError
   */
  async knowsToken(database: string, token: string, signal: AbortSignal): Promise<boolean> {
    const query = { since: token, limit: '0' }
    const path = `/${encodeURIComponent(database)}/_changes`
    const { last_seq } = await this.#read(path, query, signal)
    return last_seq === token
  }

  /** The newest purges of a database that it remembers, oldest first. @param most of them @throws PeerError */
  async purges(database: string, most: number, signal: AbortSignal): Promise<readonly Purge[]> {
    const path = `/${encodeURIComponent(database)}/_purged_infos`
    const answer = await this.#client.send({ method: 'GET', path, signal })
    await this.#client.expect(answer)
    const found: { readonly purge: Purge; readonly size: number }[] = []
    let size = 0
    for await (const { member, bytes } of jsonParts(answer.chunks, { lists: PURGED_INFOS })) {
      if (member !== 'purged_infos') continue
      found.push({ purge: purgeOf(parsed(bytes)), size: bytes.length })
      size += bytes.length
      if (found.length > Math.min(most, MAX_PURGES)) size -= found.shift()?.size ?? 0
      if (size > MAX_PURGE_BYTES)
        throw new PeerError('invalid_answer', `${database}: _purged_infos is too long`)
    }
    return found.map(({ purge }) => purge)
  }

  async #read(path: string, query: Query, signal: AbortSignal): Promise<Record<string, unknown>> {
    return this.#client.object(await this.#client.send({ method: 'GET', path, query, signal }))
  }
}

function purgeOf(value: unknown): Purge {
  const { id, revs } = isJsonObject(value) ? value : {}
  const isText = (each: unknown) => typeof each === 'string'
  if (typeof id === 'string' && Array.isArray(revs) && revs.every(isText))
    return { id, revs: revs as string[] }
  throw new PeerError('invalid_answer', 'a row of _purged_infos is not valid')
}

function tokenOf(value: unknown): UsedToken[] {
  if (!isJsonObject(value) || typeof value.id !== 'string') return []
  const { id, lastUse, ...record } = value
  const token = tokenOfRecord(id as string, JSON.stringify(record))
  return token === null ? [] : [{ ...token, lastUse: useOf(lastUse), positions: [] }]
}

function idsByDatabase(member: unknown): ReadonlyMap<string, readonly string[]> {
  const entries = isJsonObject(member) ? Object.entries(member).slice(0, MAX_DAMAGED) : []
  return new Map(
    entries.map(([name, ids]) => [
      name,
      Array.isArray(ids) ? ids.slice(0, MAX_DAMAGED).filter((id) => typeof id === 'string') : [],
    ]),
  )
}
