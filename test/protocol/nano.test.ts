import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { type EventEmitter, once } from 'node:events'
import nano from 'nano'
import t from 'tap'
import { sharedTestServer } from '../helpers/server.ts'

interface Change {
  readonly id: string
}

interface Note extends nano.MaybeDocument {
  readonly text?: string
  readonly n?: number
  readonly _deleted?: boolean
  readonly _conflicts?: string[]
  readonly _attachments?: Record<string, { data?: string; stub?: boolean; length?: number }>
}

/** Far below the 60 s of a changes reader's longpoll, so that a test fails if a change does not end the longpoll. */
const SOON_MS = 20_000

const startShared = sharedTestServer(t)

/** A nano of an empty server. */
async function connect() {
  const server = await startShared()
  return { couch: nano(server.url), server }
}

async function emptyDatabase(name = 'notes') {
  const { couch, server } = await connect()
  await couch.db.create(name)
  return { couch, server, db: couch.use<Note>(name) }
}

/** The rejection of a call, with nano's additional members. */
async function failure(call: Promise<unknown>): Promise<unknown> {
  return await call.then(
    () => 'no error',
    (error: unknown) => error,
  )
}

t.test('the server and its databases', async (t) => {
  const { couch } = await connect()
  t.match(await couch.info(), { couchdb: 'Welcome', version: String })
  t.equal((await couch.uuids(3)).uuids.length, 3)
  t.strictSame(await couch.db.list(), ['_users'])
  for (const name of ['notes', 'a/b+c', 'with$(all)-_']) {
    t.strictSame(await couch.db.create(name), { ok: true })
    t.match(await failure(couch.db.create(name)), {
      statusCode: 412,
      error: 'file_exists',
      reason: 'The database could not be created, the file already exists.',
    })
    t.match(await couch.db.get(name), { db_name: name, doc_count: 0, doc_del_count: 0 })
    await couch.use<Note>(encodeURIComponent(name)).insert({ text: name }, 'in')
    t.match(await couch.use<Note>(encodeURIComponent(name)).get('in'), { text: name })
    t.match(await couch.db.compact(name), { ok: true })
    t.strictSame(await couch.db.destroy(name), { ok: true })
    t.match(await failure(couch.db.get(name)), { statusCode: 404, error: 'not_found' })
  }
  t.match(await failure(couch.db.create('Capital')), { statusCode: 400, error: 'illegal_database_name' })
})

t.test('indexes and queries', async (t) => {
  const { db } = await emptyDatabase()
  await db.bulk({ docs: [1, 2, 3, 4].map((n) => ({ _id: `n${n}`, n, text: n % 2 === 0 ? 'even' : 'odd' })) })
  const index = { fields: ['text', 'n'] }
  const created = { result: 'created', id: '_design/by-text', name: 'by-text-and-n' }
  t.strictSame(await db.createIndex({ index, ddoc: 'by-text', name: 'by-text-and-n' }), created)
  t.match(await db.createIndex({ index, ddoc: 'by-text', name: 'by-text-and-n' }), { result: 'exists' })
  const query: nano.MangoQuery = {
    selector: { text: 'even', n: { $gte: 1 } },
    sort: [{ text: 'desc' }, { n: 'desc' }],
    fields: ['_id', 'n'],
    limit: 1,
    execution_stats: true,
  }
  const first = await db.find(query)
  t.strictSame(first.docs, [{ _id: 'n4', n: 4 }] as unknown)
  t.match(first, { execution_stats: { total_docs_examined: 0, results_returned: 1 } }, 'the index covers it')
  t.equal(first.warning, undefined)
  const second = await db.find({
    ...query,
    ...(first.bookmark !== undefined && { bookmark: first.bookmark }),
  })
  t.match(second.docs, [{ _id: 'n2' }])
  t.match(await failure(db.find({ selector: {}, sort: ['n'] })), {
    statusCode: 400,
    error: 'no_usable_index',
  })
})

