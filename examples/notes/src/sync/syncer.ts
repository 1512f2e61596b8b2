/**
 * Syncs the notes of this device with one database. Only one sync runs at a time: a new target ends the previous sync and
 * its requests under way. The notes themselves do not change.
 */
import type { Diagnosis, FindingCode } from '../diagnosis/finding.ts'
import { refusalFinding } from '../diagnosis/words.ts'
import { type SyncAct, type SyncEvent, withoutCredentials } from '../log.ts'
import type { Pouch, PouchError, PouchOptions, Replication } from '../pouch.ts'
import { Store, type Watched } from '../store.ts'
import { mobileOptions } from './mobile.ts'
import type { Refusals } from './refusals.ts'
import { remoteOf } from './remote.ts'
import { AT_REST, type SyncStatus } from './status.ts'
import { type Choice, keyOf, type Target } from './target.ts'

type Direction = 'push' | 'pull'

export interface SyncerOptions {
  readonly local: Pouch
  readonly open: (url: string, options: PouchOptions) => Pouch
  readonly send: typeof fetch
  readonly refusals: Refusals
  /** Receives each event. */
  readonly note: (event: SyncEvent) => void
  /** Finds the problem after a failure. */
  readonly diagnose: (target: Target, signal: AbortSignal) => Promise<Diagnosis>
}

/** PouchDB's own is 100, with which a new device needs many more requests. */
const BATCH_SIZE = 500
const FIRST_DELAY_MS = 1000
const LONGEST_DELAY_MS = 30_000
/** Problems that do not go away by themselves. Repeated attempts would lock the account. */
const FINAL: ReadonlySet<FindingCode> = new Set(['credentials', 'rights', 'locked', 'insecure'])

/** @returns milliseconds until the next try */
export function backOff(lastDelay: number): number {
  return Math.min(LONGEST_DELAY_MS, Math.max(FIRST_DELAY_MS, lastDelay * 2))
}

export class Syncer implements Watched<SyncStatus> {
  readonly #options: SyncerOptions
  readonly #status = new Store<SyncStatus>(AT_REST)
  #run: Run | null = null
  #choice: Choice | null = null

  constructor(options: SyncerOptions) {
    this.#options = options
  }

  get value(): SyncStatus {
    return this.#status.value
  }

  subscribe(listener: (status: SyncStatus) => void): () => void {
    return this.#status.subscribe(listener)
  }

  /** Ends the running sync and starts the chosen one. */
  choose(choice: Choice): void {
    this.#choice = choice
    this.#run?.end()
    this.#run = null
    this.#options.refusals.show('target' in choice ? keyOf(choice.target) : '')
    if ('idle' in choice) {
      this.#status.set({ ...AT_REST, idle: choice.idle })
      return
    }
    this.#status.set({ ...AT_REST, phase: 'connecting' })
    this.#run = new Run(choice.target, this.#options, this.#status)
  }

  /** Starts the same sync again at once: the user has fixed something, or the network is back. */
  again(): void {
    if (this.#choice !== null) this.choose(this.#choice)
  }

  /** Whether {@link again} may help. */
  get isHeldUp(): boolean {
    return this.value.phase === 'waiting' || this.value.phase === 'stopped'
  }
}

/** One sync with one database, from its start to its end. */
class Run {
  readonly #target: Target
  readonly #options: SyncerOptions
  readonly #status: Store<SyncStatus>
  readonly #ended = new AbortController()
  #remote: Pouch | null = null
  #replications: readonly Replication[] = []
  /** Directions in which everything has been sent or received. */
  readonly #done = new Set<Direction>()
  readonly #failed = new Set<Direction>()
  #isLooking = false
  /** The database was missing. When it is made, its members are named a moment later. */
  #wasMissing = false

  constructor(target: Target, options: SyncerOptions, status: Store<SyncStatus>) {
    this.#target = target
    this.#options = options
    this.#status = status
    this.#note('start', 'both')
    void this.#begin(FIRST_DELAY_MS)
  }

