/**
 * The database threads. They start when there is work for them, and each owns the databases that are assigned to it.
 * The first serves the catalog and the server's own databases such as `_users`, so that logins and the creation of
 * databases go on while the others are busy. Users' databases share one thread until it is busy (thread-balance.ts). The
 * last one, if needed, serves databases in quarantine (watchdog.ts).
 */
import { availableParallelism } from 'node:os'
import { outgoingMemory } from '../core/bytes.ts'
import { CouchError, packError } from '../core/errors.ts'
import { noteWork } from '../core/event-loop.ts'
import { AMPLE_SPACE, type Settings, type Space } from '../core/types.ts'
import type { NormalSelector } from '../query/normal-selector.ts'
import type { SandboxPool } from '../sandbox/sandbox-pool.ts'
import type { Catalog } from '../storage/catalog.ts'
import type { StoreLocation } from '../storage/open-engine.ts'
import type { GrowthStep } from './databases.ts'
import { Thread } from './thread.ts'
import { BALANCE_MS, LoadMeter, planMove, Settled } from './thread-balance.ts'
import type { CatalogMethod, DatabaseThreadEvent, OpenedCatalog, ThreadOptions } from './thread-protocol.ts'
import { ThreadRecord } from './thread-record.ts'
import type { ThreadReport } from './thread-stats.ts'
import { Quarantine, Watchdog } from './watchdog.ts'

/**
 * The largest number of threads for users' databases in files. Each syncs its own log, and a thread that waits for a disk costs
 * little (architecture.md, "Five ideas", 2).
 */
const MAX_THREADS = Math.min(8, Math.max(2, 2 * availableParallelism()))

interface PoolOptions {
  readonly location: StoreLocation
  readonly settings: Settings
  /** The maximum number of databases that all threads together keep open. */
  readonly maxOpen: number
  /** The file that a thread runs. */
  readonly entry: URL
  /** The sandbox threads. */
  readonly sandboxes: SandboxPool
  /** Threads for users' databases at most; for tests, since each thread takes a quarter of a second to start. */
  readonly maxThreads?: number | undefined
  /** Threads for users' databases that start before one is busy; by default 1. For tests. */
  readonly minThreads?: number | undefined
  /** How often the load is measured, in ms. For tests. */
  readonly balanceMs?: number | undefined
  /** How often the watchdog checks the threads, in ms; for tests. */
  readonly watchMs?: number | undefined
  /** Runs work unless another call creates, deletes or replaces the database. */
  exclusively(database: string, work: () => Promise<void>): Promise<void>
  onEvent(event: DatabaseThreadEvent): void
  /** An index is to grow: calls `step`, with a refusal where a quota is used up. Never rejects. */
  onGrowth(incarnation: number, bytes: number, step: GrowthStep): Promise<void>
  /** A thread has died; its successor starts with the next call. */
  onDeath(databases: readonly string[], fault: unknown): void
  /** The catalog was opened, at the start or after the thread that held it had died. */
  onCatalog(opened: OpenedCatalog): void
}

interface Slot {
  thread: Thread
  readonly databases: Set<string>
  readonly record: ThreadRecord
  readonly load: LoadMeter
}

export class Pool {
  readonly #options: PoolOptions
  /** All slots, in the order of their first start. */
  readonly #allSlots: Slot[] = []
  /** Serves the catalog and the server's own databases. */
  readonly #systemSlot: Slot
  /** Serve users' databases. */
  readonly #userSlots: Slot[] = []
  /** Serves databases in quarantine. */
  #quarantineSlot: Slot | undefined
  readonly #quarantine = new Quarantine()
  readonly #watchdog: Watchdog
  readonly #owners = new Map<string, Slot>()
  /** Databases that move to another thread, each with the end of its move. */
  readonly #moving = new Map<string, Promise<void>>()
  readonly #settled = new Settled()
  #balanceTimer: NodeJS.Timeout | undefined
  readonly #temporary = new Set<Thread>()
  readonly #maxThreads: number
  #settings: Settings
  #space = AMPLE_SPACE
  #hasCatalog = false
  #isClosing = false

