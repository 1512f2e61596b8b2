/** Data folders of every earlier schema, served by this version; and its errors for newer ones. */
import { copyFile, mkdir, readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { SERVER_MIGRATIONS } from '../../../src/storage/sqlite/sqlite-catalog.ts'
import { NEWEST, schemaOfFile, writeOldFile } from '../../helpers/old-files.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

const OLDER = Array.from({ length: NEWEST - 1 }, (_, n) => n + 1)
const ID = (n: number) => String(n).repeat(32)

function databaseFile(dataDir: string, name: string): string {
  return join(dataDir, 'databases', `${name}.sqlite`)
}

/** Documents of every kind, written by ordinary calls. */
async function fill({ request }: TestServer, db: string): Promise<void> {
  await request('PUT', `/${db}`)
  const edits = (round: number) =>
    Array.from({ length: 15 }, (_, n) => ({
      _id: `doc${n}`,
      round,
      ...(round > 1 && { _revisions: { start: 2, ids: [ID(2), ID(1)] } }),
      _rev: `${round}-${ID(round)}`,
      ...(n === 7 && round === 2 && { _deleted: true }),
      big: '9007199254740993',
    }))
  for (const round of [1, 2]) {
    await request('POST', `/${db}/_bulk_docs`, { body: { new_edits: false, docs: edits(round) } })
  }
  const rival = {
    _id: 'doc3',
    _rev: `2-${ID(9)}`,
    _revisions: { start: 2, ids: [ID(9), ID(1)] },
    rival: true,
  }
  await request('POST', `/${db}/_bulk_docs`, { body: { new_edits: false, docs: [rival] } })
  const files = {
    'a.txt': { content_type: 'text/plain', data: Buffer.from('small').toString('base64') },
    'b.bin': { content_type: 'application/x-b', data: Buffer.alloc(700_000, 'b').toString('base64') },
  }
  await request('PUT', `/${db}/attached`, { body: { _attachments: files } })
  await request('PUT', `/${db}/_design/all`, {
    body: { views: { all: { map: 'function (doc) { emit(doc.round) }' } } },
  })
  await request('PUT', `/${db}/_local/checkpoint`, { body: { session_id: 's', history: [1, 2] } })
  await request('PUT', `/${db}/_security`, {
    body: { admins: { names: ['anna'], roles: [] }, members: { names: [], roles: [] } },
  })
  await request('PUT', `/${db}/_revs_limit`, { body: '500' })
  await request('POST', `/${db}/_purge`, { body: { doc9: [`2-${ID(2)}`] } })
}

/** Everything that can be read from a database. */
async function everythingIn({ request }: TestServer, db: string): Promise<Record<string, string>> {
  const { json: list } = await request('GET', `/${db}/_changes?style=all_docs`)
  const ids = (list.results as { id: string }[]).map(({ id }) => encodeURIComponent(id))
  const paths = [
    '/_all_docs?include_docs=true&conflicts=true&update_seq=true',
    '/_changes?style=all_docs&include_docs=true&attachments=true',
    '/_changes?since=5&limit=3',
    '/_local_docs?include_docs=true',
    '/_local/checkpoint',
    '/_security',
    '/_revs_limit',
    '/_purged_infos',
    '/_design/all/_view/all?reduce=false',
    '/attached/b.bin',
    `/doc1?rev=1-${ID(1)}`,
    ...ids.map((id) => `/${id}?open_revs=all&revs=true&attachments=true`),
    ...ids.map((id) => `/${id}?revs_info=true&deleted_conflicts=true&conflicts=true`),
  ]
  const told: Record<string, string> = {}
  for (const path of paths) {
    const { status, text } = await request('GET', `/${db}${path}`, {
      headers: { accept: 'application/json' },
    })
    told[path] = `${status} ${text}`
  }
  const { doc_count, doc_del_count, update_seq, purge_seq, sizes } = (await request('GET', `/${db}`)).json
  told.info = JSON.stringify({ doc_count, doc_del_count, update_seq, purge_seq, external: sizes.external })
  return told
}

t.test('databases of every earlier schema keep their content and accept writes', async (t) => {
  const first = await startTestServer(t)
  await fill(first, 'notes')
  const held = await everythingIn(first, 'notes')
  t.equal(held[`/doc1?rev=1-${ID(1)}`]?.slice(0, 3), '200', 'a superseded body among it')
  await first.close()
  const dataDir = await temporaryFolder(t)
  await mkdir(join(dataDir, 'databases'))
  for (const schema of OLDER) {
    writeOldFile(databaseFile(dataDir, `v${schema}`), databaseFile(first.dataDir, 'notes'), schema)
  }
  const server = await startTestServer(t, { dataDir })
  // Concurrently, as after a start when all devices reconnect.
  const all = await Promise.all(OLDER.map((schema) => everythingIn(server, `v${schema}`)))
  for (const [at, told] of all.entries()) t.same(told, held, `schema ${OLDER[at]}`)
  const writtenOn: Record<string, string>[] = []
  for (const schema of OLDER) {
    const db = `v${schema}`
    const { json } = await server.request('GET', `/${db}/attached`)
    t.equal((await server.request('PUT', `/${db}/attached`, { body: { ...json, more: 1 } })).status, 201)
    t.equal((await server.request('DELETE', `/${db}/doc3?rev=2-${ID(9)}`)).status, 200)
    t.equal((await server.request('PUT', `/${db}/new`, { body: { a: 1 } })).status, 201)
    t.equal((await server.request('POST', `/${db}/_compact`, { body: {} })).status, 202)
    writtenOn.push(await everythingIn(server, db))
  }
  await server.close()
  const again = await startTestServer(t, { dataDir })
  for (const [at, schema] of OLDER.entries()) {
    const told = await everythingIn(again, `v${schema}`)
    // A compaction may have removed old bodies before or after the server was stopped.
    for (const path of Object.keys(told).filter((path) => /revs_info|rev=1/.test(path))) {
      delete told[path]
      delete writtenOn[at]?.[path]
    }
    t.same(told, writtenOn[at], `schema ${schema}, written to and opened again`)
    t.equal(schemaOfFile(join(dataDir, 'before-upgrade', `databases-${schema}`, `v${schema}.sqlite`)), schema)
  }
})

t.test('server.sqlite of every earlier schema', async (t) => {
  const first = await startTestServer(t)
  for (const db of ['a', 'b']) await first.request('PUT', `/${db}`)
  const { uuid } = (await first.request('GET', '/')).json
  await first.close()
  for (const schema of SERVER_MIGRATIONS.keys()) {
    if (schema === 0) continue
    const dataDir = await temporaryFolder(t)
    await mkdir(join(dataDir, 'databases'))
    for (const file of await readdir(join(first.dataDir, 'databases'))) {
      await copyFile(join(first.dataDir, 'databases', file), join(dataDir, 'databases', file))
    }
    const from = join(first.dataDir, 'server.sqlite')
    const path = join(dataDir, 'server.sqlite')
    writeOldFile(path, from, schema, SERVER_MIGRATIONS)
    // These rows are new in the second schema.
    if (schema === 1) change(path, "DELETE FROM server WHERE key LIKE 'update%'")
    const server = await startTestServer(t, { dataDir })
    t.equal((await server.request('GET', '/')).json.uuid, uuid, `schema ${schema}`)
    t.same((await server.request('GET', '/_all_dbs')).json, ['_users', 'a', 'b'])
    await server.close()
    t.equal(schemaOfFile(join(dataDir, 'before-upgrade', `server-${schema}`, 'server.sqlite')), schema)
  }
})

t.test('files of a newer settee are not changed, and reported in one line', async (t) => {
  const server = await startTestServer(t)
  for (const db of ['newer', 'notes']) await server.request('PUT', `/${db}`)
  await server.close()
  const { dataDir } = server
  change(databaseFile(dataDir, 'newer'), `PRAGMA user_version = ${NEWEST + 1}`)
  const again = await startTestServer(t, { dataDir })
  const refusal = await again.request('GET', '/newer')
  t.equal(refusal.status, 500)
  t.match(
    refusal.json.reason,
    /^The database newer was written by a newer settee: its schema is \d+, .*docs\/upgrade\.md/,
  )
  t.equal((await again.request('GET', '/notes')).status, 200, 'others go on')
  await again.close()
  await rm(databaseFile(dataDir, 'newer'))
  change(join(dataDir, 'server.sqlite'), `PRAGMA user_version = ${SERVER_MIGRATIONS.length + 1}`)
  await t.rejects(startTestServer(t, { dataDir }), {
    name: 'StartError',
    message:
      /^\S*server\.sqlite was written by a newer settee: its schema is \d, and this one knows \d\. Start/,
  })
})

function change(path: string, sql: string): void {
  const file = new Sqlite(path)
  file.exec(sql)
  file.close()
}
