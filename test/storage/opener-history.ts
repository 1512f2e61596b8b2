/**
 * Clients that read and write a few documents through several openers of one database, with feeds on each of them: what the
 * clients saw, and whether the feeds have shown it all.
 */
import { setTimeout as rest } from 'node:timers/promises'
import { Feed } from '../../src/changes/changes-feed.ts'
import { FeedHub } from '../../src/changes/hub.ts'
import { CouchError } from '../../src/core/errors.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import type { Database } from '../../src/documents/database.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import { FakeDatabase, FakeOutput, OPTIONS } from '../changes/helpers.ts'
import { ADMIN, body, parse } from '../documents/helpers.ts'
import { type Action, isLinearizable, type Operation, type Value } from '../faults/linear/register.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { type SharedNetworkOptions, sharedNetwork } from './memory/network.ts'
import type { Mutant } from './memory/opener.ts'
import { SharedMemory } from './memory/shared.ts'

const CLIENTS = 6
const DOCUMENTS = 4
const CALLS = 25
/** How long a feed may take to show what was written, in ms. */
const PATIENCE_MS = 1500

export interface HistoryOptions {
  readonly mutant?: Mutant
  readonly network?: SharedNetworkOptions
  /** Whether an opener is killed on the way, and another takes its place. */
  readonly kills?: boolean
}

/** What is wrong with a history; empty if nothing is. */
export type Faults = readonly (
  | 'a document is no register'
  | 'a feed has skipped a row'
  | 'a feed has gone back'
)[]

/** All that a thread has of a database, over the shared state. */
class Opener {
  readonly engine: ReturnType<typeof memoryEngine>
  readonly store: VersionedStore
  readonly database: Database
  readonly #feed: { readonly out: FakeOutput; readonly done: Promise<void> }
  #die: () => void = () => undefined
  /** Resolves when it is killed: its calls have no answer then. */
  readonly death = new Promise<null>((resolve) => {
    this.#die = () => resolve(null)
  })

  static async open(shared: SharedMemory, { mutant, network }: HistoryOptions): Promise<Opener> {
    const engine = memoryEngine({ shared, network: sharedNetwork(network), ...(mutant && { mutant }) })
    const store = await engine.openDatabase('notes')
    const source = new FeedHub().join(new FakeDatabase(store))
    const { framing: _, ...options } = OPTIONS
    const request = { kind: 'continuous', options, since: '0', limit: Infinity } as const
    const feed = new Feed(source, () => ADMIN, { ...request, heartbeat: 60_000, timeout: 60_000 })
    await feed.open()
    return new Opener(engine, store, feed)
  }

  private constructor(engine: ReturnType<typeof memoryEngine>, store: VersionedStore, feed: Feed) {
    this.engine = engine
    this.store = store
    this.database = storeDatabase(store, {
      name: 'notes',
      limits: () => DEFAULT_LIMITS,
      rules: () => DEFAULT_RULES,
      onSecured: () => undefined,
      sandbox: localSandbox(),
      incarnation: 1,
      startCompaction: async () => undefined,
      now: Date.now,
    })
    const out = new FakeOutput()
    this.#feed = { out, done: feed.run(out) }
  }

  kill(): void {
    this.#die()
    this.engine.die()
  }

  /** The rows that its feed has shown. */
  rows(): readonly {
    readonly seq: string
    readonly id: string
    readonly changes: [{ readonly rev: string }]
  }[] {
    return this.#feed.out.text
      .split('\n')
      .filter((line) => line.startsWith('{"seq"'))
      .map((line) => JSON.parse(line))
  }

  async close(): Promise<void> {
    this.#feed.out.disconnect()
    await this.#feed.done
    await this.engine.close()
  }
}

/** What a client knows of a document. */
interface Known {
  readonly value: Value
  readonly rev: string | undefined
}

