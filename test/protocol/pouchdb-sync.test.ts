import { once } from 'node:events'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { call } from './call.ts'
import {
  ADAPTERS,
  body,
  type Device,
  device,
  liveSync,
  type Remote,
  rejectsWith,
  remote,
  sinces,
} from './devices.ts'
import { type Histories, sameEverywhere, untilSame } from './histories.ts'

/** Enough notes for many batches; fewer for LevelDB, because a disk is slow. */
const MANY = { memory: 2000, leveldb: 500 }
const BATCH = 100

for (const adapter of ADAPTERS) {
  t.test(`one-shot replication, ${adapter}`, async (t) => {
    const server = await startTestServer(t)

    t.test('a push copies notes to the server, including deleted ones', async (t) => {
      const phone = await device(t, adapter)
      await phone.put({ _id: 'shopping', list: ['milk', 'bread'] })
      const { rev } = await phone.put({ _id: 'gone', text: 'soon' })
      await phone.remove('gone', rev)
      const pushed = await phone.replicate.to(remote(`${server.url}/pushed`).db)
      t.match(pushed, { ok: true, docs_written: 2, doc_write_failures: 0, errors: [] })
      const { json } = await call(server, 'GET', '/pushed/shopping')
      t.strictSame(json, await phone.get('shopping'))
      t.match((await call(server, 'GET', '/pushed/gone')).json, { error: 'not_found', reason: 'deleted' })
      await sameEverywhere(t, { server, database: 'pushed', devices: [phone] })
    })

    t.test('a pull copies the notes of others', async (t) => {
      await call(server, 'PUT', '/pulled')
      await call(server, 'PUT', '/pulled/by-curl', { body: { text: 'zwölf Äpfel 🍎' } })
      const phone = await device(t, adapter)
      const pulled = await phone.replicate.from(remote(`${server.url}/pulled`).db)
      t.match(pulled, { ok: true, docs_read: 1, docs_written: 1, errors: [] })
      t.match(await phone.get('by-curl'), { text: 'zwölf Äpfel 🍎' })
      await sameEverywhere(t, { server, database: 'pulled', devices: [phone] })
    })

    t.test('two devices get the same notes', async (t) => {
      const devices = [await device(t, adapter), await device(t, adapter)] as const
      const there = remote(`${server.url}/synced`).db
      for (const [at, db] of devices.entries()) {
        await db.bulkDocs([1, 2, 3].map((n) => ({ _id: `from-${at}-${n}`, n })))
      }
      for (const db of [...devices, devices[0]]) await db.sync(there)
      const all = { server, database: 'synced', devices }
      t.equal(Object.keys(await sameEverywhere(t, all)).length, 6)
      const note = await devices[1].get('from-0-1')
      await devices[1].put({ ...note, n: 'edited' })
      await devices[1].remove(await devices[1].get('from-0-2'))
      for (const db of [devices[1], devices[0]]) await db.sync(there)
      t.match(await devices[0].get('from-0-1'), { n: 'edited' })
      await rejectsWith(t, devices[0].get('from-0-2'), { status: 404, reason: 'deleted' })
      await sameEverywhere(t, all)
    })

    t.test(`${MANY[adapter]} notes in batches`, async (t) => {
      const many = MANY[adapter]
      const [phone, desk] = [await device(t, adapter), await device(t, adapter)]
      await phone.bulkDocs(
        Array.from({ length: many }, (_, n) => ({ _id: `note-${n}`, n, text: 'word '.repeat(n % 50) })),
      )
      const away = remote(`${server.url}/many`)
      t.match(await phone.replicate.to(away.db), { docs_written: many, doc_write_failures: 0 })
      const pushes = away.seen.filter(({ path }) => path.endsWith('/_bulk_docs'))
      // If reading is slower than sending, PouchDB does not wait until a batch is full.
      t.ok(pushes.length >= many / BATCH && pushes.length < many / 10, `${pushes.length} batches`)

      const home = remote(`${server.url}/many`)
      t.match(await desk.replicate.from(home.db), { docs_written: many, doc_write_failures: 0 })
      const gets = home.seen.filter(({ path }) => path.endsWith('/_bulk_get'))
      t.equal(gets.length, many / BATCH, '_bulk_get served every batch')
      t.strictSame(
        home.seen.filter(({ path }) => path.includes('note-')),
        [],
        'no note was fetched by a request of its own',
      )
      t.strictSame((await desk.allDocs()).rows, (await phone.allDocs()).rows)
      t.match((await call(server, 'GET', '/many')).json, { doc_count: many, doc_del_count: 0 })

      home.seen.length = 0
      t.match(await desk.sync(home.db), { pull: { docs_read: 0 }, push: { docs_read: 0, docs_written: 0 } })
      t.notOk(sinces(home).includes('0'), 'a second sync begins where the first ended')
      t.strictSame(
        home.seen.filter(({ path }) => /_bulk_(?:docs|get)$/.test(path)),
        [],
      )
    })
  })
}

