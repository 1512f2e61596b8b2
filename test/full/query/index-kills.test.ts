/**
 * What can happen to the index of a view while it is built or updated: kill -9, a design document that changes, purges,
 * the end of its database, a damaged file. Whatever happens, the next answer has exactly the rows of the documents.
 */
import { randomInt } from 'node:crypto'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'

t.setTimeout(240_000)

/** More than are built without sorting. */
const DOCS = 8000
const MAP = 'function (doc) { emit(doc.tag, doc.n); if (doc.n % 10 === 0) emit([doc.tag, doc.n], null) }'
const DESIGN = {
  views: { tags: { map: MAP, reduce: '_sum' }, all: { map: 'function (doc) { emit(doc._id) }' } },
}
const VIEW = '/notes/_design/d/_view/tags'

interface Doc {
  readonly _id: string
  readonly _rev: string
  readonly n: number
  readonly tag: string
}

async function fill(server: ServerProcess, from: number, count: number): Promise<void> {
  for (let at = from; at < from + count; at += 1000) {
    const docs = Array.from({ length: Math.min(1000, from + count - at) }, (_, i) => {
      const n = at + i
      return { _id: `doc-${(n * 7919) % 100_003}`, n, tag: `tag ${n % 37}` }
    })
    await server.ask('POST', '/notes/_bulk_docs', { docs })
  }
}

async function documents(server: ServerProcess): Promise<Doc[]> {
  const { json } = await server.ask('GET', '/notes/_all_docs?include_docs=true')
  return json.rows.map(({ doc }: { doc: Doc }) => doc).filter(({ tag }: Doc) => tag !== undefined)
}

/** Compares the view with the documents. */
async function check(
  t: Pick<typeof import('tap').t, 'equal' | 'same'>,
  server: ServerProcess,
): Promise<void> {
  const docs = await documents(server)
  const { status, json } = await server.ask('GET', `${VIEW}?reduce=false`)
  t.equal(status, 200, JSON.stringify(server.log().filter(({ level }) => level === 'error')))
  const rows: string[] = json.rows.map((row: object) => JSON.stringify(row))
  const expected = docs.flatMap(({ _id: id, n, tag }) => [
    { id, key: tag, value: n },
    ...(n % 10 === 0 ? [{ id, key: [tag, n], value: null }] : []),
  ])
  t.same(rows.sort(), expected.map((row) => JSON.stringify(row)).sort())
  t.equal(json.total_rows, expected.length)
  const sums = await server.ask('GET', `${VIEW}?group=true&endkey=[]&inclusive_end=false`)
  const total = sums.json.rows.reduce((sum: number, { value }: { value: number }) => sum + value, 0)
  t.equal(
    total,
    docs.reduce((sum, { n }) => sum + n, 0),
  )
}

async function start(t: Parameters<typeof startServerProcess>[0]): Promise<ServerProcess> {
  const server = await startServerProcess(t, { isBuilt: true })
  await server.ask('PUT', '/notes')
  await fill(server, 0, DOCS)
  await server.ask('PUT', '/notes/_design/d', DESIGN)
  return server
}

t.test(
  'kill -9 while the first rows are built, and while they are updated',
  { timeout: 120_000 },
  async (t) => {
    const server = await start(t)
    for (let round = 0; round < 5; round++) {
      server.ask('GET', `${VIEW}?limit=1`).catch(() => undefined)
      await sleep(randomInt(20, 700))
      await server.kill()
      await server.start()
    }
    await check(t, server)
    for (let round = 0; round < 4; round++) {
      await fill(server, DOCS + round * 2000, 2000)
      server.ask('GET', `${VIEW}?limit=1`).catch(() => undefined)
      await sleep(randomInt(5, 300))
      await server.kill()
      await server.start()
    }
    await check(t, server)
  },
)

t.test('other things that happen meanwhile', { timeout: 120_000 }, async (t) => {
  const server = await start(t)
  const files = async () =>
    (await readdir(join(server.dataDir, 'indexes', 'notes')).catch(() => [])).filter((file) =>
      file.endsWith('.sqlite'),
    )

  t.comment('documents that are written, deleted and purged during the build')
  const building = server.ask('GET', `${VIEW}?limit=1`)
  const docs = (await documents(server)).slice(0, 300)
  await fill(server, DOCS, 500)
  const changed = docs.slice(0, 200).map((doc, at) => ({ ...doc, tag: 'changed', _deleted: at % 2 === 0 }))
  await server.ask('POST', '/notes/_bulk_docs', { docs: changed })
  const purged = Object.fromEntries(docs.slice(200).map(({ _id, _rev }) => [_id, [_rev]]))
  t.equal((await server.ask('POST', '/notes/_purge', purged)).status, 201)
  t.equal((await building).status, 200)
  await check(t, server)

  t.comment('a file that is damaged while the server is stopped')
  await server.stop()
  const [file = ''] = await files()
  await writeFile(join(server.dataDir, 'indexes', 'notes', file), 'this is no database')
  await server.start()
  await check(t, server)

  t.comment('a design document that changes, and an index that nobody uses any more')
  const { json: design } = await server.ask('GET', '/notes/_design/d')
  const other = { ...design, views: { ...design.views, all: { map: 'function (doc) { emit(1) }' } } }
  const rebuilding = server.ask('GET', `${VIEW}?limit=1`)
  const { json: stored } = await server.ask('PUT', '/notes/_design/d', other)
  t.equal((await rebuilding).status, 200)
  await check(t, server)
  t.equal((await files()).length, 2)
  t.equal((await server.ask('POST', '/notes/_view_cleanup', {})).status, 202)
  t.equal((await files()).length, 1)
  await check(t, server)
  t.equal((await server.ask('POST', '/notes/_compact/d', {})).status, 202)
  await check(t, server)

  t.comment('a database that is deleted during a build')
  await server.ask('PUT', '/notes/_design/d', {
    ...design,
    _rev: stored.rev,
    stamp: 1,
    views: { tags: { map: `${MAP} ` } },
  })
  // An answer that has begun can only be cut off.
  const lost = server.ask('GET', `${VIEW}?limit=1&reduce=false`).then(
    ({ status }) => status,
    () => 'cut off',
  )
  await sleep(50)
  t.equal((await server.ask('DELETE', '/notes')).status, 200)
  const outcome = await lost
  t.ok([200, 404, 'cut off'].includes(outcome), `${outcome}`)
  t.same(await readdir(join(server.dataDir, 'indexes')), [])
  await server.ask('PUT', '/notes')
  await fill(server, 0, 100)
  await server.ask('PUT', '/notes/_design/d', DESIGN)
  await check(t, server)
  t.same(
    server.log().filter(({ level }) => level === 'error'),
    [],
  )
})
