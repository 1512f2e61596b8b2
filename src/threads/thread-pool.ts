/**
 * The database threads. Each starts with the first call to one of its databases. The first serves the catalog and the
 * server's own databases such as `_users`, so that logins and the creation of databases go on while the others are busy.
 * The name of a user's database decides which thread serves it (docs/decisions/0065), unless it is in quarantine
 * (watchdog.ts).
 */
import { crc32 } from 'node:zlib'
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
import type { CatalogMethod, DatabaseThreadEvent, OpenedCatalog, ThreadOptions } from './thread-protocol.ts'
import { ThreadRecord } from './thread-record.ts'
import type { ThreadReport } from './thread-stats.ts'
import { Quarantine, Watchdog } from './watchdog.ts'

interface PoolOptions {
  readonly location: StoreLocation
  readonly settings: Settings
  /** The maximum number of databases that all threads together keep open. */
  readonly maxOpen: number
  /** The file that a thread runs. */
  readonly entry: URL
  /** The sandbox threads. */
  readonly sandboxes: SandboxPool
  /** Threads for users' databases. */
  readonly threads: number
  /** How often the watchdog checks the threads, in ms; for tests. */
  readonly watchMs?: number | undefined
  onEvent(event: DatabaseThreadEvent): void
  /** An index is to grow: calls `step`, with a refusal where a quota is used up. Never rejects. */
  onGrowth(incarnation: number, bytes: number, step: GrowthStep): Promise<void>
  /** A thread has died; its successor starts with the next call. @param served tells the databases that it has served */
  onDeath(served: (database: string) => boolean, fault: unknown): void
  /** The catalog was opened, at the start or after the thread that held it had died. */
  onCatalog(opened: OpenedCatalog): void
}

interface Slot {
  thread: Thread
  readonly record: ThreadRecord
}

export class Pool {
  readonly #options: PoolOptions
  /** All slots, in the order of their first start. */
  readonly #allSlots: Slot[] = []
  /** Serves the catalog and the server's own databases. */
  readonly #systemSlot: Slot
  /** Serve users' databases, by the hash of the name. */
  readonly #userSlots: (Slot | undefined)[]
  /** Serves databases in quarantine. */
  #quarantineSlot: Slot | undefined
  readonly #quarantine = new Quarantine()
  readonly #watchdog: Watchdog
  /** As it was named at the start: a database never changes its thread while it is open. */
  readonly #usersDatabase: string
  readonly #temporary = new Set<Thread>()
  #settings: Settings
  #space = AMPLE_SPACE
  #hasCatalog = false
  #isClosing = false

  constructor(options: PoolOptions) {
    noteWork()
    this.#options = options
    this.#settings = options.settings
    this.#usersDatabase = options.settings.rules.users.database
    this.#userSlots = Array(options.threads)
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
  servingThread(database: string): Thread {
    if (this.#quarantine.isPaused(database)) throw new CouchError('unavailable')
    return this.owningThread(database)
  }

  /**
   * The thread that owns a database.
   * @throws unavailable when the pool closes, unless there is a thread for it
   */
  owningThread(database: string): Thread {
    this.#watchdog.wake()
    noteWork()
    return this.#running(this.#slotOf(database) ?? this.#startSlot(database))
  }

  /** Whether calls wait for the thread that owns a database, as `Thread.isHeldUp`. Starts no thread. */
  isHeldUp(database: string): boolean {
    return this.#slotOf(database)?.thread.isHeldUp ?? false
  }

  /** Whether a database is the server's own, such as the database of accounts. */
  #isSystem(database: string): boolean {
    return database.startsWith('_') || database === this.#usersDatabase
  }

  /** @returns undefined if nothing has called for it yet */
  #slotOf(database: string): Slot | undefined {
    if (this.#isSystem(database)) return this.#systemSlot
    return this.#quarantine.has(database) ? this.#quarantineSlot : this.#userSlots[this.#numberOf(database)]
  }

  /** The slot of a user's database, which has none yet. */
  #startSlot(database: string): Slot {
    const slot = this.#makeSlot()
    if (this.#quarantine.has(database)) this.#quarantineSlot = slot
    else this.#userSlots[this.#numberOf(database)] = slot
    return slot
  }

  /** The number of the thread that serves a user's database out of quarantine. */
  #numberOf(database: string): number {
    const { length } = this.#userSlots
    return length === 1 ? 0 : crc32(database) % length
  }

  /** Forgets a deleted database, which its thread has closed. */
  forget(database: string): void {
    this.#quarantine.remove(database)
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

  #makeSlot(): Slot {
    const slot: Slot = { thread: this.#startThread(), record: new ThreadRecord() }
    this.#allSlots.push(slot)
    this.#watchEnd(slot)
    return slot
  }

  /** @throws unavailable when the pool closes: nobody would end the thread */
  #startThread(): Thread {
    if (this.#isClosing) throw new CouchError('unavailable')
    const { location, entry, sandboxes, maxOpen, threads, onEvent, onGrowth } = this.#options
    const member = sandboxes.join((notice, ...ports) => thread.notify({ type: 'sandbox', notice }, ...ports))
    const options: ThreadOptions = {
      location,
      settings: this.#settings,
      space: this.#space,
      maxOpen: Math.max(1, Math.floor(maxOpen / threads)),
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
    this.#options.onDeath(
      (database) => this.#slotOf(database) === slot,
      fault ?? new Error('a database thread has ended'),
    )
    // They are closed, because their thread has ended.
    for (const name of suspects) if (!this.#isSystem(name)) this.#quarantine.add(name)
    if (slot !== this.#systemSlot || !this.#hasCatalog) return
    // The data folder must not stay unlocked.
    this.#hasCatalog = false
    this.openCatalog().catch((error: unknown) => this.#options.onDeath(() => false, error))
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
    return Promise.all(this.#allSlots.map(({ thread, record }, at) => record.report(thread, at + 1)))
  }

  /** See Databases.isOverdue. Starts no thread for it: a database of one that has not started is not open. */
  async isOverdue(database: string): Promise<boolean> {
    return this.#running(this.#slotOf(database) ?? this.#systemSlot).ask({ type: 'overdue', database })
  }

  /** See Databases.normalSelector. */
  normalSelector(selector: unknown): Promise<NormalSelector> {
    const [first = this.#systemSlot] = this.#userSlots
    return this.#running(first).ask({ type: 'normalSelector', selector })
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
