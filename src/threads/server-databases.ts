/** The databases of a server: the list of them, a proxy for each, and the events of their threads. */
import { KeyedMutex } from '../core/concurrency.ts'
import { asCouchError, CouchError, unpackError } from '../core/errors.ts'
import { checkDatabaseName, checkPartitionable, holdsAccounts, holdsReplications } from '../core/ids.ts'
import { Listeners } from '../core/listeners.ts'
import { programModule } from '../core/program-files.ts'
import { AMPLE_SPACE, type Limits, type Settings, type Space } from '../core/types.ts'
import { shortage } from '../documents/document-policy.ts'
import type { NormalSelector } from '../query/normal-selector.ts'
import { SandboxPool } from '../sandbox/sandbox-pool.ts'
import { functionLimits } from '../sandbox/slot-table.ts'
import type {
  CatalogUpdates,
  DatabaseEntry,
  DatabaseProperties,
  DeletionOptions,
  NameRange,
  UpdatesRange,
} from '../storage/catalog.ts'
import type { CatalogChange, RecordRange, RecordWrite, ServerRecord } from '../storage/records.ts'
import { type Checks, type Copies, databaseChecks, databaseCopies } from './copies.ts'
import { DatabaseList } from './database-list.ts'
import { UpdateNotes } from './database-notes.ts'
import { type AnswersHere, DatabaseProxy } from './database-proxy.ts'
import type {
  CompactionTask,
  DatabaseHandle,
  DatabasesStats,
  Faults,
  GrowthLimit,
  GrowthStep,
  OwnedDatabases,
  PreparedRestore,
  ServerDatabasesOptions,
} from './databases.ts'
import { InPlaceReads } from './in-place-reads.ts'
import { Replacements } from './replacements.ts'
import { SharedAnswers } from './shared-answers.ts'
import { threadFlags } from './thread.ts'
import { ThreadEvents } from './thread-events.ts'
import { Pool } from './thread-pool.ts'
import type { DatabaseThreadEvent, OpenedCatalog } from './thread-protocol.ts'
import { sandboxThreads } from './thread-stats.ts'

