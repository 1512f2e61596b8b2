/** The entry of a database thread: serves the databases that it owns to the HTTP thread, from its engine. */

import { type MessagePort, parentPort, workerData } from 'node:worker_threads'
import { BytesInTransit, discard, joinOutgoing } from '../core/bytes.ts'
import { CouchError, packError } from '../core/errors.ts'
import { joinHeartbeat, noteForegroundWrite, noteTurn } from '../core/event-loop.ts'
import { holdsAccounts } from '../core/ids.ts'
import { isShort, type Settings, type Space, SYSTEM_USER } from '../core/types.ts'
import { unindexedQueries } from '../query/find.ts'
import { checkedSelector, type NormalSelector } from '../query/normal-selector.ts'
import { SandboxClient } from '../sandbox/sandbox-client.ts'
import type { Catalog } from '../storage/catalog.ts'
import { CommitTally } from '../storage/commit-tally.ts'
import type { DatabaseStore, StoreView } from '../storage/engine.ts'
import { engineFor, type MakeEngine } from '../storage/open-engine.ts'
import { copiesOf, type Prepared, type StorageEngine } from '../storage/storage-engine.ts'
import { AutomaticCompactions, Compactions, isExpired, retention } from './compactions.ts'
import { isCopier } from './copies.ts'
import { serveCopies } from './copy-job.ts'
import { FairQueue } from './fair-queue.ts'
import { IndexGrowth } from './index-growth.ts'
import { bodyBytes, shortBytesAsTexts, unpackArgs } from './message-bytes.ts'
import { isLong, METHODS } from './methods.ts'
import { type Closable, Disk, HeldOpen, LastKnownSequences, OpenStores, unreadable } from './open-stores.ts'
import { RpcServer } from './rpc.ts'
import { serveDatabase } from './served.ts'
import type {
  CatalogMethod,
  DatabaseCall,
  DatabaseThreadEvent,
  OpenedCatalog,
  Request,
  ServedDatabase,
  ThreadEvent,
  ThreadOptions,
} from './thread-protocol.ts'
import { heapSize, LoopWatch, type ThreadStats } from './thread-stats.ts'

/** The garbage collector frees the memory of shorter bodies, in bytes. */
const MIN_DISCARDED_BYTES = 256 * 1024

type Call = DatabaseCall & { readonly call: number }

interface OpenDatabase extends Closable {
  readonly database: ServedDatabase
  readonly store: DatabaseStore
}

/** How long functions may still run when the thread stops, in ms. After that, work that waits for them fails. */
const FUNCTIONS_GRACE_MS = 2000

/** How long a deletion waits for earlier requests, in ms: a slow reader could take any time. */
const MAX_DROP_WAIT_MS = 2000

type CallFunction = (...args: readonly unknown[]) => Promise<unknown>
type StreamFunction = (...args: readonly unknown[]) => AsyncIterable<Uint8Array>