/** Without `..`: as a path segment, it is removed before the request is sent. */
const ODD_IDS = [
  'a/b',
  'a+b',
  'a b',
  '%',
  '%2F',
  '100%',
  '?x=1&y=2',
  '#hash',
  '"quoted"',
  "it's",
  'back\\slash',
  '../up',
  ':;,=@$!*()[]{}|^~`<>',
  'äöü',
  '日本語',
  '🍎',
  'e\u0301',
  '\u00e9',
  '\u2028',
  'line\nbreak',
  '\u0001',
  'x__proto__',
  'constructor',
  'toString',
  '0',
  '-1',
  'x'.repeat(500),
  '_design/x',
  '_design/a/b',
  '_design/ä+%',
]

t.test('ids that need escapes', async (t) => {
  const server = await startTestServer(t)
  const [phone, desk] = [await device(t), await device(t)]
  await phone.bulkDocs(ODD_IDS.map((_id) => ({ _id, text: _id })))
  const there = remote(`${server.url}/odd`).db
  t.match(await phone.sync(there), { push: { docs_written: ODD_IDS.length, doc_write_failures: 0 } })
  t.match(await desk.sync(there), { pull: { docs_written: ODD_IDS.length, doc_write_failures: 0 } })
  const histories = await sameEverywhere(t, { server, database: 'odd', devices: [phone, desk] })
  t.strictSame(Object.keys(histories).sort(), [...ODD_IDS].sort())

  t.test('are read, edited and deleted one by one', async (t) => {
    for (const id of ODD_IDS) {
      const doc = await there.get(id)
      t.match(doc, { _id: id, text: id })
      const { rev } = await there.put({ ...doc, text: 'edited' })
      t.match(await there.get(id, { rev }), { _id: id, text: 'edited' })
      await there.remove(id, rev)
      await rejectsWith(t, there.get(id), { status: 404, reason: 'deleted' })
    }
    await phone.sync(there)
    t.match(await phone.info(), { doc_count: 0 })
    await desk.sync(there)
    await sameEverywhere(t, { server, database: 'odd', devices: [phone, desk] })
  })
})

t.test('names of databases that need escapes', async (t) => {
  const server = await startTestServer(t)
  const names = ['a/b', 'a+b', 'a$b', 'a(b)', 'a-b_c', 'x/y/z+(1)$', `long${'g'.repeat(200)}`]
  for (const [at, name] of names.entries()) {
    const [phone, desk] = [await device(t), await device(t)]
    await phone.put({ _id: 'in', name })
    // Escaped once by the app, and once by PouchDB, except for a name without a slash.
    const there = remote(`${server.url}/${encodeURIComponent(name)}`).db
    await phone.sync(there)
    await desk.sync(name.includes('/') ? there : remote(`${server.url}/${name}`).db)
    t.match(await desk.get('in'), { name }, name)
    t.match((await call(server, 'GET', `/${encodeURIComponent(name)}`)).json, { db_name: name, doc_count: 1 })
    t.equal(
      ((await call(server, 'GET', '/_all_dbs')).json as string[]).length,
      at + 2,
      'one database was added',
    )
  }
  t.strictSame((await call(server, 'GET', '/_all_dbs')).json, ['_users', ...names].sort())
  for (const name of names) {
    await remote(`${server.url}/${encodeURIComponent(name)}`, { skip_setup: true }).db.destroy()
  }
  t.strictSame((await call(server, 'GET', '/_all_dbs')).json, ['_users'])
})

