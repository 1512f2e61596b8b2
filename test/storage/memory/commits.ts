/**
 * The writes of one opener of a database in memory. They are decided on the state as it was loaded, and commit a round trip
 * later, as over a network: only if no document and no setting that they were decided on has changed, else they are decided again.
 */
import { CouchError } from '../../../src/core/errors.ts'
import type { Decision } from '../../../src/storage/engine.ts'
import type { MemoryOpener } from './opener.ts'
import { draftOf, type State } from './state.ts'
import type { DatabaseRecord, Operate } from './store.ts'

export interface Job {
  /** The documents that it is decided on; null: it is decided while it commits. */
  readonly ids: readonly string[] | null
  /** Decides, and changes the draft. Called again if that has become stale. */
  decide(draft: State): Decided
  reject(error: unknown): void
}

export interface Decided {
  /** Called when it is durable. */
  answer(): void
  /** Makes the same changes in another draft. @throws if it cannot */
  carryOut(draft: State): void
  /** As in a {@link Decision}. */
  readonly dependsOnCounts: boolean
}

/** After so many stale tries the writes are decided while they commit. */
const MAX_TRIES = 5

interface Options {
  readonly record: DatabaseRecord
  readonly opener: MemoryOpener
  readonly operate: Operate
  /** Called before a commit changes the state that was there. */
  before(state: State): void
  /** Called when writes are answered. */
  committed(from: State, to: State): void
}

export class MemoryCommits {
  readonly #options: Options
  #queue: Job[] = []
  #running: Promise<void> | null = null

  constructor(options: Options) {
    this.#options = options
  }

  add(job: Job): void {
    this.#queue.push(job)
    this.#running ??= this.#run()
  }

  /** Resolves when the writes so far are answered. */
  async drained(): Promise<void> {
    await this.#running
  }

  async #run(): Promise<void> {
    await this.#options.opener.network.ask()
    while (this.#queue.length > 0) await this.#commit(this.#nextGroup())
    this.#running = null
  }

  /** The writes that have arrived, as far as they are of one kind, share a commit and a fault of it. */
  #nextGroup(): Job[] {
    const [first] = this.#queue
    const end = this.#queue.findIndex(({ ids }) => (ids === null) !== (first?.ids === null))
    return this.#queue.splice(0, end === -1 ? this.#queue.length : end)
  }

  async #commit(jobs: readonly Job[]): Promise<void> {
    const { record, operate, opener, before, committed } = this.#options
    for (let tries = 0; ; tries++) {
      const loaded = record.state
      const draft = draftOf(loaded)
      draft.writes += 1
      const decided: Decided[] = []
      let next: State | null
      let from: State
      try {
        operate('begin')
        for (const job of jobs) decided.push(decidedOn(job, draft))
        if (opener.network.isShared && jobs[0]?.ids != null && tries < MAX_TRIES) await opener.network.ask()
        this.#refuseIfGone()
        from = record.state
        next = this.#rebased(jobs, decided, loaded, draft)
        if (next === null) continue
        operate('commit')
      } catch (fault) {
        for (const job of jobs) job.reject(fault)
        return
      }
      before(from)
      record.state = next
      for (const store of record.stores) store.hear(this.#options.opener)
      await opener.network.answer()
      if (!opener.isDead) for (const { answer } of decided) answer()
      committed(from, next)
      return
    }
  }

  #refuseIfGone(): void {
    if (this.#options.opener.isDead) throw new CouchError('unavailable')
    if (this.#options.record.isGone) throw new CouchError('no_database')
  }

  /** The state of now with the changes; null if the decisions are stale. */
  #rebased(jobs: readonly Job[], decided: readonly Decided[], loaded: State, draft: State): State | null {
    const { state } = this.#options.record
    if (state === loaded) return draft
    const isStale =
      jobs.some(({ ids }) => ids === null || !isSame(ids, loaded, state)) ||
      (decided.some(({ dependsOnCounts }) => dependsOnCounts) && !hasSameCounts(loaded, state))
    if (isStale && this.#options.opener.mutant !== 'no comparison') return null
    const next = draftOf(state)
    next.writes += 1
    try {
      for (const { carryOut } of decided) carryOut(next)
      return next
    } catch {
      return null
    }
  }
}

/** Whether the documents and the settings are as they were. A document is another object after each change. */
function isSame(ids: readonly string[], before: State, now: State): boolean {
  return (
    before.settingsVersion === now.settingsVersion &&
    ids.every((id) => before.docs.get(id) === now.docs.get(id))
  )
}

function hasSameCounts(before: State, now: State): boolean {
  return before.docCount === now.docCount && before.deletedCount === now.deletedCount
}

function decidedOn(job: Job, draft: State): Decided {
  try {
    return job.decide(draft)
  } catch (error) {
    return { answer: () => job.reject(error), carryOut: () => undefined, dependsOnCounts: false }
  }
}
