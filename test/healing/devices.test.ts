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

for (const id of Object.keys(DAMAGE)) {
  t.test(`a device that has pushed it restores a document with a damaged ${id}`, async (t) => {
    const { server, phone, there } = await setUp(t)
    await damage(server, [id])
    const before = await createdAt(server)
    t.not(await statusOf(server, id).catch(() => 500), 200, 'it is damaged')
    t.equal(await statusOf(server, 'sound'), 200)
    const { rows } = await phone.allDocs({ keys: [id] })
    const asked = { body: { [id]: [rows[0]?.value?.rev] } }
    t.match((await server.request('POST', '/notes/_revs_diff', asked)).json, { [id]: { missing: [String] } })
    await until('devices are asked', async () => (await createdAt(server).catch(() => before)) !== before)
    // The first checkpoint after a restore is refused, and the device compares once more.
    await until(
      'the device has synced',
      async () => (await phone.replicate.to(there).catch(() => null)) !== null,
    )
    t.equal(await statusOf(server, id), 200, 'it is whole')
    t.same((await server.request('POST', '/notes/_revs_diff', asked)).json, {})
    const [mine, theirs] = [
      await phone.allDocs({ include_docs: true }),
      await there.allDocs({ include_docs: true }),
    ]
    t.same(theirs.rows, mine.rows)
  })
}
