/** Attachments that are stored as gzip because `[attachments]` says so; protocol.md 7.1, as couch_att does it. */
import { randomBytes } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import t from 'tap'
import { isCompressible } from '../../src/documents/incoming-attachments.ts'
import { follows, md5, named, related } from '../helpers/related.ts'
import { ENGINES } from './engines.ts'
import { ADMIN, chunksOf, type Json, openOn, spooled } from './helpers.ts'

const COMPRESSION = { level: 1, types: ['text/*', 'application/json'] }
const SHORT = 'settee '.repeat(100)
/** Its gzip takes two pieces of a megabyte. */
const LONG = randomBytes(1_000_000).toString('hex')

for (const [name, make] of Object.entries(ENGINES)) {
  const start = async (test: Parameters<typeof make>[0], limits = {}) => {
    const opened = await openOn(await make(test), limits, undefined, undefined, { compression: COMPRESSION })
    const { database } = opened
    const stored = async (id: string, attachment: string) => {
      const found = await database.openAttachment(ADMIN, id, attachment, undefined)
      const bytes = Buffer.concat(await chunksOf(database.readAttachment(found, 0, found.storedLength)))
      return { ...found, bytes }
    }
    return { ...opened, stored }
  }

  t.test(`${name}: whichever way a content comes, the same is stored`, async (t) => {
    const { database, put, get, stored } = await start(t)
    const attach = (id: string, content: string, type: string) =>
      database.putAttachment(ADMIN, id, 'a', { bytes: Buffer.from(content) }, { type, encoding: null })
    for (const [id, content] of [
      ['short', SHORT],
      ['long', LONG],
      ['empty', ''],
    ] as const) {
      const data = Buffer.from(content).toString('base64')
      const type = 'text/plain; charset=utf-8'
      await put(`${id}-inline`, { _attachments: { a: { data, content_type: type } } })
      await attach(`${id}-put`, content, type)
      const doc = { _attachments: { a: follows(content, { content_type: type, digest: md5(content) }) } }
      const bytes = related('B', doc, [{ content, ...named('a') }])
      await database.put(ADMIN, `${id}-related`, await spooled(t, bytes), { boundary: 'B' })
      for (const way of ['inline', 'put', 'related']) {
        const found = await stored(`${id}-${way}`, 'a')
        t.match(found, { encoding: 'gzip', length: content.length, digest: md5(found.bytes) }, `${id} ${way}`)
        t.ok(gunzipSync(found.bytes).equals(Buffer.from(content)))
        const { _attachments } = await get(`${id}-${way}`, { attEncodingInfo: true })
        const told = {
          length: content.length,
          encoding: 'gzip',
          encoded_length: found.bytes.length,
          stub: true,
        }
        t.match(_attachments.a, { ...told, digest: (await stored(`${id}-put`, 'a')).digest })
        t.match((await get(`${id}-${way}`, { attachments: true }))._attachments.a, { data })
      }
    }
    await attach('picture', SHORT, 'image/png')
    t.match(await stored('picture', 'a'), { encoding: null, length: 700, digest: md5(SHORT) }, 'another type')
  })

  t.test(`${name}: what is refused as it was sent, and what is kept`, async (t) => {
    const { database, put, bulk, get } = await start(t, { maxAttachmentSize: 1000 })
    const doc = { _attachments: { a: follows(SHORT, { digest: md5('another') }) } }
    const wrong = { bytes: related('B', doc, [{ content: SHORT }]) }
    await t.rejects(database.put(ADMIN, 'x', wrong, { boundary: 'B' }), { code: 'md5_mismatch' })
    const large = { bytes: Buffer.alloc(1001, 'a') }
    const options = { type: 'text/plain', encoding: null }
    await t.rejects(database.putAttachment(ADMIN, 'x', 'a', large, options), { code: 'attachment_too_large' })
    const rev = await put('x', {
      _attachments: { a: { data: Buffer.from(SHORT).toString('base64'), content_type: 'text/plain' } },
    })
    const before = (await get('x', { attEncodingInfo: true }))._attachments
    const [row] = (await bulk({
      docs: [{ _id: 'x', _rev: rev, n: 1, _attachments: { a: { stub: true } } }],
    })) as Json
    t.ok(row.ok)
    t.strictSame((await get('x', { attEncodingInfo: true }))._attachments, before, 'a stub keeps it as it is')
  })
}

t.test('which types are compressed', async (t) => {
  const types = ['text/*', ' Application/JSON'.trim(), 'application/*+xml', 'a*b*c']
  const cases: [type: string, level: number, is: boolean][] = [
    ['text/plain', 8, true],
    [' Text/Markdown ;charset=utf-8', 1, true],
    ['text/plain', 0, false],
    ['application/json', 9, true],
    ['application/json2', 9, false],
    ['application/atom+xml; x=y', 9, true],
    ['application/xml', 9, false],
    ['image/png', 9, false],
    ['abc', 9, true],
    ['axbxbxc', 9, true],
    ['ac', 9, false],
    ['abcb', 9, false],
    ['', 9, false],
  ]
  for (const [type, level, is] of cases)
    t.equal(isCompressible(type, { level, types }), is, `${type} ${level}`)
  t.equal(isCompressible('text/plain', { level: 8, types: [] }), false)
})
