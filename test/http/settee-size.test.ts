/** `GET /_settee/databases/{db}/size`, and `sizes` of the database information. */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { startHostedServer } from '../hosted/hosted-server.ts'
import { connect } from './client.ts'

interface Size {
  readonly database: string
  readonly file: number
  readonly parts: Readonly<Record<string, { readonly count?: number; readonly bytes: number }>>
  readonly views: { readonly bytes: number }
}

const PARTS = ['live', 'tombstones', 'attachments', 'local', 'old', 'kept', 'indexes', 'free', 'log']

t.test('what the bytes are', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  const size = async () => (await call('GET', '/_settee/databases/db/size')).json as unknown as Size
  await call('PUT', '/db')
  const first = (await call('PUT', '/db/a', { json: { n: 1 } })).json as { rev: string }
  await call('PUT', '/db/a', { json: { n: 22, _rev: first.rev } })
  const gone = (await call('PUT', '/db/b', { json: {} })).json as { rev: string }
  await call('DELETE', `/db/b?rev=${gone.rev}`)
  await call('PUT', '/db/c/x', { body: 'content', headers: { 'content-type': 'text/plain' } })
  await call('PUT', '/db/_local/x', { json: {} })
  const answer = await size()
  t.same(Object.keys(answer.parts).sort(), [...PARTS].sort())
  t.match(answer, {
    database: 'db',
    parts: {
      live: { count: 2, bytes: 10 },
      old: { count: 2, bytes: 9 },
      kept: { count: 0, bytes: 0 },
      tombstones: { count: 1, bytes: 2 },
      attachments: { count: 1, bytes: 7 },
      local: { count: 1, bytes: 2 },
    },
    views: { bytes: 0 },
  })
  const sum = Object.values(answer.parts).reduce((total, { bytes }) => total + bytes, 0)
  t.equal(sum, answer.file)
  const file = join(server.dataDir, 'databases', 'db.sqlite')
  t.equal(answer.file, statSync(file).size + statSync(`${file}-wal`).size)
  t.match((await call('GET', '/db')).json, { sizes: { file: answer.file } })

  await call('PUT', '/db/_design/d', {
    json: { views: { v: { map: 'function (doc) { emit(doc.n, "x") }' } } },
  })
  await call('GET', '/db/_design/d/_view/v')
  t.ok((await size()).views.bytes > 0)
  t.match(await call('GET', '/_settee/databases/none/size'), { status: 404, json: { reason: /not exist/ } })
  t.equal((await call('HEAD', '/_settee/databases/db/size')).status, 200)
})

t.test('an owner sees it though the security object names him nowhere', async (t) => {
  const call = connect(t, await startHostedServer(t))
  const ANNA = { auth: 'anna:anna' }
  t.equal((await call('PUT', '/notes', ANNA)).status, 201)
  const nobody = { admins: { names: ['root'] }, members: { names: ['root'] } }
  t.equal((await call('PUT', '/notes/_security', { auth: 'root:root', json: nobody })).status, 200)
  t.equal((await call('GET', '/notes', ANNA)).status, 403)
  t.equal((await call('GET', '/_settee/databases/notes/size', ANNA)).status, 200)
  t.equal((await call('GET', '/_settee/databases/notes/size', { auth: 'bert:bert' })).status, 404)
  t.equal((await call('GET', '/_settee/databases/notes/size')).status, 401)
})