export class ServerDatabases implements OwnedDatabases {
  readonly #options: ServerDatabasesOptions
  serverUuid = ''
  folderUuid = ''
  readonly #sandboxes: SandboxPool
  readonly #pool: Pool
  readonly #list: DatabaseList
  /** Databases that are being deleted. */
  readonly #deleting = new Set<string>()
  /** Incarnations that are being treated as restored, since they have lost updates. */
  readonly #lost = new Set<number>()
  /** Creations, deletions and replacements under way, by database name. */
  readonly #changing = new KeyedMutex()
  readonly #notes = new UpdateNotes({
    note: async (names, sequences) => {
      await this.#pool.catalog('noteUpdated', names, sequences)
      this.#updateListeners.tell()
    },
  })
  #here: AnswersHere | null
  #limits: Limits
  readonly #catalogListeners = new Listeners<[CatalogChange]>()
  readonly #updateListeners = new Listeners<[]>()
  readonly #events: ThreadEvents
  readonly #replacements = new Replacements({
    withTemporaryThread: (work) => this.#pool.withTemporaryThread(work),
    owner: (name) => this.#pool.owningThread(name),
    catalog: (method, ...args) => this.#pool.catalog(method, ...args),
    find: (name) => this.#pool.catalog('find', name),
    exclusively: (name, work) => this.#changing.run(name, work),
    take: (name) => this.#take(name),
    enter: (entry) => this.#list.enter(entry),
    notifySecurity: (name) => this.#events.security.tell(name),
  })
  readonly #copies: Copies
  copies: Copies | null = null
  readonly checks: Checks
  usersDatabase: string
  sharedWriters = false
  #limitGrowth: GrowthLimit = (_database, _bytes, step) => step(null)
  #space = AMPLE_SPACE
  #closed: Promise<void> | undefined

  constructor(options: ServerDatabasesOptions) {
    const { location, settings, maxOpen, threadEntry } = options
    this.#options = options
    this.usersDatabase = settings.rules.users.database
    this.#limits = settings.limits
    this.#here = {
      answers: new SharedAnswers(),
      reads: new InPlaceReads(location, (name) => this.#pool.isHeldUp(name)),
      limits: () => this.#limits,
      isPlain: (name) => !holdsAccounts(name, this.usersDatabase) && !holdsReplications(name),
    }
    this.#events = new ThreadEvents({
      observer: options,
      onWritten: (name, lastKnown) => this.#notes.add(name, lastKnown),
      onDeleted: (proxy) => this.#leaveDeleted(proxy),
      onLost: (proxy) => void this.#treatAsLost(proxy),
    })
    const onFault = (fault: unknown) => {
      this.#events.faults.noteDeath()
      options.onFault(fault)
    }
    this.#sandboxes = new SandboxPool({
      entry: options.sandboxEntry,
      execArgv: threadFlags(process.execArgv),
      limits: functionLimits(settings.limits),
      maxThreads: sandboxThreads(settings.limits),
      onFault,
    })
    const entry = threadEntry ?? programModule('threads/host')
    const checking = {
      location,
      entry,
      findEntry: (name: string) => this.#list.find(name),
      hold: async (entry: DatabaseEntry) => this.#pool.owningThread(entry.name).hold(entry),
    }
    this.checks = databaseChecks(checking)
    this.#copies = databaseCopies({ ...checking, copyCatalog: (path) => this.#pool.copyCatalog(path) })
    this.#list = new DatabaseList({
      maxOpen,
      find: (name) => this.#pool.catalog('find', name),
      names: (range, limit) => this.#pool.catalog('names', range, limit),
      count: () => this.#pool.catalog('count'),
      make: (entry) => new DatabaseProxy(entry, () => this.#pool.servingThread(entry.name), this.#here),
      isBeingDeleted: (name) => this.#deleting.has(name),
      whenIdle: (name) => this.#changing.whenIdle(name),
      onGone: (proxy) => this.#leaveDeleted(proxy),
    })
    this.#pool = new Pool({
      location,
      settings,
      maxOpen,
      entry,
      sandboxes: this.#sandboxes,
      threads: options.threads,
      watchMs: options.watchMs,
      onEvent: (event) => this.#handleEvent(event),
      onGrowth: (incarnation, bytes, step) =>
        this.#grow(incarnation, bytes, step).catch((error: unknown) =>
          step(asCouchError(error)).catch(() => undefined),
        ),
      onDeath: (served, fault) => {
        onFault(fault)
        // A commit may have gone unreported, so feeds end, and their clients reconnect.
        for (const proxy of this.#list.all().filter(({ name }) => served(name))) {
          proxy.emit({ type: 'closed' })
          this.#events.tasks.forget(proxy.incarnation)
          this.#notes.add(proxy.name)
        }
      },
      onCatalog: (opened) => this.#noteOpened(opened),
    })
  }

  get documentsWritten(): number {
    return this.#events.documentsWritten
  }

  /** @param isDamaged whether the file that `serverFile` replaces was found damaged */
  open(serverFile?: string, isDamaged?: boolean): Promise<void> {
    return this.#pool.openCatalog(serverFile, isDamaged)
  }

  /** At the start, and after the catalog's thread has died. */
  #noteOpened({ serverUuid, folderUuid, sharedWriters, hasCopies }: OpenedCatalog): void {
    this.copies = hasCopies ? this.#copies : null
    this.serverUuid = serverUuid
    this.folderUuid = folderUuid
    this.sharedWriters = sharedWriters
    if (sharedWriters) this.#here = null
    this.#noteChange({ type: 'any' })
  }

  #noteChange(change: CatalogChange): void {
    if (change.type === 'uuid') this.serverUuid = change.uuid
    if (change.type === 'any' || change.type === 'databases') {
      const names = change.type === 'any' ? null : change.names
      this.#list.changed(names)
      if (this.sharedWriters) void this.#list.verify(names)
    }
    if (change.type !== 'records') this.#updateListeners.tell()
    this.#catalogListeners.tell(change)
  }

  async adoptUuid(uuid: string): Promise<void> {
    await this.#pool.catalog('adoptUuid', uuid)
    this.serverUuid = uuid
  }

  #leave(entry: DatabaseEntry): void {
    this.#list.leave(entry)
    this.#events.forget(entry)
  }

  /** Removes a database from the list; null if there is none. */
  async #take(name: string): Promise<DatabaseProxy | null> {
    const proxy = await this.#list.get(name)
    if (proxy !== null) this.#leave(proxy.entry)
    return proxy
  }

  #handleEvent(event: DatabaseThreadEvent): void {
    if (event.type === 'full') this.#options.onFull?.()
    else if (event.type === 'catalog') this.#noteChange(event.change)
    else if (event.type === 'serverFault') this.#options.onServerFault?.(unpackError(event.fault))
    else {
      const proxy = this.#list.ofIncarnation(event.incarnation)
      if (proxy !== undefined) this.#events.handle(proxy, event)
    }
  }

  names(range: NameRange, limit: number): Promise<readonly string[]> {
    return this.#pool.catalog('names', range, limit)
  }

  allNames(range?: NameRange): AsyncIterable<string> {
    return this.#list.allNames(range)
  }

  count(): Promise<number> {
    return this.#list.count()
  }

  async has(name: string): Promise<boolean> {
    if (this.sharedWriters) await this.#list.verify([name]) // another node may have deleted it
    return this.#replacements.underWay().has(name) || (await this.#list.find(name)) !== null
  }

  async get(name: string): Promise<DatabaseHandle> {
    if (this.#replacements.underWay().has(name)) throw new CouchError('unavailable')
    const proxy = await this.#list.get(name)
    if (proxy === null) throw new CouchError('no_database')
    return proxy
  }

  cached(name: string): DatabaseHandle | undefined {
    return this.#list.known(name)
  }

  async create(name: string, properties: DatabaseProperties = {}): Promise<void> {
    checkDatabaseName(name)
    if (properties.partitioned) checkPartitionable(name, this.usersDatabase)
    return this.#changing.run(name, async () => {
      // Another node may have deleted or made it.
      const entry = await (this.sharedWriters ? this.#list.refresh(name) : this.#list.find(name))
      if (entry !== null || this.#replacements.underWay().has(name)) throw new CouchError('file_exists')
      const refusal = shortage(this.#space)
      // The server needs its own databases, such as `_users`, even on a full disk.
      if (refusal !== null && !name.startsWith('_') && name !== this.usersDatabase) throw refusal
      this.#list.enter(await this.#pool.catalog('create', name, properties))
    })
  }

  delete(name: string, options: DeletionOptions = {}): Promise<void> {
    return this.#changing.run(name, async () => {
      const proxy = await this.#take(name)
      if (proxy === null) throw new CouchError('no_database')
      this.#deleting.add(name)
      proxy.retire()
      proxy.emit({ type: 'closed' })
      try {
        await this.#pool.owningThread(name).ask({ type: 'drop', database: name })
        await this.#pool.catalog('delete', name, options)
      } catch (error) {
        // An earlier deletion may have succeeded, although its thread died before it could answer.
        if (!(error instanceof CouchError && error.code === 'no_database')) {
          this.#list.enter(proxy.entry)
          throw error
        }
      } finally {
        this.#deleting.delete(name)
      }
      this.#pool.forget(name)
      this.#notes.remove(name)
    })
  }

  /** Another opener of the storage has deleted the database, and its thread closes it. */
  #leaveDeleted(proxy: DatabaseProxy): void {
    this.#leave(proxy.entry)
    proxy.retire()
    proxy.emit({ type: 'closed' })
    this.#pool.forget(proxy.name)
    this.#notes.remove(proxy.name)
    this.#updateListeners.tell()
  }

  async prepareRestore(name: string, copy: string): Promise<PreparedRestore> {
    checkDatabaseName(name)
    // What it prepares must not be taken for what a crash has left.
    await this.#pool.catalog('whenListed')
    return this.#replacements.prepare(name, copy)
  }

  treatAsRestored(name: string): Promise<void> {
    return this.#replacements.treatAsRestored(name)
  }

  /** Never rejects: the next client that shows it tries again. */
  async #treatAsLost({ name, incarnation }: DatabaseProxy): Promise<void> {
    if (this.#lost.has(incarnation)) return
    this.#lost.add(incarnation)
    try {
      if (await this.#replacements.treatAsLost(name, incarnation)) this.#options.onWentBack?.(name)
    } catch {
      // It was told with the requests that need the database.
    } finally {
      this.#lost.delete(incarnation)
    }
  }

  updates(range: UpdatesRange, limit: number): Promise<CatalogUpdates> {
    return this.#pool.catalog('readUpdates', range, limit)
  }

  readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]> {
    return this.#pool.catalog('readRecords', kind, keys)
  }

  listRecords(kind: string, range: RecordRange, limit: number): Promise<ServerRecord[]> {
    return this.#pool.catalog('listRecords', kind, range, limit)
  }

  writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    return this.#pool.catalog('writeRecords', writes)
  }

  watchCatalog(listener: (change: CatalogChange) => void): () => void {
    return this.#catalogListeners.add(listener)
  }

  watchUpdates(listener: () => void): () => void {
    return this.#updateListeners.add(listener)
  }

  watchWrites(listener: (database: string) => void): () => void {
    return this.#events.writes.add(listener)
  }

  limitGrowth(limit: GrowthLimit): void {
    this.#limitGrowth = limit
  }

  async #grow(incarnation: number, bytes: number, step: GrowthStep): Promise<void> {
    const name = this.#list.ofIncarnation(incarnation)?.name
    if (name === undefined) await step(new CouchError('no_database'))
    else await this.#limitGrowth(name, bytes, step)
    if (name !== undefined) this.#events.writes.tell(name)
  }

  watchSecurity(listener: (database: string) => void): () => void {
    return this.#events.security.add(listener)
  }

  tasks(): readonly CompactionTask[] {
    return this.#events.tasks.list()
  }

  async stats(): Promise<DatabasesStats> {
    return { threads: await this.#pool.reports(), sandboxThreads: this.#sandboxes.size }
  }

  unreadable(): Promise<readonly string[]> {
    return this.#pool.unreadable()
  }

  async isOverdue(name: string): Promise<boolean> {
    if (!(await this.has(name))) throw new CouchError('no_database')
    return this.#pool.isOverdue(name)
  }

  normalSelector(selector: unknown): Promise<NormalSelector> {
    return this.#pool.normalSelector(selector)
  }

  setSettings(settings: Settings): void {
    this.usersDatabase = settings.rules.users.database
    this.#limits = settings.limits
    this.#pool.setSettings(settings)
    this.#sandboxes.setLimits(functionLimits(settings.limits), sandboxThreads(settings.limits))
  }

  setSpace(space: Space): void {
    this.#space = space
    this.#pool.setSpace(space)
  }

  noteWhole(incarnation: number): void {
    this.#events.faults.noteRestored(incarnation)
  }

  faults(): Faults {
    return this.#events.faults.list()
  }

  endFeeds(): void {
    for (const proxy of this.#list.all()) proxy.emit({ type: 'closed' })
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    this.endFeeds()
    this.#here?.reads.closeAll()
    await this.#notes.close()
    await this.#pool.close()
    await this.#sandboxes.close()
  }
}
