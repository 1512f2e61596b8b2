import { randomBytes } from 'node:crypto'
import { gzipSync } from 'node:zlib'
import type { DatabaseStore, DocState, DocUpdate, StoredAttachment } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { attachment, put, readOne, remove, successor } from './edits.ts'
import { only, openNotes, type StorageCases } from './setup.ts'

async function attachmentsOf(store: DatabaseStore, id: string, rev?: string): Promise<StoredAttachment[]> {
  const found = await readOne(store, id)
  return found?.revisions.find((row) => row.rev === (rev ?? found.rev))?.attachments ?? []
}

/** Attachments and the blobs that hold their bytes. */
export const attachmentCases: StorageCases = {
  'an attachment comes back as it was stored, also after a restart': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const bytes = Buffer.from('hello')
    const { content, ...facts } = attachment('greeting.txt', bytes, 3)
    await only(store.updateDocs([put('a', '{}', { attachments: [{ ...facts, content }] })]))
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      const [{ blob, ...stored }, ...others] = (await attachmentsOf(from, 'a')) as [StoredAttachment]
      t.strictSame(stored, facts)
      t.same(others, [])
      t.same(Buffer.from((await from.readBlob(blob, 0, 100)) ?? []), bytes)
    }
  },

  'attachments of all stored revisions are counted, as far as is asked': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.equal(await store.countAttachments(10), 0)
    const two = ['x', 'y'].map((name) => attachment(name, Buffer.from('the same')))
    const first = put('a', '{}', { attachments: two })
    await only(store.updateDocs([first]))
    await only(store.updateDocs([put('b', '{}')]))
    t.equal(await store.countAttachments(10), 2)
    t.equal(await store.countAttachments(1), 1)
    t.equal(await store.countAttachments(0), 0)
    t.equal(await (await reopen()).store.countAttachments(10), 2)
  },

  'attachments stand in the order in which they were written, also after a restart': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const names = ['\u{1F600}', 'b', '\uFFFD', 'a', 'a/b', 'B', 'é']
    await only(
      store.updateDocs([
        put('a', '{}', { attachments: names.map((name) => attachment(name, Buffer.from(name))) }),
      ]),
    )
    for (const open of [async () => store, async () => (await reopen()).store]) {
      t.same(
        (await attachmentsOf(await open(), 'a')).map(({ name }) => name),
        names,
      )
    }
  },

  'a coded attachment has its length decoded and as it is stored, also after a restart': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const plain = Buffer.alloc(1000, 'a')
    const bytes = gzipSync(plain)
    const coded = { ...attachment('x', bytes), length: plain.length, encoding: 'gzip' as const }
    await only(store.updateDocs([put('a', '{}', { attachments: [coded, attachment('y', bytes)] })]))
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      const [x, y] = await attachmentsOf(from, 'a')
      const { digest } = coded
      t.hasStrict(x, { length: 1000, encoding: 'gzip', storedLength: bytes.length, digest })
      t.hasStrict(y, { length: bytes.length, encoding: null, storedLength: bytes.length, digest })
      t.equal(x?.blob, y?.blob, 'the same bytes, coded or not')
      t.same(Buffer.from((await from.readBlob(x?.blob ?? -1, 0, 5000)) ?? []), bytes)
    }
  },

  'a superseded revision keeps its attachments': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const old = await only(
      store.updateDocs([put('a', '{}', { attachments: [attachment('x', Buffer.from('old'))] })]),
    )
    await store.updateDocs([put('a', '{"n":2}'), put('b')])
    t.same(await attachmentsOf(store, 'a'), [])
    const [kept] = await attachmentsOf(store, 'a', old)
    t.equal(kept?.name, 'x')
    t.same(Buffer.from((await store.readBlob(kept?.blob ?? -1, 0, 3)) ?? []), Buffer.from('old'))
  },

  'the external size is that of the leaves’ bodies and attachments': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const attachments = [attachment('x', Buffer.alloc(1000, 1)), attachment('y', Buffer.alloc(500, 2))]
    const external = async () => (await store.info()).sizes.external
    await only(store.updateDocs([put('a', '{"é":1}', { attachments })]))
    t.equal(await external(), 1508)
    await only(store.updateDocs([put('b', '{}', { attachments })]))
    t.equal(await external(), 3010, 'each revision counts its own, though equal bytes are stored once')
    await only(store.updateDocs([put('a', '{"n":22}')]))
    t.equal(await external(), 1510)
    await only(store.updateDocs([remove('b')]))
    t.equal(await external(), 10)
    await audit(t, store, 'afterwards')
  },

  'sizes are numbers of bytes that grow with the data': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const before = (await store.info()).sizes
    await store.updateDocs([put('a', '{}', { attachments: [attachment('x', randomBytes(2_000_000))] })])
    const { sizes } = await store.info()
    for (const kind of ['file', 'active', 'external'] as const) {
      t.ok(Number.isSafeInteger(sizes[kind]) && sizes[kind] >= 2_000_000, `${kind}: ${sizes[kind]}`)
      t.ok(sizes[kind] > before[kind])
    }
  },

  'the content of any attachment is read by its blob': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const large = randomBytes(600_000)
    const old = [attachment('old', Buffer.from('superseded'))]
    await store.updateDocs([put('a', '{}', { attachments: old })])
    const attachments = [attachment('large', large), attachment('none', new Uint8Array())]
    await store.updateDocs([put('a', '{"n":2}', { attachments })])
    const listed = (doc: DocState) => doc.revisions().flatMap(({ rev }) => doc.attachments(rev))
    const [all] = await store.readDocs(['a'], (doc) => doc && listed(doc))
    const contents = new Map<string, string>()
    for (const { name, blob, storedLength } of all ?? []) {
      contents.set(name, Buffer.from((await store.readBlob(blob, 0, storedLength)) ?? []).toString('base64'))
    }
    t.same(Object.fromEntries(contents), {
      large: large.toString('base64'),
      none: '',
      old: Buffer.from('superseded').toString('base64'),
    })
  },

  'an attachment is carried to the next revision by its blob': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{}', { attachments: [attachment('x', Buffer.from('carried'))] })])
    const [first] = await attachmentsOf(store, 'a')
    const carrying: DocUpdate<string> = {
      id: 'a',
      bytes: 1,
      readSet: { body: true, branches: true },
      decide: (doc) => {
        const kept =
          doc?.attachments(doc.rev).map(({ blob, ...facts }) => ({ ...facts, content: { blob } })) ?? []
        const attachments = [...kept, attachment('y', Buffer.from('new'), 2)]
        const write = successor(doc, '{"n":2}', { attachments })
        return { result: write.rev, write }
      },
    }
    await only(store.updateDocs([carrying]))
    const [x, y] = await attachmentsOf(store, 'a')
    t.same(x, first)
    t.hasStrict(y, { name: 'y', revpos: 2 })
    t.same(Buffer.from((await store.readBlob(x?.blob ?? -1, 0, 100)) ?? []), Buffer.from('carried'))
    await audit(t, store, 'afterwards')
  },

  'equal bytes are stored once': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const same = (name: string) => attachment(name, Buffer.from('the same'))
    await store.updateDocs([put('a', '{}', { attachments: [same('x'), same('y')] })])
    await store.updateDocs([
      put('b', '{}', { attachments: [same('z'), attachment('o', Buffer.from('other'))] }),
    ])
    const again = await reopen()
    await again.store.updateDocs([put('c', '{}', { attachments: [same('w')] })])
    const blobs = await Promise.all(['a', 'b', 'c'].map((id) => attachmentsOf(again.store, id)))
    const [o, ...equal] = blobs.flat().sort((a, b) => (a.name < b.name ? -1 : 1))
    t.equal(new Set(equal.map(({ blob }) => blob)).size, 1)
    t.not(o?.blob, equal[0]?.blob)
  },

  'the caller may change bytes after handing them over': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const bytes = Buffer.from('before')
    await only(store.updateDocs([put('a', '{}', { attachments: [attachment('x', bytes)] })]))
    bytes.fill(0)
    const [stored] = await attachmentsOf(store, 'a')
    const read = await store.readBlob(stored?.blob ?? -1, 0, 100)
    t.same(Buffer.from(read ?? []), Buffer.from('before'))
    read?.fill(0)
    t.same(Buffer.from((await store.readBlob(stored?.blob ?? -1, 0, 100)) ?? []), Buffer.from('before'))
  },

  'a stretch of a blob is read from any offset': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const bytes = randomBytes(600_000)
    await only(store.updateDocs([put('a', '{}', { attachments: [attachment('x', bytes)] })]))
    const [stored] = await attachmentsOf(store, 'a')
    const edge = 256 * 1024
    const offsets = [0, 1, edge - 1, edge, edge + 1, 2 * edge - 7, 599_999]
    for (const offset of offsets) {
      for (const length of [0, 1, 2, 1000, edge, edge + 2, 600_000]) {
        const read = await store.readBlob(stored?.blob ?? -1, offset, length)
        const wanted = bytes.subarray(offset, offset + length)
        if (read === null || Buffer.compare(read, wanted) !== 0) t.fail(`${length} bytes from ${offset} on`)
      }
    }
    t.pass(`${offsets.length} offsets`)
  },

  'beyond the end of a blob there are no bytes': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{}', { attachments: [attachment('x', Buffer.from('12345'))] })])
    const [stored] = await attachmentsOf(store, 'a')
    t.equal((await store.readBlob(stored?.blob ?? -1, 5, 10))?.length, 0)
    t.equal((await store.readBlob(stored?.blob ?? -1, 500, 10))?.length, 0)
    t.same(Buffer.from((await store.readBlob(stored?.blob ?? -1, 3, 10)) ?? []), Buffer.from('45'))
  },

  'an attachment may be empty': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{}', { attachments: [attachment('x', new Uint8Array())] })])
    const [stored] = await attachmentsOf(store, 'a')
    t.equal(stored?.length, 0)
    t.equal((await store.readBlob(stored?.blob ?? -1, 0, 10))?.length, 0)
  },

  'a blob that is not stored is null': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    t.equal(await store.readBlob(1, 0, 10), null)
    t.equal(await store.readBlob(123_456, 0, 10), null)
  },
}
