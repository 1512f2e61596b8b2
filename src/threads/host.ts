/**
 * A database thread: runs documents/ and changes/ over the SQLite engine for the databases it owns. It is told
 * what to do by the HTTP thread (pool.ts), in batches of messages, and answers in batches.
 */
import { parentPort, type TransferListItem, workerData } from 'node:worker_threads'
import { CouchError } from '../core/errors.ts'
import { beat, joinHeartbeat } from '../core/heartbeat.ts'
import { holdsAccounts } from '../core/ids.ts'
import { joinOutgoing, Transit } from '../core/outgoing.ts'
import { isShort, type Settings, type Space } from '../core/types.ts'
import { noteForegroundWrite } from '../core/yielder.ts'
import { ViewMemory } from '../query/view-index.ts'
import { SandboxClient } from '../sandbox/sandbox-client.ts'
import type { DatabaseStore, StoreView } from '../storage/engine.ts'
import { sqliteEngine } from '../storage/sqlite/sqlite-engine.ts'
import { CommitTally } from '../storage/upkeep.ts'
import { AutomaticCompactions, Compactions, isExpired, keeping } from './compactions.ts'
import { serveCopies } from './copy-job.ts'
import { isCopier } from './copy-wire.ts'
import { Flow, Marks } from './flow.ts'
import { type Closable, Disk, HeldOpen, OpenStores, unreadable } from './open-stores.ts'
import { CatalogHost, isLong, isSave, isScan, served } from './served.ts'
import { heapSize, LoopWatch, type ThreadStats } from './thread-stats.ts'
import { Turns } from './turns.ts'
import {
  discardingBody,
  METHODS,
  Outbox,
  outgoingIn,
  ownBytes,
  packError,
  type Reply,
  type Request,
  type ServedDatabase,
  shortBytesAsTexts,
  type ThreadOptions,
  unpackArgs,
} from './wire.ts'

type Call = Extract<Request, { type: 'call' }>

interface OpenDatabase extends Closable {
  readonly database: ServedDatabase
  readonly store: DatabaseStore
}

/** How long functions may take when the thread stops, in ms; then what waits for them is refused. */
const FUNCTIONS_GRACE_MS = 2000

/** How long a deletion waits for the requests that came before it, in ms: a reader may take any time. */
const DROP_PATIENCE_MS = 500

