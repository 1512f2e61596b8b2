import { readFile } from 'node:fs/promises'
import t from 'tap'
import type { TestServer } from '../../helpers/server.ts'
import { BATCH, backUp, fill, restore, start } from '../../protocol/couchbackup.ts'
import { type Histories, serverHistories } from '../../protocol/histories.ts'

async function counts(server: TestServer, database: string): Promise<object> {
  const { doc_count, doc_del_count } = (await server.request('GET', `/${database}`)).json
  return { doc_count, doc_del_count }
}

function leafCount(histories: Histories): number {
  return Object.values(histories).reduce((sum, { leaves }) => sum + leaves.length, 0)
}

t.test('a backup and its restore', async (t) => {
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

  t.test('a restore recreates them with their histories', async (t) => {
    await server.request('PUT', '/restored')
    sent.length = 0
    t.equal(await restore(server, 'restored', file), leafCount(before))
    t.strictSame(await serverHistories(server, 'restored'), before)
    t.strictSame(await counts(server, 'restored'), await counts(server, 'notes'))
    t.match(await counts(server, 'restored'), { doc_del_count: 20 })
    t.ok(sent.includes('GET /restored undefined'))
    t.ok(sent.includes('POST /restored/_bulk_docs gzip'))
  })

  t.test('a second backup has the same content', async (t) => {
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

  t.test('a restore needs an empty database', async (t) => {
    await t.rejects(restore(server, 'notes', file), { name: 'DatabaseNotEmpty' })
    await t.rejects(restore(server, 'absent', file), { name: 'DatabaseNotFound' })
    await t.rejects(backUp(server, 'absent', `${file}-4`), { name: 'DatabaseNotFound' })
  })
})

/** The revisions of a backup, independent of the order of lines and documents. */
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

  t.test('are included with the option', async (t) => {
    t.equal(await backUp(server, 'notes', file, { attachments: true }), 3)
    await server.request('PUT', '/restored')
    t.equal(await restore(server, 'restored', file, { attachments: true }), 3)
    t.strictSame(await serverHistories(server, 'restored'), before)
    for (const database of ['notes', 'restored']) {
      const { json } = await server.request('GET', `/${database}/note?attachments=true`)
      t.strictSame(Buffer.from(json._attachments['photos/a.png'].data, 'base64'), bytes)
    }
  })

  t.test('make the restore fail without it, so that it does not seem complete', async (t) => {
    const stubs = `${file}-2`
    t.equal(await backUp(server, 'notes', stubs), 3)
    await server.request('PUT', '/without')
    await t.rejects(restore(server, 'without', stubs), { message: /412/ })
  })
})
