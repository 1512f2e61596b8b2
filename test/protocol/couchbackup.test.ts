import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createReadStream, createWriteStream } from 'node:fs'
import { readFile } from 'node:fs/promises'
import type { ClientRequest } from 'node:http'
import { join } from 'node:path'
import couchbackup, { type Options } from '@cloudant/couchbackup'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { type Histories, serverHistories } from './histories.ts'

const BATCH = 50

/** A server, a folder for backups, and every request that couchbackup makes: `METHOD /path content-encoding`. */
async function start(t: Test) {
  const folder = await temporaryFolder(t)
  // couchbackup makes a folder for its log wherever temporary files belong, and leaves it there.
  const { TMPDIR } = process.env
  process.env.TMPDIR = folder
  t.teardown(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR
    else process.env.TMPDIR = TMPDIR
  })
  const sent: string[] = []
  const note = (message: unknown) => {
    const { request } = message as { request: ClientRequest }
    sent.push(`${request.method} ${request.path} ${String(request.getHeader('content-encoding'))}`)
  }
  subscribe('http.client.request.start', note)
  t.teardown(() => unsubscribe('http.client.request.start', note))
  return { server: await startTestServer(t), file: join(folder, 'notes.backup'), sent }
}

/** Backs a database up to a file. @returns how many revisions; @throws couchbackup's error */
function backUp(server: TestServer, database: string, file: string, options: Options = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const target = createWriteStream(file)
    couchbackup.backup(
      `${server.url}/${database}`,
      target,
      { bufferSize: BATCH, ...options },
      (error, result) => {
        target.end(() => (error === null ? resolve(result?.total ?? -1) : reject(error)))
      },
    )
  })
}

/** Restores a file to a database that is there. @returns how many revisions; @throws couchbackup's error */
function restore(server: TestServer, database: string, file: string, options: Options = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    couchbackup.restore(
      createReadStream(file),
      `${server.url}/${database}`,
      { bufferSize: BATCH, ...options },
      (error, result) => (error === null ? resolve(result?.total ?? -1) : reject(error)),
    )
  })
}

const MANY = 220

/** A database with edited documents, conflicts, tombstones, deleted conflicts, design documents and odd ids. */
async function fill(server: TestServer, database: string): Promise<void> {
  await server.request('PUT', `/${database}`)
  const bulk = (docs: object[], newEdits = true) =>
    server.request('POST', `/${database}/_bulk_docs`, { body: { docs, new_edits: newEdits } })
  const docs = Array.from({ length: MANY }, (_, n) => ({ _id: `note-${n}`, n, text: 'wört '.repeat(n % 40) }))
  let { json } = await bulk(docs)
  for (const text of ['second', 'third']) {
    const edited = (json as { id: string; rev: string }[]).slice(0, 60)
    json = (await bulk(edited.map(({ id, rev }) => ({ _id: id, _rev: rev, text })))).json
  }
  const gone = (json as { id: string; rev: string }[]).slice(0, 20)
  await bulk(gone.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true, why: 'kept' })))
  const [a, b, c] = ['a', 'b', 'c'].map((letter) => letter.repeat(32))
  await bulk(
    [
      { _id: 'split', _revisions: { start: 3, ids: [a, c, b] }, _rev: `3-${a}`, text: 'long' },
      { _id: 'split', _revisions: { start: 2, ids: [a, b] }, _rev: `2-${a}`, text: 'short' },
      { _id: 'split', _revisions: { start: 2, ids: [b, b] }, _rev: `2-${b}`, _deleted: true },
      { _id: 'no common root', _rev: `1-${a}`, text: 'one' },
      { _id: 'no common root', _rev: `1-${b}`, text: 'two' },
      { _id: 'stemmed', _revisions: { start: 9, ids: [a, b] }, _rev: `9-${a}`, text: 'ninth' },
      { _id: 'a/b?c#d %', _rev: `1-${a}`, text: '🍎\u2028\n' },
      { _id: '_design/views', _rev: `1-${a}`, language: 'javascript', views: {} },
    ],
    false,
  )
}

async function counts(server: TestServer, database: string): Promise<object> {
  const { doc_count, doc_del_count } = (await server.request('GET', `/${database}`)).json
  return { doc_count, doc_del_count }
}

function leafCount(histories: Histories): number {
  return Object.values(histories).reduce((sum, { leaves }) => sum + leaves.length, 0)
}