t.test('documents one by one', async (t) => {
  const { db } = await emptyDatabase()

  t.test('are made, read, edited and deleted', async (t) => {
    const made = await db.insert({ text: 'one' }, 'note')
    t.match(made, { ok: true, id: 'note', rev: /^1-/ })
    t.strictSame(await db.get('note'), { _id: 'note', _rev: made.rev, text: 'one' })
    const edited = await db.insert({ _id: 'note', _rev: made.rev, text: 'two' })
    t.match(edited, { ok: true, rev: /^2-/ })
    t.match(await db.get('note', { rev: made.rev }), { text: 'one' })
    t.match(await db.get('note', { revs_info: true }), {
      _revs_info: [{ rev: edited.rev }, { rev: made.rev }],
    })
    t.match(await failure(db.insert({ text: 'lost' }, 'note')), {
      statusCode: 409,
      error: 'conflict',
      reason: 'Document update conflict.',
    })
    t.match(await failure(db.destroy('note', made.rev)), { statusCode: 409 })
    t.match(await db.destroy('note', edited.rev), { ok: true, id: 'note', rev: /^3-/ })
    t.match(await failure(db.get('note')), { statusCode: 404, error: 'not_found', reason: 'deleted' })
    t.match(await db.insert({ text: 'again' }, 'note'), { rev: /^4-/ })
  })

  t.test('get an id from the server', async (t) => {
    const { id, rev } = await db.insert({ text: 'no id' })
    t.match(id, /^[0-9a-f]{32}$/)
    t.match(await db.get(id), { _rev: rev, text: 'no id' })
  })

  t.test('have ids that need escapes', async (t) => {
    for (const id of ['a/b', 'a+b c', '100%', '?x=1&y=2#z', 'zwölf 🍎', '_design/x', '_local/y']) {
      const { rev } = await db.insert({ text: id }, id)
      t.match(await db.get(id), { _id: id, _rev: rev, text: id })
      t.match(await db.destroy(id, rev), { ok: true, id })
    }
  })

  t.test('are requested by HEAD', async (t) => {
    const { rev } = await db.insert({ text: 'head' }, 'head')
    t.match(await db.head('head'), { etag: `"${rev}"`, 'content-type': 'application/json' })
    t.match(await failure(db.head('absent')), { statusCode: 404 })
  })

  t.test('are copied by a get and an insert', async (t) => {
    await db.insert({ text: 'original', _attachments: { a: { data: 'aGk=' } } }, 'original')
    const { _id, _rev, ...copied } = await db.get('original', { attachments: true })
    await db.insert(copied, 'copy')
    t.match(await db.get('copy'), { text: 'original', _attachments: { a: { stub: true, length: 2 } } })
    const { _id: id, _rev: rev, ...stubs } = await db.get('original')
    t.match(await failure(db.insert(stubs, 'copy of stubs')), { statusCode: 412, error: 'missing_stub' })
  })
})

