/**
 * Documents that `_bulk_docs` reports as stored exist: with many concurrent requests, in memory and spooled, with a
 * validate function, and during filtered feeds and compactions. At the end, the ids and revisions in the database's
 * file are compared with every row of every answer.
 */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import Database from 'better-sqlite3'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../../helpers/server.ts'

const DOCS = 6_000
const IN_FLIGHT = 12
/** The sizes of the requests, in turn: one group of the writer, several groups, less than one. */
const BATCHES = [1, 700, 50, 256, 400, 3]
const REFUSED_EVERY = 500

interface Sent {
  readonly _id: string
  readonly _rev: string
  readonly [member: string]: unknown
}

function hash(text: string): string {
  return createHash('md5').update(text).digest('hex')
}

/** Two revisions of a conflict for every third document, far from each other, and one for the others. */
function makeDocs(): Sent[] {
  const made = Array.from({ length: DOCS }, (_, n) => makeDoc(n, 'leaf'))
  const others = Array.from({ length: DOCS / 3 }, (_, n) => makeDoc(3 * n, 'other'))
  return [...made, ...others]
}

function makeDoc(n: number, leaf: string): Sent {
  const _id = `${n % 10 === 0 ? 'file' : 'note'}:${hash(String(n))}`
  const ids = [hash(_id + leaf), hash(_id)]
  const body = { n, text: 'x'.repeat(500), ...(n % REFUSED_EVERY === 0 && { secret: true }) }
  return { _id, _rev: `2-${ids[0]}`, _revisions: { start: 2, ids }, ...body }
}

function* batchesOf(docs: readonly Sent[]): Generator<readonly Sent[]> {
  for (let at = 0, turn = 0; at < docs.length; turn++) {
    const size = BATCHES[turn % BATCHES.length] as number
    yield docs.slice(at, at + size)
    at += size
  }
}

/** Sends all bulks. @returns the documents that were reported as stored, and the others */
async function pushAll({ request }: TestServer, path: string, docs: readonly Sent[]) {
  const [stored, refused]: [string[], string[]] = [[], []]
  const batches = batchesOf(docs)
  const worker = async () => {
    for (let next = batches.next(); !next.done; next = batches.next()) {
      const json = JSON.stringify({ new_edits: false, docs: next.value })
      const isCoded = next.value.length === 400
      const headers = {
        'content-type': 'application/json',
        ...(isCoded && { 'content-encoding': 'gzip' }),
      }
      const answer = await request('POST', path, { body: isCoded ? gzipSync(json) : json, headers })
      if (answer.status !== 201) throw new Error(`${answer.status} ${answer.text}`)
      const rows = new Set(
        (answer.json as { id: string; rev: string }[]).map(({ id, rev }) => `${id} ${rev}`),
      )
      for (const { _id, _rev } of next.value)
        (rows.has(`${_id} ${_rev}`) ? refused : stored).push(`${_id} ${_rev}`)
    }
  }
  await Promise.all(Array.from({ length: IN_FLIGHT }, worker))
  return { stored, refused }
}

/** Keeps a server busy during the writes, until it is stopped. */
function disturb({ request }: TestServer): () => Promise<void> {
  let isOver = false
  const again = async (work: () => Promise<unknown>) => {
    while (!isOver) await work()
  }
  const since: Record<string, string> = {}
  const follow = (query: string) => async () => {
    const path = `/db/_changes?feed=longpoll&timeout=200&limit=500&since=${since[query] ?? 0}&${query}`
    const { json } = await request('GET', path)
    since[query] = (json as { last_seq: string }).last_seq
  }
  const all = [
    again(follow('filter=mobile/sync')),
    again(follow('filter=mobile/odd')),
    again(follow('style=all_docs')),
    again(() => request('POST', '/db/_compact', { body: {} })),
  ]
  return async () => {
    isOver = true
    await Promise.all(all)
  }
}

const DESIGN = {
  filters: {
    sync: "function (doc) { return doc._id.indexOf('file:') === -1 }",
    odd: 'function (doc) { var odd = 0; for (var i = 0; i < 3; i++) odd = doc.n % 2; return odd === 1 }',
  },
}
const VALIDATE = "function (doc) { if (doc.secret) throw({ forbidden: 'no secrets' }) }"

async function start(t: Test, design: object) {
  const server = await startTestServer(t)
  const { request } = server
  for (const [path, body] of [
    ['/_node/_local/_config/settee/body_memory', JSON.stringify('1048576')],
    ['/db', undefined],
    ['/db/_design/mobile', design],
  ] as const) {
    const { status, text } = await request('PUT', path, { body })
    if (status >= 300) throw new Error(`${path}: ${status} ${text}`)
  }
  return server
}

/** Every leaf in the database's file, read while no server has it open. */
function leavesIn(dataDir: string): string[] {
  const file = new Database(join(dataDir, 'databases', 'db.sqlite'), { readonly: true })
  try {
    const sql = "SELECT d.id || ' ' || r.rev AS leaf FROM revision r JOIN doc d ON d.num = r.doc WHERE r.leaf"
    const rows = file.prepare(sql).all() as { leaf: string }[]
    return rows.map(({ leaf }) => leaf).filter((leaf) => !leaf.startsWith('_design/'))
  } finally {
    file.close()
  }
}

for (const [title, design, refusedDocs] of [
  ['without a validate function', DESIGN, 0],
  ['with one that refuses some', { ...DESIGN, validate_doc_update: VALIDATE }, DOCS / REFUSED_EVERY],
] as const) {
  t.test(`bulks in flight, ${title}`, async (t) => {
    const server = await start(t, design)
    const docs = makeDocs()
    const calm = disturb(server)
    const { stored, refused } = await pushAll(server, '/db/_bulk_docs', docs)
    await calm()
    const refusedRevs = docs.filter(({ secret }) => refusedDocs > 0 && secret)
    t.strictSame(refused.sort(), refusedRevs.map(({ _id, _rev }) => `${_id} ${_rev}`).sort())
    t.equal(stored.length + refused.length, docs.length)

    const info = (await server.request('GET', '/db')).json as { doc_count: number }
    t.equal(info.doc_count, DOCS - refusedDocs + 1)
    const { rows } = (await server.request('GET', '/db/_all_docs')).json as { rows: { id: string }[] }
    t.equal(new Set(rows.map(({ id }) => id)).size, info.doc_count)
    const feed = async (query: string) =>
      ((await server.request('GET', `/db/_changes?${query}`)).json as { results: { id: string }[] }).results
    t.equal((await feed('')).length, info.doc_count)
    const notes = rows.filter(({ id }) => !id.startsWith('file:')).length
    t.equal((await feed('filter=mobile/sync')).length, notes)
    await server.close()
    t.strictSame(leavesIn(server.dataDir).sort(), stored.sort())
  })
}