/** The `since` of the live pulls that wait for changes. */
function longpolls({ seen }: Remote): (string | null)[] {
  return seen.filter(({ query }) => query.get('feed') === 'longpoll').map(({ query }) => query.get('since'))
}

async function textOf(db: Device, id: string): Promise<unknown> {
  return db.get(id).then(
    ({ text }) => text,
    (error: { reason?: string }) => error.reason,
  )
}

function winnersOf(histories: Histories, id: string) {
  const found = histories[id]
  return found?.leaves.find(({ rev }) => rev === found.winner)?.body
}

for (const adapter of ADAPTERS) {
  t.test(`live sync of two devices, ${adapter}`, async (t) => {
    const server = await startTestServer(t)
    const devices = [await device(t, adapter), await device(t, adapter)] as const
    const [phone, desk] = devices
    await phone.bulkDocs([{ _id: 'before', text: 'written before the sync began' }])
    const syncs = devices.map((db) => liveSync(t, db, remote(`${server.url}/notes`).db))
    const all = { server, database: 'notes', devices }

    t.test('edits travel both ways', async (t) => {
      await until('the first note is there', async () => (await textOf(desk, 'before')) !== 'missing')
      for (const [from, to, text] of [
        [phone, desk, 'one'],
        [desk, phone, 'two'],
        [phone, desk, 'three'],
      ] as const) {
        await from.put({ ...(await from.get('before')), text })
        await until(`"${text}" has arrived`, async () => (await textOf(to, 'before')) === text)
      }
      await untilSame(t, all)
    })

    t.test('deletions, and new notes with a deleted id, travel both ways', async (t) => {
      await desk.remove(await desk.get('before'))
      await until('it is gone', async () => (await textOf(phone, 'before')) === 'deleted')
      await phone.put({ _id: 'before', text: 'again' })
      await until('it is back', async () => (await textOf(desk, 'before')) === 'again')
      const { before } = await untilSame(t, all)
      t.equal(before?.leaves.length, 1)
    })

    t.test('writes of others to the server reach both', async () => {
      await call(server, 'PUT', '/notes/by-curl', { body: { text: 'hello' } })
      for (const db of devices) {
        await until('it has arrived', async () => (await textOf(db, 'by-curl')) === 'hello')
      }
    })

    t.test('edits in quick succession on both', async (t) => {
      const edits = 30
      const writeAll = async (db: Device, id: string) => {
        for (let n = 1; n <= edits; n++) {
          const { _rev } = await db.get(id).catch(() => ({ _rev: undefined }))
          await db.put({ _id: id, text: n, ...(_rev !== undefined && { _rev }) })
        }
      }
      await Promise.all([writeAll(phone, 'fast-phone'), writeAll(desk, 'fast-desk')])
      const histories = await untilSame(t, all, (now) =>
        ['fast-phone', 'fast-desk'].every(
          (id) => (winnersOf(now, id) as { text?: number } | undefined)?.text === edits,
        ),
      )
      for (const id of ['fast-phone', 'fast-desk']) {
        t.match(histories[id]?.leaves, [{ ancestry: { length: edits } }], 'no conflict, no revision skipped')
      }
    })

    t.test('the server stops and restarts', async (t) => {
      await server.stop()
      await phone.put({ _id: 'meanwhile-phone', text: 'p' })
      await desk.put({ _id: 'meanwhile-desk', text: 'd' })
      await desk.put({ ...(await desk.get('by-curl')), text: 'edited while away' })
      await server.start()
      await untilSame(t, all, (now) => 'meanwhile-phone' in now && 'meanwhile-desk' in now)
      t.equal(await textOf(phone, 'by-curl'), 'edited while away')
    })

    t.strictSame(
      syncs.flatMap(({ errors, denied }) => [...errors, ...denied]),
      [],
    )
  })
}

