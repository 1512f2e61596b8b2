/** Quotas through a listening server: what PouchDB sees of them, and how an account gets room again. */
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openConfig } from '../../src/config/config.ts'
import {
  changedOverrides,
  defaultQuota,
  type Quota,
  quotaWith,
  readQuota,
  shownQuota,
} from '../../src/hosted/quota.ts'
import { maxSizeOf, WriteTurns } from '../../src/hosted/write-turns.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { connect } from '../http/client.ts'
import { device, remote } from '../protocol/devices.ts'
import { startHostedServer } from './hosted-server.ts'

const ANNA = { auth: 'anna:anna' }
const ROOT = { auth: 'root:root' }

interface Account {
  readonly usage: { bytes: number; documents: number; indexes: number; databases: number; feeds: number }
  readonly databases: readonly { name: string; bytes: number; documents: number }[]
}

async function startWithNotes(t: Test, settings: Record<string, string> = {}) {
  const server = await startHostedServer(t, settings)
  const call = connect(t, server)
  t.equal((await call('PUT', '/notes', ANNA)).status, 201)
  const account = async () => (await call('GET', '/_settee/account', ANNA)).json as Account
  const setQuota = (quota: object) => call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota } })
  const there = (login = 'anna:anna') => remote(`${server.url.replace('://', `://${login}@`)}/notes`)
  return { ...server, call, account, setQuota, there }
}

/** Says how long a body will be, and sends none of it. */
async function announce(url: string, bytes: number): Promise<{ status: number | undefined }> {
  const headers = { 'content-type': 'application/json', 'content-length': bytes }
  const upload = request(url, { method: 'POST', ...ANNA, headers })
  upload.on('error', () => {})
  upload.flushHeaders()
  const [answer] = (await once(upload, 'response')) as [IncomingMessage]
  upload.destroy()
  return { status: answer.statusCode }
}

t.test('indexes are made by the owner alone, through _index, as many as the quota allows', async (t) => {
  const { call, account, setQuota } = await startWithNotes(t)
  const index = (name: string, caller = ANNA) =>
    call('POST', '/notes/_index', { ...caller, json: { index: { fields: [name] }, ddoc: 'd', name } })
  await call('POST', '/notes/_bulk_docs', {
    ...ANNA,
    json: {
      docs: [
        { _id: 'x', a: 1 },
        { _id: 'y', a: 2 },
      ],
    },
  })
  t.match(await index('a'), { status: 200, json: { result: 'created', id: '_design/d', name: 'a' } })
  const found = await call('POST', '/notes/_find', { ...ANNA, json: { selector: { a: { $gt: 1 } } } })
  t.strictSame(
    (found.json as { docs: { _id: string }[] }).docs.map(({ _id }) => _id),
    ['y'],
  )
  const stored = await call('GET', '/notes/_design/d', ANNA)
  const copy = { ...(stored.json as object), _id: '_design/e', _rev: undefined }
  const hosted = { status: 403, json: { reason: /does not accept design documents/ } }
  t.match(
    await call('PUT', '/notes/_design/e', { ...ANNA, json: copy }),
    hosted,
    'an index that is not made by _index',
  )
  t.match(await call('DELETE', '/notes/_design/d?rev=1-x', ANNA), hosted)

  const admins = { names: ['anna', 'bert'] }
  await call('PUT', '/notes/_security', { ...ANNA, json: { admins, members: admins } })
  const notOwner = {
    status: 403,
    json: { reason: 'Only the owner of this database may change its indexes.' },
  }
  t.match(await index('b', { auth: 'bert:bert' }), notOwner)
  t.match(await call('DELETE', '/notes/_index/d/json/a', { auth: 'bert:bert' }), notOwner)
  t.match(await call('GET', '/notes/_index', { auth: 'bert:bert' }), { status: 200, json: { total_rows: 2 } })

  t.equal((await setQuota({ indexes: 2 })).status, 200)
  t.equal((await call('PUT', '/more', ANNA)).status, 201)
  const other = { ...ANNA, json: { index: { fields: ['a'] } } }
  t.match(await call('POST', '/more/_index', other), { status: 200 })
  t.match(await index('b'), { status: 403, json: { reason: /may have 2 indexes and has 2/ } })
  await until('the index is counted', async () => (await account()).usage.indexes === 2)
  t.match(await call('DELETE', '/notes/_index/d/json/a', ANNA), { status: 200, json: { ok: true } })
  await until('the deletion is counted', async () => (await account()).usage.indexes === 1)
  t.match(await index('b'), { status: 200, json: { result: 'created' } })
})

