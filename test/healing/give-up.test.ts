/** What no copy has is let go: the rest is an ordinary document, and a device that comes late loses nothing. */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { settee } from '../cli/child.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until as untilOften } from '../helpers/until.ts'

/** Asks a server ten times a second at most: what it does takes seconds. */
function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  return untilOften(what, async () => (await holds()) || sleep(100, false))
}

const SMALL = { content_type: 'image/png', data: 'aGVsbG8=' }
const LARGE = {
  content_type: 'image/png',
  data: Buffer.from('the bytes of a picture '.repeat(20_000)).toString('base64'),
}

const OF = (id: string) => `doc = (SELECT num FROM doc WHERE id = '${id}')`
const LEAF = (id: string) =>
  `UPDATE revision SET body = replace(body, 'text', 'test') WHERE ${OF(id)} AND leaf`
const SUPERSEDED = (id: string) =>
  `UPDATE revision SET body = replace(body, 'text', 'test') WHERE ${OF(id)} AND NOT leaf`

interface Case {
  /** What each damages. */
  readonly sql: readonly string[]
  /** What is lost of each leaf. */
  readonly lost: readonly string[]
  /** The status, the generation and the text of the document afterwards. */
  readonly after: readonly [status: number, generation?: number, text?: string]
}

const CASES: Readonly<Record<string, Case>> = {
  ancestry: {
    sql: [`UPDATE revision SET ancestry = zeroblob(length(ancestry)) WHERE ${OF('ancestry')} AND leaf`],
    lost: ['history'],
    after: [200, 2, 'second text'],
  },
  body: { sql: [LEAF('body')], lost: ['text'], after: [200, 1, 'first text'] },
  both: { sql: [LEAF('both'), SUPERSEDED('both')], lost: ['revision'], after: [404] },
  conflict: {
    sql: [LEAF('conflict').replace('leaf', `rev LIKE '3-%'`)],
    lost: ['revision'],
    after: [200, 2, 'second text'],
  },
  content: {
    sql: [`UPDATE chunk SET data = zeroblob(length(data)) WHERE position = 1`],
    lost: ['attachments'],
    after: [200, 3, 'second text'],
  },
  deleted: { sql: [LEAF('deleted')], lost: ['tombstone'], after: [404] },
  row: {
    sql: [`UPDATE doc SET leaves = 5, checksum = 7 WHERE id = 'row'`],
    lost: [],
    after: [200, 2, 'second text'],
  },
  superseded: { sql: [SUPERSEDED('superseded')], lost: [], after: [200, 2, 'second text'] },
}
const IDS = Object.keys(CASES)

async function setUp(t: Parameters<typeof startTestServer>[0]): Promise<TestServer> {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  for (const id of IDS) {
    const first = await server.request('PUT', `/notes/${id}`, { body: { text: 'first text' } })
    const _attachments = id === 'content' ? { _attachments: { SMALL, LARGE } } : {}
    const body = { _rev: first.json.rev, text: 'second text', ..._attachments, _deleted: id === 'deleted' }
    await server.request('PUT', `/notes/${id}`, { body })
  }
  const branch = { start: 3, ids: ['c', 'b', 'a'] }
  const docs = [{ _id: 'conflict', _rev: '3-c', _revisions: branch, text: 'third text' }]
  await server.request('POST', '/notes/_bulk_docs', { body: { docs, new_edits: false } })
  return server
}

async function damage(server: TestServer): Promise<void> {
  await server.stop()
  const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
  for (const sql of Object.values(CASES).flatMap((each) => each.sql))
    if (file.prepare(sql).run().changes === 0) throw new Error(sql)
  file.close()
  await server.start()
}

async function damagedParts(server: TestServer): Promise<string[]> {
  const check = { databases: ['notes'] }
  await until('a check begins', async () => {
    return (await server.request('POST', '/_settee/check', { body: check })).status === 202
  })
  const state = async () => (await server.request('GET', '/_settee/check')).json
  await until('the check ends', async () => (await state()).running === null)
  const [found] = (await state()).damaged as { parts: { id: string }[] }[]
  return [...new Set((found?.parts ?? []).map(({ id }) => id))].sort()
}

