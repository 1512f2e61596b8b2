/** What the disk of the server has damaged is restored from a backup, and from nothing else. */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { settee } from '../cli/child.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until as untilOften } from '../helpers/until.ts'

/** Asks a server ten times a second at most: what it does takes seconds. */
function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  return untilOften(what, async () => (await holds()) || sleep(100, false))
}

const PICTURE = Buffer.from('the bytes of a picture '.repeat(50_000))
const WORDS = 'words that are stored compressed '.repeat(5000)

/** What each document of `notes` loses. */
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
  row: `UPDATE doc SET checksum = checksum + 1 WHERE id = 'row'`,
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

const PEER = 'http://u:secret@127.0.0.1:1/x'
/** Documents with rules of their own, which all lose their text. */
const RULED: Readonly<Record<string, object>> = {
  '/_users/org.couchdb.user:ben': { name: 'ben', password: 'relax', roles: [], type: 'user' },
  '/_replicator/job': { source: PEER, target: PEER },
  '/parts/x:1': {},
  '/refused/a': {},
  '/refused/_design/v': { validate_doc_update: 'function () { throw { forbidden: "no" } }' },
}
const RULED_DATABASES = ['_users', '_replicator', 'parts', 'refused']

async function setUp(t: Test) {
  const server = await startTestServer(t, {
    env: { COUCHDB_USER: 'admin', COUCHDB_PASSWORD: 'secret' },
  })
  const call = (method: string, path: string, body?: unknown) =>
    server.request(method, path, { auth: 'admin:secret', ...(body !== undefined && { body }) })
  await call('PUT', '/notes')
  for (const id of [...IDS, 'sound']) {
    const first = await call('PUT', `/notes/${id}`, { text: `the first text of ${id}`, n: 1 })
    const _attachments = ATTACHMENTS[id] === undefined ? {} : { _attachments: ATTACHMENTS[id] }
    const body = { text: `the text of ${id}`, _rev: first.json.rev, ..._attachments }
    const { status } = await call('PUT', `/notes/${id}`, body)
    if (status !== 201) throw new Error(id)
  }
  const backUp = async (): Promise<string> => {
    const { json } = await call('POST', '/_settee/backups', {})
    const path = `/_settee/backups/${json.id}`
    await until('the backup is made', async () => (await call('GET', path)).status === 200)
    return json.id
  }
  return { server, call, backUp }
}

/** Changes the file of a database of a server that is stopped. */
function damage(server: TestServer, name: string, changes: readonly string[]): void {
  const file = new Sqlite(join(server.dataDir, 'databases', `${name}.sqlite`))
  for (const sql of changes) if (file.prepare(sql).run().changes === 0) throw new Error(sql)
  file.close()
}

const damageOf = (...ids: readonly string[]) => ids.map((id) => DAMAGE[id] as string)

t.test('a check restores what a backup has, byte for byte, and asks no device', async (t) => {
  const { server, call, backUp } = await setUp(t)
  for (const path of ['/_replicator', '/refused', '/parts?partitioned=true']) await call('PUT', path)
  for (const [path, body] of Object.entries(RULED)) {
    const { status } = await call('PUT', path, { ...body, text: 'some words' })
    if (status !== 201) throw new Error(path)
  }
  /** Everything that a client can read. */
  const everything = async () => {
    const texts = await Promise.all(Object.keys(RULED).map(async (path) => (await call('GET', path)).text))
    for (const id of [...IDS, 'sound']) {
      const { json } = await call('GET', `/notes/${id}?revs_info=true`)
      for (const { rev } of json._revs_info ?? [{ rev: 'none' }]) {
        texts.push((await call('GET', `/notes/${id}?rev=${rev}&revs=true&attachments=true`)).text)
      }
    }
    return texts
  }
  const before = await everything()
  const backup = await backUp()
  await server.stop()
  damage(server, 'notes', damageOf(...IDS))
  for (const name of RULED_DATABASES)
    damage(server, name, [`UPDATE revision SET body = replace(body, 'some words', 'same words')`])
  await server.start()
  const createdAt = async () => (await call('GET', '/notes')).json.instance_start_time
  const created = await createdAt()

  const checked = async (body: object) => {
    await until('a check begins', async () => (await call('POST', '/_settee/check', body)).status === 202)
    const state = async () => (await call('GET', '/_settee/check')).json
    await until('the check ends', async () => (await state()).running === null)
    return (await state()).damaged
  }
  const [found] = await checked({ databases: ['notes'] })
  const parts = found.parts as { id: string; copy: string | null }[]
  t.strictSame([...new Set(parts.map(({ id }) => id))].sort(), IDS, 'everything is found')
  const isRow = (id: string) => id === 'document' || id === 'row'
  for (const { id, copy } of parts)
    t.equal(copy, isRow(id) ? 'the database itself' : `the backup ${backup}`, `a copy of ${id}`)

  t.strictSame(await checked({ repair: true }), [])
  t.strictSame(await everything(), before)
  t.equal(await createdAt(), created, 'no device is asked')
  t.match((await call('GET', '/_up?deep=1')).json, { status: 'ok' })
  t.equal((await server.request('GET', '/_session', { auth: 'ben:relax' })).status, 200)
  const { json: diff } = await call('POST', '/notes/_revs_diff', {
    body: [(await call('GET', '/notes/body')).json._rev],
  })
  t.strictSame(diff, {}, 'nothing counts as missing')
})

