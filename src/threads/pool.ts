/** The database threads: started when there is work for them, each owning the databases it was first asked for. */
import { availableParallelism } from 'node:os'
import type { Limits } from '../core/types.ts'
import { Thread, type ThreadEvent } from './thread.ts'
import type { CatalogAct, ThreadOptions } from './wire.ts'

/** Each database has its own log to sync: threads that wait for a disk cost little (design.md 1.2). */
const MAX_THREADS = Math.min(8, Math.max(2, 2 * availableParallelism()))

export interface PoolOptions {
  readonly dataDir: string
  readonly limits: Limits
  /** Databases kept open by all threads together. */
  readonly maxOpen: number
  /** The file that a thread runs. */
  readonly entry: URL
  onEvent(event: ThreadEvent): void
  /** A thread has died; its databases are served by another from the next call on. */
  onDeath(databases: readonly string[], fault: unknown): void
}

interface Slot {
  thread: Thread
  readonly databases: Set<string>
}

export class Pool {
  readonly #options: PoolOptions
  readonly #slots: Slot[] = []
  readonly #owners = new Map<string, Slot>()
  #limits: Limits
  #isClosing = false

  constructor(options: PoolOptions) {
    this.#options = options
    this.#limits = options.limits
  }

  /** The thread that owns a database from now on until it is {@link release}d. */
  owner(database: string): Thread {
    const owner = this.#owners.get(database)
    if (owner !== undefined) return owner.thread
    const slot = this.#leastLoaded()
    slot.databases.add(database)
    this.#owners.set(database, slot)
    return slot.thread
  }

  release(database: string): void {
    this.#owners.get(database)?.databases.delete(database)
    this.#owners.delete(database)
  }

  /** Asks the first thread, which holds the catalog. */
  catalog(act: CatalogAct): Promise<unknown> {
    const [first = this.#start()] = this.#slots
    return first.thread.ask({ type: 'catalog', act })
  }

  #leastLoaded(): Slot {
    const [first, ...others] = this.#slots
    if (first === undefined) return this.#start()
    const least = others.reduce((a, b) => (b.databases.size < a.databases.size ? b : a), first)
    return least.databases.size > 0 && this.#slots.length < MAX_THREADS ? this.#start() : least
  }

  #start(): Slot {
    const slot: Slot = { thread: this.#startThread(() => this.#died(slot)), databases: new Set() }
    this.#slots.push(slot)
    return slot
  }

  #startThread(died: (fault: unknown) => void): Thread {
    const { dataDir, maxOpen, entry, onEvent } = this.#options
    const options: ThreadOptions = {
      dataDir,
      limits: this.#limits,
      maxOpen: Math.max(1, Math.floor(maxOpen / MAX_THREADS)),
    }
    const thread = new Thread(entry, options, onEvent)
    thread.ended.then(died, died)
    return thread
  }

  /** Puts a new thread in a dead one's place; the catalog, if that one held it, is opened again. */
  #died(slot: Slot): void {
    if (this.#isClosing) return
    const databases = [...slot.databases]
    slot.thread.ended.then((fault) => this.#options.onDeath(databases, fault)).catch(() => undefined)
    slot.thread = this.#startThread(() => this.#died(slot))
    if (this.#slots[0] === slot) this.catalog({ act: 'open' }).catch(() => undefined)
  }

  setLimits(limits: Limits): void {
    this.#limits = limits
    for (const { thread } of this.#slots) thread.tell({ type: 'limits', limits })
  }

  async close(): Promise<void> {
    this.#isClosing = true
    await Promise.all(this.#slots.map(({ thread }) => thread.stop()))
  }
}
