/** The replication of one document of `_replicator`, from its start until its end is written into the document. */
import { CouchError } from '../../core/errors.ts'
import type { ReplicationJob, ReplicatorDocument } from '../jobs/job.ts'
import { progressInfo, timestamp } from '../jobs/job-info.ts'
import { isLostForGood, type JobOwner } from '../jobs/job-rights.ts'
import { startDelay } from '../jobs/job-state.ts'
import type { Jobs } from '../jobs/jobs.ts'
import { PeerError } from '../peer-error.ts'
import { checkpointIdOf } from '../peers.ts'
import type { DocumentRequest } from '../requests/replication-document.ts'
import type { WrittenState } from './document-states.ts'

interface DocumentReplicationOptions {
  readonly place: ReplicatorDocument
  readonly wanted: DocumentRequest
  readonly owner: JobOwner
  readonly jobs: Jobs
  /** Whether `triggered` and `error` are written as well: `replicator/update_docs`. */
  readonly writesAll: () => boolean
  /** Runs a start when its turn has come: `asking` ones ask their source for a filter. */
  inTurn<T>(kind: 'asking' | 'quick', work: () => Promise<T>): Promise<T>
  /** Writes a state into the document. @throws as a write */
  write(state: WrittenState): Promise<void>
  /** The end is written, or nothing more can be. */
  onOver(): void
  onFault(fault: unknown): void
}

/** The states of `_scheduler/docs` before there is a job; protocol.md 14.4. */
type StartState = 'initializing' | 'error'

const FIRST_WRITE_DELAY_MS = 1000
const LONGEST_WRITE_DELAY_MS = 5 * 60_000

export class DocumentReplication {
  readonly #options: DocumentReplicationOptions
  /** In ms since 1970. */
  readonly startedAt = Date.now()
  updatedAt = this.startedAt
  state: StartState = 'initializing'
  /** Failed starts in a row. */
  errors = 0
  reason: string | null = null
  job: ReplicationJob | null = null
  #isDropped = false
  #retry: NodeJS.Timeout | undefined
  #wanted: WrittenState | null = null
  #writing: Promise<void> | null = null

  constructor(options: DocumentReplicationOptions) {
    this.#options = options
    void this.#start()
  }

  get place(): ReplicatorDocument {
    return this.#options.place
  }

  get wanted(): DocumentRequest {
    return this.#options.wanted
  }

  /** The document was changed or deleted, or the server stops. Nothing is written any more. */
  drop(): void {
    this.#isDropped = true
    clearTimeout(this.#retry)
    void this.job?.stop('cancel')
  }

  /** Never rejects. */
  async #start(): Promise<void> {
    const { inTurn, wanted } = this.#options
    const kind = wanted.request.options.filter.filter === undefined ? 'quick' : 'asking'
    try {
      this.job = await inTurn(kind, () => this.#job())
      if (this.job !== null) await this.#follow(this.job)
    } catch (error) {
      if (this.#isDropped) return
      if (isFinal(error)) this.#end({ state: 'failed', reason: wordsOf(error) })
      else this.#startLater(error)
    }
  }

  /** @returns null if the document was changed meanwhile */
  async #job(): Promise<ReplicationJob | null> {
    if (this.#isDropped) return null
    const { place, wanted, owner, jobs } = this.#options
    await jobs.peers.load()
    const user = await owner.rights().catch((error: unknown) => {
      throw isLostForGood(error) ? new StartRefused(wordsOf(error)) : error
    })
    const { request } = wanted
    const most = await jobs.mostOf(user)
    const id = await jobs.peers.idOf(request, user)
    for (let other = jobs.find(id); other !== undefined; other = jobs.find(id)) {
      if (this.#isDropped) return null
      // The job of the document as it was before.
      if (!isSame(other.document, place)) throw alreadyStarted(id, place, other.document)
      await other.stop('cancel')
    }
    if (this.#isDropped) return null
    const onChange = (job: ReplicationJob) => this.#changed(job)
    return jobs.add({ id, request, owner, document: place, onChange }, user, most)
  }

  #startLater(error: unknown): void {
    this.errors += 1
    this.state = 'error'
    this.reason = wordsOf(error)
    this.updatedAt = Date.now()
    this.#write({ state: 'error', reason: this.reason })
    if (!(error instanceof CouchError)) this.#options.onFault(error)
    this.#retry = setTimeout(() => void this.#start(), startDelay(this.errors, Math.random())).unref()
  }

  #changed({ id, state, history }: ReplicationJob): void {
    this.updatedAt = Date.now()
    if (state === 'running')
      this.#write({ state: 'triggered', id: checkpointIdOf(id).replace('_local/', '') })
    else if (state === 'crashing') this.#write({ state: 'error', reason: history[0]?.reason ?? '' })
  }

  async #follow(job: ReplicationJob): Promise<void> {
    const reason = await job.finished.then(() => null, wordsOf)
    if (this.#isDropped) return
    if (job.state === 'completed') {
      const stats = { ...progressInfo(job.progress), start_time: timestamp(job.addedAt) }
      this.#end({ state: 'completed', stats })
    } else if (job.state === 'failed') this.#end({ state: 'failed', reason: reason ?? '' })
  }

  #end(state: WrittenState): void {
    this.#wanted = state
    this.#writing ??= this.#writeAll()
  }

  #write(state: WrittenState): void {
    if (this.#options.writesAll() && !this.#isDropped) this.#end(state)
  }

  /** Writes the newest state; a final one until it is written. Never rejects. */
  async #writeAll(): Promise<void> {
    for (let failures = 0; this.#wanted !== null && !this.#isDropped; ) {
      const written = this.#wanted
      const isLast = written.state === 'completed' || written.state === 'failed'
      try {
        await this.#options.write(written)
        if (isLast) return this.#options.onOver()
      } catch (error) {
        this.#options.onFault(error)
        // A rule of the database refuses it.
        if (isLast && error instanceof CouchError && error.status < 500) return this.#options.onOver()
        failures += 1
        if (isLast) await this.#wait(failures)
      }
      if (!isLast && this.#wanted === written) this.#wanted = null
    }
    this.#writing = null
  }

  async #wait(failures: number): Promise<void> {
    const delay = Math.min(FIRST_WRITE_DELAY_MS * 2 ** (failures - 1), LONGEST_WRITE_DELAY_MS)
    await new Promise<void>((resolve) => {
      this.#retry = setTimeout(resolve, delay).unref()
    })
  }
}

function isSame(a: ReplicatorDocument | null, b: ReplicatorDocument): boolean {
  return a !== null && a.database === b.database && a.id === b.id
}

/** Of two documents, the second fails for good; a job of `_replicate` will end. */
function alreadyStarted(id: string, place: ReplicatorDocument, other: ReplicatorDocument | null): Error {
  const begin = `Replication \`${id}\` of document \`${place.id}\` in \`${place.database}\` was already started by`
  if (other === null) return new CouchError('conflict', `${begin} _replicate`)
  return new StartRefused(`${begin} document \`${other.id}\` in \`${other.database}\``)
}

/** The document cannot be started as it is. */
class StartRefused extends Error {}

/** Whether another try would end in the same way. */
function isFinal(error: unknown): boolean {
  return error instanceof StartRefused || (error instanceof CouchError && error.status === 400)
}

function wordsOf(error: unknown): string {
  const isMeant = error instanceof CouchError || error instanceof PeerError || error instanceof StartRefused
  return isMeant ? error.message : 'something went wrong on the server; the log has the details'
}
