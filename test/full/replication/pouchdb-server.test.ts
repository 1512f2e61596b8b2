/** Replications by settee from and to pouchdb-server, which has no multipart answers. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { startPouchdbServer } from '../../../bench/pouchdb-server.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { remote } from '../../protocol/devices.ts'

// The first run installs pouchdb-server.
t.setTimeout(600_000)

interface Leaf {
  readonly id: string
  readonly changes: readonly { readonly rev: string }[]
}

/** All leaves of a database, with their content. */
async function leaves(url: string): Promise<unknown> {
  const changes = (await (await fetch(`${url}/_changes?style=all_docs`)).json()) as { results: Leaf[] }
  const found: unknown[] = []
  for (const { id, changes: leaves } of changes.results) {
    for (const { rev } of leaves) {
      const query = `rev=${rev}&revs=true&attachments=true`
      const doc = await (await fetch(`${url}/${encodeURIComponent(id)}?${query}`)).json()
      const { _attachments, ...rest } = doc as { _attachments?: Record<string, { data: string }> }
      const data = Object.entries(_attachments ?? {}).map(([name, { data }]) => [name, data])
      found.push([id, rev, { ...rest, data }])
    }
  }
  return found.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
}

async function replicate(t: Test, server: TestServer, body: object) {
  const { json } = await server.request('POST', '/_replicate', { body })
  t.match(json, { ok: true })
  return json
}

t.test('pulls and pushes copy branches, tombstones and attachments, and continue', async (t) => {
  const old = await startPouchdbServer()
  t.teardown(() => old.close())
  const server = await startTestServer(t)
  const { db: there } = remote(`${old.origin}/notes`)
  await there.bulkDocs(Array.from({ length: 1200 }, (_, n) => ({ _id: `n${n}`, text: `ü ${n}` })))
  await there.bulkDocs(
    [
      { _id: 'c', _rev: '2-b', _revisions: { start: 2, ids: ['b', 'a'] }, v: 1 },
      { _id: 'c', _rev: '2-c', _revisions: { start: 2, ids: ['c', 'a'] }, v: 2 },
      { _id: 'gone', _rev: '2-d', _revisions: { start: 2, ids: ['d', 'x'] }, _deleted: true },
    ],
    { new_edits: false },
  )
  for (const [name, size] of [
    ['small', 20],
    ['large', 3_000_000],
  ] as const) {
    const data = randomBytes(size).toString('base64')
    await there.put({ _id: name, _attachments: { 'a.bin': { content_type: 'image/png', data } } })
  }
  const source = `${old.origin}/notes`
  const pull = { source, target: 'notes', create_target: true }
  const first = await replicate(t, server, pull)
  t.match(first.history[0], { docs_written: 1205, doc_write_failures: 0 })
  t.strictSame(await leaves(`${server.url}/notes`), await leaves(source))
  t.match(await replicate(t, server, { ...pull, create_target: false }), { no_changes: true })

  const { json: small } = await server.request('GET', '/notes/small')
  await server.request('PUT', '/notes/small', { body: { ...small, more: true } })
  await server.request('PUT', '/notes/mine', { body: { text: 'x'.repeat(2_000_000) } })
  const push = { source: 'notes', target: source }
  t.match((await replicate(t, server, push)).history[0], { docs_written: 2, doc_write_failures: 0 })
  t.strictSame(await leaves(source), await leaves(`${server.url}/notes`))
  t.match(await replicate(t, server, push), { no_changes: true })

  const copy = { source: 'notes', target: `${old.origin}/copy`, create_target: true }
  t.match((await replicate(t, server, copy)).history[0], { docs_written: 1206, doc_write_failures: 0 })
  t.strictSame(await leaves(`${old.origin}/copy`), await leaves(source))
})

t.test('continuous replications in both directions', async (t) => {
  const old = await startPouchdbServer()
  t.teardown(() => old.close())
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const { db: there } = remote(`${old.origin}/notes`)
  await there.put({ _id: 'first' })
  const address = `${old.origin}/notes`
  await replicate(t, server, { source: address, target: 'notes', continuous: true })
  await replicate(t, server, { source: 'notes', target: address, continuous: true })
  await until(async () => (await server.request('GET', '/notes/first')).status === 200)
  for (let n = 0; n < 3; n++) {
    await there.put({ _id: `theirs-${n}` })
    await until(async () => (await server.request('GET', `/notes/theirs-${n}`)).status === 200)
    await server.request('PUT', `/notes/ours-${n}`, { body: {} })
    await until(async () => (await fetch(`${address}/ours-${n}`)).status === 200)
  }
  t.strictSame(await leaves(address), await leaves(`${server.url}/notes`))
})
