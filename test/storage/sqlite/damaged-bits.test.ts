/**
 * Bits of the pages of documents, of revisions and of their indexes are flipped, and lists are read: what an index finds is
 * what its row proves, in its place.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { leafRev } from '../../../src/revisions/branch.ts'
import type { DocState, Page } from '../../../src/storage/engine.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { put, remove, write } from '../conformance/edits.ts'
import { forget } from '../conformance/purge.ts'
import { ALL } from '../conformance/setup.ts'
import { flipped, randomNumbers, usedBits } from './random-damage.ts'

/** About how many bits are flipped; all of them are 33,000. */
const FLIPS = Number(process.env.SETTEE_DAMAGED_BITS ?? 800)
const SEED = Number(process.env.SETTEE_DAMAGE_SEED ?? Date.now() % 1e6)
const IDS = Array.from({ length: 12 }, (_, n) => `doc-${String(n).padStart(2, '0')}`)
/** Pages of one table or index each, in a database as small as this. */
const TREES = [
  ...['doc', 'sqlite_autoindex_doc_1', 'sqlite_autoindex_doc_2', 'doc_deleted'],
  ...['revision', 'sqlite_autoindex_revision_1', 'revision_leaf', 'superseded'],
  ...['local', 'sqlite_autoindex_local_1'],
]

/** Documents that are changed, deleted, and in conflict. */
async function fill(store: VersionedStore): Promise<void> {
  await store.updateDocs(IDS.map((id, n) => put(id, `{"n":${n}}`)))
  await store.updateDocs(IDS.slice(0, 4).map((id, n) => put(id, `{"n":${n + 50}}`)))
  await store.updateDocs(['doc-11', 'doc-07'].map((id) => remove(id)))
  for (const id of IDS.slice(3, 6)) {
    const [doc] = await store.readDocs([id], (found) => ({
      rev: found?.rev ?? '',
      deleted: found?.deleted ?? false,
    }))
    if (doc === undefined) throw new Error('it was stored')
    const leaf = { rev: `1-${'f'.repeat(32)}`, deleted: id === 'doc-05', ancestry: ['f'.repeat(32)] }
    const content = { body: '{"n":9}', attachments: [] }
    await store.updateDocs([write(id, { ...doc, sequenced: true, revisions: [{ ...leaf, content }] })])
  }
  const local = { result: null, write: { rev: 1, body: '{"seq":7}' } }
  await store.updateLocals(IDS.slice(0, 4).map((id) => ({ id: `_local/${id}`, decide: () => local })))
}

/** What is read, by name; what is damaged is left out. A row that is there twice has another name, which nobody has written. */
async function readAll(store: VersionedStore): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  const enter = (name: string, value: unknown) =>
    found.set(found.has(name) ? `${name}, again` : name, JSON.stringify(value))
  const unlessDamaged = async (read: () => unknown) => {
    try {
      await read()
    } catch (error) {
      if (!(error instanceof CouchError || error instanceof Sqlite.SqliteError)) throw error
    }
  }
  const rowOf = (doc: DocState) => {
    const row: { id: string; seq: number; facts?: unknown } = { id: doc.id, seq: doc.seq }
    try {
      const leaves = doc.branches.map((branch) => `${leafRev(branch)} ${branch.deleted}`).sort()
      row.facts = [doc.rev, doc.deleted, doc.body(doc.rev), leaves]
    } catch (error) {
      if (!(error instanceof CouchError || error instanceof Sqlite.SqliteError)) throw error
    }
    return row
  }
  const list = (
    name: string,
    page: Promise<Pick<Page<ReturnType<typeof rowOf>>, 'rows'>>,
    by?: 'id' | 'seq',
  ) =>
    unlessDamaged(async () => {
      const { rows } = await page
      const order = rows.map((row) => row[by ?? 'id'])
      const isSorted = order.every((at, n) => n === 0 || at > (order[n - 1] ?? ''))
      if (by !== undefined) enter(`${name}: whether it is in order`, isSorted || rows.length === 0)
      for (const { id, seq, facts } of rows) if (facts !== undefined) enter(`${name}: ${id}`, [seq, facts])
    })
  const readSet = { body: true, branches: true } as const
  const paging = { ...ALL, readSet }
  const [start, end] = ['doc-04', 'doc-09'].map((id) => ({ id, inclusive: true }))
  if (start === undefined || end === undefined) throw new Error('both are there')
  await list('all', store.readRange({}, paging, rowOf), 'id')
  await list('range', store.readRange({ start, end }, paging, rowOf), 'id')
  await list('descending', store.readRange({ start: end, end: start, descending: true }, paging, rowOf))
  await list('feed', store.readChanges({ since: 0 }, paging, rowOf), 'seq')
  await list('newer', store.readChanges({ since: 12 }, paging, rowOf), 'seq')
  await list('older', store.readChanges({ since: 3, before: 16, descending: true }, paging, rowOf))
  await list('forked', store.readForked(0, paging, rowOf))
  await unlessDamaged(async () => {
    const { rows } = await store.readLocalRange({}, ALL)
    for (const local of rows) enter(`local documents: ${local.id}`, local)
  })
  for (const id of IDS) {
    await list(
      id,
      store
        .readDocs([id], (doc) => (doc === null ? [] : [rowOf(doc)]), readSet)
        .then(([rows = []]) => ({ rows })),
    )
    await unlessDamaged(async () => {
      const [versions] = await store.history.readDocs([id], (doc) => doc?.versions() ?? [])
      // Whether a version was a tombstone is compared when its body is read.
      for (const { rev, supersededAt } of versions ?? [])
        enter(`versions of ${id}: ${rev}`, supersededAt === null)
    })
  }
  return found
}

