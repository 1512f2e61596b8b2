/**
 * The database threads. They start when there is work for them, and each owns the databases that are assigned to it.
 * The first serves the catalog and the server's own databases such as `_users`, so that logins and the creation of
 * databases go on while the others are busy. The last one, if needed, serves databases in quarantine (watchdog.ts).
 */
import { availableParallelism } from 'node:os'
import { outgoingMemory } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { noteWork } from '../core/event-loop.ts'
import { AMPLE_SPACE, type Settings, type Space } from '../core/types.ts'
import type { SandboxPool } from '../sandbox/sandbox-pool.ts'
import type { Catalog } from '../storage/catalog.ts'
import { Thread } from './thread.ts'
import type { CatalogMethod, DatabaseThreadEvent, OpenedCatalog, ThreadOptions } from './thread-protocol.ts'
import { ThreadRecord } from './thread-record.ts'
import type { ThreadReport } from './thread-stats.ts'
import { Quarantine, Watchdog } from './watchdog.ts'

/**
 * The largest number of threads for users' databases. Each syncs its own log, and a thread that waits for a disk costs
 * little (architecture.md, "Five ideas", 2).
 */
const MAX_THREADS = Math.min(8, Math.max(2, 2 * availableParallelism()))

interface PoolOptions {
  readonly dataDir: string
  readonly settings: Settings
  /** The maximum number of databases that all threads together keep open. */
  readonly maxOpen: number
  /** The file that a thread runs. */
  readonly entry: URL
  /** The sandbox threads. */
  readonly sandboxes: SandboxPool
  /** Threads for users' databases at most; for tests, since each thread takes a quarter of a second to start. */
  readonly maxThreads?: number | undefined
  /** How often the watchdog checks the threads, in ms; for tests. */
  readonly watchMs?: number | undefined
  onEvent(event: DatabaseThreadEvent): void
  /** A thread has died; its successor starts with the next call. */
  onDeath(databases: readonly string[], fault: unknown): void
  /** The catalog was opened, at the start or after the thread that held it had died. */
  onCatalog(opened: OpenedCatalog): void
}

interface Slot {
  thread: Thread
  readonly databases: Set<string>
  readonly record: ThreadRecord
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
   * @throws unavailable for a time after the database has made its thread hang repeatedly
   */
  servingThread(database: string): Thread {
    if (this.#quarantine.isPaused(database)) throw new CouchError('unavailable')
    return this.owningThread(database)
  }

  /** The thread that owns a database until its {@link release}. */
  owningThread(database: string): Thread {
    this.#watchdog.wake()
    noteWork()
    return this.#running(this.#owners.get(database) ?? this.#assign(database))
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
    if (!this.#quarantine.has(database)) return this.#leastLoaded()
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
   * @throws Error when the folder cannot be used or is locked
   */
  async openCatalog(serverFile?: string): Promise<void> {
    const opened = await this.readCatalog(serverFile)
    this.#hasCatalog = true
    this.#options.onCatalog(opened)
  }

  /** Reads the list of databases, and opens the catalog if it is not open. */
  readCatalog(serverFile?: string): Promise<OpenedCatalog> {
    this.#watchdog.wake()
    return this.#running(this.#systemSlot).ask({ type: 'openCatalog', serverFile })
  }

  async catalog<M extends CatalogMethod>(
    method: M,
    ...args: Parameters<Catalog[M]>
  ): Promise<Awaited<ReturnType<Catalog[M]>>> {
    this.#watchdog.wake()
    const answer = await this.#running(this.#systemSlot).ask({ type: 'catalog', method, args })
    return answer as Awaited<ReturnType<Catalog[M]>>
  }

  #leastLoaded(): Slot {
    const [first, ...others] = this.#userSlots
    if (first === undefined) return this.#addSlot()
    const least = others.reduce((a, b) => (b.databases.size < a.databases.size ? b : a), first)
    const isFull = this.#userSlots.length >= this.#maxThreads || this.#isClosing
    return least.databases.size === 0 || isFull ? least : this.#addSlot()
  }

  #addSlot(): Slot {
    const slot = this.#makeSlot()
    this.#userSlots.push(slot)
    return slot
  }

  #makeSlot(): Slot {
    const slot: Slot = {
      thread: this.#startThread(),
      databases: new Set(),
      record: new ThreadRecord(),
    }
    this.#allSlots.push(slot)
    this.#watchEnd(slot)
    return slot
  }

  #startThread(): Thread {
    const { dataDir, maxOpen, entry, sandboxes, onEvent } = this.#options
    const member = sandboxes.join((notice, ...ports) => thread.notify({ type: 'sandbox', notice }, ...ports))
    const options: ThreadOptions = {
      dataDir,
      settings: this.#settings,
      space: this.#space,
      maxOpen: Math.max(1, Math.floor(maxOpen / this.#maxThreads)),
      sandbox: member.access,
      outgoing: outgoingMemory(),
    }
    const thread = new Thread(entry, options, (event) => {
      if (event.type === 'sandbox') member.need()
      else onEvent(event)
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
    this.#watchdog.wake()
    await Promise.all(
      [...this.#allSlots.map(({ thread }) => thread), ...this.#temporary].map((thread) => thread.stop()),
    )
    this.#watchdog.close()
  }
}
