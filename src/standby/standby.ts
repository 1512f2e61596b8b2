/**
 * This server as a standby: it follows another settee, its primary, and takes its place when an operator promotes it
 * (docs/standby.md).
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import { COPYING_USER } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { RemoteConnections } from '../replication/remote/remote-requests.ts'
import { type RemoteEndpoint, readServer } from '../replication/requests/replication-request.ts'
import type { Databases } from '../threads/databases.ts'
import type { Failure } from './backlog.ts'
import { Follower, type FollowerOptions } from './follower.ts'
import { Followers } from './followers.ts'
import { Primary, PrimaryChangedError } from './primary.ts'
import type { StandbyRecord, StandbyRecords } from './standby-records.ts'
import type { StandbyState } from './standby-state.ts'

export interface StandbyOptions {
  readonly records: StandbyRecords
  readonly databases: Databases
  readonly config: Config
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
}

/** What only a running server has. */
export type RunningParts = Pick<
  FollowerOptions,
  'tokens' | 'accounts' | 'sealingKey' | 'files' | 'logger' | 'pollMs' | 'sweepMs'
>

export interface FollowRequest {
  /** The address of the primary with the credentials of a server admin; null: as before. */
  readonly url: string | null
  /** Takes databases of the primary as they are now, although they are not those that were copied. */
  readonly again: boolean
}

/** What a standby tells an operator; without credentials. */
export interface StandbyReport {
  readonly state: StandbyState
  /** The address of the primary for people; null: this server is no standby. */
  readonly first: string | null
  /** How far it is behind the primary, in seconds; null: unknown. */
  readonly lagSeconds: number | null
  readonly databases: number
  /** Databases that are being copied or wait for it. */
  readonly waiting: number
  /** Revisions of all databases that could not be stored here. */
  readonly refused: number
  /** Why copying has stopped, or what keeps the primary from being read now; null: nothing. */
  readonly reason: string | null
  readonly failures: readonly Failure[]
}

export interface PromotionOutcome {
  readonly first: string
  readonly uuid: string
  /** As {@link StandbyReport.lagSeconds}, when following ended. */
  readonly lagSeconds: number | null
}

/** How long a request to the primary may be silent, in ms. */
const TIMEOUT_MS = 20_000
/** How long copies that are under way may take to stop when the standby is promoted, in ms. */
const STOP_MS = 500
const MAX_NAMED = 5

export class Standby {
  readonly #options: StandbyOptions
  /** The standbys of this server. */
  readonly followers = new Followers()
  #parts: RunningParts | null = null
  #connections: RemoteConnections | null = null
  #follower: Follower | null = null
  /** Commands, one after the other. */
  readonly #turns = new KeyedMutex()

  constructor(options: StandbyOptions) {
    this.#options = options
  }

  /** Finishes a promotion that a crash interrupted. Call it before clients are served. */
  async recover(): Promise<void> {
    if (this.#options.records.state === 'promoting') await this.#finish()
  }

  /** Begins to follow, if this server is a standby. */
  async start(parts: RunningParts): Promise<void> {
    this.#parts = parts
    const { records, logger } = this.#options
    const record = records.current
    if (record?.state === 'halted') logger.error({ reason: record.reason }, HALTED)
    if (record?.state === 'following') await this.#begin(record)
  }

  /** Stops following until the next start. Idempotent. */
  async close(): Promise<void> {
    await this.#end()
    this.#parts = null
  }

  /**
   * Follows a server from now on.
   * @throws bad_request, conflict, in words for the operator; invalid_replication for an address that is none
   */
  follow(request: FollowRequest): Promise<StandbyReport> {
    return this.#turns.run('', () => this.#follow(request))
  }

  async #follow({ url, again }: FollowRequest): Promise<StandbyReport> {
    const { records, logger } = this.#options
    const before = records.current
    const endpoint = url === null ? before?.first : readServer(url)
    if (endpoint === undefined) throw new CouchError('bad_request', NO_PRIMARY)
    if (before?.state === 'halted' && !again) throw new CouchError('conflict', haltedReason(before))
    const uuid = await this.#check(endpoint)
    if (before !== null && before.uuid !== uuid) throw new CouchError('conflict', OTHER_PRIMARY)
    if (before === null) await this.#requireEmpty()
    await this.#end()
    const since = before === null ? { updatesSeq: null, syncedAt: null, settings: [] } : {}
    const change = { first: endpoint, uuid, reason: null, acceptsOthers: again, ...since }
    if (!(await records.enter('follow', change))) throw new CouchError('conflict', PROMOTING)
    logger.info({ first: endpoint.shown }, 'this server is a standby now')
    if (records.current !== null) await this.#begin(records.current)
    return this.report()
  }

  /**
   * Makes this server an ordinary one, in the place of its primary; durable when resolved.
   * @throws bad_request if it is no standby
   */
  promote(): Promise<PromotionOutcome> {
    return this.#turns.run('', () => this.#promote())
  }

  async #promote(): Promise<PromotionOutcome> {
    const { records, logger } = this.#options
    const before = records.current
    if (before === null) throw new CouchError('bad_request', 'This server is no standby.')
    const { lagSeconds } = this.report()
    await records.enter('promote')
    await Promise.race([this.#end(), sleep(STOP_MS, undefined, { ref: false })])
    await this.#finish()
    const outcome = { first: before.first.shown, uuid: before.uuid, lagSeconds }
    logger.info(outcome, 'this standby was promoted: it accepts changes')
    return outcome
  }

  /** The uuid comes first, so that no device sees another one. */
  async #finish(): Promise<void> {
    const { records, databases } = this.#options
    const uuid = records.current?.uuid
    if (uuid !== undefined) await databases.adoptUuid(uuid)
    await records.finish()
  }

