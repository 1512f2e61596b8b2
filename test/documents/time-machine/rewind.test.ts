/** Rewinds: changes between their reads and writes, random histories, and rights. */
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../../src/core/types.ts'
import { storeDatabase } from '../../../src/documents/store-database.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import { localSandbox } from '../../helpers/local-sandbox.ts'
import { type Arrival, arrivals, type Node, path, worlds } from '../../revisions/histories.ts'
import { ENGINES } from '../engines.ts'
import { ADMIN, body, type Json, jsonOf, type Opened, openOn, text } from '../helpers.ts'

const FILE = { f: { content_type: 'text/plain', data: Buffer.from('what it was').toString('base64') } }

/** A database over the same store with a replaced `updateDocs`. */
function amended(opened: Opened, updateDocs: VersionedStore['updateDocs']) {
  const store = new Proxy(opened.store, {
    get: (target, name) => {
      if (name === 'updateDocs') return updateDocs
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  return storeDatabase(store, {
    name: 'notes',
    limits: () => DEFAULT_LIMITS,
    rules: () => DEFAULT_RULES,
    onSecured: () => undefined,
    sandbox: localSandbox(),
    incarnation: 1,
    startCompaction: async () => undefined,
  })
}

async function linesOf(stream: AsyncIterable<Uint8Array>): Promise<Json[]> {
  const lines = (await text(stream)).trim().split('\n')
  return lines.map((line) => JSON.parse(line))
}

/** A time between earlier and later writes. */
async function between(): Promise<number> {
  await delay(3)
  const time = Date.now()
  await delay(3)
  return time
}

for (const [name, makeEngine] of Object.entries(ENGINES)) {
  t.test(`${name}: a compaction removes nothing that is about to be written`, async (t) => {
    const opened = await openOn(await makeEngine(t))
    const { store } = opened
    for (const ids of [undefined, ['a']]) {
      const was = await opened.get('a').catch(() => ({}))
      const rev = await opened.put('a', { ...was, n: 1, _attachments: FILE })
      const then = await between()
      await opened.put('a', { _rev: rev, n: 2 })
      const busy = amended(opened, async (updates) => {
        await store.compact()
        return store.updateDocs(updates)
      })
      const asked = { at: then, dryRun: false, ...(ids && { ids }) }
      const lines = await linesOf(busy.rewind(ADMIN, asked))
      t.match(lines.at(-1), { done: true, counts: { restored: 1 } })
      t.match(await opened.get('a', { attachments: true }), {
        n: 1,
        _attachments: { f: { data: FILE.f.data } },
      })
      await store.compact()
      t.match(await opened.get('a', { attachments: true }), { _attachments: { f: { data: FILE.f.data } } })
    }
  })

  t.test(
    `${name}: a rewind stops if the store fails, and continues when it is requested again`,
    async (t) => {
      const opened = await openOn(await makeEngine(t))
      const docs = Array.from({ length: 600 }, (_, n) => ({ _id: `d${String(n).padStart(3, '0')}`, n }))
      const made: { id: string; rev: string }[] = await opened.bulk({ docs })
      const then = await between()
      await opened.bulk({ docs: made.map(({ id, rev }) => ({ _id: id, _rev: rev, n: 'spoilt' })) })
      for (const code of ['disk_fault', 'damaged_file', 'insufficient_storage'] as const) {
        let calls = 0
        const broken = amended(opened, async (updates) => {
          calls += 1
          if (calls < 2) return opened.store.updateDocs(updates)
          return updates.map(() => ({ error: new CouchError(code) }))
        })
        const lines = await linesOf(broken.rewind(ADMIN, { at: then, dryRun: false }))
        t.match(lines.at(-1), { error: new CouchError(code).toBody().error, counts: { refused: 0 } })
        t.equal(lines.filter(({ done }) => done).length, 0)
      }
      const lines = await linesOf(opened.database.rewind(ADMIN, { at: then, dryRun: false }))
      t.match(lines.at(-1), { done: true, looked_at: 600 })
      for (const { _id, n } of docs) t.equal((await opened.get(_id)).n, n)
      const again = await linesOf(opened.database.rewind(ADMIN, { at: then, dryRun: false }))
      t.match(again.at(-1), { counts: { unchanged: 600 } })
    },
  )

  t.test(`${name}: a document whose earlier winner was purged is not changed`, async (t) => {
    const opened = await openOn(await makeEngine(t))
    const { database, replicate } = opened
    await replicate('a', { start: 1, ids: ['x'] })
    await delay(3)
    await replicate('a', { start: 2, ids: ['y', 'x'] })
    const then = await between()
    await replicate('a', { start: 2, ids: ['z', 'x'], doc: { n: 'later' } })
    await database.purge(ADMIN, body({ a: ['2-y'] }))
    const lines = await linesOf(database.rewind(ADMIN, { at: then, dryRun: false }))
    t.match(lines.at(-1), { counts: { deleted: 0, expired: 1 } })
    t.equal((await opened.get('a')).n, 'later')
  })
}

// Random histories of edits, conflicts, deletions and replicated writes at known times, against a model that keeps a
// full copy of the database after each of them: what a document was is told as the copies have it, and a rewind brings
// it back. Where old versions have expired the answer may be that it is not known, and never another one.

/** In ms after the creation of the database. */
const START = Date.now() + 3_600_000
const IDS = ['x', 'y', '_design/z'] as const

interface Step {
  readonly id: (typeof IDS)[number]
  readonly wait: number
  readonly act:
    | { readonly kind: 'edit'; readonly deleted: boolean; readonly n: number; readonly file: boolean }
    | { readonly kind: 'replicate'; readonly arrival: Arrival }
    | { readonly kind: 'compact'; readonly keepMs: number }
}

const EDIT = fc.record({
  kind: fc.constant('edit' as const),
  deleted: fc.boolean(),
  n: fc.nat(2),
  file: fc.boolean(),
})
const REPLICATE = fc.record({
  kind: fc.constant('replicate' as const),
  arrival: arrivals(1).map(([arrival]) => arrival as Arrival),
})

const compactions = (keepMs: readonly number[]) =>
  fc.record({ kind: fc.constant('compact' as const), keepMs: fc.constantFrom(...keepMs) })

/** How long compactions keep old versions, in ms; 0 to remove them at once. */
const WAYS: Readonly<Record<string, readonly number[]>> = {
  'as it was written': [],
  'with compactions': [0, 5, 2000],
  'with compactions that keep all': [Infinity],
}

const steps = (keepMs: readonly number[]) =>
  fc.array(
    fc.record({
      id: fc.constantFrom(...IDS),
      wait: fc.constantFrom(0, 1, 10, 1000),
      act:
        keepMs.length > 0
          ? fc.oneof(EDIT, EDIT, REPLICATE, REPLICATE, compactions(keepMs))
          : fc.oneof(EDIT, REPLICATE),
    }),
    { minLength: 1, maxLength: 14, size: 'max' },
  )

/** The visible state of a document; null if it never existed. */
type Seen = { readonly _rev: string; readonly _deleted?: true } | null

interface Copy {
  readonly at: number
  readonly docs: ReadonlyMap<string, Seen>
}

class World {
  at = START
  readonly opened: Opened
  readonly #nodes: readonly Node[]
  readonly copies: Copy[] = []

  constructor(opened: Opened, nodes: readonly Node[]) {
    this.opened = opened
    this.#nodes = nodes
  }

  async take({ id, wait, act }: Step): Promise<void> {
    this.at += wait
    if (act.kind === 'compact') await this.#compact(act.keepMs)
    else if (act.kind === 'replicate') await this.#replicate(id, act.arrival)
    else await this.#edit(id, act)
    await this.copy()
  }

  async copy(): Promise<void> {
    const docs = new Map<string, Seen>()
    for (const id of IDS) docs.set(id, await this.see(id))
    if (this.copies.at(-1)?.at === this.at) this.copies.pop()
    this.copies.push({ at: this.at, docs })
  }

  see(id: string): Promise<Seen> {
    return this.opened.get(id, { deleted: true, attachments: true }).catch((error: CouchError) => {
      assert.equal(error.code, 'not_found')
      return null
    })
  }

  async #compact(keepMs: number): Promise<void> {
    await this.opened.store.compact(keepMs === 0 ? {} : { keepSince: Math.max(0, this.at - keepMs) })
  }

  async #replicate(id: string, arrival: Arrival): Promise<void> {
    const [leaf, ...others] = path(this.#nodes, arrival)
    if (leaf === undefined) return
    const ids = [leaf, ...others].map((node) => node.id)
    await this.opened.replicate(id, { start: leaf.pos, ids, deleted: leaf.deleted, doc: { of: leaf.id } })
  }

  async #edit(id: string, { deleted, n, file }: { deleted: boolean; n: number; file: boolean }) {
    const now = await this.see(id)
    const parent = now !== null && !now._deleted ? { _rev: now._rev } : {}
    const data = Buffer.from(`file ${n}`).toString('base64')
    const files = file && { _attachments: { f: { content_type: 'text/plain', data } } }
    const doc = { n, ...parent, ...(deleted && { _deleted: true }), ...files }
    await this.opened.put(id, doc).catch((error: CouchError) => assert.equal(error.code, 'conflict'))
  }

  /** The reported version of a document at a time. */
  async told(id: string, at: number): Promise<Seen | 'expired'> {
    try {
      return await jsonOf(this.opened.database.version(ADMIN, id, { at }, true))
    } catch (error) {
      assert.ok(error instanceof CouchError && error.code === 'not_found', String(error))
      return String(error.reason).includes('no longer stored') ? 'expired' : null
    }
  }

  async rewind(at: number, dryRun = false): Promise<Json[]> {
    const lines = await text(this.opened.database.rewind(ADMIN, { at, dryRun }))
    return lines
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
  }
}

/** The part of a document that a user sees: whether it exists, and its content. */
function content(doc: Seen): unknown {
  if (doc === null || doc._deleted) return null
  const { _rev: _, _attachments, ...rest } = doc as Json
  const files = Object.entries((_attachments ?? {}) as Record<string, Json>)
  return { ...rest, files: files.map(([name, { content_type, data }]) => [name, content_type, data]) }
}

for (const [engine, makeEngine] of Object.entries(ENGINES)) {
  for (const [how, keepMs] of Object.entries(WAYS)) {
    t.test(`${engine}, ${how}`, async (t) => {
      await fc.assert(
        fc.asyncProperty(
          worlds(10),
          steps(keepMs),
          fc.constantFrom(1000, 1000, 3),
          fc.nat(100),
          async (nodes, todo, revsLimit, pick) => {
            const clock = { now: () => START }
            const made = await makeEngine(t, () => clock.now())
            const world = new World(await openOn(made, {}, undefined, () => clock.now()), nodes)
            clock.now = () => world.at
            await world.opened.database.setRevsLimit(ADMIN, revsLimit)
            for (const step of todo) await world.take(step)
            const isCut = revsLimit === 3
            await checkTold(world, isCut || keepMs.includes(0))
            await checkRewind(world, world.copies[pick % world.copies.length] as Copy)
            await made.close()
          },
        ),
        { numRuns: engine === 'memory' ? 120 : 40 },
      )
    })
  }
}

async function checkTold(world: World, mayExpire: boolean): Promise<void> {
  for (const [n, { at, docs }] of world.copies.entries()) {
    const next = world.copies[n + 1]?.at ?? at + 1
    for (const time of new Set([at, next - 1])) {
      for (const id of IDS) {
        const told = await world.told(id, time)
        if (told === 'expired') assert.ok(mayExpire, 'nothing has expired')
        else assert.deepEqual(told, docs.get(id) ?? null, `${id} at ${time}`)
      }
    }
  }
  for (const id of IDS) assert.ok([null, 'expired'].includes((await world.told(id, START - 1)) as string))
}

async function checkRewind(world: World, { at, docs }: Copy): Promise<void> {
  const before = world.copies.at(-1) as Copy
  world.at += 60_000
  const dry = await world.rewind(at, true)
  const seq = await world.opened.updateSeq()
  const lines = await world.rewind(at)
  const strip = (all: Json[]) => all.filter(({ id }) => id).map(({ id, outcome }) => [id, outcome])
  assert.deepEqual(strip(dry), strip(lines), 'a dry run says what will be')
  const { done, counts } = lines.at(-1)
  assert.ok(done)
  assert.equal(counts.refused + counts.newer + counts.absent, 0)
  const outcomes = new Map(lines.map(({ id, outcome }) => [id, outcome]))
  for (const id of IDS) {
    const now = content(await world.see(id))
    const expected = outcomes.get(id) === 'expired' ? before.docs.get(id) : docs.get(id)
    assert.deepEqual(now, content(expected ?? null), `${id} as of ${at}`)
  }
  const after = await world.opened.updateSeq()
  const written = counts.restored + counts.recreated + counts.deleted
  assert.equal(after - seq >= written, true)
  if (written === 0) assert.equal(after, seq)
  const again = (await world.rewind(at)).at(-1)
  assert.equal(await world.opened.updateSeq(), after, 'a second time nothing is written')
  assert.equal(again.counts.restored + again.counts.recreated + again.counts.deleted, 0)
  world.at += 60_000
  await world.rewind(world.at - 90_000)
  for (const id of IDS) assert.deepEqual(content(await world.see(id)), content(before.docs.get(id) ?? null))
}

t.test('a leaf that came before its ancestors was one at that time, also once it is removed', async (t) => {
  const clock = { at: START }
  const { memory } = ENGINES
  const opened = await openOn(await memory!(t, () => clock.at), {}, undefined, () => clock.at)
  await opened.replicate('a', { start: 2, ids: ['b'], doc: { n: 2 } })
  clock.at += 1000
  await opened.replicate('a', { start: 1, ids: ['a'], doc: { n: 1 } })
  await opened.put('a', { _rev: '2-b', n: 3 })
  clock.at += 1000
  await opened.store.compact()
  await opened.replicate('a', { start: 2, ids: ['b', 'a'], doc: { n: 2 } })
  const told = jsonOf(opened.database.version(ADMIN, 'a', { at: START }, true))
  await t.rejects(told, { code: 'not_found', reason: /no longer stored/ })
})

t.test(
  'a leaf whose ancestry has grown says nothing of what stood beside it, once that is removed',
  async (t) => {
    const clock = { at: START }
    const { memory } = ENGINES
    const opened = await openOn(await memory!(t, () => clock.at), {}, undefined, () => clock.at)
    await opened.replicate('a', { start: 2, ids: ['x'], doc: { n: 1 } })
    await opened.replicate('a', { start: 3, ids: ['c'], deleted: true, doc: {} })
    const told = () => jsonOf(opened.database.version(ADMIN, 'a', { at: START }, true))
    t.match(await told(), { _rev: '2-x', n: 1 })
    clock.at += 1000
    await opened.replicate('a', { start: 3, ids: ['c', 'x'], deleted: true, doc: {} })
    t.match(await told(), { _rev: '2-x', n: 1 })
    clock.at += 1000
    await opened.store.compact()
    await t.rejects(told(), { code: 'not_found', reason: /no longer stored/ })
  },
)

t.test(
  'nothing is said of the time before a leaf took another one, even if its ancestry was cut again',
  async (t) => {
    const clock = { at: START }
    const { memory } = ENGINES
    const opened = await openOn(await memory!(t, () => clock.at), {}, undefined, () => clock.at)
    await opened.database.setRevsLimit(ADMIN, 3)
    await opened.replicate('a', { start: 5, ids: ['e', 'd', 'c'], deleted: true, doc: {} })
    await opened.replicate('a', { start: 1, ids: ['a'], doc: { n: 1 } })
    const told = () => jsonOf(opened.database.version(ADMIN, 'a', { at: START }, true))
    t.match(await told(), { _rev: '1-a', n: 1 })
    clock.at += 1000
    await opened.replicate('a', { start: 3, ids: ['c', 'b', 'a'], doc: { n: 3 } })
    t.match(await told(), { _rev: '1-a', n: 1 })
    clock.at += 1000
    await opened.store.compact()
    await t.rejects(told(), { code: 'not_found', reason: /no longer stored/ })
  },
)

t.test('users who are not admins of the database cannot read or rewind its history', async (t) => {
  const { database, put } = await openOn(await (ENGINES.memory as NonNullable<typeof ENGINES.memory>)(t))
  await database.setSecurity(ADMIN, { members: { names: ['anna'] }, admins: { names: ['eve'] } })
  await put('x', { n: 1 })
  const anna = { name: 'anna', roles: [] }
  await t.rejects(database.history(anna, 'x', { limit: 10 }), { code: 'forbidden' })
  await t.rejects(database.overwritten(anna, { limit: 10 }), { code: 'forbidden' })
  await t.rejects(text(database.version(anna, 'x', { at: Date.now() }, false)), { code: 'forbidden' })
  await t.rejects(text(database.rewind(anna, { at: Date.now(), dryRun: true })), { code: 'forbidden' })
  const eve = { name: 'eve', roles: [] }
  t.match(JSON.parse(Buffer.from(await database.history(eve, 'x', { limit: 10 })).toString()), { id: 'x' })
})