t.test('documents in bulk', async (t) => {
  const { db } = await emptyDatabase()
  const ids = Array.from({ length: 1000 }, (_, n) => `note-${String(n).padStart(4, '0')}`)

  t.test('are made, edited and deleted', async (t) => {
    const made = await db.bulk({ docs: ids.map((_id, n) => ({ _id, n, text: 'word '.repeat(20) })) })
    t.strictSame(
      made.map(({ id }) => id),
      ids,
    )
    const [first, second] = made
    const answers = await db.bulk({
      docs: [
        { _id: first?.id, _rev: first?.rev, text: 'edited' },
        { _id: second?.id, text: 'refused' },
        { _id: 'brief', text: 'new' },
      ],
    })
    t.match(answers, [
      { ok: true, id: first?.id, rev: /^2-/ },
      { id: second?.id, error: 'conflict', reason: 'Document update conflict.' },
      { ok: true, id: 'brief' },
    ])
    const [gone] = await db.bulk({ docs: [{ _id: 'brief', _rev: answers[2]?.rev, _deleted: true }] })
    t.match(gone, { ok: true, id: 'brief', rev: /^2-/ })
  })

  t.test('are stored as a conflict from another server', async (t) => {
    const docs = ['a', 'b'].map((text) => ({ _id: 'split', _rev: `1-${text.repeat(32)}`, text }))
    t.strictSame(await db.bulk({ docs, new_edits: false }), [])
    t.match(await db.get('split', { conflicts: true }), {
      _rev: `1-${'b'.repeat(32)}`,
      _conflicts: [`1-${'a'.repeat(32)}`],
    })
    await db.bulk({ docs: docs.map(({ _id, _rev }) => ({ _id, _rev, _deleted: true })) })
  })

  t.test('are listed', async (t) => {
    const all = await db.list()
    t.match(all, { total_rows: ids.length, offset: 0 })
    t.strictSame(
      all.rows.map(({ id }) => id),
      ids,
    )
    const page = await db.list({ startkey: ids[10]!, endkey: ids[20]!, limit: 2, include_docs: true })
    t.match(page, { offset: 10, rows: [{ doc: { n: 10 } }, { doc: { n: 11 } }] })
    const back = await db.list({ startkey: ids[5]!, descending: true, skip: 1, limit: 1 })
    t.match(back.rows, [{ id: ids[4] }])
    t.match((await db.list({ key: ids[7]! })).rows, [{ id: ids[7] }])
    t.match((await db.list({ keys: [ids[3]!, 'absent', 'brief'] })).rows, [
      { id: ids[3] },
      { key: 'absent', error: 'not_found' },
      { id: 'brief', value: { deleted: true } },
    ])
  })

  t.test('are fetched by their ids', async (t) => {
    const { rows } = await db.fetch({ keys: [ids[1]!, 'absent'] })
    t.match(rows, [{ doc: { _id: ids[1], n: 1 } }, { key: 'absent', error: 'not_found' }])
    t.match((await db.fetchRevs({ keys: [ids[2]!] })).rows, [{ id: ids[2], value: { rev: /^1-/ } }])
  })

  t.test('come as a stream, compressed', async (t) => {
    const encodings: string[] = []
    const note = (message: unknown) => {
      const { response } = message as { response: { headers: Buffer[] } }
      const headers = response.headers.map(String)
      encodings.push(headers[headers.findIndex((name) => /^content-encoding$/i.test(name)) + 1] ?? '')
    }
    subscribe('undici:request:headers', note)
    t.teardown(() => unsubscribe('undici:request:headers', note))
    const chunks = await db.listAsStream({ include_docs: true }).toArray()
    const { rows } = JSON.parse(Buffer.concat(chunks as Buffer[]).toString()) as { rows: { id: string }[] }
    t.equal(rows.length, ids.length)
    t.match(encodings, ['gzip'])
  })
})

