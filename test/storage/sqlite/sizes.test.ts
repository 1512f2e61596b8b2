/** The sizes of a file against what an independent count finds in it. */
import { randomBytes } from 'node:crypto'
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { decidePurge } from '../../../src/documents/purge.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { attachment, put, remove } from '../conformance/edits.ts'

const START = 1_700_000_000_000

async function notes(t: Test) {
  const dataDir = await temporaryFolder(t)
  const clock = { ms: START }
  let engine = sqliteEngine({ dataDir, now: () => clock.ms })
  t.teardown(() => engine.close())
  await (await engine.openCatalog()).create('notes')
  const open = async () => {
    await engine.close()
    engine = sqliteEngine({ dataDir, now: () => clock.ms })
    return engine.openDatabase('notes')
  }
  return {
    store: await engine.openDatabase('notes'),
    clock,
    open,
    file: join(dataDir, 'databases', 'notes.sqlite'),
  }
}

const step = fc.record({
  id: fc.integer({ min: 0, max: 9 }),
  act: fc.constantFrom('put', 'put', 'put', 'attach', 'remove', 'purge', 'compact', 'forget'),
  length: fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 1000, max: 60_000 })),
})

type Step = typeof step extends fc.Arbitrary<infer T> ? T : never

async function carryOut(store: DatabaseStore, { id, act, length }: Step, now: number): Promise<void> {
  const name = `doc${id}`
  const text = JSON.stringify({ text: 'é'.repeat(length) })
  if (act === 'compact') return store.compact({ keepSince: now - 3000 })
  if (act === 'forget') return store.compact()
  if (act === 'purge') {
    const decide = (doc: Parameters<typeof decidePurge>[0]) => decidePurge(doc, doc === null ? [] : [doc.rev])
    await store.purgeDocs([{ id: name, decide }])
    return
  }
  const attachments = act === 'attach' ? [attachment('x', randomBytes(length))] : []
  await store.updateDocs([act === 'remove' ? remove(name, text) : put(name, text, { attachments })])
}

/** What the report must say, by other means. */
function recount(file: string) {
  const db = new Sqlite(file, { readonly: true })
  const sum = (what: string, from: string) =>
    db.prepare(`SELECT count(*) AS count, total(${what}) AS bytes FROM ${from}`).get()
  const body = 'length(CAST(body AS BLOB))'
  try {
    return {
      live: sum(body, 'revision WHERE leaf AND NOT deleted'),
      tombstones: sum(body, 'revision WHERE leaf AND deleted'),
      old: sum(body, 'revision WHERE NOT leaf AND num IN (SELECT revision FROM superseded WHERE NOT kept)'),
      kept: sum(body, 'revision WHERE NOT leaf AND num IN (SELECT revision FROM superseded WHERE kept)'),
      chunks: db.prepare('SELECT total(length(data)) FROM chunk').pluck().get(),
      strays: db
        .prepare('SELECT count(*) FROM revision WHERE leaf = (num IN (SELECT revision FROM superseded))')
        .pluck()
        .get(),
      free: db.pragma('freelist_count', { simple: true }),
      pageSize: Number(db.pragma('page_size', { simple: true })),
      pages: Number(db.pragma('page_count', { simple: true })),
    }
  } finally {
    db.close()
  }
}

const bytesOf = (path: string) => (existsSync(path) ? statSync(path).size : 0)

async function check(store: DatabaseStore, file: string): Promise<void> {
  const { file: whole, ...parts } = await store.sizes()
  const freeBytes = parts.free?.bytes ?? Number.NaN
  const { live, tombstones, old, kept, chunks, strays, free, pageSize, pages } = recount(file)
  const info = await store.info()
  const expected = JSON.stringify({ live, tombstones, old, kept })
  const told = { live: parts.live, tombstones: parts.tombstones, old: parts.old, kept: parts.kept }
  const wrong = [
    strays === 0 || 'rows of superseded that are leaves, or leaves that are there',
    JSON.stringify(told) === expected || `${JSON.stringify(told)} instead of ${expected}`,
    parts.attachments.bytes === chunks || 'attachments',
    parts.free?.count === free || 'free pages',
    whole === bytesOf(file) + bytesOf(`${file}-wal`) || 'what stat says',
    whole === Object.values(parts).reduce((sum, part) => sum + (part?.bytes ?? 0), 0) || 'the sum',
    parts.indexes.bytes > 0 && (parts.log?.bytes ?? -1) >= 0 ? true : 'a part below nothing',
    info.sizes.file === whole || 'sizes.file',
    info.sizes.active === pages * pageSize - freeBytes - parts.kept.bytes || 'sizes.active',
  ].filter((one) => one !== true)
  if (wrong.length > 0) throw new Error(wrong.join('; '))
}

t.test('after whatever was done, the parts add up, and each is what a recount finds', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 30 }), async (steps) => {
      const { store, clock, file, open } = await notes(t)
      for (const one of steps) {
        clock.ms += 1000
        await carryOut(store, one, clock.ms)
      }
      await check(store, file)
      const again = await open()
      await check(again, file)
      await again.close()
    }),
    { numRuns: Number(process.env.SIZES_RUNS ?? 30) },
  )
})

t.test('what is no body is counted as SQLite counts it', async (t) => {
  const { store, file } = await notes(t)
  for (let n = 0; n < 5; n++) {
    await store.updateDocs(
      Array.from({ length: 300 }, (_, at) => put(`doc${at}`, JSON.stringify({ n, text: 'a'.repeat(50) }))),
    )
  }
  const { indexes } = await store.sizes()
  const db = new Sqlite(file, { readonly: true })
  const others = db
    .prepare("SELECT sum(pgsize) FROM dbstat WHERE aggregate AND name NOT IN ('revision', 'chunk', 'local')")
    .pluck()
    .get() as number
  db.close()
  t.ok(indexes.bytes > others, `${indexes.bytes} bytes, of which ${others} are trees of their own`)
})

t.test('a walk over many documents lets others in', async (t) => {
  const { store } = await notes(t)
  const many = Array.from({ length: 20_000 }, (_, n) => put(`doc${n}`))
  await store.updateDocs(many)
  let turns = 0
  let isDone = false
  const sizes = store.sizes().finally(() => {
    isDone = true
  })
  while (!isDone) {
    await new Promise((resolve) => setImmediate(resolve))
    turns += 1
  }
  t.equal((await sizes).live.count, 20_000)
  t.ok(turns > 3, `${turns} turns`)
})