t.test(
  'over the bytes: a push is denied document by document, deletions go on, compaction makes room',
  async (t) => {
    const { url, call, account, setQuota, there } = await startWithNotes(t)
    const phone = await device(t)
    const text = 'x'.repeat(100_000)
    await phone.bulkDocs(Array.from({ length: 10 }, (_, at) => ({ _id: `note-${at}`, text })))
    t.match(await phone.replicate.to(there().db), { docs_written: 10, doc_write_failures: 0 })
    const { usage } = await account()
    t.ok(usage.bytes > 1_000_000, `${usage.bytes} bytes`)
    t.match(usage, { documents: 10, databases: 1 })
    t.equal((await setQuota({ bytes: 600_000 })).status, 200)

    await phone.put({ _id: 'another', text: 'small' })
    await phone.put({ ...(await phone.get('note-0')), text: 'edited' })
    for (let at = 1; at < 8; at++) await phone.remove(await phone.get(`note-${at}`))
    const denied: { id: string; reason: string }[] = []
    const push = phone.replicate.to(there().db)
    push.on('denied', (row) => denied.push(row as unknown as (typeof denied)[number]))
    t.match(await push, { ok: true, docs_written: 7, doc_write_failures: 2 })
    t.same(denied.map(({ id }) => id).sort(), ['another', 'note-0'])
    t.match(denied[0]?.reason, /may store 600000 bytes and stores \d+/)
    const refused = await call('PUT', '/notes/single', { ...ANNA, body: '{}' })
    t.match(refused, { status: 403, json: { error: 'forbidden' } })
    t.match(await announce(`${url}/notes/_bulk_docs`, 70_000_000), { status: 403 }, 'unread')
    t.equal((await call('GET', '/notes/note-0', ANNA)).status, 200, 'what is there is read')
    t.equal((await call('PUT', '/notes/_local/checkpoint', { ...ANNA, body: '{}' })).status, 201)
    t.equal(
      (await call('PUT', '/notes/as-admin', { ...ROOT, body: '{}' })).status,
      201,
      'an admin has no quota',
    )

    t.equal((await call('POST', '/notes/_compact', { ...ANNA, json: {} })).status, 202)
    await until('it is compacted', async () => {
      const info = (await call('GET', '/notes', ANNA)).json as {
        compact_running: boolean
        sizes: { active: number }
      }
      return !info.compact_running && info.sizes.active < 600_000
    })
    t.equal((await call('PUT', '/notes/single', { ...ANNA, body: '{}' })).status, 201)
  },
)

t.test("the owner's quota counts, whoever writes, and in all databases together", async (t) => {
  const { call, account, setQuota } = await startWithNotes(t)
  await call('PUT', '/more', ANNA)
  await call('PUT', '/more/_security', { ...ANNA, json: { members: { names: ['anna', 'bert'] } } })
  const docs = Array.from({ length: 5 }, () => ({}))
  t.equal((await call('POST', '/notes/_bulk_docs', { ...ANNA, json: { docs } })).status, 201)
  await until('it is counted', async () => (await account()).usage.documents === 5)
  await setQuota({ documents: 7 })
  const rows = (await call('POST', '/more/_bulk_docs', { auth: 'bert:bert', json: { docs } }))
    .json as object[]
  t.match(rows.slice(0, 2), [{ ok: true }, { ok: true }])
  t.match(rows.slice(2), [{ error: 'forbidden' }, { error: 'forbidden' }, { error: 'forbidden' }])
  await until('both are counted', async () => (await account()).usage.documents === 7)
  t.match((await account()).databases, [
    { name: 'more', documents: 2 },
    { name: 'notes', documents: 5 },
  ])
  t.equal((await call('PUT', '/notes/eighth', { ...ANNA, body: '{}' })).status, 403)
  await setQuota({ documents: null, document_size: 100 })
  const body = JSON.stringify({ text: 'x'.repeat(200) })
  t.match(await call('PUT', '/notes/large', { ...ANNA, body }), {
    status: 403,
    json: { reason: /211 bytes/ },
  })
  t.equal((await call('PUT', '/notes/eighth', { ...ANNA, body: '{}' })).status, 201)
})

