/**
 * Run by the recorder: a whole server, and in the same process a client that makes and removes backups, restores
 * databases in place and beside, and has an older file brought to the newest schema, while it writes; what was
 * acknowledged is marked. Arguments: data folder, path for marks, rounds, a folder that is not recorded. Ends by SIGKILL.
 */
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, readFileSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as wait } from 'node:timers/promises'
import { request } from 'undici'
import { syncPath, writeAtomically, writeDurably } from '../../../src/core/durable-files.ts'
import { type RunningServer, startServer } from '../../../src/server.ts'
import { NEWEST, writeOldFile } from '../../helpers/old-files.ts'
import { MarkWriter, type Sets } from './ledger.ts'
import { docValue, OPEN_INI } from './world.ts'

const [, , dataDir = '', markPath = '', rounds = '2', elsewhere = ''] = process.argv
const marks = new MarkWriter(markPath)
const SECURITY = { admins: { names: ['anna'], roles: [] }, members: { names: [], roles: ['_admin'] } }

/** What a database holds: values and revisions by id. */
interface Content {
  readonly docs: ReadonlyMap<string, { readonly value: string; readonly rev: string }>
  readonly local: string
}

let base = ''
let count = 0
const generations = new Map<string, number>()
const databases = new Map<string, { readonly key: string; content: Content }>()

