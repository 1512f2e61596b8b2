/** Databases that are kept small by themselves, through a listening server. */
import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import PouchDB from 'pouchdb'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

t.setTimeout(240_000)

interface Size {
  readonly file: number
  readonly parts: Readonly<Record<string, { readonly count: number; readonly bytes: number }>>
}

/** A server whose compactions do not wait for quiet, and a database. */
async function started(t: Test, settings: Record<string, string | number>) {
  const server = await startTestServer(t)
  const call = connect(t, server)
  for (const [key, value] of Object.entries({ compaction_quiet: 0, ...settings })) {
    const { status } = await call('PUT', `/_node/_local/_config/settee/${key}`, { json: String(value) })
    t.equal(status, 200, key)
  }
  t.equal((await call('PUT', '/notes')).status, 201)
  const size = async () => (await call('GET', '/_settee/databases/notes/size')).json as unknown as Size
  const until = async (holds: (size: Size) => boolean) => {
    for (let now = await size(); !holds(now); now = await size()) await delay(50)
    return size()
  }
  return { ...server, call, size, until }
}

/** A note of a few kilobytes that compresses to nothing and comes but once. */
const text = (n: number) => randomBytes(2000).toString('hex') + n

t.test('a note that PouchDB overwrites 500 times leaves a small file', async (t) => {
  const { url, until } = await started(t, { keep_days: 0 })
  const db = new PouchDB(`${url}/notes`)
  let { rev } = await db.put({ _id: 'note', text: text(0) })
  for (let n = 1; n <= 500; n++) rev = (await db.put({ _id: 'note', _rev: rev, text: text(n) })).rev
  // All that was written takes 2 MB. The log, which is written over and over, has a bound of its own.
  const { parts } = await until(({ file, parts }) => file - (parts.log?.bytes ?? 0) < 600_000)
  t.match(parts, { live: { count: 1 }, kept: { count: 0 } })
  t.match(await db.get('note'), { _rev: rev })
})

t.test('40 notes that are edited all day are kept for the time machine, and otherwise not', async (t) => {
  const { url, call, until, size } = await started(t, { keep_days: 1 })
  const db = new PouchDB(`${url}/notes`)
  const revs = new Map<string, string>()
  for (let n = 0; n < 30; n++) {
    const docs = Array.from({ length: 40 }, (_, at) => {
      const _rev = revs.get(`note${at}`)
      return { _id: `note${at}`, ...(_rev && { _rev }), text: text(n) }
    })
    for (const row of (await db.bulkDocs(docs)) as { id: string; rev: string }[]) revs.set(row.id, row.rev)
  }
  const { parts } = await until(
    ({ parts }) => (parts.kept?.count ?? 0) > 0 && (parts.old?.bytes ?? 0) < 1_500_000,
  )
  t.equal((parts.old?.count ?? 0) + (parts.kept?.count ?? 0), 29 * 40, 'nothing is lost')
  const first = (await size()).parts.live?.bytes ?? 0
  t.equal((await call('PUT', '/_node/_local/_config/settee/keep_days', { json: '0' })).status, 200)
  // All that was written takes 4.8 MB. Pages and the log are given back after the last body has gone.
  const { parts: last } = await until(
    ({ file, parts }) => parts.kept?.count === 0 && parts.old?.count === 0 && file < first + 700_000,
  )
  t.equal(last.live?.count, 40)
})

t.test('what was purged leaves the file without being asked to', async (t) => {
  const { call, until } = await started(t, {})
  const rev = ((await call('PUT', '/notes/a', { json: { text: text(1) } })).json as { rev: string }).rev
  await call('PUT', '/notes/a', { json: { text: text(2), _rev: rev } })
  const current = ((await call('GET', '/notes/a')).json as { _rev: string })._rev
  await call('POST', '/notes/_purge', { json: { a: [current] } })
  const { parts } = await until(({ parts }) => parts.free?.count === 0 && parts.log?.bytes === 0)
  t.match(parts, { live: { count: 0 }, old: { count: 0 }, kept: { count: 0 } })
})

t.test('by hand: nothing happens before it is asked for', async (t) => {
  const { call, size, until } = await started(t, { compaction: 'manual', keep_days: 0 })
  let rev: string | undefined
  for (let n = 0; n < 200; n++) {
    const json = { text: text(n), ...(rev !== undefined && { _rev: rev }) }
    rev = ((await call('PUT', '/notes/a', { json })).json as { rev: string }).rev
  }
  // Longer than a look takes.
  await delay(2500)
  t.equal((await size()).parts.old?.count, 199)
  await call('POST', '/notes/_compact', { json: {} })
  await until(({ parts }) => parts.old?.count === 0 && parts.free?.count === 0)
})

t.test('a download goes on while what it reads is superseded and compacted away', async (t) => {
  const { url, call, until } = await started(t, { keep_days: 0 })
  const content = randomBytes(20_000_000)
  const headers = { 'content-type': 'application/octet-stream' }
  const { rev } = (await call('PUT', '/notes/a/x', { body: content, headers })).json as { rev: string }
  const answer = await fetch(`${url}/notes/a/x`)
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader()
  const hash = createHash('md5')
  hash.update((await reader.read()).value as Uint8Array)
  await call('DELETE', `/notes/a/x?rev=${rev}`)
  await until(({ parts }) => parts.old?.count === 0)
  for (let next = await reader.read(); !next.done; next = await reader.read()) hash.update(next.value)
  t.equal(hash.digest('hex'), createHash('md5').update(content).digest('hex'))
  await call('POST', '/notes/_compact', { json: {} })
  await until(({ parts, file }) => parts.attachments?.count === 0 && file < 1_000_000)
})

t.test('of _users nothing is kept', async (t) => {
  const { call } = await started(t, { compaction: 'manual' })
  const id = '/_users/org.couchdb.user:anna'
  const anna = { name: 'anna', type: 'user', roles: [], password: 'x' }
  await call('PUT', '/_node/_local/_config/chttpd_auth/iterations', { json: '10' })
  const { rev } = (await call('PUT', id, { json: anna })).json as { rev: string }
  await call('DELETE', `${id}?rev=${rev}`)
  const parts = async () =>
    ((await call('GET', '/_settee/databases/_users/size')).json as unknown as Size).parts
  const before = (await parts()).old?.count ?? 0
  t.ok(before > 0)
  await call('POST', '/_users/_compact', { json: {} })
  for (let now = await parts(); now.old?.count !== 0; now = await parts()) await delay(20)
  t.equal((await parts()).kept?.count, 0)
})