t.test('changes', async (t) => {
  t.test('as a page', async (t) => {
    const { db } = await emptyDatabase()
    await db.bulk({ docs: [{ _id: 'a' }, { _id: 'b' }, { _id: 'c' }] })
    const first = await db.changes({ limit: 2, include_docs: true })
    t.match(first, { results: [{ id: 'a', doc: { _id: 'a' } }, { id: 'b' }], pending: 1 })
    t.match(await db.changes({ since: first.last_seq }), { results: [{ id: 'c' }], pending: 0 })
  })

  t.test('are read until there are no more', { timeout: SOON_MS }, async (t) => {
    const { db } = await emptyDatabase()
    await db.bulk({ docs: Array.from({ length: 250 }, (_, n) => ({ _id: `note-${n}`, n })) })
    const batches: number[] = []
    const reader = db.changesReader.get({ since: '0', timeout: 50, fastChanges: true })
    reader.on('batch', (rows: unknown[]) => batches.push(rows.length))
    const last = await ended(reader)
    t.strictSame(batches, [100, 100, 50])
    t.equal(last, (await db.info()).update_seq)
  })

  t.test('are read until there are no more, of an empty database', { timeout: SOON_MS }, async (t) => {
    const { db } = await emptyDatabase()
    const last = await ended(db.changesReader.get({ since: '0', timeout: 50 }))
    t.equal(last, (await db.info()).update_seq)
  })

  t.test('wait for the next one', { timeout: SOON_MS }, async (t) => {
    const { db } = await emptyDatabase()
    await db.insert({ n: 0 }, 'before')
    const reader = db.changesReader.start({ since: (await db.info()).update_seq, includeDocs: true })
    const seen: string[] = []
    reader.on('change', ({ id }: Change) => seen.push(id))
    // A stopped reader reports its own abort as an error.
    reader.on('error', () => undefined)
    for (const id of ['first', 'second', 'third']) {
      const change = event<Change>(reader, 'change')
      await db.insert({ text: id }, id)
      t.match(await change, { id, changes: [{ rev: /^1-/ }], doc: { text: id } })
    }
    const end = event(reader, 'end')
    db.changesReader.stop()
    await end
    t.strictSame(seen, ['first', 'second', 'third'])
  })

  t.test('wait for the next one from now on', { timeout: SOON_MS }, async (t) => {
    const { db } = await emptyDatabase()
    await db.insert({ n: 0 }, 'before')
    const reader = db.changesReader.start({ wait: true })
    reader.on('error', () => undefined)
    let first = ''
    reader.once('change', ({ id }: Change) => {
      first = id
    })
    // The test cannot see when the reader's request has begun.
    for (let n = 0; first === ''; n++) await db.insert({ n }, `after-${n}`)
    t.match(first, /^after-/)
    const end = event(reader, 'end')
    db.changesReader.stop()
    await end
  })

  t.test('end with the database', { timeout: SOON_MS }, async (t) => {
    const { db, couch } = await emptyDatabase()
    const reader = db.changesReader.start({ since: '0' })
    const failed = event(reader, 'error')
    const first = event<Change>(reader, 'change')
    await db.insert({}, 'one')
    await first
    const end = event(reader, 'end')
    await couch.db.destroy('notes')
    t.match(await failed, { statusCode: 404, error: 'not_found' })
    await end
  })

  t.test('are spooled in one request', { timeout: SOON_MS }, async (t) => {
    const { db } = await emptyDatabase()
    const ids = Array.from({ length: 1050 }, (_, n) => `note-${n}`)
    // Braces, commas and line feeds in documents: the reader expects one change per line.
    await db.bulk({ docs: ids.map((_id, n) => ({ _id, n, text: '],\n{"last_seq":"no"},' })) })
    for (const includeDocs of [false, true]) {
      const rows: (Change & { doc?: Note })[] = []
      const reader = db.changesReader.spool({ since: '0', includeDocs, batchSize: 200 })
      reader.on('batch', (batch: typeof rows) => rows.push(...batch))
      const last = await ended(reader)
      t.strictSame(
        rows.map(({ id }) => id),
        ids,
      )
      t.equal(last, (await db.info()).update_seq)
      t.equal(rows.filter(({ doc }) => doc?.text?.includes('\n')).length, includeDocs ? ids.length : 0)
    }
  })

  t.test('are spooled of an empty database', { timeout: SOON_MS }, async (t) => {
    const { db } = await emptyDatabase()
    const last = await ended(db.changesReader.spool({ since: '0' }))
    t.equal(last, (await db.info()).update_seq)
  })
})

/** The value of the next event of this name. Unlike Node's `once`, ignores errors before it. */
function event<T>(reader: EventEmitter, name: string): Promise<T> {
  return new Promise((resolve) => {
    reader.once(name, resolve)
  })
}

/** The sequence with which a reader ends. @throws the reader's error */
async function ended(reader: EventEmitter): Promise<string> {
  const [last] = (await once(reader, 'end')) as [string]
  return last
}

const PIXELS = Buffer.from([
  0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0xff, 0xfe, 0x0d, 0x0a, 0x2d, 0x2d,
])

