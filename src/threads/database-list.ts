/**
 * The databases that the HTTP thread knows: those in use. The others are only in the catalog, which is asked when one of
 * them is called.
 */
import { LRUCache } from 'lru-cache'
import { isLegalDatabaseName } from '../core/ids.ts'
import type { DatabaseEntry, NameRange } from '../storage/catalog.ts'
import type { DatabaseProxy } from './database-proxy.ts'

/** Databases of which a proxy, about 1 kB, is kept even if nobody holds it. */
const MAX_RECENT = 10_000
/** Names that are read at once. */
const NAMES_PAGE = 1000

interface DatabaseListOptions {
  /** The number of databases that all threads together keep open. */
  readonly maxOpen: number
  /** Reads the catalog. */
  find(name: string): Promise<DatabaseEntry | null>
  names(range: NameRange, limit: number): Promise<readonly string[]>
  count(): Promise<number>
  make(entry: DatabaseEntry): DatabaseProxy
  /** Whether a database is being deleted, so that its entry in the catalog no longer counts. */
  isBeingDeleted(name: string): boolean
  /** Waits until nobody creates, deletes or replaces the database. */
  whenIdle(name: string): Promise<void>
  /** Another opener has deleted or replaced a database. */
  onGone(proxy: DatabaseProxy): void
}

export class DatabaseList {
  readonly #options: DatabaseListOptions
  /** Those that were called last. */
  readonly #recent: LRUCache<string, DatabaseProxy>
  /** All that anybody holds: two proxies of a database would not both get its events. */
  readonly #byName = new Map<string, WeakRef<DatabaseProxy>>()
  readonly #byIncarnation = new Map<number, WeakRef<DatabaseProxy>>()
  readonly #collected = new FinalizationRegistry<DatabaseEntry>((entry) => {
    if (this.#byName.get(entry.name)?.deref() === undefined) this.#byName.delete(entry.name)
    this.#byIncarnation.delete(entry.incarnation)
  })
  /** Lookups under way, one for a name. One that a change overtakes is removed, and looks again. */
  readonly #lookups = new Map<string, Promise<DatabaseProxy | null>>()
  #count: Promise<number> | undefined

  constructor(options: DatabaseListOptions) {
    this.#options = options
    this.#recent = new LRUCache({ max: Math.max(MAX_RECENT, 2 * options.maxOpen) })
  }

  /** @returns the proxy of a database; undefined if the catalog must be asked */
  known(name: string): DatabaseProxy | undefined {
    const recent = this.#recent.get(name)
    if (recent !== undefined) return recent
    const held = this.#byName.get(name)?.deref()
    if (held !== undefined) this.#recent.set(name, held)
    return held
  }

  /** @returns null if there is no such database @throws as `Catalog.find` */
  async get(name: string): Promise<DatabaseProxy | null> {
    return this.known(name) ?? this.#lookups.get(name) ?? this.#lookUp(name)
  }

  /** A text that is not a legal name costs no lookup, and any other one read by key, so no list of missing names is kept. */
  #lookUp(name: string): Promise<DatabaseProxy | null> | null {
    if (!this.#mayExist(name)) return null
    const looking = this.#options.find(name).then(
      (entry) => {
        if (this.#lookups.get(name) !== looking) return this.get(name)
        this.#lookups.delete(name)
        return entry === null ? null : this.enter(entry)
      },
      (error: unknown) => {
        if (this.#lookups.get(name) === looking) this.#lookups.delete(name)
        throw error
      },
    )
    this.#lookups.set(name, looking)
    return looking
  }

  #mayExist(name: string): boolean {
    return isLegalDatabaseName(name) && !this.#options.isBeingDeleted(name)
  }

  /** As {@link get}, but makes no proxy. */
  async find(name: string): Promise<DatabaseEntry | null> {
    const known = this.known(name)
    if (known !== undefined) return known.entry
    const entry = this.#mayExist(name) ? await this.#options.find(name) : null
    return this.#options.isBeingDeleted(name) ? null : entry
  }

  /** Adds a database of the catalog. @returns its proxy; the present one if there is one of this incarnation */
  enter(entry: DatabaseEntry): DatabaseProxy {
    const known = this.known(entry.name)
    if (known?.incarnation === entry.incarnation) return known
    const proxy = this.#options.make(entry)
    this.#lookups.delete(entry.name)
    this.#recent.set(entry.name, proxy)
    this.#byName.set(entry.name, new WeakRef(proxy))
    this.#byIncarnation.set(entry.incarnation, new WeakRef(proxy))
    this.#collected.register(proxy, entry)
    return proxy
  }

  /** Removes a database that was deleted or replaced. */
  leave({ name, incarnation }: DatabaseEntry): void {
    this.#lookups.delete(name)
    this.#recent.delete(name)
    this.#byName.delete(name)
    this.#byIncarnation.delete(incarnation)
  }

  /** The catalog has changed: what is being looked up is looked up again. @param names null: any */
  changed(names: readonly string[] | null): void {
    this.#count = undefined
    if (names === null) this.#lookups.clear()
    else for (const name of names) this.#lookups.delete(name)
  }

  /** The proxy of a database, if there is one. Unlike {@link known}, this does not count as a use. */
  held(name: string): DatabaseProxy | undefined {
    return this.#byName.get(name)?.deref()
  }

  /** As {@link held}, by the incarnation. */
  ofIncarnation(incarnation: number): DatabaseProxy | undefined {
    return this.#byIncarnation.get(incarnation)?.deref()
  }

  /** All proxies. */
  all(): DatabaseProxy[] {
    return [...this.#byName.values()].flatMap((held) => held.deref() ?? [])
  }

  /**
   * Asks the catalog, and leaves the proxy of a database that another opener has deleted or replaced.
   * @returns null if there is no such database
   * @throws as `Catalog.find`
   */
  async refresh(name: string): Promise<DatabaseEntry | null> {
    const proxy = this.held(name)
    const entry = await this.#options.find(name)
    const isGone = proxy !== undefined && entry?.incarnation !== proxy.incarnation
    if (isGone && this.held(name) === proxy) this.#options.onGone(proxy)
    return entry
  }

  /**
   * Leaves the proxies of databases that another opener has deleted or replaced. Never rejects.
   * @param names null: of all databases
   */
  async verify(names: readonly string[] | null): Promise<void> {
    const proxies = names === null ? this.all() : names.flatMap((name) => this.held(name) ?? [])
    for (const { name } of proxies) {
      await this.#options.whenIdle(name)
      // After the death of the catalog's thread, everything is looked at again.
      await this.refresh(name).catch(() => null)
    }
  }

  /** The number of databases; read again after each change of the list. */
  count(): Promise<number> {
    this.#count ??= this.#options.count().catch((error: unknown) => {
      this.#count = undefined
      throw error
    })
    return this.#count
  }

  /** All names of a range, read in pages of {@link NAMES_PAGE}. @throws as `Catalog.names` */
  async *allNames(range: NameRange = {}): AsyncGenerator<string> {
    for (let after = range.after; ; ) {
      const rest = { ...range, ...(after !== undefined && { after }) }
      const page = await this.#options.names(rest, NAMES_PAGE)
      yield* page
      if (page.length < NAMES_PAGE) return
      after = page.at(-1)
    }
  }
}
