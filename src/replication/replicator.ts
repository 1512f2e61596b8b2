/**
 * The replications of this server: makes jobs, cancels them, and connects them to their peers. A job of
 * `POST /_replicate` lasts until the server stops, as in CouchDB (protocol.md 14.1, 14.4).
 */
import type { Logger } from 'pino'
import { isServerAdmin, requireServerAdmin } from '../auth/accounts.ts'
import type { Policy } from '../auth/policy.ts'
import type { Config } from '../config/config.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { LOCAL_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import type { UserCtx } from '../core/types.ts'
import type { Databases } from '../threads/databases.ts'
import { ReplicationJob } from './job.ts'
import { LocalPeer } from './local-peer.ts'
import type { Peer } from './peer.ts'
import { PeerError } from './peer-error.ts'
import { RemotePeer } from './remote-peer.ts'
import type { RemoteConnections } from './remote-requests.ts'
import { Replication, type ReplicationResult } from './replication.ts'
import { couchCheckpointId, type Endpoint } from './replication-id.ts'
import {
  type ReplicationDefaults,
  type ReplicationEndpoint,
  type ReplicationRequest,
  readCancel,
  readReplication,
} from './requests/replication-request.ts'
import { Scheduler } from './scheduler.ts'

export interface ReplicatorOptions {
  readonly databases: Databases
  readonly policy: Policy
  readonly config: Config
  readonly logger: Logger
  readonly tmpDir: string
}

/** What became of a request. */
export type ReplicateOutcome =
  | { readonly type: 'done'; readonly result: ReplicationResult }
  | { readonly type: 'started' | 'cancelled'; readonly id: string }

const SECTION = 'replicator'
/** How long jobs may write their last checkpoints when the server stops, in ms. */
const CLOSE_MS = 3000
/** Jobs of all users together, and of one user who is no server admin. */
const MAX_JOBS = 5000
const MAX_USER_JOBS = 20
/** Batches of all jobs at once. Each may hold a few MB. */
const MAX_BATCHES = 16

export class Replicator {
  readonly #options: ReplicatorOptions
  /** Made at the first replication, since undici would delay every start of the server. */
  #connections: RemoteConnections | null = null
  readonly #scheduler: Scheduler
  // Each job runs a bounded number of batches.
  readonly #batches = new Limiter(MAX_BATCHES, Number.POSITIVE_INFINITY)