/** Serves one port until it receives `stop`. */
class Host {
  readonly #rpc: RpcServer<ThreadEvent>
  readonly #engine: StorageEngine
  readonly #stores: OpenStores<OpenDatabase>
  readonly #functions: SandboxClient
  readonly #compactions = new Compactions({
    keepOpen: (database, incarnation, work) =>
      this.#stores.keepOpen(database, incarnation, async ({ store, database: served }) => {
        await work(store)
        // As in CouchDB, a compaction takes the indexes along that no design document uses any more.
        await served.cleanUpViews(SYSTEM_USER)
      }),
    sendEvent: (event) => this.#rpc.sendEvent(event),
    // The time machine shows no old password hashes, and a deleted account leaves no data.
    retention: (database) => {
      const { users, compaction } = this.#settings.rules
      return holdsAccounts(database, users.database) ? {} : retention(compaction, Date.now())
    },
  })
  readonly #automatic = new AutomaticCompactions({
    rules: () => this.#settings.rules.compaction,
    start: (name, incarnation) => this.#compactions.start(name, incarnation),
    now: Date.now,
  })
  readonly #queue = new FairQueue<Call>((request) => this.#serve(request), {
    isLong: ({ method }) => isLong(method),
    canWait: ({ method }) => METHODS[method].cost === 'scan',
  })
  readonly #held = new HeldOpen((database, incarnation, work) =>
    this.#stores.keepOpen(database, incarnation, work),
  )
  readonly #lastSequences = new LastKnownSequences()
  readonly #tally = new CommitTally()
  readonly #growth = new IndexGrowth((number, incarnation, bytes) =>
    this.#rpc.sendEvent({ type: 'growth', number, incarnation, bytes }),
  )
  readonly #loop = new LoopWatch()
  readonly #ending = new AbortController()
  readonly #disk: Disk
  /** Databases that are open exclusively, for lack of disk space (storage/sqlite/upgrade.ts). */
  readonly #exclusive = new Set<string>()
  #settings: Settings
  /** Only on the thread that serves the catalog. */
  #catalog: Promise<Catalog> | undefined

  constructor(port: MessagePort, makeEngine: MakeEngine, options: ThreadOptions) {
    joinOutgoing(options.outgoing)
    joinHeartbeat(options.heartbeat)
    this.#rpc = new RpcServer(port, new BytesInTransit(options.transit))
    this.#settings = options.settings
    this.#disk = new Disk(options.location, () => this.#rpc.sendEvent({ type: 'full' }))
    this.#disk.set(options.space)
    this.#engine = makeEngine({
      tally: this.#tally,
      keepsUpgradeCopies: () => this.#settings.rules.upgradeCopies,
      ending: this.#ending.signal,
      watch: {
        onFull: () => this.#disk.onFull(),
        onFault: (database, error) => this.#reportFault(database, error),
        onServerFault: (error) => this.#rpc.sendEvent({ type: 'serverFault', fault: packError(error) }),
        onDamagedLeaf: (database) =>
          this.#tell(database, (incarnation) => ({ type: 'damagedLeaf', incarnation })),
        onRestored: (database, leaves, rest) =>
          this.#tell(database, (incarnation) => ({ type: 'restored', incarnation, leaves, rest })),
        onExclusive: (database) => this.#exclusive.add(database),
      },
    })
    this.#functions = new SandboxClient(options.sandbox, () => this.#rpc.sendEvent({ type: 'sandbox' }))
    this.#stores = new OpenStores(options.maxOpen, (name, incarnation) => this.#open(name, incarnation))
  }

  async #open(name: string, incarnation: number): Promise<OpenDatabase> {
    const store = await this.#engine.openDatabase(name, {
      incarnation,
      lastKnown: this.#lastSequences.take(name),
    })
    if (store.needsDevices === true) this.#rpc.sendEvent({ type: 'damagedLeaf', incarnation })
    const damage = store.damageAtOpening ?? null
    if (damage !== null) this.#rpc.sendEvent({ type: 'faulty', incarnation, fault: packError(damage) })
    if (store.wasRolledBack) this.#reportReplacedFile(incarnation, await store.view())
    const indexes = this.#engine.openIndexes(name)
    const database = await serveDatabase(store, {
      name,
      incarnation,
      settings: () => this.#settings,
      space: () => this.#disk.space,
      functions: this.#functions,
      indexes,
      growth: this.#growth,
      startCompaction: () => this.#compactions.begin(name, incarnation),
      onDeleted: () => void this.#leaveDeleted(name, incarnation),
      sendEvent: (event) => this.#rpc.sendEvent(event),
    })
    this.#automatic.onOpened(name, incarnation, store)
    const close = async () => {
      await this.#automatic.onClosing(name)
      indexes.close()
      this.#functions.forget(incarnation)
      return store.close()
    }
    return { database, store, close }
  }

  #reportReplacedFile(incarnation: number, { epochs, updateSeq }: StoreView): void {
    const epoch = epochs.at(-1)?.id as string
    this.#rpc.sendEvent({ type: 'fileReplaced', incarnation, lastKnown: { epoch, updateSeq } })
  }

  #tell(database: string, eventOf: (incarnation: number) => DatabaseThreadEvent): void {
    const incarnation = this.#stores.incarnationOf(database)
    if (incarnation !== undefined) this.#rpc.sendEvent(eventOf(incarnation))
  }

  #reportFault(database: string, error: CouchError): void {
    this.#tell(database, (incarnation) => ({ type: 'faulty', incarnation, fault: packError(error) }))
    // After a failed read or write, SQLite's cache of the database cannot be trusted.
    if (error.code === 'disk_fault') this.#stores.discard(database)
  }

  #setSpace(space: Space): void {
    this.#disk.set(space)
    if (isShort(space)) return
    for (const database of this.#exclusive) this.#stores.reopenWhenIdle(database)
    this.#exclusive.clear()
  }

  /** Handles a batch of messages. */
  receive(requests: readonly Request[]): void {
    noteTurn(requests)
    for (const request of requests) this.#take(request)
    this.#queue.run()
  }

  #setSettings(settings: Settings): void {
    const names = [this.#settings, settings].map(({ rules }) => rules.users.database)
    this.#settings = settings
    // What is open follows the rules that it was opened with: those for accounts, or those for other documents.
    if (names[0] !== names[1]) for (const name of names) this.#stores.discard(name)
  }

  #take(request: Request): void {
    switch (request.type) {
      case 'call':
        this.#enqueue(request)
        return
      case 'next':
      case 'cancel':
        this.#rpc.control(request)
        return
      case 'settings':
        this.#setSettings(request.settings)
        return
      case 'space':
        this.#setSpace(request.space)
        return
      case 'stats':
        this.#rpc.answer(request.call, this.#stats())
        return
      case 'growth':
        this.#rpc.answer(request.call, this.#growth.allow(request.number, request.refusal))
        return
      case 'sandbox':
        this.#functions.notice(request.notice)
        return
      case 'drop':
        this.#rpc.answer(request.call, this.#drop(request.database))
        return
      case 'prepare':
        this.#rpc.answer(request.call, this.#prepare(request.database, request.copy))
        return
      case 'copyCatalog':
        this.#rpc.answer(request.call, this.#copyCatalog(request.path))
        return
      case 'hold':
        this.#lastSequences.note(request)
        this.#rpc.answer(request.call, this.#held.hold(request))
        return
      case 'release':
        this.#held.release(request.hold)
        return
      case 'check':
        this.#rpc.answer(request.call, unreadable(this.#stores))
        return
      case 'overdue':
        this.#rpc.answer(request.call, this.#isOverdue(request.database))
        return
      case 'normalSelector':
        this.#rpc.answer(request.call, this.#normalSelector(request.selector))
        return
      case 'openCatalog':
        this.#rpc.answer(request.call, this.#readCatalog(request.serverFile, request.isDamaged))
        return
      case 'catalog':
        this.#rpc.answer(request.call, this.#callCatalog(request.method, request.args))
        return
      case 'stop':
        this.#rpc.answer(request.call, this.#stop())
    }
  }

  async #prepare(database: string, copy: string): Promise<Prepared> {
    return copiesOf(this.#engine).prepare(database, copy)
  }

  async #copyCatalog(path: string): Promise<undefined> {
    const copies = copiesOf(this.#engine)
    await this.#openCatalog()
    await copies.copyCatalog(path)
  }

  async #readCatalog(serverFile?: string, isDamaged?: boolean): Promise<OpenedCatalog> {
    if (serverFile !== undefined) copiesOf(this.#engine)
    const catalog = await this.#openCatalog(serverFile, isDamaged)
    const { serverUuid, folderUuid } = catalog
    const hasCopies = this.#engine.copies !== null
    const { sharedWriters } = this.#engine.capabilities
    return { serverUuid, folderUuid, sharedWriters, hasCopies }
  }

  async #callCatalog(method: CatalogMethod, args: readonly unknown[]): Promise<unknown> {
    const catalog = await this.#openCatalog()
    return (catalog[method] as CallFunction)(...args)
  }

  /** Opens the catalog, unless it is open. After a failure the next call tries again. */
  #openCatalog(serverFile?: string, isDamaged?: boolean): Promise<Catalog> {
    this.#catalog ??= this.#engine.openCatalog(serverFile, isDamaged).then(
      (catalog) => {
        catalog.watch((change) => this.#rpc.sendEvent({ type: 'catalog', change }))
        return catalog
      },
      (error: unknown) => {
        this.#catalog = undefined
        throw error
      },
    )
    return this.#catalog
  }

  /** Open databases are checked every second (compactions.ts). */
  async #isOverdue(database: string): Promise<boolean> {
    const { isAutomatic, keepMs } = this.#settings.rules.compaction
    if (!isAutomatic || this.#stores.incarnationOf(database) !== undefined) return false
    const kept = await this.#engine.retainedVersions(database)
    return kept !== null && isExpired(kept, keepMs, Date.now())
  }

  async #normalSelector(selector: unknown): Promise<NormalSelector> {
    return checkedSelector(selector)
  }

  async #stats(): Promise<ThreadStats> {
    return {
      commits: this.#tally.counts(),
      functions: this.#functions.counts,
      unindexedQueries: unindexedQueries(),
      openDatabases: this.#stores.size,
      waitingCalls: this.#queue.size,
      functionCalls: this.#functions.callsUnderWay,
      heap: heapSize(),
      delay: this.#loop.read(),
    }
  }

  #enqueue(request: Call): void {
    const { call, database, method } = request
    const { kind, cost } = METHODS[method]
    if (cost === 'save') noteForegroundWrite()
    this.#lastSequences.note(request)
    if (kind === 'stream') this.#rpc.expectStream(call, database)
    this.#queue.add(database, request)
  }

  #serve(request: Call): void {
    const { call, database, incarnation, method, args } = request
    // Answers that are ready go out first: their clients need not wait for this call.
    if (isLong(method)) this.#rpc.flush()
    const use = <T>(work: (opened: ServedDatabase) => Promise<T>) =>
      discardingBody(
        args,
        this.#stores.use(database, incarnation, (opened) => work(opened.database)),
      )
    if (this.#rpc.isStream(call)) {
      const start = (opened: ServedDatabase) => (opened[method] as StreamFunction)(...unpackArgs(request))
      this.#rpc.endStream(
        call,
        use((opened) => this.#rpc.sendChunks(call, () => start(opened))),
      )
      return
    }
    const answer = use((opened) => (opened[method] as CallFunction)(...unpackArgs(request)))
    this.#rpc.answer(call, METHODS[method].kind === 'text' ? answer.then(shortBytesAsTexts) : answer)
  }

  /** Finishes the earlier requests that are quick, cancels the others, and closes the file. */
  async #drop(database: string): Promise<void> {
    for (const request of this.#queue.take(database)) this.#serve(request)
    await this.#stores.waitForRequests(database, MAX_DROP_WAIT_MS)
    this.#rpc.failStreams(new CouchError('no_database'), database)
    await this.#stores.drop(database)
    this.#automatic.forget(database)
  }

  /** Closes a database that another opener has deleted. Its feeds end on the HTTP thread. */
  async #leaveDeleted(database: string, incarnation: number): Promise<void> {
    this.#rpc.sendEvent({ type: 'deleted', incarnation })
    if (this.#stores.incarnationOf(database) !== incarnation) return
    this.#rpc.failStreams(new CouchError('no_database'), database)
    await this.#stores.drop(database)
    this.#automatic.forget(database)
  }

  /** Finishes earlier requests, except streams, whose readers could take any time. */
  async #stop(): Promise<void> {
    this.#ending.abort()
    this.#queue.runAll()
    this.#automatic.close()
    this.#growth.close()
    this.#rpc.failStreams(new CouchError('unavailable'))
    const timer = setTimeout(() => this.#functions.close(), FUNCTIONS_GRACE_MS)
    await this.#stores.closeAll()
    clearTimeout(timer)
    this.#functions.close()
    this.#loop.close()
    await this.#engine.close()
  }
}

if (parentPort !== null) {
  const port = parentPort
  // Messages wait until the port has a listener.
  const makeEngine = await engineFor((workerData as ThreadOptions).location)
  if (isCopier(workerData)) serveCopies(port, makeEngine())
  else {
    const host = new Host(port, makeEngine, workerData as ThreadOptions)
    port.on('message', (requests: readonly Request[]) => host.receive(requests))
  }
}

/**
 * Frees the memory of a long body when its call has ended: the garbage collector kept four of 8 MB at a time. Waits
 * until the answer is posted, because the answer may share the memory.
 * @returns the call
 */
function discardingBody<T>(args: readonly unknown[], call: Promise<T>): Promise<T> {
  const bytes = args.map(bodyBytes).find((body) => body !== null && body.length > MIN_DISCARDED_BYTES)
  return bytes ? call.finally(() => setTimeout(discard, 1, bytes)) : call
}