/** Serves one port until it is told to stop. */
class Host {
  readonly #outbox: Outbox<Reply>
  readonly #transit: Transit
  readonly #engine: ReturnType<typeof sqliteEngine>
  readonly #stores: OpenStores<OpenDatabase>
  readonly #functions: SandboxClient
  readonly #compactions = new Compactions({
    accompany: (database, incarnation, work) =>
      this.#stores.accompany(database, incarnation, ({ store }) => work(store)),
    tell: (reply) => this.#outbox.post(reply),
    // Old hashes of passwords are nobody's history, and with an account all that is known of it goes.
    keeping: (database) => {
      const { users, compaction } = this.#settings.rules
      return holdsAccounts(database, users.database) ? {} : keeping(compaction, Date.now())
    },
  })
  readonly #automatic = new AutomaticCompactions({
    rules: () => this.#settings.rules.compaction,
    start: (name, incarnation) => this.#compactions.start(name, incarnation),
    now: Date.now,
  })
  readonly #turns = new Turns<Call>((request) => this.#serve(request), {
    isLong: ({ method }) => isLong(method),
    canWait: ({ method }) => isScan(method),
  })
  /** Streams asked for, by call, from the moment they are: a reader may give up before they begin. */
  readonly #streams = new Map<number, { readonly database: string; readonly flow: Flow }>()
  readonly #held = new HeldOpen((database, incarnation, work) =>
    this.#stores.accompany(database, incarnation, work),
  )
  readonly #views = new ViewMemory(() => this.#settings.limits.maxViewBytes)
  readonly #marks = new Marks()
  readonly #tally = new CommitTally()
  readonly #loop = new LoopWatch()
  readonly #ending = new AbortController()
  readonly #disk: Disk
  /** Databases that nobody else can open (storage/sqlite/upgrade.ts). */
  readonly #alone = new Set<string>()
  #settings: Settings
  readonly #catalog: CatalogHost

  constructor(outbox: Outbox<Reply>, options: ThreadOptions) {
    joinOutgoing(options.outgoing)
    joinHeartbeat(options.heartbeat)
    this.#transit = new Transit(options.transit)
    this.#outbox = outbox
    this.#settings = options.settings
    this.#disk = new Disk(options.dataDir, () => outbox.post({ type: 'full' }))
    this.#disk.set(options.space)
    this.#engine = sqliteEngine({
      dataDir: options.dataDir,
      tally: this.#tally,
      keepsUpgradeCopies: () => this.#settings.rules.upgradeCopies,
      ending: this.#ending.signal,
      watch: {
        onFull: () => this.#disk.onFull(),
        onFault: (database, error) => this.#faulty(database, error),
        onAlone: (database) => this.#alone.add(database),
      },
    })
    this.#catalog = new CatalogHost(this.#engine)
    this.#functions = new SandboxClient(options.sandbox, () => outbox.post({ type: 'sandbox' }))
    this.#stores = new OpenStores(options.maxOpen, (name, incarnation) => this.#open(name, incarnation))
  }

  async #open(name: string, incarnation: number): Promise<OpenDatabase> {
    const store = await this.#engine.openDatabase(name, this.#marks.take(name))
    if (store.wasPutBack) this.#tellPutBack(incarnation, await store.view())
    const database = await served(store, {
      name,
      incarnation,
      settings: () => this.#settings,
      space: () => this.#disk.space,
      functions: this.#functions,
      views: this.#views,
      startCompaction: () => void this.#compactions.start(name, incarnation),
      tell: (reply) => this.#outbox.post(reply),
    })
    this.#automatic.opened(name, incarnation, store)
    const close = async () => {
      await this.#automatic.closing(name)
      this.#views.forget(store)
      this.#functions.forget(incarnation)
      return store.close()
    }
    return { database, store, close }
  }

  #tellPutBack(incarnation: number, { epochs, updateSeq }: StoreView): void {
    const epoch = epochs.at(-1)?.id as string
    this.#outbox.post({ type: 'putBack', incarnation, mark: { epoch, updateSeq } })
  }

  #faulty(database: string, error: CouchError): void {
    const incarnation = this.#stores.incarnationOf(database)
    if (incarnation === undefined) return
    this.#outbox.post({ type: 'faulty', incarnation, fault: packError(error) })
    // After a failed read or write nobody knows what SQLite has kept of it in memory.
    if (error.code === 'disk_fault') this.#stores.discard(database)
  }

  #setSpace(space: Space): void {
    this.#disk.set(space)
    if (isShort(space)) return
    for (const database of this.#alone) this.#stores.renew(database)
    this.#alone.clear()
  }

  /** Takes a batch of messages. */
  receive(requests: readonly Request[]): void {
    beat(requests)
    for (const request of requests) this.#take(request)
    this.#turns.run()
  }

  #take(request: Request): void {
    switch (request.type) {
      case 'call':
        this.#enqueue(request)
        return
      case 'next':
        this.#streams.get(request.call)?.flow.pull()
        return
      case 'cancel':
        this.#streams.get(request.call)?.flow.cancel()
        return
      case 'settings':
        this.#settings = request.settings
        return
      case 'space':
        this.#setSpace(request.space)
        return
      case 'stats':
        this.#answer(request.call, this.#stats())
        return
      case 'sandbox':
        this.#functions.notice(request.notice)
        return
      case 'drop':
        this.#answer(request.call, this.#drop(request.database))
        return
      case 'prepare':
        this.#answer(request.call, this.#engine.prepare(request.database, request.copy))
        return
      case 'hold':
        this.#marks.note(request)
        this.#answer(request.call, this.#held.hold(request))
        return
      case 'release':
        this.#held.release(request.call)
        return
      case 'check':
        this.#answer(request.call, unreadable(this.#stores))
        return
      case 'overdue':
        this.#answer(request.call, this.#isOverdue(request.database))
        return
      case 'catalog':
        this.#answer(request.call, this.#catalog.act(request.act))
        return
      case 'stop':
        this.#answer(request.call, this.#stop())
    }
  }

  /** What is open is looked at all the time (compactions.ts). */
  async #isOverdue(database: string): Promise<boolean> {
    const { isAutomatic, keepMs } = this.#settings.rules.compaction
    if (!isAutomatic || this.#stores.incarnationOf(database) !== undefined) return false
    const kept = await this.#engine.keptBodies(database)
    return kept !== null && isExpired(kept, keepMs, Date.now())
  }

  async #stats(): Promise<ThreadStats> {
    return {
      commits: this.#tally.counts(),
      functions: this.#functions.counts,
      openDatabases: this.#stores.size,
      waitingCalls: this.#turns.size,
      functionCalls: this.#functions.callsUnderWay,
      heap: heapSize(),
      delay: this.#loop.read(),
    }
  }

  #enqueue(request: Call): void {
    const { call, database, method } = request
    if (isSave(method)) noteForegroundWrite()
    this.#marks.note(request)
    if (METHODS[method] === 'stream') this.#streams.set(call, { database, flow: new Flow() })
    this.#turns.add(database, request)
  }

  #answer(call: number, work: Promise<unknown>): void {
    work.then(
      (value) => {
        const transfers: TransferListItem[] = []
        this.#post({ type: 'answer', call, value: ownBytes(value, transfers) }, transfers)
      },
      (error: unknown) => this.#failed(call, error),
    )
  }

  #post(reply: Reply, transfers: readonly TransferListItem[]): void {
    this.#transit.send(outgoingIn(reply))
    this.#outbox.post(reply, transfers)
  }

  #failed(call: number, error: unknown): void {
    this.#streams.delete(call)
    this.#outbox.post({ type: 'failed', call, error: packError(error) })
  }

  #serve(request: Call): void {
    const { call, database, incarnation, method, args } = request
    // The clients of what is ready need not wait, nor their next requests.
    if (isLong(method)) this.#outbox.flush()
    const use = <T>(work: (opened: OpenDatabase) => Promise<T>) =>
      discardingBody(args, this.#stores.use(database, incarnation, work))
    const stream = this.#streams.get(call)
    if (stream !== undefined) {
      use((opened) => this.#send(request, stream.flow, opened)).then(
        () => {
          this.#streams.delete(call)
          this.#outbox.post({ type: 'end', call })
        },
        (error: unknown) => this.#failed(call, error),
      )
      return
    }
    const answer = use(({ database }) =>
      (database[method] as (...given: readonly unknown[]) => Promise<unknown>)(...unpackArgs(request)),
    )
    this.#answer(call, METHODS[method] === 'text' ? answer.then(shortBytesAsTexts) : answer)
  }

  /** Sends a stream's chunks, each made when it is wanted. */
  async #send(request: Call, flow: Flow, { database }: OpenDatabase): Promise<void> {
    const { call, method } = request
    if (!flow.isWanted()) return
    const start = database[method] as (...given: readonly unknown[]) => AsyncIterable<Uint8Array>
    const chunks = start(...unpackArgs(request))[Symbol.asyncIterator]()
    try {
      for (let made = await flow.take(chunks); made !== null; made = await flow.take(chunks)) {
        const transfers: TransferListItem[] = []
        this.#post({ type: 'chunk', call, chunk: ownBytes(made, transfers) as Uint8Array }, transfers)
      }
    } finally {
      await chunks.return?.()
    }
  }

  /** Does what was asked before, as far as that is soon done; breaks off the rest, and lets the file go. */
  async #drop(database: string): Promise<void> {
    for (const request of this.#turns.take(database)) this.#serve(request)
    await this.#stores.settle(database, DROP_PATIENCE_MS)
    for (const stream of this.#streams.values()) {
      if (stream.database === database) stream.flow.fail(new CouchError('no_database'))
    }
    await this.#stores.drop(database)
    this.#automatic.forget(database)
  }

  /** Finishes what was asked for before, but for streams, which readers may take any time to read. */
  async #stop(): Promise<void> {
    this.#ending.abort()
    this.#turns.runAll()
    this.#automatic.close()
    for (const { flow } of this.#streams.values()) flow.fail(new CouchError('unavailable'))
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
  if (isCopier(workerData)) serveCopies(port, sqliteEngine(workerData))
  else {
    const host = new Host(new Outbox<Reply>(port), workerData as ThreadOptions)
    port.on('message', (requests: readonly Request[]) => host.receive(requests))
  }
}
