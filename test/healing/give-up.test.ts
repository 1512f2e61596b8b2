/** What no copy has is let go: the rest is an ordinary document, and a device that comes late loses nothing. */
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { settee } from '../cli/child.ts'
import { startPostgres } from '../helpers/postgres-server.ts'
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

/** The servers of this test: over files, and over PostgreSQL. */
const ENGINES = ['files', 'postgres'] as const
type Engine = (typeof ENGINES)[number]

/** Statements that damage what is stored in each. */
interface Damages {
  leaf(id: string): string
  superseded(id: string): string
  ancestry(id: string): string
  row(id: string): string
  readonly content: string
}

const OF = (id: string) => `doc = (SELECT num FROM doc WHERE id = '${id}')`

const DAMAGES: Readonly<Record<Engine, Damages>> = {
  files: {
    leaf: (id) => `UPDATE revision SET body = replace(body, 'text', 'test') WHERE ${OF(id)}
      AND num = (SELECT winner FROM doc WHERE id = '${id}')`,
    superseded: (id) =>
      `UPDATE revision SET body = replace(body, 'text', 'test') WHERE ${OF(id)} AND NOT leaf`,
    ancestry: (id) => `UPDATE revision SET ancestry = zeroblob(length(ancestry)) WHERE ${OF(id)} AND leaf`,
    row: (id) => `UPDATE doc SET leaves = 5, checksum = 7 WHERE id = '${id}'`,
    content: 'UPDATE chunk SET data = zeroblob(length(data)) WHERE position = 1',
  },
  postgres: {
    leaf: (id) => `UPDATE settee.doc SET body = replace(body, 'text', 'test') WHERE id = '${id}'`,
    superseded: (id) => `UPDATE settee.revision SET body = replace(body, 'text', 'test') WHERE id = '${id}'`,
    ancestry: (id) => `UPDATE settee.doc SET ancestry = decode(repeat('00', octet_length(ancestry)), 'hex')
      WHERE id = '${id}'`,
    row: (id) => `UPDATE settee.doc SET leaves = 5, checksum = 7 WHERE id = '${id}'`,
    content: `UPDATE settee.chunk SET data = decode(repeat('00', octet_length(data)), 'hex') WHERE position = 1`,
  },
}

interface Case {
  /** What each damages. */
  readonly sql: (damages: Damages, id: string) => readonly string[]
  /** What is lost of each leaf. */
  readonly lost: readonly string[]
  /** The status, the generation and the text of the document afterwards. */
  readonly after: readonly [status: number, generation?: number, text?: string]
}

const CASES: Readonly<Record<string, Case>> = {
  ancestry: {
    sql: ({ ancestry }, id) => [ancestry(id)],
    lost: ['history'],
    after: [200, 2, 'second text'],
  },
  body: { sql: ({ leaf }, id) => [leaf(id)], lost: ['text'], after: [200, 1, 'first text'] },
  both: {
    sql: ({ leaf, superseded }, id) => [leaf(id), superseded(id)],
    lost: ['revision'],
    after: [404],
  },
  conflict: { sql: ({ leaf }, id) => [leaf(id)], lost: ['revision'], after: [200, 2, 'second text'] },
  content: { sql: ({ content }) => [content], lost: ['attachments'], after: [200, 3, 'second text'] },
  deleted: { sql: ({ leaf }, id) => [leaf(id)], lost: ['tombstone'], after: [404] },
  row: { sql: ({ row }, id) => [row(id)], lost: [], after: [200, 2, 'second text'] },
  superseded: { sql: ({ superseded }, id) => [superseded(id)], lost: [], after: [200, 2, 'second text'] },
  'text and row': {
    sql: ({ leaf, row }, id) => [leaf(id), row(id)],
    lost: ['revision'],
    after: [404],
  },
}
const IDS = Object.keys(CASES)
/** Those of which nothing is left. */
const GONE = ['both', 'text and row']

const postgres = await startPostgres(t)

interface Healed {
  readonly server: TestServer
  /** Its address in PostgreSQL; null for files. */
  readonly store: string | null
}

async function setUp(t: Test, engine: Engine): Promise<Healed> {
  const store = engine === 'files' ? null : await postgres.createDatabase()
  const server = await startTestServer(t, store === null ? {} : { env: { SETTEE_STORE: store } })
  await server.request('PUT', '/notes')
  for (const id of IDS) {
    const first = await server.request('PUT', pathOf(id), { body: { text: 'first text' } })
    const _attachments = id === 'content' ? { _attachments: { SMALL, LARGE } } : {}
    const body = { _rev: first.json.rev, text: 'second text', ..._attachments, _deleted: id === 'deleted' }
    await server.request('PUT', pathOf(id), { body })
  }
  const branch = { start: 3, ids: ['c', 'b', 'a'] }
  const docs = [{ _id: 'conflict', _rev: '3-c', _revisions: branch, text: 'third text' }]
  await server.request('POST', '/notes/_bulk_docs', { body: { docs, new_edits: false } })
  return { server, store }
}

function pathOf(id: string): string {
  return `/notes/${encodeURIComponent(id)}`
}

async function damage({ server, store }: Healed): Promise<void> {
  await server.stop()
  const damages = DAMAGES[store === null ? 'files' : 'postgres']
  const statements = Object.entries(CASES).flatMap(([id, { sql }]) => sql(damages, id))
  if (store === null) {
    const file = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
    for (const sql of statements) if (file.prepare(sql).run().changes === 0) throw new Error(sql)
    file.close()
  } else {
    const name = new URL(store).pathname.slice(1)
    for (const sql of statements)
      if ((await postgres.query(`${sql} RETURNING 1`, [], name)).length === 0) throw new Error(sql)
  }
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

for (const engine of ENGINES)
  t.test(`${engine}: each kind of damage is let go, and nothing else`, (t) => letGo(t, engine))

async function letGo(t: Test, engine: Engine): Promise<void> {
  const healed = await setUp(t, engine)
  const { server } = healed
  const { json: had } = await server.request('GET', '/notes/body?revs=true')
  await damage(healed)
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
    const { status, json } = await server.request('GET', `${pathOf(id)}?conflicts=true`)
    const read = status === 200 ? [status, Number.parseInt(json._rev, 10), json.text] : [status]
    t.strictSame(read, CASES[id]?.after, id)
    t.notMatch(json, { _conflicts: Array })
  }
  t.match((await server.request('GET', '/notes/content/SMALL')).text, 'hello', 'the other attachment stays')
  t.equal((await server.request('GET', '/notes/deleted')).json.reason, 'deleted')
  for (const id of GONE) t.equal((await server.request('GET', pathOf(id))).json.reason, 'missing')
  const { json: changes } = await server.request('GET', '/notes/_changes')
  t.strictSame(
    changes.results.map(({ id }: { id: string }) => id).sort(),
    IDS.filter((id) => !GONE.includes(id)),
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
  t.match((await server.request('GET', '/notes')).json, {
    doc_count: IDS.length - GONE.length - 1,
    doc_del_count: 1,
  })
}
