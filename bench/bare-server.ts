/**
 * The upper limit of the trials `put`, `get`, `fanout` and `memory`: Fastify, and one thread with a SQLite file that commits
 * groups of writes. It checks nothing: no accounts, no revisions, no rules. `node bench/bare-server.ts FOLDER` prints its
 * address.
 */
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import fastify from 'fastify'
import { Connection } from '../src/storage/sqlite/connection.ts'
import type { Peer } from './peer.ts'
import { startServer } from './server-process.ts'
import { fanout } from './trials/fanout.ts'
import { get } from './trials/get.ts'
import { memory } from './trials/memory.ts'
import { put } from './trials/put.ts'

const REV = '1-967a00dff5e02add41819138abb3284d'
const SELF = fileURLToPath(import.meta.url)

/** Starts it as a peer. @throws when it ends before it is ready */
export async function startBareServer(env: Readonly<Record<string, string>>): Promise<Peer> {
  const peer = await startServer({
    name: 'bare limit',
    durability: 'fsync before every answer',
    args: (folder) => [SELF, folder],
    env,
    address: (printed) => /http:\S+/.exec(printed)?.[0],
  })
  return { ...peer, trials: [put, get, fanout, memory].map(({ name }) => name) }
}

/** A call of the thread: a write if it has a body, else a read. */
interface Call {
  readonly serial: number
  readonly key: string
  readonly body?: string | undefined
}

interface Answer {
  readonly serial: number
  readonly body: string | undefined
}

function serveStore(folder: string): void {
  const connection = new Connection(join(folder, 'bare.sqlite'))
  connection.exec('CREATE TABLE doc (num INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body TEXT NOT NULL)')
  const select = connection.prepare<{ body: string }>('SELECT body FROM doc WHERE id = ?')
  const insert = connection.prepare('INSERT OR REPLACE INTO doc (id, body) VALUES (?, ?)')
  let group: (Call & { body: string })[] = []
  const commit = () => {
    const writes = group
    group = []
    connection.begin()
    for (const { key, body } of writes) insert.run(key, body)
    connection.commit()
    for (const { serial, body } of writes) parentPort?.postMessage({ serial, body })
  }
  parentPort?.on('message', ({ serial, key, body }: Call) => {
    if (body === undefined) {
      parentPort?.postMessage({ serial, body: select.get(key)?.body })
      return
    }
    if (group.push({ serial, key, body }) === 1) setImmediate(commit)
  })
}

function store(folder: string): (key: string, body?: string) => Promise<string | undefined> {
  const worker = new Worker(SELF, { workerData: folder })
  const waiting = new Map<number, (body: string | undefined) => void>()
  worker.on('message', ({ serial, body }: Answer) => {
    waiting.get(serial)?.(body)
    waiting.delete(serial)
  })
  let serial = 0
  return (key, body) =>
    new Promise((resolve) => {
      serial += 1
      waiting.set(serial, resolve)
      worker.postMessage({ serial, key, body })
    })
}

interface Params {
  readonly db: string
  readonly id: string
}

async function serve(folder: string): Promise<void> {
  const call = store(folder)
  const counts = new Map<string, number>()
  const app = fastify({ bodyLimit: 64 * 1024 * 1024 })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) =>
    done(null, body),
  )
  const feeds = new Map<string, Set<ServerResponse>>()
  const save = async (db: string, id: string, body: string) => {
    const seq = (counts.get(db) ?? 0) + 1
    counts.set(db, seq)
    await call(`${db}/${id}`, body)
    const line = `${JSON.stringify({ seq, id, changes: [{ rev: REV }] })}\n`
    for (const feed of feeds.get(db) ?? []) feed.write(line)
  }
  app.get('/', () => ({}))
  app.put('/:db', (_request, reply) => reply.code(201).send({ ok: true }))
  app.delete('/:db', () => ({ ok: true }))
  app.get<{ Params: Params }>('/:db', ({ params }) => ({ doc_count: counts.get(params.db) ?? 0 }))
  app.post<{ Params: Params; Body: string }>('/:db/_bulk_docs', async ({ params, body }, reply) => {
    const { docs } = JSON.parse(body) as { docs: { _id: string }[] }
    await Promise.all(docs.map((doc) => save(params.db, doc._id, JSON.stringify(doc))))
    return reply.code(201).send([])
  })
  app.put<{ Params: Params; Body: string }>('/:db/:id', async ({ params: { db, id }, body }, reply) => {
    await save(db, id, body)
    return reply.code(201).send({ ok: true, id, rev: REV })
  })
  app.get<{ Params: Params }>('/:db/_changes', ({ params }, reply): void => {
    const { raw } = reply.hijack()
    const open = feeds.get(params.db) ?? new Set()
    feeds.set(params.db, open.add(raw))
    raw.on('close', () => open.delete(raw))
    raw.write('\n')
  })
  app.get<{ Params: Params }>('/:db/:id', async ({ params: { db, id } }, reply) => {
    return reply.type('application/json').send(await call(`${db}/${id}`))
  })
  console.log(await app.listen({ port: 0, host: '127.0.0.1' }))
}

const [folder] = process.argv.slice(2)
if (!isMainThread) serveStore(workerData as string)
else if (process.argv[1] === SELF && folder !== undefined) await serve(folder)
