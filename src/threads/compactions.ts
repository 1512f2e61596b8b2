/**
 * Automatic compactions of the databases of one thread, one at a time. Open databases are checked every second, which
 * costs nothing while they are idle. A compaction starts when nothing was written for a while.
 */
import { CouchError, packError } from '../core/errors.ts'
import type { CompactionRules } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type {
  CompactionProgress,
  CompactOptions,
  GarbageCounts,
  RetainedVersions,
} from '../storage/upkeep.ts'
import type { ThreadEvent } from './thread-protocol.ts'

const CHECK_INTERVAL_MS = 1000
/** How long a database with steady writes waits for its compaction. */
const MAX_DELAY_MS = 5 * 60_000
/** The wait after a compaction that failed, for example on a full disk. */
const RETRY_MS = 10 * 60_000
/**
 * The wait after a compaction that left the database due again, perhaps because of writes in the meantime. The wait
 * doubles with each further such compaction.
 */
const FIRST_BACKOFF_MS = 1000
const MAX_BACKOFF_MS = 60_000
/** After a compaction, the next one of the database waits for at least this many times the duration. */
const REST_FACTOR = 20
/** How many closed databases are remembered. Others are checked the next time they are opened. */
const MAX_CLOSED = 1000

interface AutomaticCompactionsOptions {
  rules(): CompactionRules
  /** Compacts a database, and opens it if necessary. Never rejects. @returns whether that succeeded */
  start(name: string, incarnation: number): Promise<boolean>
  /** In ms since 1970. */
  now(): number
}

interface Candidate {
  readonly name: string
  readonly incarnation: number
  /** null: the database is closed. */
  store: Pick<DatabaseStore, 'garbage'> | null
  /** As last reported by the store. */
  writes: number
  /** The time of the last new writes, and the time when a compaction became due, in ms of `performance.now()`. */
  changedAt: number
  dueSince: number | null
  notBefore: number
  /** Compactions in a row that left the database due again. */
  futileRuns: number
}

export class AutomaticCompactions {
  readonly #options: AutomaticCompactionsOptions
  /** By name. */
  readonly #candidates = new Map<string, Candidate>()
  #timer: NodeJS.Timeout | undefined
  #isChecking = false
  #isRunning = false
  #isClosed = false

  constructor(options: AutomaticCompactionsOptions) {
    this.#options = options
  }