t.test(
  'what a reader finds is restored without anybody; what no backup has is left to devices',
  async (t) => {
    const { server, call, backUp } = await setUp(t)
    const backup = await backUp()
    const { json: old } = await call('GET', '/notes/content')
    // The backup has the picture, but not this revision of its document.
    const { json: newer } = await call('PUT', '/notes/content', { ...old, text: 'newer than the backup' })
    const { json: late } = await call('PUT', '/notes/late', { text: 'the text of late' })
    await server.stop()
    const whole = readFileSync(join(server.dataDir, 'databases', 'notes.sqlite'))
    const ofLate = `UPDATE revision SET body = replace(body, 'text', 'test') WHERE body LIKE '%the text of late%'`
    damage(server, 'notes', [...damageOf('content', 'body'), ofLate])
    await server.start()
    const read = async (path: string) => (await call('GET', path).catch(() => ({ status: 500 }))).status
    for (const path of ['body', 'content/picture', 'late']) t.equal(await read(`/notes/${path}`), 500, path)
    for (const path of ['body', 'content/picture'])
      await until(`${path} is restored`, async () => (await read(`/notes/${path}`)) === 200)
    // The database begins a new incarnation, for the devices that may have `late`, which ends answers that are under way.
    let json: Awaited<ReturnType<typeof call>>['json']
    await until('an answer is whole', async () => {
      const answer = await call('GET', '/notes/content?attachments=true').catch(() => null)
      if (answer !== null && answer.status !== 200) t.equal(answer.status, 503)
      json = answer?.json
      return answer?.status === 200
    })
    t.match(json, { _rev: newer.rev, text: 'newer than the backup' })
    t.ok(Buffer.from(json._attachments.picture.data, 'base64').equals(PICTURE))
    await until('the document without a copy in the backup cannot be read', async () => {
      const status = await read('/notes/late')
      // While the new incarnation begins.
      if (status !== 500) t.equal(status, 503)
      return status === 500
    })

    await server.stop()
    damage(server, 'notes', damageOf('ancestry'))
    const { code, stdout } = await settee(t, ['check', '--data', server.dataDir, '--repair']).ended
    t.match(
      stdout,
      new RegExp(`^notes: repaired revision 2-.* of the document ancestry, from the backup ${backup}$`, 'm'),
      'on the folder of a stopped server',
    )
    const left = `revision ${late.rev} of the document late, since .*; no backup has a good copy, a device may`
    t.match(stdout, new RegExp(`^notes: ${left}$`, 'm'))
    t.equal(code, 1)

    const replaced = join(server.dataDir, 'replaced')
    mkdirSync(replaced, { recursive: true })
    writeFileSync(join(replaced, 'notes.2026-01-02T03-04-05Z.sqlite'), whole)
    writeFileSync(join(replaced, 'notes.2026-01-03T03-04-05Z.sqlite'), 'no database')
    const again = await settee(t, ['check', '--data', server.dataDir, '--repair']).ended
    t.match(again, {
      code: 0,
      stdout:
        /^notes: repaired revision .* of the document late, from replaced\/notes\.2026-01-02T03-04-05Z\.sqlite$/m,
    })
  },
)

t.test(
  'a content is restored from another database that has the same one, not from a damaged one',
  async (t) => {
    const { server, call } = await setUp(t)
    const { json: before } = await call('GET', '/notes/content?attachments=true')
    for (const name of ['a-broken-album', 'album']) {
      await call('PUT', `/${name}`)
      const { picture } = ATTACHMENTS.content as { picture: object }
      const { status } = await call('PUT', `/${name}/other`, { _attachments: { copied: picture } })
      if (status !== 201) throw new Error(name)
    }
    await server.stop()
    for (const name of ['notes', 'a-broken-album']) damage(server, name, damageOf('content'))
    await server.start()
    const pictureOf = async () =>
      (await call('GET', '/notes/content/picture').catch(() => null))?.status ?? 500
    t.equal(await pictureOf(), 500)
    await until('the picture is restored', async () => (await pictureOf()) === 200)
    const { json: after } = await call('GET', '/notes/content?attachments=true')
    t.strictSame(after, before)
    const { json: state } = await call('GET', '/_settee/check')
    t.strictSame(
      (state.damaged as { database: string }[]).filter(({ database }) => database === 'notes'),
      [],
    )
  },
)
