/** `settee move`: everything of another server, which is only read. */
import type { Config } from '../config/config.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import { PeerError } from '../replication/peer-error.ts'
import { RemoteServer } from '../replication/remote/remote-server.ts'
import { readServer } from '../replication/requests/replication-request.ts'
import type { Claims } from '../threads/claims.ts'
import type { Databases } from '../threads/databases.ts'
import { type MovedDatabase, type MovePhase, moveDatabase } from './database-move.ts'
import { type LoggedIds, loggedIds } from './logged-ids.ts'
import { type MovePlan, type MoveRequest, type PreparedMove, prepareMove } from './move-plan.ts'
import { isLimit, type MovedSetting } from './moved-settings.ts'
import { asRefusal } from './old-server.ts'

export interface MoveProgress {
  readonly database: string
  /** Databases that are done, and all of them. */
  readonly done: number
  readonly of: number
  readonly phase: MovePhase
  readonly documents: number
  /** null: unknown. */
  readonly total: number | null
}

export interface SettingOutcome {
  readonly section: string
  readonly key: string
  readonly outcome: 'set' | 'kept' | 'refused'
  /** Why it was refused; null otherwise. */
  readonly reason: string | null
}

export interface MoveOutcome {
  readonly plan: MovePlan
  readonly databases: readonly MovedDatabase[]
  /** Databases that could not be moved, and why. */
  readonly failed: readonly { readonly name: string; readonly reason: string }[]
  readonly settings: readonly SettingOutcome[]
  /** Whether this server has the uuid of the old one now. */
  readonly hasUuid: boolean
}

export interface MoveControl {
  /** Says what a move would do. @throws bad_request, conflict, forbidden, not_found; replication_failed */
  planMove(request: MoveRequest, onProgress?: unknown, signal?: AbortSignal): Promise<MovePlan>
  /**
   * Moves everything, or goes on with a move that was interrupted. A database that cannot be moved does not stop others.
   * @param signal aborts when the caller has disconnected; the move then stops, and can be repeated
   * @throws as {@link planMove}; unavailable when the server stops
   */
  move(
    request: MoveRequest,
    onProgress?: (progress: MoveProgress) => void,
    signal?: AbortSignal,
  ): Promise<MoveOutcome>
}

export interface MoveServices {
  readonly config: Config
  readonly databases: Databases
  readonly dataDir: string
  /** The room for answers in files. */
  readonly files: BodyFiles
  /** Lets one node move at a time. */
  readonly claims: Pick<Claims, 'take'>
}

/** Who is told how a move goes on. */
export interface MoveWatcher {
  onPlan?(plan: MovePlan): void
  onProgress?(progress: MoveProgress): void
  /** @param result what became of a database, or why it could not be moved */
  onDatabase?(name: string, result: MovedDatabase | { readonly reason: string }): void
}

/** How long the old server may be silent, in ms. */
const TIMEOUT_MS = 60_000

/** The moves of a server: one at a time, whoever has asked for it. */
export class Moves {
  readonly #services: MoveServices
  readonly #ending = new AbortController()
  #isBusy = false

  constructor(services: MoveServices) {
    this.#services = services
  }

  /** Whether a move is under way. */
  get isBusy(): boolean {
    return this.#isBusy
  }

  /** @returns the old server's address without credentials @throws bad_request in hosted mode; invalid_replication */
  check({ url }: MoveRequest): string {
    if (this.#services.config.isHosted) throw new CouchError('bad_request', HOSTED)
    return readServer(url).shown
  }

  /** As {@link MoveControl.planMove}. */
  plan(request: MoveRequest, signal?: AbortSignal): Promise<MovePlan> {
    return this.#withOldServer(request, signal, async (old, ending) => {
      return (await prepareMove(old, request, this.#services, ending)).plan
    })
  }

  /** As {@link MoveControl.move}. */
  async run(request: MoveRequest, watcher: MoveWatcher, signal?: AbortSignal): Promise<MoveOutcome> {
    if (this.#isBusy) throw new CouchError('conflict', 'A move is already under way.')
    this.#isBusy = true
    const claim = await this.#services.claims.take('move').catch((error: unknown) => this.#end(error))
    if (claim === null)
      return this.#end(new CouchError('conflict', 'A move is already under way on another node.'))
    const stop = signal === undefined ? claim.ended : AbortSignal.any([signal, claim.ended])
    try {
      // On connections of its own, since PouchDB's server ends this answer badly.
      const logged = await this.#withOldServer(request, stop, loggedIds)
      return await this.#withOldServer(request, stop, (old, ending) =>
        new Move(this.#services, request, old, logged, watcher, ending).run(),
      )
    } finally {
      await claim.release()
      this.#isBusy = false
    }
  }

  #end(error: unknown): never {
    this.#isBusy = false
    throw error
  }

  /** Ends what is under way, because the server is stopping. Idempotent. */
  close(): void {
    this.#ending.abort()
  }

  async #withOldServer<T>(
    { url }: MoveRequest,
    signal: AbortSignal | undefined,
    use: (old: RemoteServer, signal: AbortSignal) => Promise<T>,
  ): Promise<T> {
    const { config } = this.#services
    if (config.isHosted) throw new CouchError('bad_request', HOSTED)
    const endpoint = readServer(url)
    // Its library is large, and few servers ever need it.
    const { RemoteConnections } = await import('../replication/remote/remote-requests.ts')
    const connections = new RemoteConnections()
    const ending = this.#ending.signal
    const stop = signal === undefined ? ending : AbortSignal.any([signal, ending])
    const old = new RemoteServer(endpoint, connections, {
      mayBePrivate: true,
      proxy: undefined,
      timeoutMs: TIMEOUT_MS,
      verifiesCertificates: config.boolean('replicator', 'verify_ssl_certificates'),
    })
    try {
      return await use(old, stop)
    } catch (error) {
      throw stop.aborted ? new CouchError('unavailable', undefined, { cause: error }) : asRefusal(error)
    } finally {
      await connections.close()
    }
  }
}