interface DamagedFile {
  readonly path: string
  /** Opens it; null if it is refused. */
  open(): Promise<VersionedStore | null>
}

/**
 * Flips bits of the pages of trees.
 * @param see called for each, with what was read before
 */
async function flipBits(
  t: Test,
  trees: readonly string[],
  bitsOf: (file: Buffer, page: number) => readonly number[],
  see: (file: DamagedFile, bit: number, truth: Map<string, string>) => Promise<void>,
): Promise<void> {
  t.comment(`seed ${SEED}`)
  const dataDir = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const open = async () => (await engine.openDatabase('notes')) as VersionedStore
  const first = await open()
  await fill(first)
  const truth = await readAll(first)
  await first.close()
  const path = join(dataDir, 'databases', 'notes.sqlite')
  const file = readFileSync(path)
  const db = new Sqlite(path, { readonly: true })
  const roots = db.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').pluck()
  const pages = trees.map((name) => roots.get(name) as number)
  db.close()
  const bits = pages.flatMap((page) => bitsOf(file, page))
  const random = randomNumbers(SEED)
  const step = Math.max(1, bits.length / FLIPS)
  for (let from = 0; from < bits.length; from += step) {
    const bit = bits[Math.min(bits.length - 1, Math.floor(from) + random(Math.ceil(step)))] as number
    const openDamaged = () =>
      open().catch((error) => {
        if (!(error instanceof CouchError)) throw error
        return null
      })
    writeFileSync(path, flipped(file, bit))
    await see({ path, open: openDamaged }, bit, truth)
  }
  t.comment(`${Math.round(bits.length / step)} of ${bits.length} bits`)
}

t.test('a flipped bit makes no list say what was not written', async (t) => {
  const wrong: object[] = []
  await flipBits(
    t,
    TREES,
    (file, page) => usedBits(file, page).all,
    async ({ open }, bit, truth) => {
      const store = await open()
      if (store === null) return
      for (const [name, value] of await readAll(store))
        if (truth.get(name) !== value) wrong.push({ bit, name, value, written: truth.get(name) })
      await store.close()
    },
  )
  t.same(wrong, [])
})

/** Documents that are changed, deleted, and purged; the others are to stay as they are. */
const WRITTEN = ['doc-01', 'doc-04', 'doc-08', 'doc-09']

async function changeSome(store: VersionedStore): Promise<void> {
  const [changed = '', forked = '', deleted = '', purged = ''] = WRITTEN
  const writes = [
    () => store.updateDocs([put(changed, '{"n":70}')]),
    () => store.updateDocs([put(forked, '{"n":71}')]),
    () => store.updateDocs([remove(deleted)]),
    () => store.purgeDocs([forget(purged)]),
  ]
  for (const make of writes) {
    const results = await make().catch((error: unknown) => [error])
    for (const result of results as unknown[])
      if (result instanceof Error && !(result instanceof CouchError)) throw result
  }
}

t.test(
  'a flipped bit of a number in the index of revisions leads no write to another document',
  async (t) => {
    const wrong: object[] = []
    await flipBits(t, ['sqlite_autoindex_revision_1'], rowNumberBits, async ({ open, path }, bit) => {
      const before = otherRows(path)
      const store = await open()
      if (store === null) return
      await changeSome(store)
      await store.close()
      const after = otherRows(path)
      if (after.join() !== before.join())
        wrong.push({ bit, before: before.filter((row) => !after.includes(row)) })
    })
    t.same(wrong, [])
  },
)

/** The bits of the numbers of rows in the entries of the index: each is one byte behind the revision's name. */
function rowNumberBits(file: Buffer, page: number): number[] {
  const size = file.readUInt16BE(16)
  const entries = file.toString('latin1', (page - 1) * size, page * size).matchAll(/\d-[0-9a-f]{32}/g)
  return [...entries].flatMap(({ index, 0: { length } }) =>
    [...Array(8).keys()].map((bit) => ((page - 1) * size + index + length) * 8 + bit),
  )
}

/** The rows of the revisions of other documents, read without an index. */
function otherRows(path: string): string[] {
  const db = new Sqlite(path, { readonly: true })
  const written = WRITTEN.map((id) => IDS.indexOf(id) + 1)
  const rows = db.prepare('SELECT * FROM revision NOT INDEXED ORDER BY num').all() as { doc: number }[]
  db.close()
  return rows.filter(({ doc }) => !written.includes(doc)).map((row) => JSON.stringify(row))
}