/** Runs one history. */
export async function historyOf(options: HistoryOptions = {}): Promise<Faults> {
  const shared = new SharedMemory()
  await (await memoryEngine({ shared, network: sharedNetwork() }).openCatalog()).create('notes')
  const open = () => Opener.open(shared, options)
  const openers = [await open(), await open()]
  const killed: Opener[] = []
  const operations = new Map<string, Operation[]>()
  let clock = 0
  let values = 0
  let calls = 0

  const call = async (id: string, known: Known | null): Promise<Known | null> => {
    const opener = openers[Math.floor(Math.random() * openers.length)] as Opener
    const invoked = ++clock
    const note = (action: Action) => operations.get(id)?.push({ invoked, returned: ++clock, action })
    if (known === null) {
      const seen = await Promise.race([read(opener.database, id), opener.death])
      if (seen !== null) note({ type: 'read', saw: seen.value })
      return seen
    }
    const { value: over, rev } = known
    // A document that nobody writes again: a feed that skips it never shows it.
    if (Math.random() < 0.3)
      await Promise.race([write(opener.database, `own${clock}`, 'v', undefined), opener.death])
    const value = over !== null && Math.random() < 0.2 ? null : `v${++values}`
    const written = await Promise.race([write(opener.database, id, value, rev), opener.death])
    note({ type: 'write', over, value, outcome: written === null ? 'unknown' : written.outcome })
    return written?.outcome === 'done' ? { value, rev: value === null ? undefined : written.rev } : null
  }

  const client = async () => {
    const known = new Map<string, Known>()
    for (let n = 0; n < CALLS; n++) {
      const id = `doc${Math.floor(Math.random() * DOCUMENTS)}`
      if (!operations.has(id)) operations.set(id, [])
      const seen = Math.random() < 0.4 ? null : (known.get(id) ?? null)
      const now = await call(id, seen)
      // Who is refused looks again; or, now and then, goes on with what is stale.
      if (now !== null) known.set(id, now)
      else if (Math.random() < 0.8) known.delete(id)
      calls += 1
      if (options.kills && calls === (CLIENTS * CALLS) / 2) {
        const [victim] = openers.splice(0, 1, await open()) as [Opener]
        victim.kill()
        killed.push(victim)
      }
    }
  }

  await Promise.all(Array.from({ length: CLIENTS }, client))
  const faults: Faults[number][] = []
  if (![...operations.values()].every(isLinearizable)) faults.push('a document is no register')
  const winners = await winnersOf(openers[0] as Opener)
  const hasShown = await Promise.all(openers.map((opener) => shows(opener, winners)))
  if (!hasShown.every(Boolean)) faults.push('a feed has skipped a row')
  if (![...openers, ...killed].every(isAscending)) faults.push('a feed has gone back')
  await Promise.all([...openers, ...killed].map((opener) => opener.close()))
  return faults
}

async function read(database: Database, id: string): Promise<Known | null> {
  try {
    const doc = parse((await database.open(ADMIN, id, {})).json)
    return { value: doc.value, rev: doc._rev }
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    if (error.code === 'unavailable') return null
    if (error.status !== 404) throw error
    return { value: null, rev: undefined }
  }
}

/** @returns null if nothing is known of what became of it */
async function write(
  database: Database,
  id: string,
  value: Value,
  rev: string | undefined,
): Promise<{ readonly outcome: 'done' | 'refused'; readonly rev?: string } | null> {
  try {
    const saved =
      value === null
        ? await database.remove(ADMIN, id, rev)
        : await database.put(ADMIN, id, body({ value, ...(rev && { _rev: rev }) }), {})
    return { outcome: 'done', rev: saved.rev }
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    if (error.code === 'unavailable') return null
    if (error.status !== 409 && error.status !== 404) throw error
    return { outcome: 'refused' }
  }
}

async function winnersOf({ store }: Opener): Promise<ReadonlyMap<string, string>> {
  const { rows } = await store.readChanges({ since: 0 }, { limit: 1000 }, ({ id, rev }) => [id, rev] as const)
  return new Map(rows)
}

async function shows(opener: Opener, winners: ReadonlyMap<string, string>): Promise<boolean> {
  for (let waited = 0; waited < PATIENCE_MS; waited += 5) {
    const shown = new Map(opener.rows().map(({ id, changes }) => [id, changes[0].rev]))
    if ([...winners].every(([id, rev]) => shown.get(id) === rev)) return true
    await rest(5)
  }
  return false
}

function isAscending(opener: Opener): boolean {
  const numbers = opener.rows().map(({ seq }) => Number.parseInt(seq, 10))
  return numbers.every((seq, at) => at === 0 || seq > (numbers[at - 1] as number))
}