t.test('an idle live sync stays idle', async (t) => {
  const server = await startTestServer(t)
  const phone = await device(t)
  const there = remote(`${server.url}/notes`)
  await phone.put({ _id: 'a', text: '1' })
  liveSync(t, phone, there.db)
  const tip = async () => ((await call(server, 'GET', '/notes')).json as { update_seq?: string }).update_seq
  const waitsAtTip = async () => longpolls(there).at(-1) === (await tip())
  await until('the note is there', async () => (await tip())?.startsWith('1-') ?? false)
  await until('its checkpoints are written', async () => (await checkpoints()).length === 2)
  await until('it waits', waitsAtTip)
  const before = longpolls(there).length
  for (let n = 0; n < 5; n++) {
    const { json } = await call(server, 'GET', '/notes/_local/unseen')
    await call(server, 'PUT', '/notes/_local/unseen', { body: { n, _rev: (json as { _rev?: string })._rev } })
  }
  const changed = phone.changes({ live: true, since: 'now' })
  t.teardown(() => changed.cancel())
  const arrived = once(changed, 'change')
  await call(server, 'PUT', '/notes/b', { body: {} })
  await arrived
  await until('it waits again', waitsAtTip)
  t.equal(longpolls(there).length, before + 1, 'only a note has woken it, no local document')

  async function checkpoints() {
    const { json } = await call(server, 'GET', '/notes/_local_docs')
    return (json as { rows?: unknown[] }).rows ?? []
  }
})

/** Values that JavaScript, and so PouchDB, represents exactly. */
const CARRIED = {
  numbers: [0, -1, 1.5, 0.1 + 0.2, 2 ** 53, -(2 ** 53), 2 ** 53 - 1, 1e21, 1e-7, 5e-324, Number.MAX_VALUE],
  strings: [
    '',
    '\u0000',
    '\u007f',
    'a\\b"c/d',
    '\u2028\u2029',
    'é e\u0301',
    '🍎👩‍👩‍👧',
    '</script>',
    '\ufeff',
    '\uffff',
  ],
  others: [true, false, null, [], {}, [[]], [null]],
  '2': 'two',
  '1': 'one',
  '': 'empty',
  ' ': 'space',
  'a.b': 1,
  $ref: 2,
  ä: 3,
  constructor: 'c',
  toString: 's',
  hasOwnProperty: 'h',
  length: 'l',
  'new\nline': 'n',
  deep: nested(200),
}

function nested(levels: number): unknown {
  let value: unknown = 'bottom'
  for (let n = 0; n < levels; n++) value = n % 2 === 0 ? [value] : { in: value }
  return value
}

/** Values that JavaScript changes, sent by clients in other languages. */
const EXACT = [
  '{"n":9007199254740993,"m":-9007199254740993,"big":123456789012345678901234567890}',
  '{"f":1.0,"g":1.10,"h":1E2,"i":1e+2,"z":-0,"tiny":1e-400,"huge":1e400}',
  '{"2":"two","1":"one","b":0,"a":0}',
  '{"escaped":"\\u0041\\/\\u00e9\\ud83c\\udf4e","\\u006bey":1}',
  '{"in":{"__proto__":{"x":1},"_id":"not its own"},"constructor":{"prototype":null}}',
  `{"pi":3.${'1415926535897932384626433'.repeat(4)}}`,
  '{"nested":[{"f":1.0,"2":9007199254740993,"1":[1.0,[2.0]]}]}',
]

