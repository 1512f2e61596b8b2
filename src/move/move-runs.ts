/**
 * Moves that go on without their caller, for `/_settee/moves`: one at a time, and what became of the last one. Neither
 * keeps credentials of the old server once it has ended.
 */
import type { Logger } from 'pino'
import { asCouchError, CouchError, ERRORS } from '../core/errors.ts'
import { newUuid } from '../core/ids.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { MovedDatabase } from './database-move.ts'
import type { MovePlan, MoveRequest, PlannedDatabase } from './move-plan.ts'
import type { MoveOutcome, MoveProgress, Moves } from './moves.ts'

/**
 * `planning`: the old server is being read. `planned`: a dry run has ended. `moving`: databases are being copied. `done`:
 * it has ended, and the results say whether everything is here. `failed`: an error has ended it. `stopped`: somebody has.
 */
export type MoveState = 'planning' | 'planned' | 'moving' | 'done' | 'failed' | 'stopped'

export type DatabaseResult = MovedDatabase | { readonly reason: string }

/** A database of a run, for a list. */
export type MoveRow =
  | {
      readonly planned: PlannedDatabase
      readonly state: 'waiting' | 'moving' | 'moved' | 'incomplete' | 'failed'
      /** null until it has ended. */
      readonly result: DatabaseResult | null
    }
  | { readonly left: MovePlan['left'][number] }

export interface MoveRun {
  readonly id: string
  /** The old server, without credentials. */
  readonly from: string
  readonly isDryRun: boolean
  readonly request: Omit<MoveRequest, 'url'>
  readonly state: MoveState
  /** ms since 1970. */
  readonly begunAt: number
  /** null while it runs. */
  readonly endedAt: number | null
  /** null until the old server was read. */
  readonly plan: MovePlan | null
  readonly progress: MoveProgress | null
  /** By the names of databases at the old server. */
  readonly results: ReadonlyMap<string, DatabaseResult>
  readonly outcome: Pick<MoveOutcome, 'settings' | 'hasUuid'> | null
  readonly error: { readonly error: string; readonly reason: string } | null
}

/** @returns a page of the databases, those that stay behind last */
export function moveRows(run: MoveRun, skip: number, limit: number): readonly MoveRow[] {
  const { databases = [], left = [] } = run.plan ?? {}
  const rows = databases.slice(skip, skip + limit).map((planned) => rowOf(run, planned))
  const others = left.slice(
    Math.max(0, skip - databases.length),
    Math.max(0, skip + limit - databases.length),
  )
  return [...rows, ...others.map((each) => ({ left: each }))]
}

function rowOf({ state, progress, results }: MoveRun, planned: PlannedDatabase): MoveRow {
  const result = results.get(planned.name) ?? null
  if (result !== null && 'reason' in result) return { planned, state: 'failed', result }
  if (result !== null) return { planned, state: result.isComplete ? 'moved' : 'incomplete', result }
  const isMoving = state === 'moving' && progress?.database === planned.name
  return { planned, state: isMoving ? 'moving' : 'waiting', result }
}

/** Whether it goes on. */
export function isUnderWay({ endedAt }: Pick<MoveRun, 'endedAt'>): boolean {
  return endedAt === null
}

type Running = { -readonly [M in keyof MoveRun]: MoveRun[M] } & { results: Map<string, DatabaseResult> }

export class MoveRuns {
  readonly #moves: Moves
  readonly #logger: Pick<Logger, 'info' | 'warn' | 'error'>
  #last: Running | null = null
  #stop = new AbortController()
  #work: Promise<void> = Promise.resolve()

  constructor(moves: Moves, logger: Pick<Logger, 'info' | 'warn' | 'error'>) {
    this.#moves = moves
    this.#logger = logger
  }

  /** The one that runs, or the last one since the start of the server. */
  get last(): MoveRun | null {
    return this.#last
  }

  /** @throws not_found */
  find(id: string): MoveRun {
    if (this.#last?.id !== id) throw new CouchError('not_found', 'There is no such move.')
    return this.#last
  }

  /**
   * Begins a move, or only makes its plan.
   * @throws conflict while one is under way, also one of the command line; bad_request, invalid_replication
   */
  start(request: MoveRequest, isDryRun: boolean): MoveRun {
    const from = this.#moves.check(request)
    if (this.#moves.isBusy || (this.#last !== null && isUnderWay(this.#last))) {
      throw new CouchError('conflict', 'A move is already under way.')
    }
    const { url: _, ...options } = request
    const run: Running = {
      id: newUuid(),
      from,
      isDryRun,
      request: options,
      state: 'planning',
      begunAt: Date.now(),
      endedAt: null,
      plan: null,
      progress: null,
      results: new Map(),
      outcome: null,
      error: null,
    }
    this.#last = run
    this.#stop = new AbortController()
    this.#work = this.#run(run, request, this.#stop.signal)
    return run
  }

  /** Stops a move; a later one goes on where it was. Resolves when it has ended. @throws not_found unless it runs */
  async stop(id: string): Promise<void> {
    if (!isUnderWay(this.find(id))) throw new CouchError('not_found', 'This move has ended.')
    this.#stop.abort()
    await this.#work
  }

  /** Stops what runs. Idempotent. */
  async close(): Promise<void> {
    this.#stop.abort()
    await this.#work
  }

  async #run(run: Running, request: MoveRequest, signal: AbortSignal): Promise<void> {
    try {
      if (run.isDryRun) {
        run.plan = await this.#moves.plan(request, signal)
        run.state = 'planned'
      } else {
        run.outcome = await this.#move(run, request, signal)
        run.state = 'done'
      }
    } catch (thrown) {
      this.#fail(run, thrown, signal.aborted)
    } finally {
      run.progress = null
      run.endedAt = Date.now()
      this.#logger.info({ move: run.id, from: run.from, state: run.state }, 'a move has ended')
    }
  }

  async #move(run: Running, request: MoveRequest, signal: AbortSignal): Promise<Running['outcome']> {
    const watcher = {
      onPlan: (plan: MovePlan) => {
        run.plan = plan
        run.state = 'moving'
      },
      onProgress: (progress: MoveProgress) => {
        run.progress = progress
      },
      onDatabase: (name: string, result: DatabaseResult) => {
        run.results.set(name, result)
      },
    }
    const { settings, hasUuid } = await this.#moves.run(request, watcher, signal)
    return { settings, hasUuid }
  }

  #fail(run: Running, thrown: unknown, isStopped: boolean): void {
    const error = asCouchError(thrown)
    run.state = isStopped ? 'stopped' : 'failed'
    if (isStopped) return
    run.error = { error: ERRORS[error.code][1], reason: error.message }
    if (error.status < 500) return
    // An old server that does not answer is no fault of this one.
    const level = error.cause instanceof PeerError ? 'warn' : 'error'
    this.#logger[level]({ err: error.cause ?? error }, 'a move has failed')
  }
}
