/** A tenant who tries to store more than its quota, in everything that a database keeps, on both engines. */
import t, { type Test } from 'tap'
import { startPostgres } from '../helpers/postgres-server.ts'
import { until } from '../helpers/until.ts'
import { connect } from '../http/client.ts'
import { startHostedServer } from './hosted-server.ts'

const ANNA = { auth: 'anna:anna' }
const ROOT = { auth: 'root:root' }
const MB = 1_000_000
const LIMIT = 2 * MB
/** What new `_local` documents may take beyond the limit, and how far a group of a bulk may pass a limit. */
const RESERVE = 16 * 1024 * 1024
const SLACK = 1.5 * MB
/** What SQLite leaves empty in its pages. */
const PAGES = 0.1 * MB

t.setTimeout(300_000)
const postgres = await startPostgres(t)

async function start(t: Test, engine: string) {
  const store = engine === 'postgres' ? await postgres.createDatabase() : undefined
  const server = await startHostedServer(t, { 'couchdb/max_document_size': `${20 * MB}` }, undefined, store)
  const call = connect(t, server)
  t.equal((await call('PUT', '/notes', ANNA)).status, 201)
  const json = { quota: { bytes: LIMIT } }
  t.equal((await call('PUT', '/_settee/accounts/anna', { ...ROOT, json })).status, 200)
  const send = async (method: string, path: string, body: unknown) => {
    const headers = { 'content-type': 'application/json', authorization: `Basic ${btoa('anna:anna')}` }
    const answer = await fetch(`${server.url}${path}`, { method, headers, body: JSON.stringify(body) })
    return { status: answer.status, json: (await answer.json()) as unknown }
  }
  /** @returns how many documents of a bulk are stored */
  const bulk = async (docs: readonly unknown[], newEdits = true) => {
    const { json } = await send('POST', '/notes/_bulk_docs', { docs, new_edits: newEdits })
    if (!Array.isArray(json)) return 0
    return docs.length - (json as { error?: string }[]).filter(({ error }) => error !== undefined).length
  }
  /** What the account's usage shows, once the last write is measured. */
  const used = async () => {
    await server.hosted.usage.measureChanged()
    const { json } = await call('GET', '/_settee/account', ANNA)
    return (json as { usage: { bytes: number } }).usage.bytes
  }
  return { call, send, bulk, used }
}

const times = <T>(count: number, make: (at: number) => T) =>
  Array.from({ length: count }, (_, at) => make(at))
const hash = (n: number) => n.toString(16).padStart(32, '0')
const history = (generations: number, last: string) => ({
  start: generations,
  ids: [last, ...times(generations - 1, (at) => hash(generations - 1 - at))],
})

