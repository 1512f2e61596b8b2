/** A database in memory with feeds, a clock that only moves when a test says so, and an output that records. */
import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import type { Test } from 'tap'
import { Feed, type FeedOutput, type FeedRequest } from '../../src/changes/changes-feed.ts'
import type { FilterFunctionContext } from '../../src/changes/filter-function.ts'
import { changesPage } from '../../src/changes/filtered-page.ts'
import { FeedHub } from '../../src/changes/hub.ts'
import type { ChangesPage, ChangesRequest } from '../../src/changes/page.ts'
import type { ChangesOptions } from '../../src/changes/rows.ts'
import { type Clock, directSource, type FeedDatabase, type FeedEvent } from '../../src/changes/source.ts'
import type { SecurityObject, UserCtx } from '../../src/core/types.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { put, remove } from '../storage/conformance/edits.ts'

export const ADMIN: UserCtx = { name: 'anna', roles: ['_admin'] }
export const ANNA: UserCtx = { name: 'anna', roles: [] }
export const BERT: UserCtx = { name: 'bert', roles: [] }

export const OPTIONS: ChangesOptions = {
  style: 'main_only',
  descending: false,
  includeDocs: false,
  conflicts: false,
  attachments: false,
  attEncodingInfo: false,
  framing: 'json',
  seqInterval: 1,
}

/** Runs functions on this thread. */
export const FILTER_CONTEXT: FilterFunctionContext = {
  sandbox: localSandbox(),
  name: 'notes',
  incarnation: 1,
}

/** An empty open database. */
export async function openStore(): Promise<DatabaseStore> {
  const engine = memoryEngine()
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  return engine.openDatabase('notes')
}

/** The database of protocol.md 19.5: `a` at 6, `b` deleted at 7, `c` at 8. */
export async function openVectors(): Promise<DatabaseStore> {
  const store = await openStore()
  const edits = [put('c', '{"n":1}'), put('b'), put('c', '{"n":2}'), put('c', '{"n":3}'), put('c', '{"n":4}')]
  await store.updateDocs([...edits, put('a'), remove('b'), put('c', '{"n":5}')])
  return store
}

export interface JsonRow {
  readonly seq: string | null
  readonly id: string
  readonly changes: readonly { readonly rev: string }[]
  readonly deleted?: boolean
  readonly doc?: Record<string, unknown>
}

/** The rows of a page with JSON framing. */
export function rowsOf(page: ChangesPage): JsonRow[] {
  return JSON.parse(`[${Buffer.from(page.bytes).toString()}]`) as JsonRow[]
}

/** The number part of a token. */
export function numberOf(token: string | null): number | null {
  return token === null ? null : Number.parseInt(token, 10)
}

/** A store as the database of a feed. It records the requests. */
export class FakeDatabase implements FeedDatabase {
  readonly incarnation = 1
  readonly store: DatabaseStore
  readonly requests: ChangesRequest[] = []
  readonly listeners = new Set<(event: FeedEvent) => void>()
  functionContext: FilterFunctionContext = FILTER_CONTEXT
  /** Awaited before each page. */
  gate: Promise<void> = Promise.resolve()

  constructor(store: DatabaseStore) {
    this.store = store
    store.onEvent((event) => {
      if (event.type === 'committed') this.emit({ type: 'committed', updateSeq: event.updateSeq })
      else if (event.type === 'settings') this.emit({ type: 'secured', security: event.security })
      else this.emit({ type: 'closed' })
    })
  }

  async changes(user: UserCtx, request: ChangesRequest): Promise<ChangesPage> {
    this.requests.push(request)
    await this.gate
    return changesPage(this.store, user, request, this.functionContext)
  }

  async securityCopy(): Promise<SecurityObject | null> {
    return (await this.store.view()).security
  }

  watch(listener: (event: FeedEvent) => void): () => void {
    this.listeners.add(listener)
    return () => this.listeners.delete(listener)
  }