  constructor(options: PoolOptions) {
    noteWork()
    this.#options = options
    this.#settings = options.settings
    this.#maxThreads = options.maxThreads ?? MAX_THREADS
    this.#systemSlot = this.#makeSlot()
    const threads = () => this.#allSlots.map(({ thread }) => thread)
    this.#watchdog = new Watchdog({
      threads,
      ...(options.watchMs !== undefined && { checkIntervalMs: options.watchMs }),
    })
  }

  /**
   * The thread that serves a database, as {@link owningThread}.
   * @throws unavailable for a time after the database has made its thread hang repeatedly; as {@link owningThread}
   */
  servingThread(database: string): Thread | Promise<Thread> {
    if (this.#quarantine.isPaused(database)) throw new CouchError('unavailable')
    return this.owningThread(database)
  }

  /**
   * The thread that owns a database until its {@link release}; while the database moves, the next one, after the move.
   * @throws unavailable when the pool closes, unless there is a thread for it
   */
  owningThread(database: string): Thread | Promise<Thread> {
    const moving = this.#moving.get(database)
    if (moving !== undefined) return moving.then(() => this.owningThread(database))
    this.#watchdog.wake()
    noteWork()
    const slot = this.#owners.get(database) ?? this.#assign(database)
    slot.load.note(database)
    this.#balanceTimer ??= setInterval(
      () => void this.#balance(),
      this.#options.balanceMs ?? BALANCE_MS,
    ).unref()
    return this.#running(slot)
  }

  /** Measures the load of the threads of users' databases, and moves databases away from a busy one. */
  async #balance(): Promise<void> {
    const hadCalls = this.#allSlots.map(({ load, thread }) => load.sample(thread.busySeconds))
    if (!hadCalls.includes(true)) this.#stopBalancing()
    const loads = this.#userSlots.map(({ load }) => load)
    const move = planMove(loads, this.#maxThreads, (database) => !this.#settled.has(database))
    if (move === null || this.#isClosing) return
    const to = this.#userSlots[move.to] ?? this.#addSlot()
    for (const database of move.databases) {
      this.#settled.add(database)
      await this.#options.exclusively(database, () => this.#move(database, to))
    }
  }

  #stopBalancing(): void {
    clearInterval(this.#balanceTimer)
    this.#balanceTimer = undefined
  }

  /** Moves a database that its thread can close at once. Never rejects. */
  async #move(database: string, to: Slot): Promise<void> {
    const from = this.#owners.get(database)
    if (from === undefined || from === to || !from.thread.isRunning || this.#isClosing) return
    await this.#handOver(database, from, () => {
      to.databases.add(database)
      this.#owners.set(database, to)
    })
  }

  /**
   * Removes a database that was not used for long from its thread, unless it is in use; a later call may choose another
   * thread. Never rejects.
   */
  async unassign(database: string): Promise<void> {
    const from = this.#owners.get(database)
    if (from === undefined || this.#isClosing || this.#moving.has(database)) return
    if (from.thread.isRunning) await this.#handOver(database, from, () => undefined)
    else this.release(database)
  }

  /** Takes a database from its thread if that can close it at once. Calls wait meanwhile. Never rejects. */
  async #handOver(database: string, from: Slot, onClosed: () => void): Promise<void> {
    const moved = Promise.withResolvers<void>()
    this.#moving.set(database, moved.promise)
    // If the thread hangs or dies, the database stays assigned to its slot, whose next thread opens it.
    const isClosed = await from.thread.ask({ type: 'handOver', database }).catch(() => false)
    if (isClosed && this.#owners.get(database) === from) {
      this.release(database)
      onClosed()
    }
    this.#moving.delete(database)
    moved.resolve()
  }

  #assign(database: string): Slot {
    const slot = this.#slotFor(database)
    slot.databases.add(database)
    this.#owners.set(database, slot)
    return slot
  }

  /** Whether a database is the server's own, such as the database of accounts. */
  #isSystem(database: string): boolean {
    return database.startsWith('_') || database === this.#settings.rules.users.database
  }

  #slotFor(database: string): Slot {
    if (this.#isSystem(database)) return this.#systemSlot
    if (!this.#quarantine.has(database)) return this.#lightest()
    this.#quarantineSlot ??= this.#makeSlot()
    return this.#quarantineSlot
  }

  /** Forgets a deleted database. */
  forget(database: string): void {
    this.release(database)
    this.#quarantine.remove(database)
  }

  /** Removes a database from its thread, which has closed it. */
  release(database: string): void {
    this.#owners.get(database)?.databases.delete(database)
    this.#owners.delete(database)
  }

  /**
   * Locks the data folder, and opens the catalog.
   * @param serverFile replaces the folder's server.sqlite first
   * @param isDamaged whether that was found damaged
   * @throws Error when the folder cannot be used or is locked
   */
  async openCatalog(serverFile?: string, isDamaged?: boolean): Promise<void> {
    const opened = await this.readCatalog(serverFile, isDamaged)
    this.#hasCatalog = true
    this.#options.onCatalog(opened)
  }

  /** Reads the list of databases, and opens the catalog if it is not open. */
  readCatalog(serverFile?: string, isDamaged?: boolean): Promise<OpenedCatalog> {
    this.#watchdog.wake()
    return this.#running(this.#systemSlot).ask({ type: 'openCatalog', serverFile, isDamaged })
  }

  /** Copies the server's own data to a new file. */
  copyCatalog(path: string): Promise<undefined> {
    this.#watchdog.wake()
    return this.#running(this.#systemSlot).ask({ type: 'copyCatalog', path })
  }

  async catalog<M extends CatalogMethod>(
    method: M,
    ...args: Parameters<Catalog[M]>
  ): Promise<Awaited<ReturnType<Catalog[M]>>> {
    this.#watchdog.wake()
    const answer = await this.#running(this.#systemSlot).ask({ type: 'catalog', method, args })
    return answer as Awaited<ReturnType<Catalog[M]>>
  }

  /** The thread for one more database: a new one if all are busy or have many. */
  #lightest(): Slot {
    const idle = this.#userSlots.filter(({ load, databases }) => load.mayTakeMore(databases.size))
    const [first, ...others] = idle.length > 0 ? idle : this.#userSlots
    if (first === undefined) return this.#addSlot()
    const least = others.reduce((a, b) => (b.databases.size < a.databases.size ? b : a), first)
    const isFull = this.#userSlots.length >= this.#maxThreads || this.#isClosing
    const isMissing = this.#userSlots.length < (this.#options.minThreads ?? 1) && least.databases.size > 0
    return isFull || (idle.length > 0 && !isMissing) ? least : this.#addSlot()
  }

  #addSlot(): Slot {
    const slot = this.#makeSlot()
    this.#userSlots.push(slot)
    for (const { thread } of this.#allSlots) thread.notify({ type: 'maxOpen', maxOpen: this.#maxOpen() })
    return slot
  }

  /** The number of databases that each thread keeps open. */
  #maxOpen(): number {
    return Math.max(1, Math.floor(this.#options.maxOpen / Math.max(1, this.#userSlots.length)))
  }

  #makeSlot(): Slot {
    const slot: Slot = {
      thread: this.#startThread(),
      databases: new Set(),
      record: new ThreadRecord(),
      load: new LoadMeter(),
    }
    this.#allSlots.push(slot)
    this.#watchEnd(slot)
    return slot
  }

  /** @throws unavailable when the pool closes: nobody would end the thread */
  #startThread(): Thread {
    if (this.#isClosing) throw new CouchError('unavailable')
    const { location, entry, sandboxes, onEvent, onGrowth } = this.#options
    const member = sandboxes.join((notice, ...ports) => thread.notify({ type: 'sandbox', notice }, ...ports))
    const options: ThreadOptions = {
      location,
      settings: this.#settings,
      space: this.#space,
      maxOpen: this.#maxOpen(),
      sandbox: member.access,
      outgoing: outgoingMemory(),
    }
    const thread = new Thread(entry, options, (event) => {
      if (event.type === 'sandbox') member.need()
      else if (event.type === 'growth') {
        const { number, incarnation, bytes } = event
        void onGrowth(incarnation, bytes, async (refusal) => {
          await thread.ask({ type: 'growth', number, refusal: refusal && packError(refusal) })
        })
      } else onEvent(event)
    })
    thread.ended.then(member.leave).catch(() => undefined)
    return thread
  }

  #watchEnd(slot: Slot): void {
    const { thread } = slot
    thread.ended.then((fault) => this.#handleDeath(slot, thread.suspects, fault)).catch(() => undefined)
  }

  /** A slot's thread. A dead thread is replaced only on use, so that a thread that cannot start makes no loop. */
  #running(slot: Slot): Thread {
    if (slot.thread.isRunning || this.#isClosing) return slot.thread
    slot.thread = this.#startThread()
    this.#watchEnd(slot)
    return slot.thread
  }

  #handleDeath(slot: Slot, suspects: readonly string[], fault: unknown): void {
    if (this.#isClosing) return
    const databases = [...slot.databases]
    for (const name of suspects) this.#addToQuarantine(name, slot)
    this.#options.onDeath(databases, fault ?? new Error('a database thread has ended'))
    if (slot !== this.#systemSlot || !this.#hasCatalog) return
    // The data folder must not stay unlocked.
    this.#hasCatalog = false
    this.openCatalog().catch((error: unknown) => this.#options.onDeath([], error))
  }

  /** Moves a database to the quarantine. It is closed, because its thread has ended. */
  #addToQuarantine(database: string, slot: Slot): void {
    if (this.#isSystem(database) || this.#owners.get(database) !== slot) return
    this.#quarantine.add(database)
    this.release(database)
  }

  /** Runs work that would block other databases on a thread of its own, which ends with the work. */
  async withTemporaryThread<T>(work: (thread: Thread) => Promise<T>): Promise<T> {
    const thread = this.#startThread()
    this.#temporary.add(thread)
    try {
      return await work(thread)
    } finally {
      this.#temporary.delete(thread)
      await thread.stop()
    }
  }

  /** The state of all threads that were started. Does not restart dead threads. */
  reports(): Promise<ThreadReport[]> {
    return Promise.all(
      this.#allSlots.map(({ thread, databases, record }, at) =>
        record.report(thread, at + 1, databases.size),
      ),
    )
  }

  /** See Databases.isOverdue. A database without an owner is checked without being assigned. */
  async isOverdue(database: string): Promise<boolean> {
    const thread = this.#running(this.#owners.get(database) ?? this.#userSlots[0] ?? this.#systemSlot)
    return thread.ask({ type: 'overdue', database })
  }

  /** See Databases.normalSelector. */
  normalSelector(selector: unknown): Promise<NormalSelector> {
    return this.#running(this.#userSlots[0] ?? this.#systemSlot).ask({ type: 'normalSelector', selector })
  }

  /** Asks every thread which of its open databases cannot be read. @throws when a thread ends without an answer */
  async unreadable(): Promise<string[]> {
    const running = this.#allSlots.filter(({ thread }) => thread.isRunning)
    const names = await Promise.all(running.map(({ thread }) => thread.ask({ type: 'check' })))
    return names.flat()
  }

  setSettings(settings: Settings): void {
    this.#settings = settings
    for (const { thread } of this.#allSlots) thread.notify({ type: 'settings', settings })
  }

  setSpace(space: Space): void {
    this.#space = space
    for (const { thread } of this.#allSlots) thread.notify({ type: 'space', space })
  }

  async close(): Promise<void> {
    this.#isClosing = true
    this.#stopBalancing()
    this.#watchdog.wake()
    await Promise.all(
      [...this.#allSlots.map(({ thread }) => thread), ...this.#temporary].map((thread) => thread.stop()),
    )
    this.#watchdog.close()
  }
}
