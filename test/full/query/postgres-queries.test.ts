/** Views and Mango on two nodes over one PostgreSQL: the same answers as from a server on SQLite. */
import nano from 'nano'
import PouchDB from 'pouchdb'
import find from 'pouchdb-find'
import t, { type Test } from 'tap'
import { startServer } from '../../../src/server.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { call } from '../../protocol/call.ts'

PouchDB.plugin(find)
t.setTimeout(120_000)

/** @param store the address of a PostgreSQL; by default SQLite */
async function serve(t: Test, store?: string): Promise<{ readonly url: string }> {
  const running = await startServer({
    dataDir: await temporaryFolder(t),
    env: {},
    flags: { port: 0, bind: '127.0.0.1', logLevel: 'none', ...(store !== undefined && { store }) },
    threadEntry: new URL('../../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../../helpers/sandbox-thread.mjs', import.meta.url),
    threads: 1,
  })
  t.teardown(() => running.close())
  return { url: running.url.replace(/\/$/, '') }
}

const DESIGN = {
  views: {
    keys: { map: 'function (doc) { if (doc.n !== undefined) emit([doc.group, doc.n], doc.text) }' },
    many: { map: 'function (doc) { for (var i = 0; i < 5; i++) emit(doc.n % 7, i) }' },
    sums: { map: 'function (doc) { emit([doc.group, doc.n % 10], doc.n) }', reduce: '_sum' },
    stats: { map: 'function (doc) { emit(doc.group, doc.n) }', reduce: '_stats' },
    own: {
      map: 'function (doc) { emit(doc.group, 1) }',
      reduce: 'function (keys, values) { return sum(values) }',
    },
  },
}

const VIEWS = [
  'keys',
  'keys?limit=3&skip=1700',
  'keys?descending=true&limit=7&skip=30',
  'keys?startkey=[2]&endkey=[2,{}]&include_docs=true&limit=150',
  'keys?keys=[[1,1],[9,9],[2,2]]',
  'keys?keys=[[1,1],[9,9],[2,2]]&descending=true&skip=1',
  'many?limit=250',
  'many?key=3&descending=true',
  'many?startkey=2&endkey=4&inclusive_end=false&limit=120&skip=100',
  'sums',
  'sums?group=true',
  'sums?group_level=1',
  'sums?group_level=1&descending=true&limit=2&skip=1',
  'sums?startkey=[1,3]&endkey=[3,8]',
  'sums?startkey=[9]',
  'stats?group=true',
  'own?group=true',
  'own',
]

const SELECTORS = [
  { selector: { group: 3, n: { $gt: 500 } }, limit: 40, sort: [{ group: 'asc' }, { n: 'asc' }] },
  {
    selector: { group: { $gte: 2 } },
    sort: [{ group: 'desc' }, { n: 'desc' }],
    limit: 130,
    fields: ['_id', 'n'],
  },
  { selector: { group: 1, n: { $in: [21, 36, 41] } }, use_index: 'by-group' },
]

t.test('the same answers as on SQLite, whichever node is asked, while documents change', async (t) => {
  const postgres = await startPostgres(t)
  const store = await postgres.createDatabase()
  const [one, two, plain] = [await serve(t, store), await serve(t, store), await serve(t)] as const
  for (const { url } of [one, plain]) {
    t.match(await call({ url }, 'PUT', '/notes'), { status: 201 })
    t.match(await call({ url }, 'PUT', '/notes/_design/app', { body: DESIGN }), { status: 201 })
    const body = { index: { fields: ['group', 'n'] }, ddoc: 'by-group', name: 'group' }
    t.match(await call({ url }, 'POST', '/notes/_index', { body }), { status: 200 })
  }
  const compare = async (path: string, body?: object) => {
    const ask = async (server: { readonly url: string }) => {
      const { status, text } = await call(server, body === undefined ? 'GET' : 'POST', path, { body })
      // The bookmark of SQLite's answer is the same, and sequence tokens are not asked for.
      return { status, text }
    }
    const [first, second, expected] = await Promise.all([ask(one), ask(two), ask(plain)])
    t.strictSame(first, expected, path)
    t.strictSame(second, expected, path)
  }
  const bulk = async (docs: readonly object[]) => {
    for (const server of [two, plain])
      t.match(await call(server, 'POST', '/notes/_bulk_docs', { body: { docs, new_edits: false } }), {
        status: 201,
      })
  }
  const revision = (n: number, round: number) => `${round}-${n.toString(16).padStart(32, '0')}`
  const doc = (n: number, round: number) => ({
    _id: `d${n}`,
    _rev: revision(n, round),
    ...(round === 3 && n % 4 === 0 ? { _deleted: true } : { n: n + round, group: n % 5, text: `text ${n}` }),
  })
  for (const round of [1, 3]) {
    const docs = Array.from({ length: 2000 }, (_, n) => doc(n, round)).filter(
      (_, n) => round === 1 || n % round === 0,
    )
    await bulk(docs)
    // Both nodes update the same indexes at once.
    for (const view of VIEWS) await compare(`/notes/_design/app/_view/${view}`)
    for (const request of SELECTORS) await compare('/notes/_find', request)
  }
  const [rows] = await postgres.query(
    'SELECT count(*)::int AS stores, sum(rows[1])::int AS rows FROM settee.index_store',
    [],
    new URL(store).pathname.slice(1),
  )
  t.match(rows, { stores: 2, rows: Number })
  const db = new PouchDB(`${two.url}/notes`)
  const { rows: grouped } = await nano(two.url).use('notes').view('app', 'stats', { group: true })
  t.equal(grouped.length, 5)
  const { docs } = await db.find({ selector: { group: 2, n: { $gt: 100 } }, limit: 5 })
  t.equal(docs.length, 5)
  const report = await call(one, 'GET', '/_settee/databases/notes/indexes')
  t.match(report.json, { bytes: Number, indexes: [{ ddoc: '_design/app', built: true }, { rows: Number }] })
  t.match(await call(one, 'GET', '/notes/_design/app/_info'), { status: 200 })
  for (const path of ['/notes/_compact/app', '/notes/_view_cleanup'])
    t.match(await call(two, 'POST', path, { body: {} }), { status: 202 })
  await compare('/notes/_design/app/_view/sums?group=true')
})
