/** Everything that an account makes the server store counts: what lies in the data folder, compared with the quota. */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { until } from '../helpers/until.ts'
import { connect } from '../http/client.ts'
import { startHostedServer } from './hosted-server.ts'

const ANNA = { auth: 'anna:anna' }
const ROOT = { auth: 'root:root' }
const MB = 1_000_000
/** What a database and the files of its indexes take beside their contents: logs, and the files that SQLite shares. */
const OVERHEAD = 20 * MB

/** Bytes of the files whose path has this text. */
async function bytesOnDisk(folder: string, part: string): Promise<number> {
  const paths = await readdir(folder, { recursive: true })
  const sizes = paths
    .filter((path) => path.includes(part))
    .map((path) =>
      stat(join(folder, path)).then(
        (found) => (found.isFile() ? found.size : 0),
        () => 0,
      ),
    )
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0)
}

async function start(t: Test, quota: object) {
  const server = await startHostedServer(t)
  const call = connect(t, server)
  await call('PUT', '/notes', ANNA)
  t.equal((await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota } })).status, 200)
  const used = async () => {
    const { json } = await call('GET', '/_settee/account', ANNA)
    return (json as { usage: { bytes: number } }).usage.bytes
  }
  return { ...server, call, used }
}

/** A word that no compression makes shorter, and that no other index key shares. */
const word = (seed: number, length: number) =>
  Array.from({ length: Math.ceil(length / 10) }, (_, at) =>
    ((seed + 1) * (at + 7)).toString(36).padStart(10, 'x'),
  ).join('')

t.test('indexes count while they are built, and end at the quota', async (t) => {
  const limit = 5 * MB
  const { call, used, dataDir } = await start(t, { bytes: limit, indexes: 'infinity' })
  const fields = Object.fromEntries(Array.from({ length: 12 }, (_, at) => [`f${at}`, 1]))
  const docs = Array.from({ length: 50 }, (_, at) => ({ _id: `n${at}`, long: word(at, 20_000), ...fields }))
  t.equal((await call('POST', '/notes/_bulk_docs', { ...ANNA, json: { docs } })).status, 201)
  const before = await used()
  t.ok(before < limit, `${before} bytes of documents`)
  const answers = []
  for (let at = 0; at < 12; at++) {
    const index = { fields: ['long', `f${at}`] }
    t.equal((await call('POST', '/notes/_index', { ...ANNA, json: { index, ddoc: `d${at}` } })).status, 200)
    const query = { selector: { long: { $gt: null }, [`f${at}`]: 1 }, use_index: `d${at}`, limit: 1 }
    answers.push(await call('POST', '/notes/_find', { ...ANNA, json: query }))
  }
  const refused = answers.filter(({ status }) => status === 403)
  t.ok(answers.length - refused.length >= 1, 'the first have room')
  t.ok(refused.length >= 6, `${refused.length} of 12 were refused`)
  t.match(refused[0]?.json, {
    error: 'forbidden',
    reason: /may store 5000000 bytes and stores \d+; the index needs/,
  })
  const after = await used()
  t.ok(after > before && after <= limit, `${after} bytes are counted`)
  const disk = await bytesOnDisk(dataDir, 'notes')
  t.ok(disk < limit + OVERHEAD, `${disk} bytes on disk`)

  t.equal((await call('DELETE', `/notes/_index/d0/json/${await nameOf('d0')}`, ANNA)).status, 200)
  await until('the deleted index has made room', async () => (await used()) < after - MB)
  t.equal((await call('PUT', '/notes/more', { ...ANNA, json: { a: 1 } })).status, 201)

  async function nameOf(ddoc: string): Promise<string> {
    const { json } = await call('GET', '/notes/_index', ANNA)
    const found = (json as { indexes: { ddoc: string; name: string }[] }).indexes
    return found.find((index) => index.ddoc === `_design/${ddoc}`)?.name ?? ''
  }
})

