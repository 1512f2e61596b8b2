/** Two updaters of one index, as two nodes have them: each goes on from where the other is. */
import { copyFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import fc from 'fast-check'
import t from 'tap'
import { IndexUpdater, type RowSource } from '../../src/query/index-updater.ts'
import { encodeKey } from '../../src/query/sort-keys.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import { type IndexStore, idOfRow } from '../../src/storage/index-store.ts'
import { FileErrors, PageCaches } from '../../src/storage/sqlite/database-access.ts'
import { SqliteIndexStores } from '../../src/storage/sqlite/index-stores.ts'
import { sqliteEngine } from '../../src/storage/sqlite/sqlite-engine.ts'
import { openDatabase } from '../documents/helpers.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { put, remove } from '../storage/conformance/edits.ts'
import { forget } from '../storage/conformance/purge.ts'

/** Emits the member `n`; the rows of some documents take longer, so that updaters overtake each other. */
const source: RowSource = {
  indexes: 1,
  includeDesign: false,
  localSeq: false,
  rowsOf: async (docs) => {
    await sleep(docs.length % 3)
    return docs.map(({ text }) => {
      const { n } = JSON.parse(text)
      return [[{ key: encodeKey(n, 'json'), keyText: String(n), valueText: 'null' }]]
    })
  },
  skip: () => {},
}

async function openIndex(t: Parameters<typeof temporaryFolder>[0]) {
  const folder = join(await temporaryFolder(t), 'indexes')
  const stores = new SqliteIndexStores({ folder, caches: new PageCaches(), errors: new FileErrors() })
  t.teardown(() => stores.close())
  return stores.open('abc', 1)
}

async function rowsOf(store: IndexStore): Promise<string[]> {
  const found: string[] = []
  for (let from: Uint8Array | undefined; ; ) {
    const { rows, more } = await store.read(0, { ...(from !== undefined && { from }) }, 10_000)
    found.push(...rows.map((row) => `${idOfRow(row)} ${row.keyText}`))
    const last = rows.at(-1)
    // A turn ends early on a busy machine.
    if (!more || last === undefined) return found
    from = Buffer.concat([last.rowKey, Buffer.of(0)])
  }
}

t.test('two updaters of one index at once, while documents change', async (t) => {
  const { store, put, bulk } = await openDatabase()
  const index = await openIndex(t)
  const [a, b] = [new IndexUpdater(store, index, source), new IndexUpdater(store, index, source)]
  const revs = new Map<string, string>()
  for (let round = 0; round < 25; round++) {
    const ids = Array.from({ length: 5 }, (_, n) => `d${(round * 3 + n * 7) % 40}`)
    for (const id of new Set(ids)) {
      const rev = revs.get(id)
      revs.set(id, await put(id, { n: round, ...(rev !== undefined && { _rev: rev }) }))
    }
    const more = bulk({ docs: [{ _id: `more${round}`, n: round }] })
    await Promise.all([a.update(), b.update(), more])
    const { updateSeq } = await store.info()
    await Promise.all([b.update(), a.update()])
    t.equal((await index.status()).position?.seq, updateSeq)
  }
  const fresh = await openIndex(t)
  await new IndexUpdater(store, fresh, source).update()
  t.strictSame(await rowsOf(index), await rowsOf(fresh))
})

t.test(
  'an updater waits while another node is in a long update, and goes on if that one stops',
  async (t) => {
    const { store, put } = await openDatabase()
    await put('a', { n: 1 })
    const index = await openIndex(t)
    let isBusy = true
    let looks = 0
    const shared: IndexStore = Object.create(index, {
      status: {
        value: async () => {
          looks += 1
          return { ...(await index.status()), isUpdatedElsewhere: isBusy }
        },
      },
      update: { value: index.update.bind(index) },
    })
    const updater = new IndexUpdater(store, shared, source)
    const updated = updater.update()
    while (looks < 3) await sleep(1)
    t.same(updater.progress, { done: 0, total: 1 })
    t.equal((await index.status()).position, null)
    isBusy = false
    await updated
    t.strictSame(await rowsOf(index), ['a 1'])
  },
)

t.test('rows are not removed when another node has included more than this one knew of', async (t) => {
  const { store, put } = await openDatabase()
  await put('a', { n: 1 })
  const index = await openIndex(t)
  const other = new IndexUpdater(store, index, source)
  await other.update()
  const { version } = await index.status()
  // The other node writes and updates between this one's look at the index and at the database, and before them.
  const behind = Object.create(index, {
    status: {
      value: async () => {
        const status = await index.status()
        if (status.version === version) {
          await put('b', { n: 2 })
          await other.update()
        }
        return status
      },
    },
    update: { value: index.update.bind(index) },
    clear: { value: () => t.fail('it was cleared') },
  }) as IndexStore
  await new IndexUpdater(store, behind, source).update()
  t.strictSame(await rowsOf(index), ['a 1', 'b 2'])
})

const PAGE = 3
const ID = fc.nat(9).map((n) => `d${n}`)
const ACT = fc.oneof(
  fc.record({ kind: fc.constant('put' as const), id: ID }),
  fc.record({ kind: fc.constant('remove' as const), id: ID }),
  fc.record({ kind: fc.constant('update' as const), pages: fc.nat(4) }),
  fc.record({ kind: fc.constantFrom('save' as const, 'putBack' as const) }),
)

/** The first page has the rows of a newer state: the index lacks what it moved to the end of the feed. */
const PUT_BACK_BETWEEN_PAGES = [
  { kind: 'put', id: 'd0' },
  { kind: 'update', pages: 1 },
  { kind: 'putBack' },
] as const

/** Updates an index in small pages, of which only so many come in. */
async function updatePartly(store: VersionedStore, index: IndexStore, pages = Number.POSITIVE_INFINITY) {
  const paged = Object.create(store, {
    readChanges: {
      value: (...[range, paging, read]: Parameters<VersionedStore['readChanges']>) =>
        store.readChanges(range, { ...paging, limit: PAGE }, read),
    },
    progress: { value: () => store.progress() },
    readDocs: { value: store.readDocs.bind(store) },
    readPurges: { value: () => store.readPurges() },
  }) as VersionedStore
  let left = pages
  const rows: RowSource = {
    ...source,
    rowsOf: (docs) => {
      left -= 1
      if (left < 0) throw new Error('the server was killed')
      return source.rowsOf(docs)
    },
  }
  const updating = new IndexUpdater(paged, index, rows).update()
  if (pages === Number.POSITIVE_INFINITY) await updating
  else await updating.catch(() => undefined)
}

t.test('an index has the rows of its database, also if an older file of it was put back', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.array(ACT, { minLength: 3, maxLength: 12 }), async (acts) => {
      const dataDir = await temporaryFolder(t)
      const engine = sqliteEngine({ dataDir })
      const path = join(dataDir, 'databases', 'notes.sqlite')
      await (await engine.openCatalog()).create('notes')
      let store = await engine.openDatabase('notes')
      const index = await openIndex(t)
      const reopened = async (from: string, to: string) => {
        await store.close()
        await copyFile(from, to)
        store = await engine.openDatabase('notes')
      }
      const ids = Array.from({ length: 10 }, (_, n) => `d${n}`)
      await store.updateDocs(ids.map((id) => put(id, JSON.stringify({ n: -1 }))))
      await reopened(path, `${path}.old`)
      for (const [n, act] of acts.entries()) {
        if (act.kind === 'put') await store.updateDocs([put(act.id, JSON.stringify({ n }))])
        else if (act.kind === 'remove') await store.updateDocs([remove(act.id)])
        else if (act.kind === 'update') await updatePartly(store, index, act.pages)
        else if (act.kind === 'save') await reopened(path, `${path}.old`)
        else await reopened(`${path}.old`, path)
      }
      await updatePartly(store, index)
      const fresh = await openIndex(t)
      await updatePartly(store, fresh)
      const [found, wanted] = [await rowsOf(index), await rowsOf(fresh)]
      await engine.close()
      if (found.join() !== wanted.join()) throw new Error(`found ${found.join()}, wanted ${wanted.join()}`)
    }),
    { numRuns: 60, examples: [[[...PUT_BACK_BETWEEN_PAGES]]] },
  )
})

