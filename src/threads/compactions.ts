/**
 * Compactions that nobody asks for, of the databases of one thread, one at a time: looked for now and then among those
 * that are open, which costs nothing while they rest, and begun when nothing was written for a while.
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

const LOOK_MS = 1000
/** A database that is never quiet waits no longer. */
const PATIENCE_MS = 5 * 60_000
/** After one that failed, as on a full disk. */
const RETRY_MS = 10 * 60_000
/**
 * After one that left it as worn as it was: writes may have worn it anew meanwhile, so the first such wait is short, and
 * each further one twice as long, up to the longest.
 */
const VAIN_MS = 1000
const LONGEST_VAIN_MS = 60_000
/** Of the time at least so many parts are no compaction of the same database. */
const REST_FACTOR = 20
/** Closed databases that are remembered; of others the next opening finds out. */
const MAX_CLOSED = 1000

interface AutomaticCompactionsOptions {
  rules(): CompactionRules
  /** Compacts a database, opening it if need be; tells whether that went well. Never rejects. */
  start(name: string, incarnation: number): Promise<boolean>
  /** In ms since 1970. */
  now(): number
}

interface Candidate {
  readonly name: string
  readonly incarnation: number
  /** null: it is closed. */
  store: Pick<DatabaseStore, 'garbage'> | null
  /** As its store has told them. */
  writes: number
  /** When it was last found to be written to, and since when it is worth a compaction, in ms of `performance.now()`. */
  changedAt: number
  dueSince: number | null
  notBefore: number
  /** Compactions in a row after which it was due again at once. */
  inVain: number
}

export class AutomaticCompactions {
  readonly #options: AutomaticCompactionsOptions
  /** By name. */
  readonly #candidates = new Map<string, Candidate>()
  #timer: NodeJS.Timeout | undefined
  #isLooking = false
  #isRunning = false
  #isClosed = false

  constructor(options: AutomaticCompactionsOptions) {
    this.#options = options
  }