t.test('attachments one by one', async (t) => {
  const { db } = await emptyDatabase()
  const first = await db.attachment.insert('note', 'photos/at sea.png', PIXELS, 'image/png')
  t.match(first, { ok: true, id: 'note', rev: /^1-/ })
  const second = await db.attachment.insert('note', 'text.txt', 'zwölf Äpfel', 'text/plain', {
    rev: first.rev,
  })
  t.match(second, { ok: true, rev: /^2-/ })
  const json = await db.attachment.insert('note', 'data.json', '{"a": 1}', 'application/json', {
    rev: second.rev,
  })
  t.match(await failure(db.attachment.insert('note', 'late', 'x', 'text/plain', { rev: first.rev })), {
    statusCode: 409,
    error: 'conflict',
  })
  t.match(await db.get('note'), {
    _attachments: {
      'photos/at sea.png': { content_type: 'image/png', length: PIXELS.length, revpos: 1, stub: true },
      'text.txt': { content_type: 'text/plain', length: 13, revpos: 2, stub: true },
    },
  })
  t.strictSame(await db.attachment.get('note', 'photos/at sea.png'), PIXELS)
  t.equal(String(await db.attachment.get('note', 'text.txt')), 'zwölf Äpfel')
  t.equal(String(await db.attachment.get('note', 'data.json')), '{"a": 1}')
  const streamed = await db.attachment.getAsStream('note', 'photos/at sea.png').toArray()
  t.strictSame(Buffer.concat(streamed as Buffer[]), PIXELS)
  t.match(await failure(db.attachment.get('note', 'absent')), { statusCode: 404, error: 'not_found' })
  t.match(await db.attachment.destroy('note', 'text.txt', { rev: json.rev }), { ok: true, rev: /^4-/ })
  t.match(await failure(db.attachment.get('note', 'text.txt')), { statusCode: 404 })
  t.strictSame(Object.keys((await db.get('note'))._attachments ?? {}).sort(), [
    'data.json',
    'photos/at sea.png',
  ])
})

t.test('attachments as multipart/related', async (t) => {
  const { db } = await emptyDatabase()
  // nano counts characters in a part's Content-Length, so only the boundary shows the end of a text.
  const parts: { name: string; data: string | Buffer; content_type: string }[] = [
    { name: 'text.txt', data: 'zwölf Äpfel 🍎', content_type: 'text/plain' },
    { name: 'pixels.png', data: PIXELS, content_type: 'image/png' },
    { name: 'empty', data: '', content_type: 'application/x-empty' },
  ]
  const made = await db.multipart.insert({ text: 'mit Anhängen' }, parts, 'note')
  t.match(made, { ok: true, id: 'note', rev: /^1-/ })
  const stored = await db.get('note')
  t.match(stored, { _rev: made.rev, text: 'mit Anhängen' })
  t.strictSame(
    Object.entries((stored._attachments ?? {}) as Record<string, { length: number }>)
      .map(([name, { length }]) => [name, length])
      .sort(),
    parts.map(({ name, data }) => [name, Buffer.from(data).length]).sort(),
  )
  for (const { name, data } of parts) {
    t.strictSame(Buffer.from(await db.attachment.get('note', name)), Buffer.from(data), name)
  }

  t.test('come back in one answer', async (t) => {
    const answer = String(await db.multipart.get('note'))
    const boundary = answer.slice(0, answer.indexOf('\r\n'))
    const [, document, ...rest] = answer.split(boundary)
    t.match(document, /"text":"mit Anhängen"/)
    t.match(document, /"follows":true/)
    t.ok(
      rest.some((part) => part.endsWith('\r\n\r\nzwölf Äpfel 🍎\r\n')),
      'the text is a part',
    )
    t.equal(rest.length, parts.length + 1, 'a part an attachment, and the end')
  })

  t.test('keep attachments that are sent as stubs', async (t) => {
    const added = [{ name: 'late.txt', data: 'late', content_type: 'text/plain' }]
    const { rev } = await db.multipart.insert({ ...stored, text: 'more' }, added, 'note')
    t.match(rev, /^2-/)
    t.strictSame(await db.attachment.get('note', 'pixels.png'), PIXELS)
    t.equal(String(await db.attachment.get('note', 'late.txt')), 'late')
    t.match(await failure(db.multipart.insert({ text: 'lost' }, added, 'note')), { statusCode: 409 })
  })
})