for (const adapter of ADAPTERS) {
  t.test(
    `numbers, strings and keys that JavaScript represents exactly stay unchanged, ${adapter}`,
    async (t) => {
      const server = await startTestServer(t)
      const [phone, desk] = [await device(t, adapter), await device(t, adapter)]
      const there = remote(`${server.url}/notes`).db
      await phone.put({ _id: 'odd', ...CARRIED })
      const held = body(await phone.get('odd'))
      await phone.sync(there)
      await desk.sync(there)
      t.strictSame(body(await desk.get('odd')), held)
      t.strictSame(body((await call(server, 'GET', '/notes/odd')).json as object), held)
      t.strictSame(held.numbers, CARRIED.numbers)
      t.strictSame(held.strings, CARRIED.strings)
      await desk.put({ ...(await desk.get('odd')), edited: true })
      for (const db of [desk, phone]) await db.sync(there)
      t.strictSame(body(await phone.get('odd')), { ...held, edited: true })
      await sameEverywhere(t, { server, database: 'notes', devices: [phone, desk] })
    },
  )
}

t.test('values that JavaScript would change stay byte for byte while PouchDB syncs', async (t) => {
  const server = await startTestServer(t)
  const [phone, desk] = [await device(t), await device(t)]
  const there = remote(`${server.url}/notes`).db
  await call(server, 'PUT', '/notes')
  const revs = new Map<string, string>()
  for (const [at, text] of EXACT.entries()) {
    const { status, json } = await call(server, 'PUT', `/notes/exact-${at}`, { body: text })
    t.equal(status, 201)
    revs.set(`exact-${at}`, (json as { rev: string }).rev)
  }
  await call(server, 'PUT', '/notes/other', { body: { text: 'by curl' } })

  const unchanged = async (t: Test) => {
    for (const [at, text] of EXACT.entries()) {
      const id = `exact-${at}`
      const head = `{"_id":"${id}","_rev":"${revs.get(id)}",`
      t.equal((await call(server, 'GET', `/notes/${id}`)).text, `${head}${text.slice(1)}\n`)
      const bulk = { body: { docs: [{ id }] } }
      const { text: got } = await call(server, 'POST', '/notes/_bulk_get', bulk)
      t.ok(got.includes(text.slice(1)), 'in _bulk_get')
    }
    const { text: all } = await call(server, 'GET', '/notes/_all_docs?include_docs=true')
    const { text: feed } = await call(server, 'GET', '/notes/_changes?include_docs=true')
    for (const text of EXACT) t.ok(all.includes(text.slice(1)) && feed.includes(text.slice(1)), 'in lists')
  }

  t.test('as written', unchanged)

  t.test('after devices have pulled everything and pushed edits of another note', async (t) => {
    for (const db of [phone, desk]) await db.sync(there)
    t.match(await phone.get('exact-0'), { n: 2 ** 53 }, 'the device itself cannot hold it')
    for (const [at, db] of [phone, desk, phone].entries()) {
      await db.put({ ...(await db.get('other')), text: `edit ${at}` })
      for (const each of [db, phone, desk]) await each.sync(there)
    }
    t.match(body(await desk.get('other')), { text: 'edit 2' })
    await unchanged(t)
  })

  t.test('after a restart', async (t) => {
    await server.stop()
    await server.start()
    await phone.sync(there)
    await unchanged(t)
  })

  t.test('the last value of a repeated name counts', async (t) => {
    await call(server, 'PUT', '/notes/twice', { body: '{"a":1.0,"b":2,"a":3.0}' })
    const { text } = await call(server, 'GET', '/notes/twice')
    t.match(text, /"a":3\.0/)
    t.notMatch(text, /"a":1\.0/)
    await phone.sync(there)
    t.match(body(await phone.get('twice')), { a: 3, b: 2 })
  })
})