  /** A database is open from now on. */
  opened(name: string, incarnation: number, store: Pick<DatabaseStore, 'garbage'>): void {
    if (this.#isClosed) return
    const known = this.#candidates.get(name)
    const changedAt = performance.now()
    const isSame = known?.incarnation === incarnation
    const { dueSince, notBefore, inVain } = isSame ? known : { dueSince: null, notBefore: 0, inVain: 0 }
    this.#candidates.set(name, {
      name,
      incarnation,
      store,
      writes: -1,
      changedAt,
      dueSince,
      notBefore,
      inVain,
    })
    this.#timer ??= setInterval(() => void this.look(), LOOK_MS).unref()
  }

  /** A database is about to be closed: if it is worth it, it is opened again for its compaction. */
  async closing(name: string): Promise<void> {
    const candidate = this.#candidates.get(name)
    if (candidate === undefined) return
    await this.#lookAt(candidate)
    // It may have been opened again, or be gone, by now.
    if (this.#candidates.get(name) !== candidate) return
    candidate.store = null
    if (candidate.dueSince === null || this.#closedCount() > MAX_CLOSED) this.forget(name)
  }

  /** A database is gone, or another thread's from now on. */
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

  /** Looks at all of them, and begins with the one that has waited longest. Never rejects. */
  async look(): Promise<void> {
    if (this.#isLooking || this.#isClosed || !this.#options.rules().isAutomatic) return
    this.#isLooking = true
    for (const candidate of [...this.#candidates.values()]) await this.#lookAt(candidate)
    this.#isLooking = false
    if (this.#isRunning || this.#isClosed) return
    const [next] = [...this.#candidates.values()]
      .filter((candidate) => this.#isReady(candidate))
      .sort((a, b) => (a.dueSince ?? 0) - (b.dueSince ?? 0))
    if (next !== undefined) await this.#compact(next)
  }

  async #lookAt(candidate: Candidate): Promise<void> {
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
    return now - changedAt >= this.#options.rules().quietMs || now - dueSince >= PATIENCE_MS
  }

  async #compact(candidate: Candidate): Promise<void> {
    this.#isRunning = true
    const began = performance.now()
    const isDone = await this.#options.start(candidate.name, candidate.incarnation)
    this.#isRunning = false
    const ended = performance.now()
    // It may have been opened for it, and is another candidate then.
    const now = this.#candidates.get(candidate.name)
    if (now?.incarnation !== candidate.incarnation) return
    now.dueSince = null
    await this.#lookAt(now)
    now.inVain = now.dueSince === null ? 0 : candidate.inVain + 1
    const rest = isDone ? Math.max(REST_FACTOR * (ended - began), waitAfter(now.inVain)) : RETRY_MS
    now.notBefore = ended + Math.max(rest, this.#options.rules().quietMs)
    if (now.store === null) this.forget(now.name)
  }

  /** Begins nothing any more. */
  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
    this.#candidates.clear()
  }
}

function waitAfter(inVain: number): number {
  return inVain === 0 ? 0 : Math.min(LONGEST_VAIN_MS, VAIN_MS * 2 ** (inVain - 1))
}

/** null: it is closed, or cannot be read. */
async function garbageOf(store: Candidate['store']): Promise<GarbageCounts | null> {
  try {
    return (await store?.garbage()) ?? null
  } catch {
    return null
  }
}

// Compactions in the background of a database thread, and what the HTTP thread is told of them.

/** How often progress is told at the most. */
const TELL_EVERY_MS = 250

type CompactionEvent = Extract<ThreadEvent, { type: 'compaction' }>

interface CompactionsOptions {
  /** Keeps a database open while work is under way. */
  keepOpen(
    database: string,
    incarnation: number,
    work: (store: Pick<DatabaseStore, 'compact'>) => Promise<void>,
  ): Promise<void>
  tell(event: CompactionEvent): void
  /** What is kept of a database for the time machine by one that begins now. */
  retention(database: string): Retention
}

export class Compactions {
  readonly #options: CompactionsOptions
  /** Those that are under way, by incarnation. */
  readonly #running = new Map<number, Promise<boolean>>()

  constructor(options: CompactionsOptions) {
    this.#options = options
  }

  /**
   * Compacts a database in the background, unless that is under way.
   * @returns when it has ended: whether it did what there was to do. Never rejects
   */
  start(database: string, incarnation: number): Promise<boolean> {
    const known = this.#running.get(incarnation)
    if (known !== undefined) return known
    const running = this.#run(database, incarnation).then(
      () => this.#end(incarnation, null),
      (error: unknown) => this.#end(incarnation, error),
    )
    this.#running.set(incarnation, running)
    return running
  }

  #run(database: string, incarnation: number): Promise<void> {
    const { keepOpen, tell, retention } = this.#options
    const onProgress = paced((progress) => tell({ type: 'compaction', incarnation, progress }))
    return keepOpen(database, incarnation, (store) => store.compact({ ...retention(database), onProgress }))
  }

  #end(incarnation: number, error: unknown): boolean {
    this.#running.delete(incarnation)
    const fault = error === null || isOver(error) ? undefined : packError(error)
    this.#options.tell({ type: 'compaction', incarnation, progress: null, ...(fault && { fault }) })
    return error === null
  }
}

/** Whether it ended because the database did: it was deleted, or the server is stopping. */
function isOver(error: unknown): boolean {
  return error instanceof CouchError && (error.code === 'no_database' || error.code === 'unavailable')
}

/** Tells the first, and of the others those that come long enough after the one told before. */
function paced(tell: (progress: CompactionProgress) => void): (progress: CompactionProgress) => void {
  let next = 0
  return (progress) => {
    const now = performance.now()
    if (now < next) return
    next = now + TELL_EVERY_MS
    tell(progress)
  }
}

// Whether a database is worth a compaction that nobody has asked for. Pure.

/** What of the options of a compaction says what it keeps. */
type Retention = Pick<CompactOptions, 'keepSince' | 'keepBytes'>

/** Less than this is not worth the work, however small the file: an empty one takes about as much. */
const LEAST_BYTES = 256 * 1024
/** How often bodies that were kept long enough are cleared away: once a day, also by who looks once a day. */
const EXPIRY_MS = 20 * 60 * 60 * 1000

/**
 * @param garbage what a compaction would find to do
 * @param now in ms since 1970
 */
export function isDue(garbage: GarbageCounts, rules: CompactionRules, now: number): boolean {
  const { supersededBytes, looseBytes, freeBytes, fileBytes } = garbage
  const waste = supersededBytes + looseBytes + freeBytes
  const bearable = Math.min(rules.bytes, Math.max(LEAST_BYTES, rules.share * fileBytes))
  return garbage.isOwed || waste > bearable || isExpired(garbage, rules.keepMs, now)
}

/**
 * Whether bodies are kept that were to be gone by now.
 * @param keepMs how long they are
 * @param now in ms since 1970
 */
export function isExpired(
  { oldestRetained, compactedAt }: RetainedVersions,
  keepMs: number,
  now: number,
): boolean {
  if (oldestRetained === null) return false
  // Nothing is to be kept any more: what is left from before need not wait.
  if (keepMs === 0) return true
  return oldestRetained <= now - keepMs && compactedAt <= now - EXPIRY_MS
}

/**
 * What a compaction keeps.
 * @param now in ms since 1970
 */
export function retention({ keepMs, keepBytes }: CompactionRules, now: number): Retention {
  return keepMs === 0 ? {} : { keepSince: now - keepMs, keepBytes }
}