  /** Adds a database that was opened. */
  onOpened(name: string, incarnation: number, store: Pick<DatabaseStore, 'garbage'>): void {
    if (this.#isClosed) return
    const known = this.#candidates.get(name)
    const changedAt = performance.now()
    const isSame = known?.incarnation === incarnation
    const { dueSince, notBefore, futileRuns } = isSame
      ? known
      : { dueSince: null, notBefore: 0, futileRuns: 0 }
    this.#candidates.set(name, {
      name,
      incarnation,
      store,
      writes: -1,
      changedAt,
      dueSince,
      notBefore,
      futileRuns,
    })
    this.#timer ??= setInterval(() => void this.check(), CHECK_INTERVAL_MS).unref()
  }

  /** Called before a database is closed; if a compaction is due, it is opened again for that. */
  async onClosing(name: string): Promise<void> {
    const candidate = this.#candidates.get(name)
    if (candidate === undefined) return
    await this.#checkCandidate(candidate)
    // It may have been reopened or deleted in the meantime.
    if (this.#candidates.get(name) !== candidate) return
    candidate.store = null
    if (candidate.dueSince === null || this.#closedCount() > MAX_CLOSED) this.forget(name)
  }

  /** Removes a database that was deleted. */
  forget(name: string): void {
    this.#candidates.delete(name)
    if (this.#candidates.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  #closedCount(): number {
    let count = 0
    for (const { store } of this.#candidates.values()) if (store === null) count += 1
    return count
  }

  /** Checks all databases, and compacts the one that has waited longest. Never rejects. */
  async check(): Promise<void> {
    if (this.#isChecking || this.#isClosed || !this.#options.rules().isAutomatic) return
    this.#isChecking = true
    for (const candidate of [...this.#candidates.values()]) await this.#checkCandidate(candidate)
    this.#isChecking = false
    if (this.#isRunning || this.#isClosed) return
    const [next] = [...this.#candidates.values()]
      .filter((candidate) => this.#isReady(candidate))
      .sort((a, b) => (a.dueSince ?? 0) - (b.dueSince ?? 0))
    if (next !== undefined) await this.#compact(next)
  }

  async #checkCandidate(candidate: Candidate): Promise<void> {
    const garbage = await garbageOf(candidate.store)
    if (garbage === null) return
    const now = performance.now()
    if (garbage.writes !== candidate.writes) candidate.changedAt = now
    candidate.writes = garbage.writes
    const due = isDue(garbage, this.#options.rules(), this.#options.now())
    candidate.dueSince = due ? (candidate.dueSince ?? now) : null
  }

  #isReady({ dueSince, changedAt, notBefore }: Candidate): boolean {
    const now = performance.now()
    if (dueSince === null || now < notBefore) return false
    return now - changedAt >= this.#options.rules().quietMs || now - dueSince >= MAX_DELAY_MS
  }

  async #compact(candidate: Candidate): Promise<void> {
    this.#isRunning = true
    const began = performance.now()
    const isDone = await this.#options.start(candidate.name, candidate.incarnation)
    this.#isRunning = false
    const ended = performance.now()
    // The compaction may have opened it, which makes another candidate.
    const now = this.#candidates.get(candidate.name)
    if (now?.incarnation !== candidate.incarnation) return
    now.dueSince = null
    await this.#checkCandidate(now)
    now.futileRuns = now.dueSince === null ? 0 : candidate.futileRuns + 1
    const rest = isDone ? Math.max(REST_FACTOR * (ended - began), backoff(now.futileRuns)) : RETRY_MS
    now.notBefore = ended + Math.max(rest, this.#options.rules().quietMs)
    if (now.store === null) this.forget(now.name)
  }

  /** Starts no more compactions. */
  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
    this.#candidates.clear()
  }
}

function backoff(futileRuns: number): number {
  return futileRuns === 0 ? 0 : Math.min(MAX_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** (futileRuns - 1))
}

/** null: the database is closed, or cannot be read. */
async function garbageOf(store: Candidate['store']): Promise<GarbageCounts | null> {
  try {
    return (await store?.garbage()) ?? null
  } catch {
    return null
  }
}

/** The minimum time between two progress reports. */
const PROGRESS_INTERVAL_MS = 250

type CompactionEvent = Extract<ThreadEvent, { type: 'compaction' }>

interface Running {
  /** Resolves when every opener of the database can tell that it is being compacted. */
  readonly begun: Promise<void>
  /** Whether it has succeeded. Never rejects. */
  readonly ended: Promise<boolean>
}

interface CompactionsOptions {
  /** Keeps a database open until the work is done. */
  keepOpen(
    database: string,
    incarnation: number,
    work: (store: Pick<DatabaseStore, 'compact'>) => Promise<void>,
  ): Promise<void>
  sendEvent(event: CompactionEvent): void
  /** The superseded bodies that a compaction starting now leaves for the time machine. */
  retention(database: string): Retention
}

export class Compactions {
  readonly #options: CompactionsOptions
  /** Running compactions by incarnation. */
  readonly #running = new Map<number, Running>()

  constructor(options: CompactionsOptions) {
    this.#options = options
  }

  /**
   * Compacts a database in the background, unless a compaction of it is running. Never rejects.
   * @returns whether the compaction succeeded, when it has ended
   */
  start(database: string, incarnation: number): Promise<boolean> {
    return this.#started(database, incarnation).ended
  }

  /**
   * As {@link start}, but resolves when the compaction has begun: a client that asks any node from then on is told that it
   * runs, until it has ended.
   * @throws as {@link DatabaseStore.compact}, if it fails before it has begun
   */
  begin(database: string, incarnation: number): Promise<void> {
    return this.#started(database, incarnation).begun
  }

  #started(database: string, incarnation: number): Running {
    const known = this.#running.get(incarnation)
    if (known !== undefined) return known
    const first = Promise.withResolvers<void>()
    const run = this.#run(database, incarnation, first.resolve)
    const ended = run.then(
      () => this.#end(incarnation, null),
      (error: unknown) => this.#end(incarnation, error),
    )
    const begun = Promise.race([first.promise, run])
    // Nobody waits for the beginning of an automatic one, and `ended` reports the fault.
    begun.catch(() => undefined)
    const running = { begun, ended }
    this.#running.set(incarnation, running)
    return running
  }

  /** @param onBegun called at each report of its progress: the first one tells that it has begun */
  #run(database: string, incarnation: number, onBegun: () => void): Promise<void> {
    const { keepOpen, sendEvent, retention } = this.#options
    const report = throttled((progress) => sendEvent({ type: 'compaction', incarnation, progress }))
    const onProgress = (progress: CompactionProgress) => {
      onBegun()
      report(progress)
    }
    return keepOpen(database, incarnation, (store) => store.compact({ ...retention(database), onProgress }))
  }

  #end(incarnation: number, error: unknown): boolean {
    this.#running.delete(incarnation)
    const fault = error === null || isExpectedEnd(error) ? undefined : packError(error)
    this.#options.sendEvent({ type: 'compaction', incarnation, progress: null, ...(fault && { fault }) })
    return error === null
  }
}

/** Whether a compaction ended because the database was deleted, or because the server is stopping. */
function isExpectedEnd(error: unknown): boolean {
  return error instanceof CouchError && (error.code === 'no_database' || error.code === 'unavailable')
}

/** Passes on a progress report at most every {@link PROGRESS_INTERVAL_MS}. */
function throttled(report: (progress: CompactionProgress) => void): (progress: CompactionProgress) => void {
  let next = 0
  return (progress) => {
    const now = performance.now()
    if (now < next) return
    next = now + PROGRESS_INTERVAL_MS
    report(progress)
  }
}

/** The options of a compaction that decide which superseded bodies it leaves. */
type Retention = Pick<CompactOptions, 'keepSince' | 'keepBytes'>

/** Less garbage than this is not worth a compaction: an empty file is about as large. */
const MIN_GARBAGE_BYTES = 256 * 1024
/** Retained bodies are removed once a day. Somewhat less than a day, for callers that check once a day. */
const EXPIRY_INTERVAL_MS = 20 * 60 * 60 * 1000

/**
 * Whether a database is due for an automatic compaction. Pure.
 * @param garbage what a compaction would remove
 * @param now in ms since 1970
 */
export function isDue(garbage: GarbageCounts, rules: CompactionRules, now: number): boolean {
  const { supersededBytes, maybeUnreferencedBytes, freeBytes, storedBytes } = garbage
  const waste = supersededBytes + maybeUnreferencedBytes + freeBytes
  const tolerated = Math.min(rules.bytes, Math.max(MIN_GARBAGE_BYTES, rules.share * storedBytes))
  return garbage.needsCompaction || waste > tolerated || isExpired(garbage, rules.keepMs, now)
}

/**
 * Whether a database holds retained bodies that have expired.
 * @param keepMs how long bodies are retained
 * @param now in ms since 1970
 */
export function isExpired(
  { oldestRetained, compactedAt }: RetainedVersions,
  keepMs: number,
  now: number,
): boolean {
  if (oldestRetained === null) return false
  // The time machine was switched off, so the remaining bodies are removed at once.
  if (keepMs === 0) return true
  return oldestRetained <= now - keepMs && compactedAt <= now - EXPIRY_INTERVAL_MS
}

/**
 * The options for a compaction that leaves superseded bodies for the time machine.
 * @param now in ms since 1970
 */
export function retention({ keepMs, keepBytes }: CompactionRules, now: number): Retention {
  return keepMs === 0 ? {} : { keepSince: now - keepMs, keepBytes }
}