t.test('writes at once to several databases store no more documents than there may be', async (t) => {
  const { call, account, setQuota } = await startWithNotes(t)
  const names = ['notes', 'two', 'three']
  for (const name of names.slice(1)) await call('PUT', `/${name}`, ANNA)
  await setQuota({ documents: 100 })
  const docs = Array.from({ length: 60 }, () => ({}))
  const calls = [...names, ...names].map((name) =>
    call('POST', `/${name}/_bulk_docs`, { ...ANNA, json: { docs } }),
  )
  const rows = (await Promise.all(calls)).flatMap(({ json }) => json as { ok?: true; error?: string }[])
  t.equal(rows.filter(({ ok }) => ok).length, 100)
  t.equal(rows.filter(({ error }) => error === 'forbidden').length, 260)
  await until('all are counted', async () => (await account()).usage.documents === 100)
  const never = { _id: 'x1', _deleted: true, x: 'x'.repeat(1000) }
  await setQuota({ bytes: 1 })
  t.match((await call('POST', '/two/_bulk_docs', { ...ANNA, json: { docs: [never] } })).json, [
    { error: 'forbidden' },
  ])
})

t.test('usage is known after a restart without opening databases', async (t) => {
  const first = await startWithNotes(t)
  await first.call('PUT', '/notes/doc', { ...ANNA, body: JSON.stringify({ text: 'x'.repeat(50_000) }) })
  await until('it is counted', async () => (await first.account()).usage.documents === 1)
  const before = await first.hosted.tenantUsage(10)
  t.match(before, [{ account: 'anna', documents: 1, databases: 1, feeds: 0 }])
  const scraped = await first.call('GET', '/_node/_local/_prometheus', ROOT)
  t.match(scraped.text, /^settee_tenant_documents\{account="anna"\} 1$/m)
  await first.close()
  const second = await startHostedServer(t, {}, first.dataDir)
  t.same(await second.hosted.tenantUsage(10), before)
  const call = connect(t, second)
  t.equal((await call('DELETE', '/notes', ANNA)).status, 200)
  t.match(await second.hosted.tenantUsage(10), [{ account: 'anna', bytes: 0, documents: 0, databases: 0 }])
})

t.test("a rewind is the owner's, and stays within the quota", async (t) => {
  const { call, setQuota } = await startWithNotes(t)
  const body = JSON.stringify({ text: 'x'.repeat(50_000) })
  const { rev } = (await call('PUT', '/notes/a', { ...ANNA, body })).json as { rev: string }
  await delay(5)
  const at = new Date().toISOString()
  await delay(5)
  await call('DELETE', `/notes/a?rev=${rev}`, ANNA)
  await call('PUT', '/notes/b', { ...ANNA, body: '{}' })
  await setQuota({ bytes: 1000 })
  const rewind = async () => {
    const { status, text } = await call('POST', '/_settee/databases/notes/rewind', { ...ANNA, json: { at } })
    t.equal(status, 200, text)
    return text
  }
  const refused = await rewind()
  t.match(refused, /"id":"a","outcome":"refused".*may store 1000 bytes/)
  t.match(refused, '"deleted":1')
  await setQuota({ bytes: null })
  t.match(await rewind(), /"id":"a","outcome":"recreated"/)
})

t.test('the default quota is configured', async (t) => {
  const config = await openConfig({ dataDir: await temporaryFolder(t), env: {}, flags: {} })
  t.same(defaultQuota(config), {
    bytes: 1_073_741_824,
    documents: 1_000_000,
    databases: 10,
    indexes: 100,
    document_size: Infinity,
    requests: 100,
    feeds: 50,
    replications: 5,
  })
  await config.set('quota', 'bytes', 'infinity')
  await config.set('quota', 'feeds', '3')
  t.match(defaultQuota(config), { bytes: Infinity, feeds: 3 })
  await t.rejects(config.set('quota', 'requests', '0'), { code: 'bad_request' })
  await t.rejects(config.set('quota', 'documents', 'many'), { code: 'bad_request' })
})

