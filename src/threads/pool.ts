/** The database threads: started when there is work for them, each owning the databases it was first asked for. */
import { availableParallelism } from 'node:os'
import { outgoingMemory } from '../core/outgoing.ts'
import { AMPLE_SPACE, type Space } from '../core/space.ts'
import type { Settings } from '../core/types.ts'
import { USERS_DATABASE } from '../core/user-ids.ts'
import type { SandboxPool } from '../sandbox/pool.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import { Thread, type ThreadEvent } from './thread.ts'
import { ThreadRecord } from './thread-record.ts'
import type { ThreadReport } from './thread-stats.ts'
import type { CatalogAct, ThreadOptions } from './wire.ts'

/** Each database has its own log to sync: threads that wait for a disk cost little (design.md 1.2). */
const MAX_THREADS = Math.min(8, Math.max(2, 2 * availableParallelism()))

/** What the catalog says when it is opened. */
export interface OpenedCatalog {
  readonly serverUuid: string
  readonly databases: readonly DatabaseEntry[]
}

export interface PoolOptions {
  readonly dataDir: string
  readonly settings: Settings
  /** Databases kept open by all threads together. */
  readonly maxOpen: number
  /** The file that a thread runs. */
  readonly entry: URL
  /** The threads that run functions of design documents. */
  readonly sandboxes: SandboxPool
  onEvent(event: ThreadEvent): void
  /** A thread has died; its databases are served by another from the next call on. */
  onDeath(databases: readonly string[], fault: unknown): void
  /** The catalog was opened, at first or again after the thread that held it had died. */
  onCatalog(opened: OpenedCatalog): void
}

interface Slot {
  thread: Thread
  readonly databases: Set<string>
  readonly record: ThreadRecord
}

/** How many databases a thread owns; `_users`, which every server has, is no reason to start another. */
function load({ databases }: Slot): number {
  return databases.size - (databases.has(USERS_DATABASE) ? 1 : 0)
}

export class Pool {
  readonly #options: PoolOptions
  /** The first holds the catalog. */
  readonly #slots: [Slot, ...Slot[]]
  readonly #owners = new Map<string, Slot>()
  readonly #aside = new Set<Thread>()
  #settings: Settings
  #space = AMPLE_SPACE
  #hasCatalog = false
  #isClosing = false

  constructor(options: PoolOptions) {
    this.#options = options
    this.#settings = options.settings
    this.#slots = [this.#makeSlot()]
  }

  /** The thread that owns a database from now on until it is {@link release}d. */
  owner(database: string): Thread {
    return this.#running(this.#owners.get(database) ?? this.#assign(database))
  }

  #assign(database: string): Slot {
    const slot = this.#leastLoaded()
    slot.databases.add(database)
    this.#owners.set(database, slot)
    return slot
  }

  release(database: string): void {
    this.#owners.get(database)?.databases.delete(database)
    this.#owners.delete(database)
  }

  /**
   * Takes the data folder.
   * @param serverFile takes the place of its server.sqlite first
   * @throws when it cannot be used or somebody else holds it
   */
  async openCatalog(serverFile?: string): Promise<void> {
    const opened = (await this.catalog({ act: 'open', ...(serverFile && { serverFile }) })) as OpenedCatalog
    this.#hasCatalog = true
    this.#options.onCatalog(opened)
  }

  catalog(act: CatalogAct): Promise<unknown> {
    return this.#running(this.#slots[0]).ask({ type: 'catalog', act })
  }

  #leastLoaded(): Slot {
    const least = this.#slots.reduce((a, b) => (load(b) < load(a) ? b : a))
    const isFull = this.#slots.length >= MAX_THREADS || this.#isClosing
    if (load(least) === 0 || isFull) return least
    const slot = this.#makeSlot()
    this.#slots.push(slot)
    return slot
  }

  #makeSlot(): Slot {
    const slot: Slot = {
      thread: this.#startThread(),
      databases: new Set(),
      record: new ThreadRecord(),
    }
    this.#follow(slot)
    return slot
  }

  #startThread(): Thread {
    const { dataDir, maxOpen, entry, sandboxes, onEvent } = this.#options
    const member = sandboxes.join((notice, ...ports) => thread.tell({ type: 'sandbox', notice }, ...ports))
    const options: ThreadOptions = {
      dataDir,
      settings: this.#settings,
      space: this.#space,
      maxOpen: Math.max(1, Math.floor(maxOpen / MAX_THREADS)),
      sandbox: member.access,
      outgoing: outgoingMemory(),
    }
    const thread = new Thread(entry, options, onEvent, member.need)
    thread.ended.then(member.leave).catch(() => undefined)
    return thread
  }

  #follow(slot: Slot): void {
    slot.thread.ended.then((fault) => this.#died(slot, fault)).catch(() => undefined)
  }

  /** A slot's thread; in a dead one's place another, started only now, so that one that cannot live is no loop. */
  #running(slot: Slot): Thread {
    if (slot.thread.isRunning || this.#isClosing) return slot.thread
    slot.thread = this.#startThread()
    this.#follow(slot)
    return slot.thread
  }

  #died(slot: Slot, fault: unknown): void {
    if (this.#isClosing) return
    this.#options.onDeath([...slot.databases], fault ?? new Error('a database thread has ended'))
    if (slot !== this.#slots[0] || !this.#hasCatalog) return
    // The data folder must not stay without its lock.
    this.#hasCatalog = false
    this.openCatalog().catch((error: unknown) => this.#options.onDeath([], error))
  }

  /** Does work that would hold up a thread that serves databases, on one of its own that ends with it. */
  async aside<T>(work: (thread: Thread) => Promise<T>): Promise<T> {
    const thread = this.#startThread()
    this.#aside.add(thread)
    try {
      return await work(thread)
    } finally {
      this.#aside.delete(thread)
      await thread.stop()
    }
  }

  /** How the threads are that were started so far; one that has died is not started for that. */
  reports(): Promise<ThreadReport[]> {
    return Promise.all(
      this.#slots.map(({ thread, databases, record }, at) => record.report(thread, at + 1, databases.size)),
    )
  }

  /** See Databases.isOverdue; where no thread owns the database, the first looks at it without owning it from then on. */
  async isOverdue(database: string): Promise<boolean> {
    const thread = this.#running(this.#owners.get(database) ?? this.#slots[0])
    return (await thread.ask({ type: 'overdue', database })) as boolean
  }

  /** Asks every thread which of its open databases cannot be read. @throws when a thread does not answer at all */
  async unreadable(): Promise<string[]> {
    const running = this.#slots.filter(({ thread }) => thread.isRunning)
    const names = await Promise.all(running.map(({ thread }) => thread.ask({ type: 'check' })))
    return (names as string[][]).flat()
  }

  setSettings(settings: Settings): void {
    this.#settings = settings
    for (const { thread } of this.#slots) thread.tell({ type: 'settings', settings })
  }

  setSpace(space: Space): void {
    this.#space = space
    for (const { thread } of this.#slots) thread.tell({ type: 'space', space })
  }

  async close(): Promise<void> {
    this.#isClosing = true
    await Promise.all(
      [...this.#slots.map(({ thread }) => thread), ...this.#aside].map((thread) => thread.stop()),
    )
  }
}