  constructor(options: ReplicatorOptions) {
    this.#options = options
    const { config } = options
    this.#scheduler = new Scheduler(() => ({
      maxJobs: config.integer(SECTION, 'max_jobs'),
      maxChurn: config.integer(SECTION, 'max_churn'),
      interval: config.integer(SECTION, 'interval'),
    }))
  }

  /**
   * Starts or cancels a replication.
   * @param body of `POST /_replicate`
   * @param user whose rights count in databases of this server
   * @returns for a replication that is not continuous, when it has ended
   * @throws bad_request; forbidden in hosted mode; not_found for an unknown job; what ended the replication
   */
  async replicate(body: unknown, user: UserCtx): Promise<ReplicateOutcome> {
    if (this.#options.config.isHosted && !isServerAdmin(user)) throw new CouchError('hosted_replication')
    if (!isJsonObject(body)) throw new CouchError('body_not_object')
    const cancel = readCancel(body)
    if (cancel !== null && cancel.id !== null) return this.#cancel(cancel.id, user)
    const request = readReplication(body, this.#defaults())
    const { RemoteConnections } = await import('./remote-requests.ts')
    this.#connections ??= new RemoteConnections()
    const id = await this.#idOf(request, user)
    if (cancel !== null) return this.#cancel(id, user)
    const job = this.#add(id, request, user)
    if (request.options.isContinuous) return { type: 'started', id }
    return { type: 'done', result: await asCouchError(() => job.finished) }
  }

  /** The jobs, in the order of their ids. */
  jobs(): readonly ReplicationJob[] {
    return this.#scheduler.jobs()
  }

  /** @throws not_found */
  job(id: string): ReplicationJob {
    const job = this.#scheduler.find(id.replaceAll(' ', '+'))
    if (job === undefined) throw new CouchError('not_found')
    return job
  }

  /** Stops all jobs after a last checkpoint. Idempotent. */
  async close(): Promise<void> {
    await this.#scheduler.close(CLOSE_MS)
    await this.#connections?.close()
  }

  #cancel(id: string, user: UserCtx): ReplicateOutcome {
    const job = this.job(id)
    if (job.user.name !== user.name) requireServerAdmin(user)
    void job.stop('cancel')
    return { type: 'cancelled', id: job.id }
  }

  /** @throws not_server_admin if another user has the same replication; too_many_requests */
  #add(id: string, request: ReplicationRequest, user: UserCtx): ReplicationJob {
    const existing = this.#scheduler.find(id)
    if (existing !== undefined) {
      if (existing.user.name !== user.name) requireServerAdmin(user)
      return existing
    }
    this.#checkNumber(user)
    const { source, target } = this.#peers(request, user)
    const job = new ReplicationJob({
      id,
      request,
      user,
      source: source.address,
      target: target.address,
      run: (signal) => this.#run(id, request, source, target, signal),
      onChange: () => this.#scheduler.changed(job),
      logger: this.#options.logger,
    })
    this.#scheduler.add(job)
    return job
  }

  #checkNumber(user: UserCtx): void {
    const { isClosed, size } = this.#scheduler
    const isFull = isClosed || size >= MAX_JOBS
    if (isFull || (!isServerAdmin(user) && this.#scheduler.countOf(user.name) >= MAX_USER_JOBS)) {
      throw new CouchError('too_many_requests', 'There are too many replications; cancel some of them first.')
    }
  }

  #run(
    id: string,
    request: ReplicationRequest,
    source: Peer,
    target: Peer,
    signal: AbortSignal,
  ): Replication {
    const log = this.#options.logger.child({ replication: id })
    return new Replication({
      source,
      target,
      options: request.options,
      checkpointId: LOCAL_PREFIX + baseOf(id),
      tmpDir: this.#options.tmpDir,
      signal,
      inTurn: (batch) => this.#batches.run(batch, id),
      onRetry: (error) =>
        log.warn({ reason: error.message }, 'a step of a replication failed and is repeated'),
      onRefused: (docId, reason) => log.warn({ docId, reason }, 'a replication skipped a document'),
    })
  }

  #peers(request: ReplicationRequest, user: UserCtx): { readonly source: Peer; readonly target: Peer } {
    const { source, target, options } = request
    return {
      source: this.#peer(source, user, options.sourceProxy, options.timeout),
      target: this.#peer(target, user, options.targetProxy, options.timeout),
    }
  }

  #peer(endpoint: ReplicationEndpoint, user: UserCtx, proxy: string | undefined, timeoutMs: number): Peer {
    if (endpoint.type === 'local') return this.#localPeer(endpoint.name, user)
    if (proxy !== undefined && !isServerAdmin(user)) {
      throw new CouchError('forbidden', 'Only server admins may replicate through a proxy.')
    }
    if (this.#connections === null) throw new Error('no connections for a remote endpoint')
    return new RemotePeer(endpoint, this.#connections, {
      mayBePrivate: isServerAdmin(user),
      proxy,
      timeoutMs,
      verifiesCertificates: this.#options.config.boolean(SECTION, 'verify_ssl_certificates'),
    })
  }

  #localPeer(name: string, user: UserCtx): Peer {
    const { databases, policy } = this.#options
    return new LocalPeer({
      databases,
      name,
      user,
      address: localUrl(name),
      create: async (params) => {
        requireServerAdmin(user)
        await policy.createDatabase(name, user, undefined, { partitioned: params.partitioned === 'true' })
      },
    })
  }

  async #idOf(request: ReplicationRequest, user: UserCtx): Promise<string> {
    const { source, target, options } = request
    const { docIds, selector, filter, queryParams } = options.filter
    const found = filter === undefined ? undefined : await this.#filterOf(request, filter, user)
    const winningRevsOnly = options.isWinningRevsOnly
    const base = couchCheckpointId({
      serverUuid: this.#options.databases.serverUuid,
      source: endpointOf(source),
      target: endpointOf(target),
      ...(docIds && { docIds }),
      ...(selector && { selector }),
      ...(found !== undefined && { filter: found, queryParams: queryParams ?? {} }),
      winningRevsOnly,
    }).slice(LOCAL_PREFIX.length)
    const { isContinuous, createsTarget } = options
    return `${base}${isContinuous ? '+continuous' : ''}${createsTarget ? '+create_target' : ''}`
  }

  /** The text of a filter function belongs to the id, so that a replication with another text begins anew. */
  async #filterOf(
    request: ReplicationRequest,
    filter: string,
    user: UserCtx,
  ): Promise<{ readonly code: string } | { readonly name: string }> {
    if (filter.startsWith('_')) return { name: filter }
    const [ddoc = '', name = ''] = filter.split('/', 2)
    const { source } = this.#peers(request, user)
    const doc = await asCouchError(() =>
      source.readDocument(`_design/${ddoc}`, AbortSignal.timeout(request.options.timeout)),
    )
    const filters = isJsonObject(doc) ? doc.filters : undefined
    const code = isJsonObject(filters) ? filters[name] : undefined
    if (typeof code === 'string') return { code }
    throw new CouchError('not_found', `The source has no filter ${filter}.`)
  }

  #defaults(): ReplicationDefaults {
    const { config } = this.#options
    return {
      usesCheckpoints: config.boolean(SECTION, 'use_checkpoints'),
      checkpointInterval: config.integer(SECTION, 'checkpoint_interval'),
      usesBulkGet: config.boolean(SECTION, 'use_bulk_get'),
      batchSize: config.integer(SECTION, 'worker_batch_size'),
      batches: config.integer(SECTION, 'worker_processes'),
      timeout: config.integer(SECTION, 'connection_timeout'),
      retries: config.integer(SECTION, 'retries_per_request'),
    }
  }
}

function baseOf(id: string): string {
  return id.split('+', 1)[0] as string
}

/** The URL of a database of this server in ids and for people. It must not depend on the address of the server. */
function localUrl(name: string): string {
  return `http://127.0.0.1:5984/${encodeURIComponent(name)}/`
}

function endpointOf(endpoint: ReplicationEndpoint): Endpoint {
  return endpoint.type === 'local' ? { url: localUrl(endpoint.name), user: null, headers: {} } : endpoint
}

async function asCouchError<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    throw error instanceof PeerError ? refusalOf(error) : error
  }
}

/** The answer for what ended a replication, protocol.md 14.1. */
export function refusalOf(error: PeerError): CouchError {
  switch (error.fault) {
    case 'db_not_found':
      return new CouchError('replication_no_database', error.message)
    case 'unauthorized':
      return new CouchError('unauthorized', error.message)
    case 'forbidden':
    case 'forbidden_address':
      return new CouchError('forbidden', error.message)
    case 'not_found':
      return new CouchError('not_found', error.message)
  }
  return new CouchError('replication_failed', error.message)
}
