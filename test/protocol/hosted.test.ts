/** Hosted mode of a listening server, on a data folder from single mode; docs/hosted.md. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { storedRows } from '../helpers/stored-rows.ts'
import { until } from '../helpers/until.ts'
import { type Call, connect } from '../http/client.ts'
import { checkRead, checkTable, checkTaken, fill, type HostedServer } from '../http/hosted-checks.ts'
import { device, liveSync, remote } from './devices.ts'

const AUTH = 'root:secret'

/** A data folder with an admin whose password hash is cheap. */
async function folderWithAdmin(t: Test): Promise<string> {
  const dataDir = await temporaryFolder(t)
  writeFileSync(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n[admins]\nroot = secret\n')
  return dataDir
}

function asAdmin(t: Test, server: { readonly url: string }): Call {
  const call = connect(t, server)
  return (method, path, ask) => call(method, path, { auth: AUTH, ...ask })
}

/** A server in hosted mode, on the data of a server in single mode. */
async function startHosted(
  t: Test,
  logFile?: string,
): Promise<HostedServer & { dataDir: string; url: string }> {
  const dataDir = await folderWithAdmin(t)
  const before = await startTestServer(t, { dataDir })
  const stored = []
  for (const db of ['db', 'control', 'empty']) {
    await before.request('PUT', `/${db}`, { auth: AUTH })
    if (db === 'empty') continue
    stored.push(
      await fill(async (id, doc) => {
        const { json } = await before.request('PUT', `/${db}/${id}`, { auth: AUTH, body: doc })
        return json.rev as string
      }),
    )
  }
  await before.close()
  const server = await startTestServer(t, {
    dataDir,
    hosted: true,
    ...(logFile !== undefined && { logFile, logLevel: 'info' }),
  })
  const [first] = stored
  if (first === undefined) throw new Error('nothing is stored')
  return { call: asAdmin(t, server), host: new URL(server.url).host, stored: first, dataDir, url: server.url }
}

t.test('refused documents of any call leave nothing in the files', async (t) => {
  const server = await startHosted(t)
  await checkTable(t, server, (db) => [
    storedRows(server.dataDir, db),
    readdirSync(join(server.dataDir, 'tmp')),
  ])
  await checkTaken(t, server)
  await checkRead(t, server)
})

t.test('views and filter functions are refused before the stored one is read', async (t) => {
  const { call } = await startHosted(t)
  const reason = /runs no functions of design documents/
  const refused = [
    await call('GET', '/db/_design/old/_view/v'),
    await call('POST', '/db/_design/old/_view/v', { json: { keys: ['plain'] } }),
    await call('GET', '/db/_design/none/_view/v?update=false'),
    await call('POST', '/db/_design/old/_view/v/queries', { json: { queries: [] } }),
    await call('GET', '/db/_design/old/_info'),
    await call('GET', '/db/_changes?filter=old/all'),
    await call('GET', '/db/_changes?filter=_view&view=old/v'),
    await call('GET', '/db/_changes?filter=old/all&feed=continuous'),
  ]
  for (const answer of refused) t.match(answer, { status: 403, json: { error: 'forbidden', reason } })
  const selected = await call('POST', '/db/_changes?filter=_selector', { json: { selector: { n: 0 } } })
  t.equal((selected.json as { results: [] }).results.length, 2)
})

t.test('the log names the databases that have content from single mode', async (t) => {
  const file = join(await temporaryFolder(t), 'settee.log')
  await startHosted(t, file)
  const lines = () =>
    readFileSync(file, 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as { msg: string; database?: string })
  const last = () => lines().find(({ msg }) => /searched all databases/.test(msg))
  await until('all databases were looked through', () => last() !== undefined)
  const told = lines().filter(({ database }) => database !== undefined)
  t.match(
    told.map(({ database }) => database),
    ['control', 'db'],
  )
  t.match(told[0], { designDocs: 1, attachments: 1, msg: /holds 1 design documents and 1 attachments/ })
  t.match(last(), { databases: 4, holding: 2 })
})

t.test('a changed mode takes effect at the next start', async (t) => {
  const { call } = await startHosted(t)
  t.match(await call('PUT', '/_node/_local/_config/settee/mode', { json: 'single' }), {
    status: 200,
    json: 'hosted',
  })
  t.equal((await call('PUT', '/db/_design/x', { json: {} })).status, 403)
  t.match(await call('DELETE', '/_node/_local/_config/admins/root'), { status: 403 })
  t.equal((await call('GET', '/_all_dbs')).status, 200)
})

t.test('without an admin, hosted mode does not start', async (t) => {
  await t.rejects(startTestServer(t, { hosted: true }), {
    name: 'StartError',
    message:
      /^Hosted mode needs a server admin: set COUCHDB_USER and COUCHDB_PASSWORD, or .*local\.ini.*again\.$/,
  })
})

t.test('PouchDB: notes arrive, and refused documents are denied with the reason', async (t) => {
  const { url } = await startHosted(t)
  const address = `${url.replace('//', `//${AUTH}@`)}/empty`
  const phone = await device(t)
  const a = { data: Buffer.from('a picture').toString('base64'), content_type: 'image/png' }
  await phone.bulkDocs([
    ...Array.from({ length: 20 }, (_, n) => ({ _id: `note-${n}`, n })),
    { _id: 'pictured', _attachments: { a } },
    { _id: '_design/rules', validate_doc_update: 'function () { throw { forbidden: "no" } }' },
    { _id: '_design/views', views: { v: { map: 'function (doc) { emit(doc._id) }' } } },
  ])
  await phone.remove(await phone.get('_design/views'))
  const denied: { id: string; error: string; reason: string }[] = []
  const push = phone.replicate.to(remote(address).db, { batch_size: 7 })
  push.on('denied', (row: (typeof denied)[number]) => denied.push(row))
  t.match(await push, { ok: true, docs_read: 23, docs_written: 20, doc_write_failures: 3 })
  t.match(
    [...denied].sort((x, y) => (x.id < y.id ? -1 : 1)),
    [
      { id: '_design/rules', error: 'forbidden', reason: /accept design documents/ },
      { id: '_design/views', error: 'forbidden', reason: /accept design documents/ },
      { id: 'pictured', error: 'forbidden', reason: /accept attachments/ },
    ],
  )
  t.match(await phone.replicate.to(remote(address).db), { docs_read: 0 }, 'the checkpoint is behind them')
  const desk = await device(t)
  const [onPhone, onDesk] = [phone, desk].map((db) => liveSync(t, db, remote(address).db))
  await phone.put({ _id: 'another', _attachments: { a } })
  await phone.put({ _id: 'later' })
  await until('what came later has gone through', async () =>
    (await desk.allDocs({ keys: ['later', 'note-19'] })).rows.every((row) => row.value),
  )
  t.equal((await desk.allDocs()).rows.length, 21)
  t.equal(onPhone?.denied.length, 1)
  t.same([...(onPhone?.errors ?? []), ...(onDesk?.errors ?? [])], [])
})