t.test('overrides are set, changed and taken back', async (t) => {
  const defaults = {
    bytes: 1,
    documents: 2,
    databases: 3,
    indexes: 7,
    document_size: 4,
    requests: 5,
    feeds: 6,
    replications: 8,
  }
  const first = changedOverrides({}, readQuota({ bytes: 100, feeds: 'infinity' }))
  t.same(quotaWith(defaults, first), { ...defaults, bytes: 100, feeds: Infinity })
  const second = changedOverrides(first, readQuota({ bytes: null, documents: 0 }))
  t.same(quotaWith(defaults, second), { ...defaults, documents: 0, feeds: Infinity })
  t.same(shownQuota(second), { documents: 0, feeds: 'infinity' })
  t.same(changedOverrides({}, readQuota(JSON.parse(JSON.stringify(shownQuota(second))))), second)
})

t.test('invalid quotas are refused', async (t) => {
  for (const value of [null, [], 'x', 7]) {
    t.throws(() => readQuota(value), { code: 'bad_request' }, JSON.stringify(value))
  }
  for (const limit of [-1, 1.5, '7', true, {}, Number.MAX_VALUE, 'Infinity']) {
    t.throws(() => readQuota({ bytes: limit }), { code: 'bad_request' }, JSON.stringify(limit))
  }
  t.throws(() => readQuota({ requests: 0 }), { message: /at least 1/ })
  t.throws(() => readQuota({ colour: 1 }), { message: /not `colour`/ })
  t.throws(() => readQuota(JSON.parse('{"__proto__":1}')), { code: 'bad_request' })
})

// Writes to several databases of one account: side by side while they cannot pass a limit together, else in turn.

const NOTHING = { bytes: 0, documents: 0, indexes: 0 }

/** An account with the databases `a` and `b`, each of which has so many documents as were written and looked at. */
function start(limit: number) {
  const counts = new Map([
    ['a', 0],
    ['b', 0],
  ])
  let sum = 0
  const unseen = new Map<string, number>()
  const log: string[] = []
  const turns = new WriteTurns({
    sumOf: () => ({ ...NOTHING, databases: 2, changes: 0, documents: sum }),
    unmeasuredOf: () => new Map([...unseen].map(([name, documents]) => [name, { ...NOTHING, documents }])),
    wrote: (_account, name, { documents }) => unseen.set(name, (unseen.get(name) ?? 0) + documents),
    measureAll: async (names) => {
      log.push(`look at ${names.join()}`)
      for (const name of names) unseen.delete(name)
      sum = counts.get('a')! + counts.get('b')!
    },
  })
  const quota = { bytes: Infinity, documents: limit } as Quota
  const write = (database: string, documents: number) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const most = { ...NOTHING, documents }
    const done = turns.run('anna', { database, most }, quota, async () => {
      log.push(`${database} begins`)
      await promise
      counts.set(database, counts.get(database)! + documents)
      log.push(`${database} ends`)
    })
    return { done, end: resolve }
  }
  return { write, log }
}

const settled = () => new Promise((resolve) => setImmediate(resolve))

t.test('far from the limit writes go at once', async (t) => {
  const { write, log } = start(100)
  const writes = [write('a', 30), write('b', 30), write('a', 30)]
  await settled()
  t.strictSame(log, ['a begins', 'b begins', 'a begins'])
  for (const { end } of writes) end()
  await Promise.all(writes.map(({ done }) => done))
})

t.test('near the limit each waits for those before it, whose databases are then looked at', async (t) => {
  const { write, log } = start(50)
  const writes = [write('a', 40), write('a', 40), write('b', 40), write('a', 1)]
  await settled()
  t.strictSame(log, ['a begins'])
  for (const { end } of writes) end()
  await Promise.all(writes.map(({ done }) => done))
  t.strictSame(log.slice(1), [
    ...['a ends', 'look at a', 'a begins', 'a ends'],
    ...['look at a', 'b begins', 'b ends', 'look at b', 'a begins', 'a ends'],
  ])
})

t.test('the maximum size of a body', async (t) => {
  t.strictSame(maxSizeOf(9, 'list'), { documents: 3, bytes: 27 + 3 * 1024, indexes: 0 })
  t.strictSame(maxSizeOf(9, 'document'), { documents: 1, bytes: 27 + 1024, indexes: 0 })
  t.strictSame(maxSizeOf(9, 'index'), { documents: 1, bytes: 27 + 1024, indexes: 1 })
})
