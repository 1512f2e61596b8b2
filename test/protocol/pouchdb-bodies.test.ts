import t, { type Test } from 'tap'
import { ADAPTERS, body, device, remote } from './devices.ts'
import { sameEverywhere } from './histories.ts'
import { call, serve } from './served.ts'

/** What JavaScript's own numbers and objects can hold, and so PouchDB. */
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

/** What JavaScript bends: sent by clients of other languages. */
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
  t.test(`numbers, strings and keys that JavaScript holds go round unharmed, ${adapter}`, async (t) => {
    const server = await serve(t)
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
  })
}

t.test('what JavaScript bends stays byte for byte while PouchDB syncs beside it', async (t) => {
  const server = await serve(t)
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

  t.test('after devices have pulled all and pushed edits of another note', async (t) => {
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

  t.test('of a name that comes twice the last one counts', async (t) => {
    await call(server, 'PUT', '/notes/twice', { body: '{"a":1.0,"b":2,"a":3.0}' })
    const { text } = await call(server, 'GET', '/notes/twice')
    t.match(text, /"a":3\.0/)
    t.notMatch(text, /"a":1\.0/)
    await phone.sync(there)
    t.match(body(await phone.get('twice')), { a: 3, b: 2 })
  })
})