  report(): StandbyReport {
    const { records } = this.#options
    const { current, state } = records
    const running = this.#follower?.state
    const followed = [...records.databases().values()]
    return {
      state,
      first: current?.first.shown ?? null,
      lagSeconds: secondsOf(running === undefined ? lagOf(current) : running.lagMs),
      databases: followed.length,
      waiting: running?.waiting ?? 0,
      refused: followed.reduce((sum, { refused }) => sum + refused, 0),
      reason: current?.reason ?? running?.fault ?? null,
      failures: running?.failures.slice(0, MAX_NAMED) ?? [],
    }
  }

  /**
   * Soon copies again from the primary what is damaged in a database.
   * @returns whether this server follows one
   */
  restore(database: string): boolean {
    this.#follower?.restore(database)
    return this.#follower !== null
  }

  /** Whether clients may write. */
  get acceptsWrites(): boolean {
    return this.#options.records.acceptsWrites
  }

  /** Calls the listener when the state has changed, until the returned function is called. */
  onChange(listener: () => void): () => void {
    return this.#options.records.onChange(listener)
  }

  async #begin(record: StandbyRecord): Promise<void> {
    const { records, databases, config, logger } = this.#options
    if (this.#parts === null) return
    const primary = await this.#primaryAt(record.first)
    const parts = this.#parts
    // It was closed meanwhile.
    if (parts === null) return this.#end()
    const follower = new Follower({ ...parts, primary, records, databases, config }, record)
    this.#follower = follower
    follower.start((reason) => {
      logger.error({ reason }, HALTED)
      void records.enter('halt', { reason }).catch((error: unknown) => {
        logger.error({ err: error }, 'the standby could not record that it has stopped')
      })
    })
  }

  async #end(): Promise<void> {
    const follower = this.#follower
    const connections = this.#connections
    this.#follower = null
    this.#connections = null
    await follower?.close()
    await connections?.close()
  }

  async #primaryAt(endpoint: RemoteEndpoint): Promise<Primary> {
    // Its library would delay every start of a server.
    const { RemoteConnections } = await import('../replication/remote/remote-requests.ts')
    this.#connections ??= new RemoteConnections()
    return new Primary(endpoint, this.#connections, {
      // The operator has named it.
      mayBePrivate: true,
      proxy: undefined,
      timeoutMs: TIMEOUT_MS,
      verifiesCertificates: this.#options.config.boolean('replicator', 'verify_ssl_certificates'),
    })
  }

  /** @returns the uuid of the primary @throws bad_request, no_copies */
  async #check(endpoint: RemoteEndpoint): Promise<string> {
    const { databases, config } = this.#options
    if (databases.copies === null) throw new CouchError('no_copies', NO_FILES)
    if (config.isHosted) throw new CouchError('bad_request', HOSTED)
    const signal = AbortSignal.timeout(TIMEOUT_MS)
    const primary = await this.#primaryAt(endpoint)
    try {
      const uuid = await primary.uuid(signal)
      if (uuid === databases.serverUuid) throw new CouchError('bad_request', SAME_UUID)
      // Only a server admin may read them.
      await primary.settings(signal)
      return uuid
    } catch (error) {
      if (error instanceof PeerError || error instanceof PrimaryChangedError) {
        throw new CouchError('bad_request', `The primary cannot be followed: ${error.message}.`)
      }
      throw error
    } finally {
      if (this.#follower === null) await this.#end()
    }
  }

  /** @throws conflict: copies must not be mixed with what is here */
  async #requireEmpty(): Promise<void> {
    const { databases } = this.#options
    const others: string[] = []
    let count = 0
    for await (const name of databases.allNames()) {
      if (!(await this.#isUsed(name))) continue
      count += 1
      if (others.length < MAX_NAMED) others.push(name)
    }
    if (count === 0) return
    const named = others.join(', ')
    const rest = count > MAX_NAMED ? ` and ${count - MAX_NAMED} more` : ''
    throw new CouchError('conflict', `This server has databases of its own (${named}${rest}). ${USE_EMPTY}`)
  }

  /** Of the server's own databases, `_users` has a design document from the beginning. */
  async #isUsed(name: string): Promise<boolean> {
    const { databases } = this.#options
    const isOwn = name.startsWith('_') || name === databases.usersDatabase
    return !isOwn || (await (await databases.get(name)).info(COPYING_USER)).doc_count > 1
  }
}

const HALTED =
  'the standby has stopped following, since its primary is not what it was: promote it, or let it follow again'
const NO_PRIMARY = 'This server is no standby. Give the address of the server that it shall follow.'
const OTHER_PRIMARY =
  'This server is the standby of another server. To follow this one, start with an empty data folder.'
const PROMOTING = 'This server is being promoted.'
const HOSTED = 'A server in hosted mode has no standby, and is none.'
const NO_FILES =
  'A standby sets databases aside as files, and the storage engine of this server has none: its store makes the copies.'
const SAME_UUID =
  'It has the uuid of this server: it is this server itself, or the former primary of this one. To let a former primary ' +
  'follow this server, start it with an empty data folder.'
const USE_EMPTY = 'A standby begins empty: start it with an empty data folder.'

function haltedReason({ reason }: StandbyRecord): string {
  return (
    `The standby has stopped following: ${reason ?? ''}. If the primary is right, let the standby follow again ` +
    '(--again); the copies of such databases are set aside. If the standby is right, promote it.'
  )
}

/** The age of what is here, while nothing is followed; in ms. */
function lagOf(record: StandbyRecord | null): number | null {
  return record?.syncedAt ? Math.max(0, Date.now() - record.syncedAt) : null
}

function secondsOf(ms: number | null): number | null {
  return ms === null ? null : Math.round(ms / 100) / 10
}