t.test('a backup and its restoration', async (t) => {
  const { server, file, sent } = await start(t)
  await fill(server, 'notes')
  const before = await serverHistories(server, 'notes')

  t.test('a backup has all leaves', async (t) => {
    t.equal(await backUp(server, 'notes', file), leafCount(before))
    const [head, ...lines] = (await readFile(file, 'utf8')).trim().split('\n')
    t.match(JSON.parse(head ?? ''), { name: '@cloudant/couchbackup', mode: 'full' })
    t.equal(lines.length, Math.ceil(Object.keys(before).length / BATCH), 'a line for each batch')
    t.ok(sent.includes('HEAD /notes undefined'))
    t.ok(sent.includes('POST /notes/_bulk_get?revs=true gzip'))
  })

  t.test('a restoration brings them back with their histories', async (t) => {
    await server.request('PUT', '/restored')
    sent.length = 0
    t.equal(await restore(server, 'restored', file), leafCount(before))
    t.strictSame(await serverHistories(server, 'restored'), before)
    t.strictSame(await counts(server, 'restored'), await counts(server, 'notes'))
    t.match(await counts(server, 'restored'), { doc_del_count: 20 })
    t.ok(sent.includes('GET /restored undefined'))
    t.ok(sent.includes('POST /restored/_bulk_docs gzip'))
  })

  t.test('a second backup tells the same', async (t) => {
    const again = `${file}-2`
    t.equal(await backUp(server, 'restored', again), leafCount(before))
    t.strictSame(await backedUp(again), await backedUp(file))
  })

  t.test('a shallow backup has the winners', async (t) => {
    const shallow = `${file}-3`
    const live = Object.values(before).filter(({ winner }) => winner !== null)
    t.equal(await backUp(server, 'notes', shallow, { mode: 'shallow' }), live.length)
    await server.request('PUT', '/shallow')
    t.equal(await restore(server, 'shallow', shallow), live.length)
    t.match(await counts(server, 'shallow'), { doc_count: live.length, doc_del_count: 0 })
  })

  t.test('a restoration needs an empty database', async (t) => {
    await t.rejects(restore(server, 'notes', file), { name: 'DatabaseNotEmpty' })
    await t.rejects(restore(server, 'absent', file), { name: 'DatabaseNotFound' })
    await t.rejects(backUp(server, 'absent', `${file}-4`), { name: 'DatabaseNotFound' })
  })
})

/** The revisions of a backup, however its lines and their documents are ordered. */
async function backedUp(file: string): Promise<string[]> {
  const [, ...lines] = (await readFile(file, 'utf8')).trim().split('\n')
  return lines.flatMap((line) => (JSON.parse(line) as object[]).map((doc) => JSON.stringify(doc))).sort()
}

t.test('an empty database', async (t) => {
  const { server, file } = await start(t)
  await server.request('PUT', '/empty')
  const probe = await server.request('POST', '/empty/_bulk_get', { body: { docs: [] } })
  t.match(probe, { status: 200, json: { results: [] } })
  t.equal(await backUp(server, 'empty', file), 0)
  await server.request('PUT', '/restored')
  t.equal(await restore(server, 'restored', file), 0)
  t.strictSame(await counts(server, 'restored'), { doc_count: 0, doc_del_count: 0 })
})

t.test('attachments', async (t) => {
  const { server, file } = await start(t)
  await server.request('PUT', '/notes')
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * 7) % 256))
  const attachments = {
    'photos/a.png': { content_type: 'image/png', data: bytes.toString('base64') },
    'ä.txt': { content_type: 'text/plain', data: Buffer.from('wort '.repeat(2000)).toString('base64') },
    empty: { content_type: 'application/x-empty', data: '' },
  }
  const [a, b] = ['a', 'b'].map((letter) => letter.repeat(32))
  await server.request('POST', '/notes/_bulk_docs', {
    body: {
      new_edits: false,
      docs: [
        { _id: 'note', _rev: `1-${b}`, _attachments: attachments },
        { _id: 'note', _rev: `1-${a}`, _attachments: { 'ä.txt': attachments['ä.txt'] } },
        { _id: 'plain', _rev: `1-${a}`, text: 'none' },
      ],
    },
  })
  const { _rev } = (await server.request('GET', '/notes/note')).json
  await server.request('PUT', `/notes/note?rev=${_rev}`, {
    body: { text: 'edited', _attachments: { 'photos/a.png': { stub: true } } },
  })
  const before = await serverHistories(server, 'notes')

  t.test('go with the option', async (t) => {
    t.equal(await backUp(server, 'notes', file, { attachments: true }), 3)
    await server.request('PUT', '/restored')
    t.equal(await restore(server, 'restored', file, { attachments: true }), 3)
    t.strictSame(await serverHistories(server, 'restored'), before)
    for (const database of ['notes', 'restored']) {
      const { json } = await server.request('GET', `/${database}/note?attachments=true`)
      t.strictSame(Buffer.from(json._attachments['photos/a.png'].data, 'base64'), bytes)
    }
  })

  t.test('stay behind without it, so that nothing passes for whole', async (t) => {
    const stubs = `${file}-2`
    t.equal(await backUp(server, 'notes', stubs), 3)
    await server.request('PUT', '/without')
    await t.rejects(restore(server, 'without', stubs), { message: /412/ })
  })
})