async function call(method: string, path: string, body?: unknown) {
  const answer = await request(base + path, {
    method: method as 'GET',
    headers: { 'content-type': 'application/json' },
    body: body === undefined ? null : JSON.stringify(body),
  })
  const text = await answer.body.text()
  if (answer.statusCode >= 300) throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`)
  // biome-ignore lint/suspicious/noExplicitAny: an answer of the server under test
  return JSON.parse(text) as any
}

async function start(): Promise<RunningServer> {
  const server = await startServer({
    dataDir,
    env: {},
    flags: { port: 0, bind: '127.0.0.1', logLevel: 'none' },
    threadEntry: new URL('../../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../../helpers/sandbox-thread.mjs', import.meta.url),
  })
  base = server.url.replace(/\/$/, '')
  return server
}

function newKey(name: string): string {
  const number = (generations.get(name) ?? 0) + 1
  generations.set(name, number)
  return `${name}@${number}`
}

async function create(name: string): Promise<void> {
  const key = newKey(name)
  await marks.act([[`db|${name}`, key]], () => call('PUT', `/${name}`))
  databases.set(name, { key, content: { docs: new Map(), local: '' } })
  await marks.act([[`security|${key}`, JSON.stringify(SECURITY)]], () =>
    call('PUT', `/${name}/_security`, SECURITY),
  )
  const local = JSON.stringify({ n: ++count })
  await marks.act([[`local|${key}|_local/l`, local]], () =>
    call('PUT', `/${name}/_local/l`, JSON.parse(local)),
  )
  known(name).content = { docs: new Map(), local }
}

function known(name: string) {
  return databases.get(name) as { readonly key: string; content: Content }
}

async function put(name: string, id: string, bytes = 0): Promise<void> {
  const { key, content } = known(name)
  const body = { n: ++count, text: 'x'.repeat(count % 500) }
  const file = Buffer.alloc(bytes, count)
  const sums = bytes === 0 ? {} : { file: createHash('sha256').update(file).digest('hex') }
  const value = docValue(JSON.stringify(body), sums)
  const rev = content.docs.get(id)?.rev
  const attached = { _attachments: { file: { content_type: 'text/x', data: file.toString('base64') } } }
  const sent = { ...(rev && { _rev: rev }), ...(bytes > 0 && attached), ...body }
  const answer = await marks.act([[`doc|${key}|${id}`, value]], () => call('PUT', `/${name}/${id}`, sent))
  known(name).content = {
    ...content,
    docs: new Map(content.docs).set(id, { value, rev: answer.rev as string }),
  }
}

/** Writes now and then until something is over. */
async function writingMeanwhile(name: string, isOver: () => Promise<boolean>): Promise<void> {
  while (!(await isOver())) {
    await put(name, `d${count % 7}`)
    await wait(25)
  }
}

async function backUp(): Promise<string> {
  const { id } = await call('POST', '/_settee/backups', {})
  await writingMeanwhile('busy', async () => (await call('GET', '/_settee/backups')).running === null)
  const { backups } = await call('GET', '/_settee/backups')
  if (backups[0].id !== id || !backups[0].verified) throw new Error(JSON.stringify(backups[0]))
  // One that was removed in the same second had the same name.
  marks.begun([[`removed|${id}`, null]])
  marks.told([[`backup|${id}`, 'whole']])
  return id
}

async function removeBackup(id: string): Promise<void> {
  marks.begun([[`backup|${id}`, null]])
  await marks.act([[`removed|${id}`, 'gone']], () => call('DELETE', `/_settee/backups/${id}`))
}

/** What a database of another key holds from when it has it on. */
function contentSets(key: string, { docs, local }: Content): Sets {
  return [
    ...[...docs].map(([id, { value }]) => [`doc|${key}|${id}`, value] as const),
    [`local|${key}|_local/l`, local],
    [`security|${key}`, JSON.stringify(SECURITY)],
  ]
}

/** Puts a database back to what a backup has of it, in its own place or beside it. */
async function restore(id: string, name: string, content: Content, as: string): Promise<void> {
  const key = newKey(as)
  marks.told(contentSets(key, content))
  const before = databases.get(as)?.content
  const { kept } = await marks.act([[`db|${as}`, key]], () =>
    call('POST', `/_settee/backups/${id}/restore`, { database: name, ...(as !== name && { as }) }),
  )
  if (before !== undefined) marks.told([[`replaced|${basename(kept)}`, String(before.docs.size)]])
  databases.set(as, { key, content })
}

async function round(n: number): Promise<void> {
  for (const id of ['a', 'b', 'c']) await put('notes', id, id === 'b' ? 20_000 : 0)
  const before = known('notes').content
  const id = await backUp()
  for (const doc of ['a', 'b', `new-${n}`]) await put('notes', doc)
  await restore(id, 'notes', before, 'notes')
  await put('notes', 'after')
  await restore(id, 'notes', before, `beside-${n}`)
  const next = await backUp()
  await removeBackup(n % 2 === 0 ? id : next)
}

/** A file of before this schema, put into the folder of a server that is stopped. */
async function putOldFile(): Promise<string> {
  const copy = join(elsewhere, 'today.sqlite')
  const old = join(elsewhere, 'old.sqlite')
  copyFileSync(join(dataDir, 'databases', 'notes.sqlite'), copy)
  writeOldFile(old, copy, NEWEST - 1)
  const path = join(dataDir, 'databases', 'old.sqlite')
  const { content } = known('notes')
  const key = newKey('old')
  marks.told(contentSets(key, content))
  databases.set('old', { key, content })
  await marks.act([['db|old', key]], async () => {
    await writeDurably(`${path}.unfinished`, readFileSync(old))
    await rename(`${path}.unfinished`, path)
    await syncPath(join(path, '..'))
  })
  return createHash('sha256').update(readFileSync(old)).digest('hex')
}

async function main(): Promise<void> {
  await writeAtomically(join(dataDir, 'local.ini'), OPEN_INI)
  const server = await start()
  for (const name of ['notes', 'busy', 'idle']) await create(name)
  await put('idle', 'a', 30_000)
  for (let n = 0; n < Number(rounds); n++) await round(n)
  await server.close()
  const sum = await putOldFile()
  await start()
  await marks.act([['upgraded|old', sum]], () => call('GET', '/old'))
  if (!existsSync(join(dataDir, 'before-upgrade'))) throw new Error('nothing was copied before the upgrade')
  await put('old', 'after')
  await backUp()
}

main().then(
  () => process.kill(process.pid, 'SIGKILL'),
  (error: unknown) => {
    process.stderr.write(`${(error as Error).stack}\n`)
    process.exit(1)
  },
)
