/** One replication with its state, its history and its runs. */
import type { Logger } from 'pino'
import type { CouchError } from '../../core/errors.ts'
import type { UserCtx } from '../../core/types.ts'
import { PeerError } from '../peer-error.ts'
import type { Replication, ReplicationProgress, ReplicationResult } from '../replication.ts'
import type { ReplicationRequest } from '../requests/replication-request.ts'
import { hasSameRights, isLostForGood, type JobOwner } from './job-rights.ts'
import { crashDelay, type JobEvent, type JobState, nextState } from './job-state.ts'

interface JobOptions {
  readonly id: string
  readonly request: ReplicationRequest
  /** The endpoints for people. */
  readonly source: string
  readonly target: string
  readonly owner: JobOwner
  /** The document of `_replicator` that asks for it; null: `POST /_replicate` has. */
  readonly document: ReplicatorDocument | null
  run(user: UserCtx, signal: AbortSignal): Replication
  /** The state has changed. */
  onChange(): void
  readonly logger: Logger
}

/** The place of a document in a database `_replicator`. */
export interface ReplicatorDocument {
  readonly database: string
  readonly id: string
}

/** An event of a job as `_scheduler/jobs` shows it, with CouchDB's types. */
export interface JobHistoryEntry {
  readonly type: 'added' | 'started' | 'stopped' | 'crashed'
  /** In ms since 1970. */
  readonly at: number
  readonly reason?: string
}

const MAX_HISTORY = 20
/** A run of this length, in ms, makes an earlier crash history. */
const HEALTHY_MS = 120_000

export class ReplicationJob {
  readonly id: string
  readonly user: Pick<JobOwner, 'name'>
  readonly request: ReplicationRequest
  readonly document: ReplicatorDocument | null
  /** The addresses for people. */
  readonly source: string
  readonly target: string
  /** In ms since 1970. */
  readonly addedAt = Date.now()
  /** Newest first. */
  readonly history: JobHistoryEntry[] = []
  /** Rejects with what ended the replication. */
  readonly finished: Promise<ReplicationResult>
  state: JobState = 'pending'
  /** When the job last began or stopped to run, in ms of a clock that does not jump. */
  since = performance.now()
  crashes = 0
  /** Whether it was cancelled; it may still write its last checkpoint. */
  isCancelled = false
  readonly #options: JobOptions
  readonly #finish: PromiseWithResolvers<ReplicationResult>
  #running: Run | null = null
  #last: ReplicationProgress | null = null
  #wake: NodeJS.Timeout | undefined

  constructor(options: JobOptions) {
    this.#options = options
    const { id, owner, request, document } = options
    this.id = id
    this.user = owner
    this.request = request
    this.document = document
    this.source = options.source
    this.target = options.target
    this.#finish = Promise.withResolvers()
    this.finished = this.#finish.promise
    // Nobody may be waiting.
    this.finished.catch(() => undefined)
    this.#note('added')
  }

  /** Whether the job will never run again. */
  get isOver(): boolean {
    return this.state === 'completed' || this.state === 'failed' || this.state === 'cancelled'
  }

  /** null: it has not run yet. */
  get progress(): ReplicationProgress | null {
    return this.#running?.replication?.progress ?? this.#last
  }

  start(): void {
    const run: Run = { abort: new AbortController(), user: null, replication: null, ended: Promise.resolve() }
    this.#running = run
    this.#note('started')
    this.#enter('start')
    run.ended = this.#run(run)
  }

  /** Stops a run whose user's rights have changed; the next one has the new rights, or fails. */
  async checkRights(): Promise<void> {
    const run = this.#running
    if (run === null || run.user === null) return
    const user = await this.#options.owner.rights().catch(() => null)
    if (this.#running !== run || (user !== null && hasSameRights(user, run.user))) return
    await this.stop('stop')
  }

  /** Stops the job, which writes a last checkpoint. `stop`: it runs again later. */
  async stop(event: 'stop' | 'cancel'): Promise<void> {
    if (event === 'cancel') this.isCancelled = true
    const running = this.#running
    if (running !== null) {
      running.abort.abort(new Stopped(event))
      await running.ended
    } else if (!this.isOver) {
      this.#end(event)
    }
  }

  async #run(run: Run): Promise<void> {
    const { signal } = run.abort
    const began = performance.now()
    try {
      run.user = await this.#options.owner.rights()
      signal.throwIfAborted()
      run.replication = this.#options.run(run.user, signal)
      const result = await run.replication.run()
      this.#left(run)
      this.#enter('finish')
      this.#finish.resolve(result)
    } catch (error) {
      this.#left(run)
      if (signal.aborted && signal.reason instanceof Stopped)
        return this.#end(this.isCancelled ? 'cancel' : signal.reason.event)
      if (performance.now() - began > HEALTHY_MS) this.crashes = 0
      this.#crashed(error, run.user === null && isLostForGood(error))
    }
  }

  #left({ replication }: Run): void {
    this.#last = replication?.progress ?? this.#last
    this.#running = null
  }

  #end(event: 'stop' | 'cancel'): void {
    this.#note('stopped')
    this.#enter(event)
    if (event === 'cancel')
      this.#finish.reject(new PeerError('server_error', 'the replication was cancelled'))
  }

  #crashed(error: unknown, isFinal: boolean): void {
    const reason = reasonOf(error)
    const { logger, id, request, document } = this.#options
    this.crashes += 1
    this.#note('crashed', reason)
    const expected = error instanceof PeerError
    logger.warn({ replication: id, reason, ...(!expected && { err: error }) }, 'a replication has failed')
    if (isFinal || (!request.options.isContinuous && document === null)) {
      this.#enter('fail')
      this.#finish.reject(error)
      return
    }
    this.#wake = setTimeout(() => this.#enter('wake'), crashDelay(this.crashes, Math.random()))
    this.#enter('crash')
  }

  #enter(event: JobEvent): void {
    this.state = nextState(this.state, event)
    this.since = performance.now()
    if (this.isOver) clearTimeout(this.#wake)
    this.#options.onChange()
  }

  #note(type: JobHistoryEntry['type'], reason?: string): void {
    this.history.unshift({ type, at: Date.now(), ...(reason !== undefined && { reason }) })
    if (this.history.length > MAX_HISTORY) this.history.pop()
  }
}

interface Run {
  readonly abort: AbortController
  /** null: the rights are still looked up. */
  user: UserCtx | null
  replication: Replication | null
  ended: Promise<void>
}

/** The reason of a run's end that the scheduler or a user has caused. */
class Stopped extends Error {
  readonly event: 'stop' | 'cancel'

  constructor(event: 'stop' | 'cancel') {
    super(event)
    this.event = event
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof PeerError) return `${error.fault}: ${error.message}`
  const { code } = error as Partial<CouchError>
  return code === undefined ? 'internal_server_error: see the log' : `${code}: ${(error as Error).message}`
}