  /**
   * One diagnosis before the sync starts. A wrong password then causes one failed login; PouchDB would make about six, and
   * the account would be locked. A mobile device without its filter sends nothing.
   * @param delay milliseconds until the next diagnosis, if this one finds a problem that may go away by itself
   */
  async #begin(delay: number): Promise<void> {
    const { signal } = this.#ended
    const { finding } = await this.#options.diagnose(this.#target, signal)
    if (signal.aborted) return
    this.#status.update({ finding })
    if (finding === null) {
      this.#replicateBoth()
      return
    }
    this.#note('error', 'both', 0, { name: finding.code, message: finding.title })
    this.#wasMissing ||= finding.code === 'no_database'
    const isBeingMade = this.#wasMissing && finding.code === 'rights'
    const isFinal = FINAL.has(finding.code) && !isBeingMade
    this.#status.update({ phase: isFinal ? 'stopped' : 'waiting' })
    if (!isFinal) setTimeout(() => void (signal.aborted || this.#begin(backOff(delay))), delay)
  }

  #replicateBoth(): void {
    const { url, options } = remoteOf(this.#target.address, this.#ended.signal, this.#options.send)
    const remote = this.#options.open(url, options)
    this.#remote = remote
    this.#replications = (['push', 'pull'] as const).map((direction) => this.#replicate(remote, direction))
  }

  end(): void {
    if (this.#ended.signal.aborted) return
    this.#note('stop', 'both')
    this.#stop()
  }

  #stop(): void {
    this.#ended.abort()
    for (const replication of this.#replications) replication.cancel()
    void this.#remote?.close().catch(() => undefined)
  }

  #replicate(remote: Pouch, direction: Direction): Replication {
    const { local } = this.#options
    const options = {
      live: true,
      retry: true,
      batch_size: BATCH_SIZE,
      back_off_function: backOff,
      ...mobileOptions(this.#target.mobile, direction),
    }
    const replication =
      direction === 'push' ? local.replicate.to(remote, options) : local.replicate.from(remote, options)
    const guarded =
      <Value>(act: (value: Value) => void) =>
      (value: Value) => {
        if (!this.#ended.signal.aborted) act(value)
      }
    replication
      .on(
        'active',
        guarded(() => this.#active(direction)),
      )
      .on(
        'change',
        guarded(({ docs }) =>
          this.#travelled(
            direction,
            docs.map(({ _id }) => _id),
          ),
        ),
      )
      .on(
        'paused',
        guarded((error) => this.#paused(direction, error)),
      )
      .on(
        'requestError',
        guarded((error) => void this.#look(error)),
      )
      .on(
        'denied',
        guarded((error) => this.#denied(direction, error)),
      )
      .on(
        'error',
        guarded((error) => this.#fatal(direction, error)),
      )
    return replication
  }

  #active(direction: Direction): void {
    this.#done.delete(direction)
    if (this.#failed.size === 0) this.#status.update({ phase: 'syncing' })
  }

  #travelled(direction: Direction, ids: readonly string[]): void {
    this.#note('documents', direction, ids.length)
    const { sent, received } = this.#status.value
    if (direction === 'push') {
      // PouchDB lists the documents that the server accepted, without the refused ones.
      this.#options.refusals.remove(new Set(ids))
      this.#status.update({ sent: sent + ids.length })
    } else {
      this.#status.update({ received: received + ids.length })
    }
    this.#works(direction)
    this.#status.update({ phase: 'syncing' })
  }

  #paused(direction: Direction, error: PouchError | undefined): void {
    if (error !== undefined) {
      this.#failed.add(direction)
      this.#done.delete(direction)
      this.#note('error', direction, 0, error)
      this.#status.update({ phase: 'waiting' })
      return
    }
    this.#works(direction)
    if (!this.#done.has(direction)) this.#note('up to date', direction)
    this.#done.add(direction)
    if (this.#done.size === 2) this.#status.update({ phase: 'synced' })
  }

  #works(direction: Direction): void {
    this.#failed.delete(direction)
    if (this.#failed.size === 0) this.#status.update({ finding: null })
  }

  #denied(direction: Direction, error: PouchError): void {
    this.#note('denied', direction, 1, error)
    const reason = error.reason ?? error.message ?? 'The server refuses it.'
    if (direction === 'push' && error.id !== undefined) this.#options.refusals.add({ id: error.id, reason })
  }

  /** 401 and 403, after which PouchDB does not try again. */
  #fatal(direction: Direction, error: PouchError): void {
    this.#note('error', direction, 0, error)
    this.#failed.add(direction)
    this.#status.update({ phase: 'stopped' })
    for (const replication of this.#replications) replication.cancel()
    void this.#look(error)
  }

  /**
   * One diagnosis per failed attempt, however many requests failed, because the problem may have changed. If the database
   * itself answers normally, the finding is the server's answer to the request.
   */
  async #look(error: PouchError): Promise<void> {
    if (this.#isLooking) return
    this.#isLooking = true
    const { finding } = await this.#options.diagnose(this.#target, this.#ended.signal)
    this.#isLooking = false
    if (this.#ended.signal.aborted || this.#failed.size === 0) return
    this.#status.update({ finding: finding ?? refusalFinding(this.#target.address, error) })
  }

  #note(act: SyncAct, direction: SyncEvent['direction'], docs = 0, error?: PouchError): void {
    const { mode, address } = this.#target
    const text = error === undefined ? null : textOf(error)
    this.#options.note({
      time: Date.now(),
      mode,
      direction,
      act,
      docs,
      error: text === null ? null : withoutCredentials(text, address),
    })
  }
}

function textOf({ status, name, message, reason, id }: PouchError): string {
  const said = [status, name, reason ?? message].filter((part) => part !== undefined && part !== '')
  return `${id === undefined ? '' : `${id}: `}${[...new Set(said)].join(' ')}`
}
