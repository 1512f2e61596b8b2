/** A data folder with something of everything, as a server leaves it that was killed: with logs beside the files. */
import { cp, mkdir, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Test } from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

export const ADMIN = 'admin:secret'
export const USER = { name: 'ben', password: 'relax' }

/** Few iterations: the passwords of each start are checked once. */
const INI = '[admins]\nadmin = secret\n[chttpd_auth]\niterations = 10\n[settee]\nscrub_interval = 0\n'

export interface TemplateDatabase {
  readonly name: string
  /** The first revisions of changed documents, by their ids: the time machine has them. */
  readonly superseded: Readonly<Record<string, string>>
  /** How many documents it had at each state that its log may be cut to. */
  readonly states: readonly DatabaseCounts[]
}

export interface DatabaseCounts {
  readonly doc_count: number
  readonly doc_del_count: number
  readonly update_seq: string
}

export interface Template {
  readonly folder: string
  readonly databases: readonly TemplateDatabase[]
  /** The id of its only backup. */
  readonly backup: string
  /** A device token. */
  readonly token: string
}

/**
 * @param count how many databases, all with the same documents
 * @param backup whether it is made before what is only in the logs, or after it
 */
export async function makeTemplate(
  t: Pick<Test, 'teardown'>,
  count: number,
  backup: 'early' | 'late' = 'early',
): Promise<Template> {
  const root = await temporaryFolder(t)
  const dataDir = join(root, 'first')
  await mkdir(dataDir, { mode: 0o700 })
  await writeFile(join(dataDir, 'local.ini'), INI, { mode: 0o600 })
  const server = await startTestServer(t, { dataDir })
  const { call } = callerOf(server)
  await call('PUT', `/_users/org.couchdb.user:${USER.name}`, { ...USER, type: 'user', roles: ['writer'] })
  const auth = `${USER.name}:${USER.password}`
  const { token } = (await server.request('POST', '/_settee/tokens', { auth, body: { name: 'phone' } })).json
  const filled: Omit<TemplateDatabase, 'states'>[] = []
  for (let n = 0; n < count; n++) filled.push(await fill(server, `notes-${n}`))
  const early = backup === 'early' ? await backUp(server) : null
  // Checkpoints the logs, so that what follows is in them.
  await server.stop()
  await server.start()
  const databases: TemplateDatabase[] = []
  for (const database of filled) databases.push({ ...database, states: await fillLog(server, database.name) })
  const id = early ?? (await backUp(server))
  const folder = join(root, 'template')
  // The memory of a log's index goes with its process, and a socket cannot be copied.
  const isKept = (path: string) => !path.endsWith('-shm') && !path.endsWith('.sock')
  await cp(dataDir, folder, { recursive: true, filter: isKept })
  await server.close()
  return { folder, databases, backup: id, token }
}

async function backUp(server: TestServer): Promise<string> {
  const { call } = callerOf(server)
  const { id } = await call('POST', '/_settee/backups', {})
  while ((await call('GET', '/_settee/backups')).running !== null) await delay(20)
  return id
}

export function callerOf(server: TestServer) {
  const call = async (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) => {
    const answer = await server.request(method, path, {
      auth: ADMIN,
      headers,
      ...(body !== undefined && { body }),
    })
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
    return answer.json
  }
  return { call }
}

export const PICTURE = { 'content-type': 'image/jpeg' }
const TEXT = { 'content-type': 'text/plain' }

async function fill(server: TestServer, name: string): Promise<Omit<TemplateDatabase, 'states'>> {
  const { call } = callerOf(server)
  const text = (n: number) => `words ${n} of ${name} `.repeat(1 + (n % 5) * 30)
  await call('PUT', `/${name}`)
  await call('PUT', `/${name}/_security`, { members: { names: [USER.name], roles: [] } })
  const ids = Array.from({ length: 12 }, (_, n) => `doc-${String(n).padStart(2, '0')}`)
  const first = await call('POST', `/${name}/_bulk_docs`, {
    docs: ids.map((_id, n) => ({ _id, n, text: text(n) })),
  })
  const revs = new Map<string, string>(first.map(({ id, rev }: { id: string; rev: string }) => [id, rev]))
  const change = ids.slice(0, 4).map((_id, n) => ({ _id, _rev: revs.get(_id), n, text: text(n + 7) }))
  await call('POST', `/${name}/_bulk_docs`, { docs: change })
  await call('DELETE', `/${name}/doc-11?rev=${revs.get('doc-11')}`)
  await call('POST', `/${name}/_compact`, {})
  while ((await call('GET', `/${name}`)).compact_running) await delay(10)
  for (const _id of ids.slice(3, 5)) {
    const docs = [{ _id, _rev: `1-${'f'.repeat(32)}`, n: 90, text: 'another device' }]
    await call('POST', `/${name}/_bulk_docs`, { new_edits: false, docs })
  }
  const put = (id: string, attachment: string, bytes: Buffer, headers: Record<string, string>) =>
    call('PUT', `/${name}/${id}/${attachment}?rev=${revs.get(id)}`, bytes, headers)
  await put('doc-06', 'large.jpg', Buffer.from(text(4).repeat(60)), PICTURE)
  await put('doc-07', 'text.txt', Buffer.from(text(3).repeat(20)), TEXT)
  await put('doc-08', 'small.jpg', Buffer.from(`a small picture of ${name}`), PICTURE)
  await put('doc-05', 'small.jpg', Buffer.from(`a small picture of ${name}`), PICTURE)
  const map = 'function (doc) { if (doc.text) emit([doc.n, doc._id], doc.text.length) }'
  await call('PUT', `/${name}/_design/d`, { views: { v: { map, reduce: '_count' } } })
  await call('POST', `/${name}/_index`, { index: { fields: ['n'] }, ddoc: 'by-n', name: 'by-n' })
  for (const n of [1, 2, 3])
    await call('PUT', `/${name}/_local/checkpoint-${n}`, { last_seq: `${n}-${text(n)}` })
  await call('PUT', `/${name}/_revs_limit`, '900')
  await call('POST', `/${name}/_purge`, { 'doc-10': [revs.get('doc-10')] })
  await readIndexes(server, name)
  return { name, superseded: Object.fromEntries(ids.slice(0, 4).map((id) => [id, revs.get(id) as string])) }
}

/** Only new documents: a log of which the end is lost gives an earlier state, which nobody can tell from the true one. */
async function fillLog(server: TestServer, name: string): Promise<DatabaseCounts[]> {
  const { call } = callerOf(server)
  const states = [await call('GET', `/${name}`)]
  for (let n = 0; n < 3; n++) {
    await call('PUT', `/${name}/new-${n}`, { n: 50 + n, text: `new words ${n} of ${name}` })
    states.push(await call('GET', `/${name}`))
  }
  await call('PUT', `/${name}/picture/new.jpg`, Buffer.from(`a new picture of ${name} `.repeat(300)), PICTURE)
  states.push(await call('GET', `/${name}`))
  await readIndexes(server, name)
  return states
}

async function readIndexes(server: TestServer, name: string): Promise<void> {
  const { call } = callerOf(server)
  await call('GET', `/${name}/_design/d/_view/v?reduce=false`)
  await call('POST', `/${name}/_find`, { selector: { n: { $gte: 0 } }, use_index: 'by-n' })
}

/** All files below a folder, by their paths in it. */
export async function filesIn(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1))
    .sort()
}