  emit(event: FeedEvent): void {
    for (const listener of [...this.listeners]) listener(event)
  }

  async secure(security: SecurityObject): Promise<void> {
    await this.store.updateSettings(() => ({ result: null, write: { security } }))
    this.emit({ type: 'secured', security })
  }
}

/** A clock that only moves in {@link FakeClock.pass}. */
export class FakeClock implements Clock {
  #now = 0
  #timers: { readonly at: number; readonly call: () => void }[] = []

  get timers(): number {
    return this.#timers.length
  }

  now(): number {
    return this.#now
  }

  after(ms: number, call: () => void): () => void {
    const timer = { at: this.#now + ms, call }
    this.#timers.push(timer)
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer)
    }
  }

  /** Lets time pass, timer by timer, and waits for the work that each timer starts. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms
    for (;;) {
      const next = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0]
      if (next === undefined) break
      this.#timers = this.#timers.filter((other) => other !== next)
      this.#now = next.at
      next.call()
      await settled()
    }
    this.#now = end
  }
}

/** Waits until all work in memory is done. */
export async function settled(): Promise<void> {
  for (let turns = 0; turns < 30; turns++) await turn()
}

export class FakeOutput implements FeedOutput {
  readonly #client = new AbortController()
  readonly writes: string[] = []
  ended = false
  failure: unknown
  /** Awaited by each write, like the connection of a slow reader. */
  gate: Promise<void> = Promise.resolve()
  /** Awaited by the end, like the last bytes of a compressed answer. */
  endGate: Promise<void> = Promise.resolve()

  get signal(): AbortSignal {
    return this.#client.signal
  }

  get text(): string {
    return this.writes.join('')
  }

  async write(bytes: Uint8Array): Promise<void> {
    if (bytes.length > 0) this.writes.push(Buffer.from(bytes).toString())
    await this.gate
  }

  async end(): Promise<void> {
    this.ended = true
    await this.endGate
  }

  fail(cause: unknown): void {
    this.failure = cause
  }

  disconnect(): void {
    this.#client.abort()
  }
}

export interface Bench {
  readonly database: FakeDatabase
  readonly hub: FeedHub
  readonly clock: FakeClock
  start(request?: Partial<FeedRequest>, caller?: () => UserCtx): Promise<Running>
}

export interface Running {
  readonly out: FakeOutput
  readonly done: Promise<void>
}

/** Feeds over a store, with a fake clock. After the test it checks that all feeds have ended. */
export function bench(t: Test, store: DatabaseStore): Bench {
  const clock = new FakeClock()
  const hub = new FeedHub(clock)
  const database = new FakeDatabase(store)
  const running: Running[] = []
  t.teardown(async () => {
    for (const { out } of running) out.disconnect()
    await Promise.all(running.map(({ done }) => done))
    assert.equal(hub.watched, 0, 'no database is watched any more')
    assert.equal(clock.timers, 0, 'no timer is left')
  })
  const start = async (request: Partial<FeedRequest> = {}, caller: () => UserCtx = () => ADMIN) => {
    const whole = { ...DEFAULTS, ...request }
    const source = whole.kind === 'normal' ? directSource(database) : hub.join(database)
    const feed = new Feed(source, caller, whole, clock)
    const out = new FakeOutput()
    try {
      await feed.open()
    } catch (refusal) {
      feed.close()
      throw refusal
    }
    const one = { out, done: feed.run(out) }
    running.push(one)
    await settled()
    return one
  }
  return { database, hub, clock, start }
}

const { framing: _, ...FEED_OPTIONS } = OPTIONS

const DEFAULTS: FeedRequest = {
  kind: 'normal',
  options: FEED_OPTIONS,
  since: '0',
  limit: Infinity,
  heartbeat: null,
  timeout: 60_000,
}

/** The default options of a feed with some changes. */
export function feedOptions(changes: Partial<ChangesOptions>): FeedRequest['options'] {
  return { ...FEED_OPTIONS, ...changes }
}