t.test('indexes without rows count as well', async (t) => {
  const { call, used } = await start(t, { bytes: 'infinity' })
  const names = Array.from({ length: 30 }, (_, at) => `f${at}`)
  for (const name of names) {
    const json = { index: { fields: [name] }, ddoc: 'd', name }
    t.equal((await call('POST', '/notes/_index', { ...ANNA, json })).status, 200)
  }
  const limit = (await used()) + 600_000
  await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota: { bytes: limit } } })
  const answers = []
  for (const name of names) {
    const query = { selector: { [name]: { $gt: null } }, use_index: ['d', name] }
    answers.push(await call('POST', '/notes/_find', { ...ANNA, json: query }))
  }
  const built = answers.filter(({ status }) => status === 200).length
  t.ok(built >= 1 && built < 15, `${built} were built`)
  const after = await used()
  t.ok(after <= limit, `${after} of ${limit} bytes`)
})

t.test('a build of many rows that passes the quota leaves nothing', async (t) => {
  const limit = 4 * MB
  const { call, used, dataDir } = await start(t, { bytes: 'infinity' })
  for (let at = 0; at < 4; at++) {
    const docs = Array.from({ length: 1000 }, (_, n) => ({ _id: `n${at}-${n}`, word: word(n, 1000) }))
    await call('POST', '/notes/_bulk_docs', { ...ANNA, json: { docs } })
  }
  const before = await used()
  await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota: { bytes: before + limit } } })
  await call('POST', '/notes/_index', { ...ANNA, json: { index: { fields: ['word'] }, ddoc: 'd' } })
  const find = () =>
    call('POST', '/notes/_find', { ...ANNA, json: { selector: { word: { $gt: null } }, limit: 1 } })
  const answers = await Promise.all([find(), find(), find()])
  t.strictSame(
    answers.map(({ status }) => status),
    [403, 403, 403],
  )
  t.equal(
    (await call('PUT', '/notes/more', { ...ANNA, json: { a: 1 } })).status,
    201,
    'a note has room as before',
  )
  const indexes = await bytesOnDisk(dataDir, 'indexes')
  t.ok(indexes < 200_000, `${indexes} bytes of indexes`)
  await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota: { bytes: before + 100 * MB } } })
  t.equal((await find()).status, 200, 'with more room it is built')
})

t.test('indexes of several databases that are built at once end at the quota together', async (t) => {
  const { call, used, dataDir } = await start(t, { bytes: 'infinity' })
  const names = ['notes', 'two', 'three', 'four']
  for (const name of names) {
    await call('PUT', `/${name}`, ANNA)
    const docs = Array.from({ length: 30 }, (_, at) => ({ _id: `n${at}`, long: word(at, 40_000) }))
    await call('POST', `/${name}/_bulk_docs`, { ...ANNA, json: { docs } })
    await call('POST', `/${name}/_index`, { ...ANNA, json: { index: { fields: ['long'] }, ddoc: 'd' } })
  }
  const before = await used()
  const limit = before + 6 * MB
  await call('PUT', '/_settee/accounts/anna', { ...ROOT, json: { quota: { bytes: limit } } })
  const query = { ...ANNA, json: { selector: { long: { $gt: null } }, limit: 1 } }
  const answers = await Promise.all(names.map((name) => call('POST', `/${name}/_find`, query)))
  const built = answers.filter(({ status }) => status === 200).length
  t.ok(built >= 1 && built < names.length, `${built} were built`)
  const after = await used()
  t.ok(after <= limit, `${after} of ${limit} bytes`)
  const disk = await bytesOnDisk(dataDir, 'indexes')
  t.ok(disk <= limit - before + MB, `${disk} bytes of indexes on disk`)
})

t.test('a burst into a new database ends at the quota', async (t) => {
  const limit = 2 * MB
  const { call, used, dataDir, url } = await start(t, { bytes: limit })
  t.ok(call)
  const docs = Array.from({ length: 5 }, (_, at) => ({ text: word(at, 100_000) }))
  const body = JSON.stringify({ docs })
  const headers = { 'content-type': 'application/json', authorization: `Basic ${btoa('anna:anna')}` }
  const send = async () => {
    const answer = await fetch(`${url}/notes/_bulk_docs`, { method: 'POST', headers, body })
    return ((await answer.json()) as { ok?: boolean }[]).filter(({ ok }) => ok).length
  }
  const stored = await Promise.all(Array.from({ length: 20 }, send))
  const sum = stored.reduce((a, b) => a + b, 0)
  t.ok(sum >= 12 && sum <= 20, `${sum} documents of 100 kB are stored`)
  t.ok((await used()) <= limit, `${await used()} bytes`)
  t.ok((await bytesOnDisk(dataDir, 'notes')) < limit + OVERHEAD)
})
