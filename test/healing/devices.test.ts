/** Devices restore what the disk of the server has damaged: no one has to do anything. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { device, liveSync, remote } from '../protocol/devices.ts'

const PICTURE = Buffer.from('the bytes of a picture '.repeat(20_000))
const IDS = ['ancestry', 'attachment', 'body', 'content', 'kind', 'sound']

/** What each document has lost, but `sound`. */
const DAMAGE: Readonly<Record<string, string>> = {
  body: `UPDATE revision SET body = replace(body, 'text', 'test') WHERE body LIKE '%of body%'`,
  ancestry: `UPDATE revision SET ancestry = zeroblob(length(ancestry))
    WHERE doc = (SELECT num FROM doc WHERE id = 'ancestry') AND leaf`,
  content: `UPDATE chunk SET data = zeroblob(length(data)) WHERE position = 1`,
  attachment: `UPDATE attachment SET type = 'text/html' WHERE name = 'small'`,
  kind: `UPDATE revision SET body = CAST(body AS BLOB) WHERE body LIKE '%text of kind%'`,
}

const LOST = Object.keys(DAMAGE).sort()

async function setUp(t: Test) {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const phone = await device(t)
  for (const id of IDS) {
    const attachments =
      id === 'content'
        ? { picture: { content_type: 'image/jpeg', data: PICTURE.toString('base64') } }
        : { small: { content_type: 'text/plain', data: 'aGVsbG8=' } }
    const _attachments = ['content', 'attachment'].includes(id) ? { _attachments: attachments } : {}
    const { rev } = await phone.put({ _id: id, text: `the first text of ${id}` })
    await phone.put({ _id: id, _rev: rev, text: `the text of ${id}`, ..._attachments })
  }
  await phone.replicate.to(remote(`${server.url}/notes`).db)
  return { server, phone, there: remote(`${server.url}/notes`).db }
}

async function damage(server: TestServer, ids: readonly string[]): Promise<void> {
  await server.stop()
  const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
  for (const id of ids) if (file.prepare(DAMAGE[id] as string).run().changes === 0) throw new Error(id)
  file.close()
  await server.start()
}

/** Reads everything of a document. @returns the status of the first answer that is no success; else 200 */
async function statusOf(server: TestServer, id: string): Promise<number> {
  const revs = await server.request('GET', `/notes/${id}?open_revs=all&revs=true&attachments=true`, {
    headers: { accept: 'application/json' },
  })
  const rows = revs.status === 200 ? (revs.json as { ok?: unknown; error?: string }[]) : []
  if (revs.status !== 200) return revs.status
  return rows.every(({ ok }) => ok !== undefined) ? 200 : 500
}

async function createdAt(server: TestServer): Promise<string> {
  return ((await server.request('GET', '/notes')).json as { instance_start_time: string }).instance_start_time
}

async function isAsked(server: TestServer, before: string): Promise<void> {
  await until('devices are asked', async () => (await createdAt(server).catch(() => before)) !== before)
}

t.test('a device that has pushed documents restores them when they are damaged', async (t) => {
  const { server, phone, there } = await setUp(t)
  await damage(server, LOST)
  const before = await createdAt(server)
  for (const id of LOST) t.not(await statusOf(server, id).catch(() => 500), 200, `${id} is damaged`)
  t.equal(await statusOf(server, 'sound'), 200)
  const { rows } = await phone.allDocs({ keys: IDS })
  const revs = Object.fromEntries(rows.map(({ id, value }) => [id, [value?.rev]]))
  const missing = async () =>
    Object.keys((await server.request('POST', '/notes/_revs_diff', { body: revs })).json as object)
  t.same(await missing(), LOST, 'what is damaged counts as missing')
  await isAsked(server, before)
  // The first checkpoint after a restore is refused, and the device compares once more.
  await until(
    'the device has synced',
    async () => (await phone.replicate.to(there).catch(() => null)) !== null,
  )
  for (const id of IDS) t.equal(await statusOf(server, id), 200, `${id} is whole`)
  t.same(await missing(), [])
  const [mine, theirs] = [
    await phone.allDocs({ include_docs: true }),
    await there.allDocs({ include_docs: true }),
  ]
  t.same(theirs.rows, mine.rows)
})

/** Checks all databases. @returns the ids of damaged documents */
async function checked(server: TestServer): Promise<string[]> {
  const begun = async () => (await server.request('POST', '/_settee/check', { body: {} })).status === 202
  await until('a check begins', begun)
  const state = async () => (await server.request('GET', '/_settee/check')).json
  await until('the check ends', async () => (await state()).running === null)
  const [damage] = (await state()).damaged as { parts: { id: string }[] }[]
  return (damage?.parts ?? []).map(({ id }) => id).sort()
}

t.test('what only a check reads is restored by a device that syncs live, with its next edit', async (t) => {
  const { server, phone } = await setUp(t)
  await damage(server, LOST)
  liveSync(t, phone, remote(`${server.url}/notes`).db)
  const before = await createdAt(server)
  t.same(await checked(server), LOST)
  await isAsked(server, before)
  await until('the check is remembered', async () => {
    const { damaged } = (await server.request('GET', '/_settee/check')).json
    return damaged.length === 1
  })
  await phone.put({ _id: 'next' })
  for (const id of [...LOST, 'next']) {
    await until(`${id} is whole`, async () => (await statusOf(server, id).catch(() => 500)) === 200)
  }
  t.same(await checked(server), [])
  t.match((await server.request('GET', '/_up?deep=1')).json, { status: 'ok' })
})