t.test('a purge after a restart empties no index', async (t) => {
  const dataDir = await temporaryFolder(t)
  const opened = async () => {
    const engine = sqliteEngine({ dataDir })
    const catalog = await engine.openCatalog()
    if ((await catalog.find('notes')) === null) await catalog.create('notes')
    return { engine, store: await engine.openDatabase('notes') }
  }
  const before = await opened()
  await before.store.updateDocs(['a', 'b'].map((id) => put(id, '{"n":1}')))
  const index = await openIndex(t)
  await new IndexUpdater(before.store, index, source).update()
  await before.engine.close()
  const { engine, store } = await opened()
  await store.updateDocs([put('c', '{"n":1}')])
  await new IndexUpdater(store, index, source).update()
  await engine.close()
  const after = await opened()
  await after.store.updateDocs([put('d', '{"n":1}')])
  await after.store.purgeDocs([forget('a')])
  const kept = Object.create(index, {
    status: { value: index.status.bind(index) },
    update: { value: index.update.bind(index) },
    clear: { value: () => Promise.reject(new Error('it was emptied')) },
  }) as IndexStore
  await new IndexUpdater(after.store, kept, source).update()
  t.strictSame(await rowsOf(index), ['b 1', 'c 1', 'd 1'])
  await after.engine.close()
})
