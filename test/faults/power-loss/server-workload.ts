/**
 * Run by the recorder: a whole server, and in the same process a client that writes everything that a server keeps
 * and marks what was acknowledged. Arguments: data folder, path for marks, seed, number of acts. Ends by SIGKILL, so
 * that nothing is closed in order.
 */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { Agent, request } from 'undici'
import { writeAtomically } from '../../../src/core/durable-files.ts'
import { startServer } from '../../../src/server.ts'
import { MarkWriter, type Sets } from './ledger.ts'
import { randomFrom } from './random.ts'
import { ADMIN, docValue, LOCAL_INI } from './world.ts'

const [, , dataDir = '', markPath = '', seed = '1', acts = '60'] = process.argv
const random = randomFrom(Number(seed))
const marks = new MarkWriter(markPath)
const agent = new Agent({ connections: 16 })
const authorization = `Basic ${Buffer.from(`${ADMIN.name}:${ADMIN.password}`).toString('base64')}`

/** A database as it was acknowledged. */
interface Database {
  readonly name: string
  /** Its name and how many of that name there were before. */
  readonly key: string
  /** The revisions of its documents, deleted ones left out. */
  readonly revs: Map<string, string>
}

let base = ''
let count = 0
const databases = new Map<string, Database>()
const made = new Map<string, number>()
const tokens: { id: string; name: string }[] = []

