/** Makes the jobs of this server, within its bounds, and connects them to their peers and the scheduler. */
import type { Logger } from 'pino'
import { isServerAdmin } from '../../auth/accounts.ts'
import { CouchError } from '../../core/errors.ts'
import type { UserCtx } from '../../core/types.ts'
import type { BodyFiles } from '../../documents/body-files.ts'
import { Intake } from '../intake.ts'
import { checkpointIdOf, Peers, type PeersOptions } from '../peers.ts'
import { Replication } from '../replication.ts'
import type { ReplicationRequest } from '../requests/replication-request.ts'
import { BatchTurns } from './batch-turns.ts'
import { ReplicationJob, type ReplicatorDocument } from './job.ts'
import type { JobOwner } from './job-rights.ts'
import { Scheduler } from './scheduler.ts'

export interface JobsOptions extends PeersOptions {
  readonly logger: Logger
  /** The room for answers in files. */
  readonly files: BodyFiles
}

interface NewJob {
  readonly id: string
  readonly request: ReplicationRequest
  readonly owner: JobOwner
  readonly document: ReplicatorDocument | null
  /** Called after each change of the job's state. */
  onChange?(job: ReplicationJob): void
}

const SECTION = 'replicator'
/** How long jobs may write their last checkpoints when the server stops, in ms. */
const CLOSE_MS = 3000
/** Jobs of all users together, and of one user who is no server admin. */
const MAX_JOBS = 5000
const MAX_USER_JOBS = 20
/** Batches of all jobs at once. Each may hold a few MB. */
const MAX_BATCHES = 16

export class Jobs {
  readonly peers: Peers
  readonly #options: JobsOptions
  readonly #scheduler: Scheduler
  // Each job has a bounded number of batches.
  readonly #batches = new BatchTurns(MAX_BATCHES)

  /** Accounts whose jobs are to be checked. */
  #changed: Set<string> | 'all' = new Set()
  #checking: Promise<void> | null = null

  constructor(options: JobsOptions) {
    this.#options = options
    this.peers = new Peers(options)
    const { config } = options
    this.#scheduler = new Scheduler(() => ({
      maxJobs: config.integer(SECTION, 'max_jobs'),
      maxChurn: config.integer(SECTION, 'max_churn'),
      interval: config.integer(SECTION, 'interval'),
    }))
  }

  find(id: string): ReplicationJob | undefined {
    return this.#scheduler.find(id)
  }

  /** In the order of their ids. */
  list(): readonly ReplicationJob[] {
    return this.#scheduler.jobs()
  }

  /**
   * Adds a job with a new id.
   * @param user the owner with the rights of now
   * @param most {@link mostOf} the user
   * @throws too_many_requests; forbidden for a proxy
   */
  add({ id, request, owner, document, onChange }: NewJob, user: UserCtx, most: number): ReplicationJob {
    this.#checkNumber(user, most)
    this.peers.of(request, user)
    const job: ReplicationJob = new ReplicationJob({
      id,
      request,
      source: this.peers.shown(request.source),
      target: this.peers.shown(request.target),
      owner,
      document,
      run: (runner, signal) => this.#run(id, request, runner, signal),
      onChange: () => {
        this.#scheduler.changed(job)
        onChange?.(job)
      },
      logger: this.#options.logger,
    })
    this.#scheduler.add(job)
    return job
  }

  /** @returns how many jobs a user may have */
  async mostOf(user: UserCtx): Promise<number> {
    if (isServerAdmin(user)) return MAX_JOBS
    return (await this.#options.policy.maxReplications(user)) ?? MAX_USER_JOBS
  }

  #checkNumber(user: UserCtx, most: number): void {
    const { isClosed, size } = this.#scheduler
    if (!isClosed && size < MAX_JOBS && this.#scheduler.countOf(user.name) < most) return
    throw new CouchError('too_many_requests', 'There are too many replications; cancel some of them first.')
  }

  #run(id: string, request: ReplicationRequest, user: UserCtx, signal: AbortSignal): Replication {
    const { config, files, policy } = this.#options
    const { source, target } = request
    const remote = remoteOf(request)
    const log = this.#options.logger.child({ replication: id })
    return new Replication({
      ...this.peers.of(request, user),
      options: request.options,
      checkpointId: checkpointIdOf(id),
      intake: new Intake({
        config,
        files,
        user,
        isLocal: source.type === 'local',
        ...(target.type === 'local' && { allowance: async () => policy.allowance(target.name) }),
      }),
      signal,
      inTurn: (batch) => this.#batches.run(remote, id, batch),
      onRetry: (error) =>
        log.warn({ reason: error.message }, 'a step of a replication failed and is repeated'),
      onRefused: (docId, reason) => log.warn({ docId, reason }, 'a replication skipped a document'),
    })
  }

  /** Checks the rights of running jobs, once for many changes. @param names the accounts that have changed */
  checkRights(names: ReadonlySet<string> | 'all'): void {
    const changed = this.#changed
    if (names === 'all' || changed === 'all') this.#changed = 'all'
    else for (const name of names) changed.add(name)
    this.#checking ??= this.#checkAll().finally(() => {
      this.#checking = null
    })
  }

  async #checkAll(): Promise<void> {
    while (this.#changed === 'all' || this.#changed.size > 0) {
      const changed = this.#changed
      this.#changed = new Set()
      for (const job of this.#scheduler.jobs()) {
        const { name } = job.user
        if (changed === 'all' || (name !== null && changed.has(name))) await job.checkRights()
      }
    }
  }

  /** Stops all jobs after a last checkpoint. Idempotent. */
  async close(): Promise<void> {
    await this.#scheduler.close(CLOSE_MS)
    await this.peers.close()
  }
}

/** @returns the origins of the servers whose speed a job depends on; empty if it has none */
function remoteOf({ source, target }: ReplicationRequest): string {
  const origins = [source, target].map((end) => (end.type === 'local' ? '' : new URL(end.url).origin))
  return origins.join(' ').trim()
}
