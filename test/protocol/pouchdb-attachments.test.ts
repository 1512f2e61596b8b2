import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect as open } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { partsOf } from '../helpers/multipart-parts.ts'
import { startTestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { connect } from '../http/client.ts'
import { call } from './call.ts'
import { ADAPTERS, type Device, device, liveSync, rejectsWith, remote } from './devices.ts'
import { sameEverywhere } from './histories.ts'

const TEXT = Buffer.from('Grüße an alle. '.repeat(40))
const BINARY = Buffer.from(Array.from({ length: 1024 }, (_, n) => n % 256))
const EMPTY = Buffer.alloc(0)
const LARGER = randomBytes(700_000)

function attachment(data: Buffer, type: string): PouchDB.Attachment {
  return { content_type: type, data: data.toString('base64') }
}

async function bytesOn(db: Device, name: string, id = 'note'): Promise<Buffer> {
  return Buffer.from(await db.getAttachment(id, name))
}

async function sameBytes(t: Test, devices: readonly Device[], wanted: Readonly<Record<string, Buffer>>) {
  for (const db of devices) {
    const { _attachments = {} } = await db.get('note')
    t.strictSame(Object.keys(_attachments).sort(), Object.keys(wanted).sort())
    for (const [name, bytes] of Object.entries(wanted)) {
      t.ok((await bytesOn(db, name)).equals(bytes), `${name} on ${db.adapter}`)
      t.equal(_attachments[name]?.length, bytes.length)
    }
  }
}

for (const adapter of ADAPTERS) {
  t.test(`attachments, ${adapter}`, async (t) => {
    const server = await startTestServer(t)
    const [phone, desk] = [await device(t, adapter), await device(t, adapter)]
    const there = remote(`${server.url}/notes`)
    const everywhere = [phone, desk, remote(`${server.url}/notes`).db]
    const meet = async () => {
      for (const db of [phone, desk, phone]) await db.sync(there.db)
      await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
    }

    t.test('text, binary, empty and larger ones arrive unchanged', async (t) => {
      await phone.put({
        _id: 'note',
        _attachments: {
          'text.txt': attachment(TEXT, 'text/plain'),
          'all bytes.bin': attachment(BINARY, 'application/octet-stream'),
          'empty.txt': attachment(EMPTY, 'text/plain'),
          'photos/ä+b%.jpg': attachment(LARGER, 'image/jpeg'),
        },
      })
      await meet()
      await sameBytes(t, everywhere, {
        'text.txt': TEXT,
        'all bytes.bin': BINARY,
        'empty.txt': EMPTY,
        'photos/ä+b%.jpg': LARGER,
      })
      const { _attachments } = await desk.get('note')
      t.match(_attachments, {
        'text.txt': { content_type: 'text/plain', revpos: 1 },
        'photos/ä+b%.jpg': { content_type: 'image/jpeg', revpos: 1 },
      })
    })

    t.test('one is edited, one removed, and the others stay', async (t) => {
      const edited = Buffer.from('edited')
      const { _rev } = await desk.get('note')
      const { rev } = await desk.putAttachment('note', 'text.txt', _rev, edited, 'text/markdown')
      await desk.removeAttachment('note', 'photos/ä+b%.jpg', rev)
      there.seen.length = 0
      await meet()
      await sameBytes(t, everywhere, { 'text.txt': edited, 'all bytes.bin': BINARY, 'empty.txt': EMPTY })
      // PouchDB sets `revpos` of a pulled attachment to the pulled revision; the server keeps the pushed value.
      t.match((await there.db.get('note'))._attachments, {
        'text.txt': { content_type: 'text/markdown', revpos: 2 },
        'empty.txt': { revpos: 1 },
      })
      await rejectsWith(t, phone.getAttachment('note', 'photos/ä+b%.jpg'), { status: 404 })
      const fetched = there.seen.filter(({ path }) => path.startsWith('/notes/note/'))
      t.strictSame(
        fetched.map(({ path }) => path),
        ['/notes/note/text.txt'],
        'a device fetches only what it does not have',
      )
    })

    t.test('a note is edited without its attachments being sent again', async (t) => {
      await phone.put({ ...(await phone.get('note')), text: 'edited' })
      await meet()
      t.match(await desk.get('note'), { text: 'edited' })
      await sameBytes(t, everywhere, {
        'text.txt': Buffer.from('edited'),
        'all bytes.bin': BINARY,
        'empty.txt': EMPTY,
      })
    })

    t.test('the same bytes under two names, and in two notes', async (t) => {
      const { _rev } = await phone.get('note')
      await phone.put({
        _id: 'note',
        _rev,
        _attachments: {
          one: attachment(TEXT, 'text/plain'),
          two: attachment(TEXT, 'application/octet-stream'),
        },
      })
      await desk.put({ _id: 'other', _attachments: { three: attachment(TEXT, 'text/plain') } })
      await meet()
      await sameBytes(t, everywhere, { one: TEXT, two: TEXT })
      t.ok((await bytesOn(phone, 'three', 'other')).equals(TEXT))
      await phone.removeAttachment('note', 'one', (await phone.get('note'))._rev)
      await phone.remove(await phone.get('other'))
      await meet()
      await sameBytes(t, everywhere, { two: TEXT })
    })

    t.test('written straight to the server', async (t) => {
      const stored = await there.db.get('note')
      const { rev } = await there.db.put({
        ...stored,
        _attachments: { ...stored._attachments, direct: attachment(BINARY, 'x/y') },
      })
      await there.db.put({ ...(await there.db.get('note')), text: 'stubs kept' })
      await meet()
      await sameBytes(t, everywhere, { two: TEXT, direct: BINARY })
      const old = await call(server, 'GET', `/notes/note?rev=${rev}&attachments=true`)
      t.match(old.json, { _attachments: { direct: { data: BINARY.toString('base64') } } })
    })

    t.test('in both leaves of a conflict', async (t) => {
      const names = ['phone', 'desk']
      for (const [at, db] of [phone, desk].entries()) {
        const name = names[at] as string
        await db.put({
          _id: 'conflict',
          _attachments: { [name]: attachment(Buffer.from(name), 'text/plain') },
        })
      }
      await meet()
      for (const db of everywhere) {
        const { _rev, _conflicts = [] } = await db.get('conflict', { conflicts: true })
        const texts = await Promise.all(
          [_rev, ..._conflicts].map(async (rev) => {
            const [name = ''] = Object.keys((await db.get('conflict', { rev }))._attachments ?? {})
            return (await db.getAttachment('conflict', name, { rev })).toString()
          }),
        )
        t.strictSame(texts.sort(), ['desk', 'phone'])
      }
    })
  })
}

const MB = 1024 * 1024
/** Bytes that cannot be compressed. */
const CONTENTS: Readonly<Record<string, Buffer>> = {
  'one.bin': randomBytes(MB),
  'five.jpg': randomBytes(5 * MB + 1),
  'twenty.mp4': randomBytes(20 * MB),
}

t.setTimeout(900_000)

function digestOf(bytes: Buffer): string {
  return `md5-${createHash('md5').update(bytes).digest('base64')}`
}

function attachments(contents: Readonly<Record<string, Buffer>>): Record<string, PouchDB.Attachment> {
  return Object.fromEntries(
    Object.entries(contents).map(([name, data]) => [
      name,
      { content_type: 'video/mp4', data: data.toString('base64') },
    ]),
  )
}

async function isOn(db: Device, id: string, wanted: Readonly<Record<string, Buffer>>): Promise<boolean> {
  for (const [name, bytes] of Object.entries(wanted)) {
    if (!Buffer.from(await db.getAttachment(id, name)).equals(bytes)) return false
  }
  return Object.keys((await db.get(id))._attachments ?? {}).length === Object.keys(wanted).length
}

t.test('20 MB up and down', async (t) => {
  const server = await startTestServer(t)
  const [phone, desk] = [await device(t, 'leveldb'), await device(t, 'leveldb')]
  const there = remote(`${server.url}/notes`)
  const facts = Object.fromEntries(
    Object.entries(CONTENTS).map(([name, bytes]) => [
      name,
      { length: bytes.length, digest: digestOf(bytes) },
    ]),
  )

  await phone.put({ _id: 'up', _attachments: attachments(CONTENTS) })
  t.match(await phone.replicate.to(there.db), { ok: true, docs_written: 1, doc_write_failures: 0 })
  const sent = there.seen
    .filter(({ path }) => path === '/notes/_bulk_docs')
    .map(({ body = '' }) => body.length)
  t.ok(Math.max(...sent) > (4 / 3) * 26 * MB, `${sent} characters in one request`)
  t.match((await call(server, 'GET', '/notes/up')).json, { _attachments: facts })
  t.ok(await isOn(there.db, 'up', CONTENTS), 'the server has the bytes')

  t.match(await desk.replicate.from(there.db), { ok: true, docs_written: 1 })
  t.ok(await isOn(desk, 'up', CONTENTS), 'the other device has them')
  t.match((await desk.get('up'))._attachments, facts)

  // One attachment is replaced by the other device; the others are not sent again.
  const edited = { ...CONTENTS, 'twenty.mp4': randomBytes(20 * MB) }
  const { _rev } = await desk.get('up')
  await desk.putAttachment('up', 'twenty.mp4', _rev, edited['twenty.mp4'] as Buffer, 'video/mp4')
  await desk.sync(there.db)
  there.seen.length = 0
  await phone.sync(there.db)
  t.ok(await isOn(phone, 'up', edited), 'the phone has the new bytes')
  const fetched = there.seen.filter(({ path }) => path.startsWith('/notes/up/')).map(({ path }) => path)
  t.strictSame(fetched, ['/notes/up/twenty.mp4'], 'only what it does not have')
})

t.test('20 MB written to the server, through a live sync', async (t) => {
  const server = await startTestServer(t)
  const { db } = remote(`${server.url}/notes`)
  const devices = [await device(t), await device(t)] as const
  const syncs = devices.map((one) => liveSync(t, one, remote(`${server.url}/notes`).db))
  const film = { film: CONTENTS['twenty.mp4'] as Buffer }
  const { rev } = await db.put({ _id: 'down', text: 'a film' })
  await db.putAttachment('down', 'film', rev, film.film, 'video/mp4')
  await devices[0].put({ _id: 'up', _attachments: attachments(film) })
  for (const one of devices) {
    for (const id of ['down', 'up']) {
      await until(`${id} has arrived`, async () => isOn(one, id, film).catch(() => false))
    }
  }
  t.ok(await isOn(db, 'up', film))
  t.strictSame(
    syncs.flatMap(({ errors, denied }) => [...errors, ...denied]),
    [],
  )
})

const CODED = 'a text that is stored as gzip'
const STORED = gzipSync(CODED)

t.test('an attachment that was sent as gzip', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const headers = { 'content-type': 'text/plain', 'content-encoding': 'gzip' }
  t.match(await call('PUT', '/db/doc/coded', { body: STORED, headers }), { status: 201 })
  t.match(await call('GET', '/db/doc/coded'), {
    text: CODED,
    headers: { 'content-length': '29', 'accept-ranges': 'none' },
  })
  const coded = await call('GET', '/db/doc/coded', { headers: { 'accept-encoding': 'gzip' } })
  t.ok(coded.bytes.equals(STORED))
  const info = { encoding: 'gzip', encoded_length: STORED.length }
  const data = Buffer.from(CODED).toString('base64')
  const member = (answer: { json: unknown }, ...path: (string | number)[]) =>
    // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
    path.reduce((value: any, name) => value[name], answer.json)._attachments.coded
  const asked: [path: string, ...member: (string | number)[]][] = [
    ['/db/doc?'],
    ['/db/doc?open_revs=all&', 0, 'ok'],
    ['/db/_all_docs?include_docs=true&', 'rows', 0, 'doc'],
    ['/db/_changes?include_docs=true&', 'results', 0, 'doc'],
  ]
  for (const [path, ...names] of asked) {
    const read = async (query: string) => member(await call('GET', path + query), ...names)
    t.match(await read(''), { stub: true, length: 29, encoding: undefined }, path)
    t.match(await read('att_encoding_info=true'), { stub: true, length: 29, ...info })
    t.match(await read('attachments=true'), { data, encoding: undefined, stub: undefined })
    t.match(await read('attachments=true&att_encoding_info=true'), { data, ...info })
  }
  const bulk = await call('POST', '/db/_bulk_get?attachments=true&att_encoding_info=true', {
    json: { docs: [{ id: 'doc' }] },
  })
  t.match(member(bulk, 'results', 0, 'docs', 0, 'ok'), { data, ...info })
  const parts = await call('GET', '/db/doc?attachments=true', { headers: { accept: 'multipart/related' } })
  t.ok(partsOf(parts.headers['content-type'], parts.bytes)[1]?.content.equals(STORED))
})

t.test('a download continues while its document changes and is compacted', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  const content = randomBytes(20 * MB)
  const { json } = await call('PUT', '/db/doc/a', { body: content })
  const socket = open(Number(new URL(server.url).port), '127.0.0.1')
  t.after(() => socket.destroy())
  socket.write('GET /db/doc/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  const [first] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  const { rev } = json as { rev: string }
  t.match(await call('DELETE', `/db/doc/a?rev=${rev}`), { status: 200 })
  const compact = async () => {
    t.match(await call('POST', '/db/_compact', { json: {} }), { status: 202 })
    while (((await call('GET', '/db')).json as { compact_running: boolean }).compact_running) await sleep(10)
  }
  await compact()
  t.match(await call('GET', `/db/doc/a?rev=${rev}`), { status: 404 }, 'others get 404')
  const chunks = [first]
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  socket.resume()
  await once(socket, 'end')
  const answer = Buffer.concat(chunks)
  t.ok(answer.subarray(answer.indexOf('\r\n\r\n') + 4).equals(content))
})