async function call(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
  const isRaw = body instanceof Buffer
  const answer = await request(base + path, {
    method: method as 'GET',
    dispatcher: agent,
    headers: { authorization, 'content-type': 'application/json', ...headers },
    body: body === undefined ? null : isRaw ? body : JSON.stringify(body),
  })
  const text = await answer.body.text()
  if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`)
  // biome-ignore lint/suspicious/noExplicitAny: an answer of the server under test
  return JSON.parse(text) as any
}

function next(): number {
  count += 1
  return count
}

async function createDatabase(name: string): Promise<void> {
  const number = (made.get(name) ?? 0) + 1
  made.set(name, number)
  const key = `${name}@${number}`
  await marks.act([[`db|${name}`, key]], () => call('PUT', `/${name}`))
  databases.set(name, { name, key, revs: new Map() })
}

async function deleteDatabase(name: string): Promise<void> {
  databases.delete(name)
  await marks.act([[`db|${name}`, null]], () => call('DELETE', `/${name}`))
}

const text = () => 'x'.repeat(random.below(600))

/** Notes what an update is to set, sends it, and notes the revision. */
async function putDoc(
  db: Database,
  id: string,
  body: object,
  atts: Record<string, Buffer> = {},
): Promise<void> {
  const rev = db.revs.get(id)
  const value = docValue(JSON.stringify(body), hashes(atts))
  const inline = Object.fromEntries(
    Object.entries(atts).map(([name, bytes]) => [
      name,
      { content_type: 'text/x', data: bytes.toString('base64') },
    ]),
  )
  const sent = {
    ...(rev && { _rev: rev }),
    ...(Object.keys(atts).length > 0 && { _attachments: inline }),
    ...body,
  }
  const answer = await marks.act([[`doc|${db.key}|${id}`, value]], () =>
    call('PUT', `/${db.name}/${id}`, sent),
  )
  db.revs.set(id, answer.rev)
}

function hashes(atts: Record<string, Buffer>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(atts).map(([name, bytes]) => [name, createHash('sha256').update(bytes).digest('hex')]),
  )
}

async function removeDoc(db: Database, id: string): Promise<void> {
  const rev = db.revs.get(id) as string
  const set: Sets = [[`doc|${db.key}|${id}`, null]]
  await marks.act(set, () => call('DELETE', `/${db.name}/${id}?rev=${rev}`))
  db.revs.delete(id)
}

async function purgeDoc(db: Database, id: string): Promise<void> {
  const rev = db.revs.get(id) as string
  await marks.act([[`doc|${db.key}|${id}`, null]], () => call('POST', `/${db.name}/_purge`, { [id]: [rev] }))
  db.revs.delete(id)
}

async function bulk(db: Database): Promise<void> {
  const ids = [...new Set(Array.from({ length: 2 + random.below(20) }, () => someId()))]
  const bodies = ids.map((id) => ({ id, body: { n: next(), text: text() } }))
  const docs = bodies.map(({ id, body }) => {
    const rev = db.revs.get(id)
    return { _id: id, ...(rev && { _rev: rev }), ...body }
  })
  const sets = bodies.map(
    ({ id, body }) => [`doc|${db.key}|${id}`, docValue(JSON.stringify(body), {})] as const,
  )
  const answer = await marks.act(sets, () => call('POST', `/${db.name}/_bulk_docs`, { docs }))
  for (const row of answer) {
    if (!row.ok) throw new Error(JSON.stringify(row))
    db.revs.set(row.id, row.rev)
  }
}

const someId = () => `d${random.below(30)}`

/** A content that is taken in a piece at a time, above the size of one chunk. */
async function upload(db: Database): Promise<void> {
  const id = `upload${random.below(3)}`
  const bytes = Buffer.alloc(270_000 + random.below(80_000), next())
  const rev = db.revs.get(id)
  const value = docValue('{}', hashes({ file: bytes }))
  const path = `/${db.name}/${id}/file${rev ? `?rev=${rev}` : ''}`
  const answer = await marks.act([[`doc|${db.key}|${id}`, value]], () =>
    call('PUT', path, bytes, { 'content-type': 'text/x' }),
  )
  db.revs.set(id, answer.rev)
}

async function local(db: Database): Promise<void> {
  const id = `_local/l${random.below(3)}`
  const body = { n: next() }
  const stored = await call('GET', `/${db.name}/${id}`).catch(() => undefined)
  const sent = { ...(stored && { _rev: stored._rev }), ...body }
  await marks.act([[`local|${db.key}|${id}`, JSON.stringify(body)]], () =>
    call('PUT', `/${db.name}/${id}`, sent),
  )
}

async function secure(db: Database): Promise<void> {
  const security = { admins: { names: [`n${next()}`], roles: [] }, members: { names: [], roles: ['_admin'] } }
  const set: Sets = [[`security|${db.key}`, JSON.stringify(security)]]
  await marks.act(set, () => call('PUT', `/${db.name}/_security`, security))
}

async function configure(): Promise<void> {
  const [key, value] = [`k${random.below(3)}`, `v${next()}`]
  await marks.act([[`config|mine/${key}`, value]], () =>
    call('PUT', `/_node/_local/_config/mine/${key}`, value),
  )
}

async function makeToken(): Promise<void> {
  const name = `token${next()}`
  const { id } = await marks.act([[`token|${name}`, ADMIN.name]], () =>
    call('POST', '/_settee/tokens', { name }),
  )
  tokens.push({ id, name })
}

async function revokeToken(): Promise<void> {
  const token = tokens.shift()
  if (token === undefined) return makeToken()
  await marks.act([[`token|${token.name}`, null]], () => call('DELETE', `/_settee/tokens/${token.id}`))
}

async function compact(db: Database): Promise<void> {
  await call('POST', `/${db.name}/_compact`, {})
  for (;;) {
    await putDoc(db, someId(), { n: next() })
    if (!(await call('GET', `/${db.name}`)).compact_running) return
    await wait(2)
  }
}

/** Writes at the same time, which share commits. */
async function burst(db: Database): Promise<void> {
  const ids = [...new Set(Array.from({ length: 12 }, () => someId()))]
  await Promise.all(ids.map((id) => putDoc(db, id, { n: next(), text: text() })))
}

async function look(db: Database): Promise<void> {
  const { update_seq } = await call('GET', `/${db.name}`)
  marks.seen(db.key, Number.parseInt(update_seq, 10))
}

async function account(): Promise<void> {
  const id = `org.couchdb.user:u${next()}`
  const doc = { name: id.split(':')[1], password: 'secret', roles: ['r'], type: 'user' }
  await marks.act([[`account|${id}`, 'there']], () => call('PUT', `/_users/${id}`, doc))
}

/** What a client does, by how often. */
const ACTS: readonly (readonly [weight: number, act: (db: Database) => Promise<void>])[] = [
  [14, (db) => putDoc(db, someId(), { n: next(), text: text() })],
  [8, bulk],
  [5, (db) => putDoc(db, someId(), { n: next() }, { a: Buffer.alloc(random.below(9000), next()) })],
  [3, upload],
  [5, (db) => withLive(db, removeDoc)],
  [2, (db) => withLive(db, purgeDoc)],
  [6, local],
  [4, secure],
  [4, configure],
  [3, makeToken],
  [2, revokeToken],
  [1, account],
  [2, compact],
  [2, check],
  [4, burst],
  [6, look],
  [3, () => replace('scratch')],
  [3, () => replace('other')],
]

async function withLive(db: Database, act: (db: Database, id: string) => Promise<void>): Promise<void> {
  const ids = [...db.revs.keys()]
  if (ids.length > 0) await act(db, ids[random.below(ids.length)] as string)
}

/** Everything is read beside the next acts, and what was found is stored. One that runs already goes on. */
async function check(): Promise<void> {
  await call('POST', '/_settee/check', {}).catch((error: Error) => {
    if (!error.message.includes(': 409 ')) throw error
  })
}

/** Deletes a database, or makes it; in one that is made something is written at once. */
async function replace(name: string): Promise<void> {
  if (databases.has(name)) return deleteDatabase(name)
  await createDatabase(name)
  await putDoc(databases.get(name) as Database, 'd1', { n: next() })
}

async function someAct(): Promise<void> {
  let at = random.below(ACTS.reduce((sum, [weight]) => sum + weight, 0))
  const act = ACTS.find(([weight]) => {
    at -= weight
    return at < 0
  })?.[1]
  const all = [...databases.values()]
  // Most of it goes to one database, so that its log grows to where it is brought into the file and begun anew.
  const db = random.below(3) > 0 ? databases.get('notes') : all[random.below(all.length)]
  await act?.(db as Database)
}

async function main(): Promise<void> {
  await writeAtomically(join(dataDir, 'local.ini'), LOCAL_INI)
  const server = await startServer({
    dataDir,
    env: {},
    flags: { port: 0, bind: '127.0.0.1', logLevel: 'none' },
    threadEntry: new URL('../../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../../helpers/sandbox-thread.mjs', import.meta.url),
  })
  base = server.url.replace(/\/$/, '')
  await createDatabase('notes')
  for (let n = 0; n < Number(acts); n++) await someAct()
}

main().then(
  () => process.kill(process.pid, 'SIGKILL'),
  (error: unknown) => {
    process.stderr.write(`${error}\n`)
    process.exit(1)
  },
)
