/** What was sent comes back exactly, by every way in and out: architecture.md, "Bodies". */
import t from 'tap'
import { ADMIN, body, openDatabase, text } from './helpers.ts'

const MEMBERS = [
  '"n":9007199254740993',
  '"big":1e400',
  '"small":-1E-400',
  '"one":1.0,"zero":-0,"exp":1E+2',
  '"2":"two","1":"one","0":{"9":1,"8":2}',
  '"":""',
  '"escape":"\\u0041\\/\\n\\ud83d\\ude00\\u2028"',
  '"utf8":"ä\u{1f600}\u2028"',
  '"nested":{"__proto__":{"a":1},"constructor":null,"_id":"in","_rev":2}',
  '"constructor":1,"toString":[[],{}]',
  '"text":"  spaces : , stay  "',
]
const BODY = MEMBERS.join(',')

/** Every way to read a document, as text. */
async function readings(
  database: Awaited<ReturnType<typeof openDatabase>>['database'],
  id: string,
  rev: string,
) {
  const { json } = await database.open(ADMIN, id, {})
  const all = { includeDocs: true }
  return {
    get: Buffer.from(json).toString(),
    rev: Buffer.from((await database.open(ADMIN, id, { rev })).json).toString(),
    openRevs: await text(database.openRevs(ADMIN, id, 'all', {})),
    bulkGet: await text(database.bulkGet(ADMIN, body({ docs: [{ id, rev }] }), {})),
    allDocs: await text(database.allDocs(ADMIN, 'all', all, null)),
    keys: await text(database.allDocs(ADMIN, 'all', { ...all, keys: [id] }, null)),
  }
}

t.test('by PUT, POST, bulk and replication', async (t) => {
  const writes: [
    name: string,
    write: (opened: Awaited<ReturnType<typeof openDatabase>>) => Promise<unknown>,
  ][] = [
    ['PUT', ({ put }) => put('x', `{${BODY}}`)],
    ['POST', ({ database }) => database.post(ADMIN, body(`{"_id":"x",${BODY}}`))],
    ['bulk', ({ bulk }) => bulk(`{"docs":[{"_id":"x",${BODY}}]}`)],
    ['replication', ({ bulk }) => bulk(`{"new_edits":false,"docs":[{${BODY},"_id":"x","_rev":"1-a"}]}`)],
  ]
  for (const [name, write] of writes) {
    const opened = await openDatabase()
    await write(opened)
    const { _rev } = await opened.get('x')
    const exact = `{"_id":"x","_rev":"${_rev}",${BODY}}`
    const read = await readings(opened.database, 'x', _rev)
    t.equal(read.get, `${exact}\n`, name)
    for (const [way, answer] of Object.entries(read)) t.ok(answer.includes(exact), `${name}, read by ${way}`)
  }
})

t.test('after an update the old revision has its own text', async (t) => {
  const { put, database } = await openDatabase()
  const first = await put('x', `{${BODY}}`)
  const second = await put('x', `{"_rev":"${first}","n":1.50}`)
  const at = async (rev: string) => Buffer.from((await database.open(ADMIN, 'x', { rev })).json).toString()
  t.equal(await at(first), `{"_id":"x","_rev":"${first}",${BODY}}\n`)
  t.equal(await at(second), `{"_id":"x","_rev":"${second}","n":1.50}\n`)
})

t.test('by COPY', async (t) => {
  const { put, database } = await openDatabase()
  await put('x', `{${BODY}}`)
  const { rev } = await database.copy(ADMIN, { id: 'x' }, { id: 'y' })
  const { json } = await database.open(ADMIN, 'y', {})
  t.equal(Buffer.from(json).toString(), `{"_id":"y","_rev":"${rev}",${BODY}}\n`)
})

t.test('white space between tokens goes, and `_` members wherever they stand', async (t) => {
  const { put, database } = await openDatabase()
  const rev = await put(
    'x',
    '\r\n{ "a" : 1.0 , "_conflicts" : [ "1-a" ] ,\t"b":[ 1 , 2 ],"_id":"y" , "c" : " " }\n',
  )
  const { json } = await database.open(ADMIN, 'x', {})
  t.equal(Buffer.from(json).toString(), `{"_id":"x","_rev":"${rev}","a":1.0,"b":[1,2],"c":" "}\n`)
})

t.test('ids with characters that JSON escapes', async (t) => {
  const { put, database } = await openDatabase()
  for (const id of ['"', '\\', '\n', '\u0000', '/', 'ä\u{1f600}', '</script>']) {
    const rev = await put(id, {})
    const read = await readings(database, id, rev)
    t.equal(read.get, `{"_id":${JSON.stringify(id)},"_rev":"${rev}"}\n`)
  }
})

t.test('revision ids with characters that JSON escapes', async (t) => {
  const { replicate, get, database } = await openDatabase()
  await replicate('x', { start: 2, ids: ['"\\', 'a-b'] })
  t.match(await get('x', { revs: true, revsInfo: true }), {
    _rev: '2-"\\',
    _revisions: { ids: ['"\\', 'a-b'] },
    _revs_info: [{ rev: '2-"\\' }, { rev: '1-a-b', status: 'missing' }],
  })
  for (const answer of Object.values(await readings(database, 'x', '2-"\\'))) {
    t.doesNotThrow(() => JSON.parse(answer))
  }
})
