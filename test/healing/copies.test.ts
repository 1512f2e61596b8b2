/** What the disk of the server has damaged is restored from a backup, and from nothing else. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { settee } from '../cli/child.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

const PICTURE = Buffer.from('the bytes of a picture '.repeat(50_000))
const WORDS = 'words that are stored compressed '.repeat(5000)

/** What each document loses. */
const DAMAGE: Readonly<Record<string, string>> = {
  ancestry: `UPDATE revision SET ancestry = zeroblob(length(ancestry))
    WHERE doc = (SELECT num FROM doc WHERE id = 'ancestry') AND leaf`,
  attachment: `UPDATE attachment SET type = 'text/html' WHERE name = 'small'`,
  body: `UPDATE revision SET body = replace(body, 'text', 'test') WHERE body LIKE '%the text of body%'`,
  compressed: `UPDATE chunk SET data = zeroblob(length(data)) WHERE blob =
    (SELECT blob FROM attachment WHERE name = 'words')`,
  content: `UPDATE chunk SET data = zeroblob(length(data)) WHERE position = 1`,
  document: `UPDATE doc SET leaves = 3 WHERE id = 'document'`,
  kind: `UPDATE revision SET body = CAST(body AS BLOB) WHERE body LIKE '%the text of kind%'`,
  superseded: `UPDATE revision SET body = replace(body, 'first', 'worst') WHERE body LIKE '%first text of superseded%'`,
}
const IDS = Object.keys(DAMAGE)

const ATTACHMENTS: Readonly<Record<string, object>> = {
  attachment: { small: { content_type: 'image/png', data: 'aGVsbG8=' } },
  compressed: { words: { content_type: 'text/plain', data: Buffer.from(WORDS).toString('base64') } },
  content: {
    picture: { content_type: 'image/jpeg', data: PICTURE.toString('base64') },
    small: { content_type: 'image/png', data: 'd29ybGQ=' },
  },
}

async function setUp(t: Test): Promise<TestServer> {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  for (const id of [...IDS, 'sound']) {
    const first = await server.request('PUT', `/notes/${id}`, {
      body: { text: `the first text of ${id}`, n: 1 },
    })
    const _attachments = ATTACHMENTS[id] === undefined ? {} : { _attachments: ATTACHMENTS[id] }
    const body = { text: `the text of ${id}`, _rev: first.json.rev, ..._attachments }
    const { status } = await server.request('PUT', `/notes/${id}`, { body })
    if (status !== 201) throw new Error(id)
  }
  return server
}

async function backUp(server: TestServer): Promise<string> {
  const { json } = await server.request('POST', '/_settee/backups', { body: {} })
  const list = async () => (await server.request('GET', '/_settee/backups')).json.backups as { id: string }[]
  await until('the backup is made', async () => (await list()).some(({ id }) => id === json.id))
  return json.id
}

async function damage(server: TestServer, ids: readonly string[]): Promise<void> {
  await server.stop()
  const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
  for (const id of ids) if (file.prepare(DAMAGE[id] as string).run().changes === 0) throw new Error(id)
  file.close()
  await server.start()
}

/** Everything that a client can read of the documents. */
async function everything(server: TestServer): Promise<string[]> {
  const texts: string[] = []
  for (const id of [...IDS, 'sound']) {
    const { json } = await server.request('GET', `/notes/${id}?revs_info=true`)
    for (const { rev } of json._revs_info ?? [{ rev: 'none' }]) {
      const path = `/notes/${id}?rev=${rev}&revs=true&attachments=true`
      texts.push((await server.request('GET', path)).text)
    }
  }
  return texts
}

async function checked(server: TestServer, body: object) {
  await until('a check begins', async () => {
    const { status } = await server.request('POST', '/_settee/check', {
      body: { databases: ['notes'], ...body },
    })
    return status === 202
  })
  const state = async () => (await server.request('GET', '/_settee/check')).json
  await until('the check ends', async () => (await state()).running === null)
  return state()
}

t.test('a check restores what a backup has, byte for byte, and asks no device', async (t) => {
  const server = await setUp(t)
  const before = await everything(server)
  const backup = await backUp(server)
  await damage(server, IDS)
  const info = async () => (await server.request('GET', '/notes')).json
  const { instance_start_time } = await info()

  const { damaged } = await checked(server, {})
  const parts = damaged[0].parts as { id: string; copy: string | null }[]
  t.strictSame([...new Set(parts.map(({ id }) => id))].sort(), IDS, 'everything is found')
  for (const { id, copy } of parts)
    t.equal(copy, id === 'document' ? 'the database itself' : `the backup ${backup}`, `a copy of ${id}`)

  t.strictSame((await checked(server, { repair: true })).damaged, [])
  t.strictSame(await everything(server), before)
  t.equal((await info()).instance_start_time, instance_start_time, 'no device is asked')
  t.match((await server.request('GET', '/_up?deep=1')).json, { status: 'ok' })
  const revs = { body: [JSON.parse(before[0] as string)._rev] }
  t.match(
    (await server.request('POST', '/notes/_revs_diff', { body: revs })).json,
    {},
    'nothing counts as missing',
  )
})

t.test(
  'what a reader finds is restored without anybody; what no backup has is left to devices',
  async (t) => {
    const server = await setUp(t)
    const backup = await backUp(server)
    const { json: old } = await server.request('GET', '/notes/content')
    // The backup has the picture, but not this revision of its document.
    const { json: newer } = await server.request('PUT', '/notes/content', {
      body: { ...old, text: 'newer than the backup' },
    })
    const { json: late } = await server.request('PUT', '/notes/late', { body: { text: 'the text of late' } })
    await server.stop()
    const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
    file.exec(`UPDATE revision SET body = replace(body, 'text', 'test') WHERE body LIKE '%the text of late%'`)
    file.close()
    await damage(server, ['content', 'body'])
    const read = async (path: string) => (await server.request('GET', path)).status
    t.equal(await read('/notes/body'), 500)
    t.not(await read('/notes/content/picture').catch(() => 500), 200)
    t.equal(await read('/notes/late'), 500)
    await until('the text is restored', async () => (await read('/notes/body')) === 200)
    await until(
      'the picture is restored',
      async () => (await read('/notes/content/picture').catch(() => 500)) === 200,
    )
    const { json } = await server.request('GET', '/notes/content?attachments=true')
    t.match(json, { _rev: newer.rev, text: 'newer than the backup' })
    t.ok(Buffer.from(json._attachments.picture.data, 'base64').equals(PICTURE))
    t.equal(await read('/notes/late'), 500, 'the backup has no copy of it')

    await damage(server, ['ancestry'])
    await server.stop()
    const { code, stdout } = await settee(t, ['check', '--data', server.dataDir, '--repair']).ended
    t.match(
      stdout,
      new RegExp(`^notes: repaired revision 2-.* of the document ancestry, from the backup ${backup}$`, 'm'),
      'on the folder of a stopped server',
    )
    const left = `revision ${late.rev} of the document late, since .*; no backup has a good copy, a device may`
    t.match(stdout, new RegExp(`^notes: ${left}$`, 'm'))
    t.equal(code, 1)
  },
)
