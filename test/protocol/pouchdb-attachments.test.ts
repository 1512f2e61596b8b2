import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { ADAPTERS, type Device, device, rejectsWith, remote } from './devices.ts'
import { sameEverywhere } from './histories.ts'
import { call, serve } from './served.ts'

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
    const server = await serve(t)
    const [phone, desk] = [await device(t, adapter), await device(t, adapter)]
    const there = remote(`${server.url}/notes`)
    const everywhere = [phone, desk, remote(`${server.url}/notes`).db]
    const meet = async () => {
      for (const db of [phone, desk, phone]) await db.sync(there.db)
      await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
    }

    t.test('text, binary, empty and larger ones arrive as they are', async (t) => {
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

    t.test('one is edited, one removed, the others stay', async (t) => {
      const edited = Buffer.from('edited')
      const { _rev } = await desk.get('note')
      const { rev } = await desk.putAttachment('note', 'text.txt', _rev, edited, 'text/markdown')
      await desk.removeAttachment('note', 'photos/ä+b%.jpg', rev)
      there.seen.length = 0
      await meet()
      await sameBytes(t, everywhere, { 'text.txt': edited, 'all bytes.bin': BINARY, 'empty.txt': EMPTY })
      // PouchDB counts a pulled attachment from the revision it came with; the server keeps what was pushed.
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