t.test('each kind of damage is let go, and nothing else', async (t) => {
  const server = await setUp(t)
  const { json: had } = await server.request('GET', '/notes/body?revs=true')
  await damage(server)
  t.strictSame(await damagedParts(server), IDS)
  const giveUp = (body: object) => server.request('POST', '/_settee/check/give-up', { body })
  for (const id of IDS) {
    const { status, json } = await giveUp({ database: 'notes', id, dry_run: true })
    t.equal(status, 200, id)
    t.strictSame(
      json.lost.map(({ lost }: { lost: string }) => lost),
      CASES[id]?.lost,
      `${id}: what is lost`,
    )
  }
  const command = (...args: string[]) =>
    settee(t, ['check', '--data', server.dataDir, '--db', 'notes', '--give-up', 'body', ...args]).ended
  const asked = await command()
  const loss = 'its text; the version before it is there, revision 1-'
  t.match(asked.stderr, new RegExp(`^What is lost of the document body:\n  revision 2-.*: ${loss}`))
  t.match(asked.stderr, /add --yes/)
  t.equal((await server.request('GET', '/notes/body')).status, 500, 'nothing has changed')
  t.notMatch((await command('--yes')).stdout, /document body/)
  for (const id of IDS.filter((each) => each !== 'body'))
    t.equal((await giveUp({ database: 'notes', id })).status, 200, id)
  t.strictSame(await damagedParts(server), [], 'nothing is damaged')
  for (const id of IDS) {
    const { status, json } = await server.request('GET', `/notes/${id}?conflicts=true`)
    const read = status === 200 ? [status, Number.parseInt(json._rev, 10), json.text] : [status]
    t.strictSame(read, CASES[id]?.after, id)
    t.notMatch(json, { _conflicts: Array })
  }
  t.match((await server.request('GET', '/notes/content/SMALL')).text, 'hello', 'the other attachment stays')
  t.equal((await server.request('GET', '/notes/deleted')).json.reason, 'deleted')
  t.equal((await server.request('GET', '/notes/both')).json.reason, 'missing')
  const { json: changes } = await server.request('GET', '/notes/_changes')
  t.strictSame(
    changes.results.map(({ id }: { id: string }) => id).sort(),
    IDS.filter((id) => id !== 'both'),
  )
  for (const id of ['body', 'none', '', '_local/x', 'a\u0000b', '\ud800', 'x'.repeat(50_000)]) {
    const { status } = await giveUp({ database: 'notes', id })
    t.equal(status, id === 'body' ? 400 : 404, `${JSON.stringify(id).slice(0, 20)}: nothing is damaged`)
  }
  for (const body of [{}, [], { database: 7, id: 'a' }, { database: 'notes', id: 'a', dry_run: 1 }])
    t.equal((await giveUp(body)).status, 400, JSON.stringify(body))

  // A device that still has the lost text is ahead.
  const { json: diff } = await server.request('POST', '/notes/_revs_diff', { body: { body: [had._rev] } })
  t.match(diff, { body: { missing: [had._rev] } })
  await server.request('POST', '/notes/_bulk_docs', { body: { docs: [had], new_edits: false } })
  t.match((await server.request('GET', '/notes/body?conflicts=true')).json, {
    _rev: had._rev,
    text: 'second text',
  })

  // What is left can be written, compacted and read after a restart.
  const { json: content } = await server.request('GET', '/notes/content')
  const { status } = await server.request('PUT', '/notes/content', { body: { ...content, text: 'next' } })
  t.equal(status, 201)
  await server.request('POST', '/notes/_compact', { body: {} })
  await server.stop()
  await server.start()
  t.strictSame(await damagedParts(server), [])
  t.match((await server.request('GET', '/notes')).json, { doc_count: IDS.length - 2, doc_del_count: 1 })
})
