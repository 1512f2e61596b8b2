/** Devices restore what the disk of the server has damaged: no one has to do anything. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { startPostgres } from '../helpers/postgres-server.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { device, liveSync, remote } from '../protocol/devices.ts'

const PICTURE = Buffer.from('the bytes of a picture '.repeat(20_000))
const IDS = ['ancestry', 'attachment', 'body', 'content', 'kind', 'sound']

/** The servers of this test: over files, and over PostgreSQL. */
const ENGINES = ['files', 'postgres'] as const
type Engine = (typeof ENGINES)[number]

/** What each document has lost, but `sound`. */
const DAMAGE: Readonly<Record<Engine, Readonly<Record<string, string>>>> = {
  files: {
    body: `UPDATE revision SET body = replace(body, 'text', 'test') WHERE body LIKE '%of body%'`,
    ancestry: `UPDATE revision SET ancestry = zeroblob(length(ancestry))
    WHERE doc = (SELECT num FROM doc WHERE id = 'ancestry') AND leaf`,
    content: `UPDATE chunk SET data = zeroblob(length(data)) WHERE position = 1`,
    attachment: `UPDATE attachment SET type = 'text/html' WHERE name = 'small'`,
    kind: `UPDATE revision SET body = CAST(body AS BLOB) WHERE body LIKE '%text of kind%'`,
  },
  postgres: {
    body: `UPDATE settee.doc SET body = replace(body, 'text', 'test') WHERE body LIKE '%of body%'`,
    ancestry: `UPDATE settee.doc SET ancestry = decode(repeat('00', octet_length(ancestry)), 'hex') WHERE id = 'ancestry'`,
    content: `UPDATE settee.chunk SET data = decode(repeat('00', octet_length(data)), 'hex') WHERE position = 1`,
    attachment: `UPDATE settee.doc SET attachments = replace(attachments, 'text/plain', 'text/html') WHERE id = 'attachment'`,
    kind: `UPDATE settee.doc SET attachments = left(attachments, -1) WHERE id = 'kind'`,
  },
}

const LOST = Object.keys(DAMAGE.files).sort()

const postgres = await startPostgres(t)

interface Healed {
  readonly server: TestServer
  /** Its address in PostgreSQL; null for files. */
  readonly store: string | null
}

async function setUp(t: Test, engine: Engine) {
  const store = engine === 'files' ? null : await postgres.createDatabase()
  const server = await startTestServer(t, store === null ? {} : { env: { SETTEE_STORE: store } })
  await server.request('PUT', '/notes')
  const phone = await device(t)
  for (const id of IDS) {
    const attachments =
      id === 'content'
        ? { picture: { content_type: 'image/jpeg', data: PICTURE.toString('base64') } }
        : { [id === 'kind' ? 'other' : 'small']: { content_type: 'text/plain', data: 'aGVsbG8=' } }
    const _attachments = ['content', 'attachment', 'kind'].includes(id) ? { _attachments: attachments } : {}
    const { rev } = await phone.put({ _id: id, text: `the first text of ${id}` })
    await phone.put({ _id: id, _rev: rev, text: `the text of ${id}`, ..._attachments })
  }
  await phone.replicate.to(remote(`${server.url}/notes`).db)
  return { server, store, phone, there: remote(`${server.url}/notes`).db }
}

async function damage({ server, store }: Healed): Promise<void> {
  await server.stop()
  if (store === null) {
    const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
    for (const sql of Object.values(DAMAGE.files))
      if (file.prepare(sql).run().changes === 0) throw new Error(sql)
    file.close()
  } else {
    const name = new URL(store).pathname.slice(1)
    for (const sql of Object.values(DAMAGE.postgres)) {
      const changed = await postgres.query(`${sql} RETURNING 1`, [], name)
      if (changed.length === 0) throw new Error(sql)
    }
  }
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

for (const engine of ENGINES)
  t.test(`${engine}: a device that has pushed documents restores them when they are damaged`, async (t) => {
    const { phone, there, ...healed } = await setUp(t, engine)
    const { server } = healed
    await damage(healed)
    const before = await createdAt(server)
    for (const id of LOST) t.not(await statusOf(server, id).catch(() => 500), 200, `${id} is damaged`)
    t.equal(await statusOf(server, 'sound'), 200)
    const { rows } = await phone.allDocs({ keys: IDS })
    const revs = Object.fromEntries(rows.map(({ id, value }) => [id, [value?.rev]]))
    const missing = async () =>
      Object.keys((await server.request('POST', '/notes/_revs_diff', { body: revs })).json as object)
    await until('what is damaged counts as missing', async () => `${await missing()}` === `${LOST}`)
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

for (const engine of ENGINES)
  t.test(
    `${engine}: what only a check reads is restored by a device that syncs live, with its next edit`,
    async (t) => {
      const { phone, ...healed } = await setUp(t, engine)
      const { server } = healed
      await damage(healed)
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
    },
  )
