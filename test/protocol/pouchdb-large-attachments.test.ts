/** Attachments of up to 20 MB by PouchDB, up and down: inline as base64 in `_bulk_docs`, and read one by one. */
import { createHash, randomBytes } from 'node:crypto'
import t from 'tap'
import { type Device, device, liveSync, remote, until } from './devices.ts'
import { call, serve } from './served.ts'

const MB = 1024 * 1024
/** Bytes that no compression shortens. */
const CONTENTS: Readonly<Record<string, Buffer>> = {
  'one.bin': randomBytes(MB),
  'five.jpg': randomBytes(5 * MB + 1),
  'twenty.mp4': randomBytes(20 * MB),
}

t.setTimeout(300_000)

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
  const server = await serve(t)
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

  // One of them is replaced on the way back; the others are not sent again as other contents.
  const edited = { ...CONTENTS, 'twenty.mp4': randomBytes(20 * MB) }
  const { _rev } = await desk.get('up')
  await desk.putAttachment('up', 'twenty.mp4', _rev, edited['twenty.mp4'] as Buffer, 'video/mp4')
  await desk.sync(there.db)
  there.seen.length = 0
  await phone.sync(there.db)
  t.ok(await isOn(phone, 'up', edited), 'and the first the new ones')
  const fetched = there.seen.filter(({ path }) => path.startsWith('/notes/up/')).map(({ path }) => path)
  t.strictSame(fetched, ['/notes/up/twenty.mp4'], 'only what it does not have')
})

t.test('20 MB written to the server, through a live sync', async (t) => {
  const server = await serve(t)
  const { db } = remote(`${server.url}/notes`)
  const devices = [await device(t), await device(t)] as const
  const syncs = devices.map((one) => liveSync(t, one, remote(`${server.url}/notes`).db))
  const film = { film: CONTENTS['twenty.mp4'] as Buffer }
  const { rev } = await db.put({ _id: 'down', text: 'a film' })
  await db.putAttachment('down', 'film', rev, film.film, 'video/mp4')
  await devices[0].put({ _id: 'up', _attachments: attachments(film) })
  for (const one of devices) {
    for (const id of ['down', 'up']) {
      await until(`${id} has arrived`, async () => isOn(one, id, film).catch(() => false), 60_000)
    }
  }
  t.ok(await isOn(db, 'up', film))
  t.strictSame(
    syncs.flatMap(({ errors, denied }) => [...errors, ...denied]),
    [],
  )
})
