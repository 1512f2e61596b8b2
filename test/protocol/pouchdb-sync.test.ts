import t from 'tap'
import { ADAPTERS, device, rejectsWith, remote, sinces } from './devices.ts'
import { sameEverywhere } from './histories.ts'
import { call, serve } from './served.ts'

/** Many batches; LevelDB on a disk takes its time over them. */
const MANY = { memory: 2000, leveldb: 500 }
const BATCH = 100

for (const adapter of ADAPTERS) {
  t.test(`one-shot replication, ${adapter}`, async (t) => {
    const server = await serve(t)

    t.test('a push brings notes to the server, deleted ones too', async (t) => {
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

    t.test('a pull brings what others wrote', async (t) => {
      await call(server, 'PUT', '/pulled')
      await call(server, 'PUT', '/pulled/by-curl', { body: { text: 'zwölf Äpfel 🍎' } })
      const phone = await device(t, adapter)
      const pulled = await phone.replicate.from(remote(`${server.url}/pulled`).db)
      t.match(pulled, { ok: true, docs_read: 1, docs_written: 1, errors: [] })
      t.match(await phone.get('by-curl'), { text: 'zwölf Äpfel 🍎' })
      await sameEverywhere(t, { server, database: 'pulled', devices: [phone] })
    })

    t.test('two devices come to have the same notes', async (t) => {
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
      // Where reading is slower than sending, PouchDB does not wait for a batch to be full.
      t.ok(pushes.length >= many / BATCH && pushes.length < many / 10, `${pushes.length} batches`)

      const home = remote(`${server.url}/many`)
      t.match(await desk.replicate.from(home.db), { docs_written: many, doc_write_failures: 0 })
      const gets = home.seen.filter(({ path }) => path.endsWith('/_bulk_get'))
      t.equal(gets.length, many / BATCH, '_bulk_get served every batch')
      t.strictSame(
        home.seen.filter(({ path }) => path.includes('note-')),
        [],
        'and no note was fetched on its own',
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

/** `..` is not among them: as a path of its own it is tidied away before it is sent. */
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
  const server = await serve(t)
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
  const server = await serve(t)
  const names = ['a/b', 'a+b', 'a$b', 'a(b)', 'a-b_c', 'x/y/z+(1)$', `long${'g'.repeat(200)}`]
  for (const [at, name] of names.entries()) {
    const [phone, desk] = [await device(t), await device(t)]
    await phone.put({ _id: 'in', name })
    // Once escaped by the app, once by PouchDB, which takes a name without a slash as it is.
    const there = remote(`${server.url}/${encodeURIComponent(name)}`).db
    await phone.sync(there)
    await desk.sync(name.includes('/') ? there : remote(`${server.url}/${name}`).db)
    t.match(await desk.get('in'), { name }, name)
    t.match((await call(server, 'GET', `/${encodeURIComponent(name)}`)).json, { db_name: name, doc_count: 1 })
    t.equal(((await call(server, 'GET', '/_all_dbs')).json as string[]).length, at + 2, 'beside _users')
  }
  t.strictSame((await call(server, 'GET', '/_all_dbs')).json, ['_users', ...names].sort())
  for (const name of names) {
    await remote(`${server.url}/${encodeURIComponent(name)}`, { skip_setup: true }).db.destroy()
  }
  t.strictSame((await call(server, 'GET', '/_all_dbs')).json, ['_users'])
})
