/** The server that a standby follows, over HTTP. It is only read. */
import type { TokenPage } from '../auth/token-copies.ts'
import { tokenOfRecord, type UsedToken, useOf } from '../auth/token-record.ts'
import { isJsonObject } from '../core/json.ts'
import { jsonParts, parsed } from '../replication/json-parts.ts'
import { type Query, RemoteClient } from '../replication/remote/remote-client.ts'
import type { RemoteOptions } from '../replication/remote/remote-pools.ts'
import type { RemoteConnections } from '../replication/remote/remote-requests.ts'
import { RemoteServer } from '../replication/remote/remote-server.ts'
import type { Position, RemoteEndpoint } from '../replication/requests/replication-request.ts'
import type { CopiedSettings } from './settings-copy.ts'

/** The first is not the server, or has not the database, that was followed. Copying it could destroy what is here. */
export class OtherFirstError extends Error {
  override readonly name = 'OtherFirstError'
}

interface FirstSettings {
  readonly settings: CopiedSettings
  /** Of the credentials in `_replicator`; null: the first has none. */
  readonly sealingKey: string | null
}

/** A purge of one document. */
export interface Purge {
  readonly id: string
  readonly revs: readonly string[]
}

/** Purges that are read at once. */
const MAX_PURGES = 10_000
const PURGED_INFOS = new Set(['purged_infos'])
const VENDOR = 'settee'

export class First {
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

  /** @returns its uuid @throws OtherFirstError if it is no settee; PeerError */
  async uuid(signal: AbortSignal): Promise<string> {
    const { uuid, vendor } = await this.server.welcome(signal)
    if (vendor !== VENDOR || uuid === null) throw new OtherFirstError(`${this.address} is no settee`)
    return uuid
  }

  /** The settings that a standby takes, with secrets. @throws PeerError; `not_found` from a settee without them */
  async settings(signal: AbortSignal): Promise<FirstSettings> {
    const { settings, sealing_key } = await this.#read('/_settee/standby/settings', {}, signal)
    return {
      settings: settingsOf(settings),
      sealingKey: typeof sealing_key === 'string' ? sealing_key : null,
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
      if (typeof next !== 'string' || next === start) return
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
    const found: Purge[] = []
    for await (const { member, bytes } of jsonParts(answer.chunks, { lists: PURGED_INFOS })) {
      if (member !== 'purged_infos') continue
      found.push(parsed<Purge>(bytes))
      if (found.length > Math.min(most, MAX_PURGES)) found.shift()
    }
    return found
  }

  async #read(path: string, query: Query, signal: AbortSignal): Promise<Record<string, unknown>> {
    return this.#client.object(await this.#client.send({ method: 'GET', path, query, signal }))
  }
}

function settingsOf(value: unknown): CopiedSettings {
  if (!isJsonObject(value)) return {}
  const sections = Object.entries(value).map(([section, keys]) => {
    const texts = Object.entries(keys ?? {}).filter(([, text]) => typeof text === 'string')
    return [section, Object.fromEntries(texts) as Record<string, string>] as const
  })
  return Object.fromEntries(sections)
}

function tokenOf(value: unknown): UsedToken[] {
  if (!isJsonObject(value) || typeof value.id !== 'string') return []
  const { id, lastUse, ...record } = value
  const token = tokenOfRecord(id as string, JSON.stringify(record))
  return token === null ? [] : [{ ...token, lastUse: useOf(lastUse), positions: [] }]
}