const HOSTED = 'In hosted mode databases belong to tenants; nothing was moved.'

/** @returns the commands */
export function localMoveControl(moves: Moves): MoveControl {
  return {
    planMove: (request, _, signal) => moves.plan(request, signal),
    move: (request, onProgress, signal) => moves.run(request, onProgress ? { onProgress } : {}, signal),
  }
}

class Move {
  readonly #services: MoveServices
  readonly #request: MoveRequest
  readonly #old: RemoteServer
  readonly #logged: LoggedIds
  readonly #watcher: MoveWatcher
  readonly #signal: AbortSignal

  constructor(
    services: MoveServices,
    request: MoveRequest,
    old: RemoteServer,
    logged: LoggedIds,
    watcher: MoveWatcher,
    signal: AbortSignal,
  ) {
    this.#services = services
    this.#request = request
    this.#old = old
    this.#logged = logged
    this.#watcher = watcher
    this.#signal = signal
  }

  async run(): Promise<MoveOutcome> {
    const prepared = await prepareMove(this.#old, this.#request, this.#services, this.#signal)
    const { plan, welcome, settings } = prepared
    this.#watcher.onPlan?.(plan)
    const outcomes: SettingOutcome[] = []
    // Limits first, since documents of the old server keep to them.
    for (const setting of settings.filter(isLimit)) outcomes.push(await this.#applySetting(setting))
    const databases: MovedDatabase[] = []
    const failed: { name: string; reason: string }[] = []
    for (const [done, { name, target }] of plan.databases.entries()) {
      try {
        const moved = await this.#moveDatabase(name, target, done, prepared)
        databases.push(moved)
        this.#watcher.onDatabase?.(name, moved)
      } catch (error) {
        const reason = this.#reasonOf(error)
        failed.push({ name, reason })
        this.#watcher.onDatabase?.(name, { reason })
      }
    }
    const others = settings.filter((setting) => !isLimit(setting))
    for (const setting of others) outcomes.push(await this.#applySetting(setting))
    // Devices must not trust checkpoints of a server whose databases are not all here.
    const hasUuid = plan.takesUuid && failed.length === 0
    if (hasUuid && welcome.uuid !== null) await this.#services.databases.adoptUuid(welcome.uuid)
    return { plan, databases, failed, settings: outcomes, hasUuid }
  }

  #moveDatabase(
    name: string,
    target: string,
    done: number,
    { plan, records, oldServer }: PreparedMove,
  ): Promise<MovedDatabase> {
    const { config, databases, files } = this.#services
    return moveDatabase(this.#old.database(name), target, {
      databases,
      records,
      config,
      files,
      oldServer,
      logged: this.#logged,
      isMerged: this.#request.isMerged,
      signal: this.#signal,
      onProgress: (phase, documents, total) =>
        this.#watcher.onProgress?.({
          database: name,
          done,
          of: plan.databases.length,
          phase,
          documents,
          total,
        }),
    })
  }

  /** @throws what ends the whole move */
  #reasonOf(error: unknown): string {
    this.#signal.throwIfAborted()
    if (error instanceof PeerError) {
      if (error.fault === 'unreachable' || error.fault === 'timeout') throw error
      return error.message
    }
    const known = asCouchError(error)
    if (known.status >= 500) throw error
    return known.message
  }

  async #applySetting({ section, key, value }: MovedSetting): Promise<SettingOutcome> {
    const { config } = this.#services
    if (config.get(section, key) === value) return { section, key, outcome: 'set', reason: null }
    if (config.isSet(section, key)) return { section, key, outcome: 'kept', reason: null }
    try {
      await config.set(section, key, value)
      return { section, key, outcome: 'set', reason: null }
    } catch (error) {
      const known = asCouchError(error)
      if (known.status >= 500) throw error
      return { section, key, outcome: 'refused', reason: known.message }
    }
  }
}
