/**
 * A database thread: runs documents/ and changes/ over the SQLite engine for the databases it owns. It is told
 * what to do by the HTTP thread (pool.ts), in batches of messages, and answers in batches.
 */
import { parentPort, workerData } from 'node:worker_threads'
import { readDocIds } from '../changes/doc-ids.ts'
import { changesPage } from '../changes/page.ts'
import { CouchError } from '../core/errors.ts'
import type { Limits } from '../core/types.ts'
import { storeDatabase } from '../documents/store-database.ts'
import type { Catalog } from '../storage/engine.ts'
import { sqliteEngine } from '../storage/sqlite/engine.ts'
import { type Closable, OpenStores } from './open-stores.ts'
import { Turns } from './turns.ts'
import {
  type CatalogAct,
  METHODS,
  Outbox,
  ownBytes,
  packError,
  type Reply,
  type Request,
  type ServedDatabase,
  type ThreadOptions,
} from './wire.ts'

type Call = Extract<Request, { type: 'call' }>

interface OpenDatabase extends Closable {
  readonly database: ServedDatabase
}

/** Serves one port until it is told to stop. */
class Host {
  readonly #outbox: Outbox<Reply>
  readonly #engine: ReturnType<typeof sqliteEngine>
  readonly #stores: OpenStores<OpenDatabase>
  readonly #turns = new Turns()
  /** Streams under way, by call: the other end pulls each chunk. */
  readonly #streams = new Map<number, { database: string; pull(): void; cancel(): void }>()
  #limits: Limits
  #catalog: Catalog | undefined

  constructor(outbox: Outbox<Reply>, options: ThreadOptions) {
    this.#outbox = outbox
    this.#limits = options.limits
    this.#engine = sqliteEngine({ dataDir: options.dataDir })
    this.#stores = new OpenStores(options.maxOpen, (name, incarnation) => this.#open(name, incarnation))
  }

  async #open(name: string, incarnation: number): Promise<OpenDatabase> {
    const store = await this.#engine.openDatabase(name)
    store.onCommit((updateSeq) => this.#outbox.post({ type: 'committed', incarnation, updateSeq }))
    const documents = storeDatabase(
      store,
      () => this.#limits,
      (security) => this.#outbox.post({ type: 'secured', incarnation, security }),
    )
    const database: ServedDatabase = {
      ...documents,
      changes: (user, request) => changesPage(store, user, request),
      readDocIds: async (_user, body) => readDocIds(body),
    }
    return { database, close: () => store.close() }
  }

  /** Takes a batch of messages. */
  receive(requests: readonly Request[]): void {
    for (const request of requests) this.#take(request)
    this.#turns.run()
  }

  #take(request: Request): void {
    switch (request.type) {
      case 'call':
        this.#turns.add(request.database, () => this.#serve(request))
        return
      case 'next':
        this.#streams.get(request.call)?.pull()
        return
      case 'cancel':
        this.#streams.get(request.call)?.cancel()
        return
      case 'limits':
        this.#limits = request.limits
        return
      case 'drop':
        this.#answer(request.call, this.#drop(request.database))
        return
      case 'catalog':
        this.#answer(request.call, this.#catalogAct(request.act))
        return
      case 'stop':
        this.#answer(request.call, this.#stop())
    }
  }

  #answer(call: number, work: Promise<unknown>): void {
    work.then(
      (value) => {
        const own = ownBytes(value)
        this.#outbox.post({ type: 'answer', call, value: own }, own)
      },
      (error: unknown) => this.#outbox.post({ type: 'failed', call, error: packError(error) }),
    )
  }

  #serve(request: Call): void {
    const { call, database, incarnation, method, args } = request
    if (METHODS[method] === 'stream') {
      const streamed = this.#stores.use(database, incarnation, (opened) => this.#stream(request, opened))
      streamed.then(
        () => this.#outbox.post({ type: 'end', call }),
        (error: unknown) => this.#outbox.post({ type: 'failed', call, error: packError(error) }),
      )
      return
    }
    const run = (opened: OpenDatabase) =>
      (opened.database[method] as (...given: readonly unknown[]) => Promise<unknown>)(...args)
    this.#answer(call, this.#stores.use(database, incarnation, run))
  }

  /** Sends a stream's chunks, each when it is asked for; the first at once. */
  async #stream({ call, database, method, args }: Call, opened: OpenDatabase): Promise<void> {
    const start = opened.database[method] as (...given: readonly unknown[]) => AsyncIterable<Uint8Array>
    let wake: () => void = () => undefined
    let credit = 1
    let cancelled = false
    this.#streams.set(call, {
      database,
      pull: () => {
        credit += 1
        wake()
      },
      cancel: () => {
        cancelled = true
        wake()
      },
    })
    try {
      for await (const chunk of start(...args)) {
        while (credit === 0 && !cancelled) {
          await new Promise<void>((resolve) => {
            wake = resolve
          })
        }
        if (cancelled) return
        credit -= 1
        const own = ownBytes(chunk)
        this.#outbox.post({ type: 'chunk', call, chunk: own }, own)
      }
    } finally {
      this.#streams.delete(call)
    }
  }

  /** Refuses what waits for a database, ends what it streams, and lets its file go. */
  async #drop(database: string): Promise<void> {
    for (const stream of this.#streams.values()) if (stream.database === database) stream.cancel()
    for (const work of this.#turns.take(database)) work()
    await this.#stores.drop(database)
  }

  async #catalogAct(act: CatalogAct): Promise<unknown> {
    if (act.act === 'open') {
      this.#catalog = await this.#engine.openCatalog()
      return { serverUuid: this.#catalog.serverUuid, databases: await this.#catalog.list() }
    }
    if (this.#catalog === undefined) throw new CouchError('unavailable')
    return act.act === 'create' ? this.#catalog.create(act.name) : this.#catalog.delete(act.name)
  }

  async #stop(): Promise<void> {
    for (const stream of this.#streams.values()) stream.cancel()
    await this.#stores.closeAll()
    await this.#engine.close()
  }
}

if (parentPort !== null) {
  const port = parentPort
  const host = new Host(new Outbox<Reply>(port), workerData as ThreadOptions)
  port.on('message', (requests: readonly Request[]) => host.receive(requests))
}