for (const engine of ['files', 'postgres']) {
  t.test(`${engine}: a burst of large _local documents`, async (t) => {
    const { send, used } = await start(t, engine)
    const put = (name: string, bytes: number) =>
      send('PUT', `/notes/_local/${name}`, { text: 'x'.repeat(bytes) })
    const large = await Promise.all(times(6, (at) => put(`large-${at}`, 10 * MB)))
    t.same(new Set(large.map(({ status }) => status)), new Set([403]))
    const fitting = await Promise.all(times(20, (at) => put(`fits-${at}`, 300_000)))
    const stored = fitting.filter(({ status }) => status === 201).length
    t.ok(stored >= 4 && stored <= 6, `${stored} of 300 kB are stored`)
    const after = await used()
    t.ok(after > stored * 300_000 && after <= LIMIT, `${after} bytes are counted`)
  })

  t.test(`${engine}: thousands of tiny _local documents`, async (t) => {
    const { bulk, used } = await start(t, engine)
    let stored = 0
    for (let round = 0; ; round++) {
      const docs = times(500, (at) => ({ _id: `_local/${`${round}-${at}`.padStart(2000, 'x')}` }))
      const accepted = await bulk(docs)
      stored += accepted
      if (accepted < docs.length || round > 40) break
    }
    t.ok(stored * 2000 < LIMIT + RESERVE, `${stored} are stored`)
    const after = await used()
    t.ok(after >= stored * 2000 && after <= LIMIT + RESERVE + SLACK, `${after} bytes are counted`)
  })

  t.test(`${engine}: long histories`, async (t) => {
    const { bulk, used, call } = await start(t, engine)
    const stored = await bulk(
      times(300, (at) => ({ _id: `h${at}`, _revisions: history(500, hash(90_000 + at)) })),
      false,
    )
    t.ok(stored * 8000 <= LIMIT, `${stored} documents with 500 generations are stored`)
    t.ok(stored > 100, 'as far as there is room')
    const after = await used()
    t.ok(after >= stored * 8000 && after <= LIMIT + PAGES, `${after} bytes are counted`)
    t.equal((await call('PUT', '/notes/_revs_limit', { ...ANNA, body: '1000000000' })).status, 200)
    t.equal(await bulk([{ _id: 'longest', _revisions: history(50_000, hash(1)) }], false), 0)
  })

  t.test(`${engine}: known revisions that get a longer history`, async (t) => {
    const { bulk, used } = await start(t, engine)
    const docs = times(250, (at) => ({ _id: `k${at}`, _rev: `900-${hash(90_000 + at)}` }))
    t.equal(await bulk(docs, false), 250)
    const longer = docs.map(({ _id }, at) => ({ _id, _revisions: history(900, hash(90_000 + at)) }))
    const grown = await bulk(longer, false)
    t.ok(grown > 50 && grown < 200, `${grown} of 250 become longer`)
    const after = await used()
    t.ok(after >= LIMIT / 2 && after <= LIMIT + PAGES, `${after} bytes are counted`)
  })

  t.test(`${engine}: tombstones of documents with long histories`, async (t) => {
    const { bulk, used, call } = await start(t, engine)
    const docs = times(600, (at) => ({ _id: `t${at}`, _rev: `1-${hash(1)}` }))
    t.equal(await bulk(docs, false), 600)
    const full = { quota: { bytes: 1 } }
    t.equal((await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: full })).status, 200)
    const before = await used()
    const gone = (generations: number) =>
      docs.map(({ _id }) => ({ _id, _deleted: true, _revisions: history(generations, hash(generations)) }))
    t.equal(await bulk(gone(1000), false), 0)
    t.equal(await bulk(gone(20), false), 600, 'after a few edits')
    const after = await used()
    t.ok(after - before >= 600 * 16 * 19 * 0.5 && after - before < MB, `${after - before} bytes are counted`)
  })

  t.test(`${engine}: what only admins may do`, async (t) => {
    const { send, call } = await start(t, engine)
    const { json } = await send('PUT', '/notes/a', {})
    const purge = await send('POST', '/notes/_purge', { a: [(json as { rev: string }).rev] })
    t.ok([401, 403].includes(purge.status), `${purge.status} for a purge`)
    const limit = await call('PUT', '/notes/_purged_infos_limit', { ...ANNA, body: '1000000000' })
    t.ok([401, 403].includes(limit.status), `${limit.status} for the number of purges`)
    const names = times(20_000, (at) => `member-${at}`)
    t.equal((await send('PUT', '/notes/_security', { members: { names, roles: [] } })).status, 413)
  })

  t.test(`${engine}: a security object counts, and is accepted beyond the quota`, async (t) => {
    const { send, used, call } = await start(t, engine)
    const full = { quota: { bytes: 1 } }
    t.equal((await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: full })).status, 200)
    const before = await used()
    const names = times(3000, (at) => `member-${at}-xxxx`)
    const largest = { admins: { names: ['anna'] }, members: { names: ['anna', ...names], roles: [] } }
    t.equal((await send('PUT', '/notes/_security', largest)).status, 200)
    const bytes = JSON.stringify(largest).length
    const grown = (await used()) - before
    t.ok(grown > bytes * 0.9 && grown < bytes + PAGES, `${grown} bytes are counted for ${bytes}`)
  })
}

t.test('postgres: what was written before the sums were whole counts after a compaction', async (t) => {
  const { call, send, used } = await start(t, 'postgres')
  for (const at of times(5, (n) => n))
    await send('PUT', `/notes/_local/l${at}`, { text: 'x'.repeat(300_000) })
  const before = await used()
  const [{ datname } = {}] = await postgres.query(
    "SELECT datname FROM pg_stat_activity WHERE datname <> 'postgres' AND usename = 'settee' ORDER BY backend_start DESC LIMIT 1",
  )
  const forget = 'UPDATE settee.database SET leaf_bytes = 1000, uncounted = NULL'
  await postgres.query(forget, [], datname as string)
  t.equal((await call('POST', '/notes/_compact', { ...ANNA, json: {} })).status, 202)
  await send('PUT', '/notes/a', {})
  await until('it is counted again', async () => (await used()) >= before)
})
