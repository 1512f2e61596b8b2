/** CouchDB's upload form for browsers; protocol.md 3.7. */
import t from 'tap'
import type { Body, Database } from '../../src/documents/database.ts'
import { ADMIN, openDatabase } from './helpers.ts'

type Field = readonly [name: string, value: string | File]

/** A form as a browser sends it. */
async function form(...fields: readonly Field[]): Promise<{ body: Body; boundary: string }> {
  const data = new FormData()
  for (const [name, value] of fields) data.append(name, value)
  const sent = new Response(data)
  const boundary = /boundary=(.+)$/.exec(sent.headers.get('content-type') ?? '')?.[1] ?? ''
  return { body: { bytes: new Uint8Array(await sent.arrayBuffer()) }, boundary }
}

function file(name: string, text: string, type = 'text/plain'): Field {
  return ['_attachments', new File([text], name, { type })]
}

async function upload(database: Database, id: string, ...fields: readonly Field[]) {
  const { body, boundary } = await form(...fields)
  return database.postForm(ADMIN, id, body, { boundary })
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64')
}

t.test('a document and its files', async (t) => {
  const { get, database } = await openDatabase()
  const files = [file('ä b.txt', 'hello'), file('c.bin', '\r\n--x\r\n', ''), file('', '')]
  const { rev } = await upload(database, 'x', ['_doc', '{"n":1.0,"é":2}'], ...files, ['other', 'ignored'])
  t.match(rev, /^1-/)
  t.match(await get('x', { attachments: true }), {
    n: 1,
    é: 2,
    _attachments: {
      'ä b.txt': { content_type: 'text/plain', data: base64('hello'), revpos: 1 },
      'c.bin': { content_type: 'application/octet-stream', data: base64('\r\n--x\r\n') },
    },
  })
  t.equal(Object.keys((await get('x'))._attachments).length, 2, 'a field left empty is no file')
})

t.test('a revision gets files, and keeps what it has beside them', async (t) => {
  const { put, get, database } = await openDatabase()
  const rev = await put('x', {
    n: 1,
    _attachments: { a: { data: base64('old a') }, b: { data: base64('old b'), content_type: 'image/png' } },
  })
  const second = await upload(database, 'x', ['_rev', rev], file('a', 'new a'), file('c', 'new c'))
  t.match(second.rev, /^2-/)
  t.match(await get('x', { attachments: true }), {
    n: 1,
    _attachments: {
      a: { data: base64('new a'), revpos: 2 },
      b: { data: base64('old b'), content_type: 'image/png', revpos: 1 },
      c: { data: base64('new c'), revpos: 2 },
    },
  })
  await t.rejects(upload(database, 'x', ['_rev', rev], file('d', '')), { code: 'conflict' })
  const third = await upload(database, 'x', ['_doc', JSON.stringify({ _rev: second.rev, n: 3 })])
  t.same(await get('x'), { _id: 'x', _rev: third.rev, n: 3 })
})

t.test('a large file', async (t) => {
  const { get, database } = await openDatabase()
  const text = 'settee '.repeat(400_000)
  await upload(database, 'x', ['_doc', '{}'], file('large', text))
  t.match(await get('x'), { _attachments: { large: { length: text.length, stub: true } } })
})

t.test('what is refused stores nothing', async (t) => {
  const { put, database, store } = await openDatabase({ maxAttachmentSize: 100 })
  await put('there', {})
  const before = await store.view()
  const cases: [id: string, fields: Field[], code: string, reason?: string][] = [
    ['x', [], 'bad_request', 'The form has neither `_doc` nor `_rev`.'],
    ['x', [file('a', 'a')], 'bad_request', 'The form has neither `_doc` nor `_rev`.'],
    ['x', [['_rev', '1-a']], 'not_found'],
    ['there', [['_rev', '1-a']], 'conflict'],
    ['there', [['_rev', 'rubbish']], 'invalid_rev'],
    ['there', [['_doc', '{}']], 'conflict'],
    ['x', [['_doc', '{']], 'invalid_json'],
    ['x', [['_doc', '{"_zing":1}']], 'doc_validation'],
    ['x', [['_doc', '{}'], file('_a', '')], 'bad_request'],
    ['x', [['_doc', '{}'], file('../a', '')], 'bad_request'],
    ['x', [['_doc', '{}'], file('a', '1'), file('a', '2')], 'bad_request', 'Duplicate attachments'],
    ['x', [['_doc', '{}'], file('a', 'x'.repeat(101))], 'attachment_too_large'],
    ['_x', [['_doc', '{}']], 'illegal_docid'],
    ['_local/x', [['_doc', '{}']], 'bad_request', '_local documents do not accept attachments.'],
  ]
  for (const [id, fields, code, reason] of cases) {
    await t.rejects(upload(database, id, ...fields), reason ? { code, reason } : { code }, `${id} ${code}`)
  }
  const { body } = await form(['_doc', '{}'])
  await t.rejects(database.postForm(ADMIN, 'x', body, { boundary: 'other' }), { code: 'bad_request' })
  await t.rejects(database.postForm({ name: 'o', roles: [] }, 'x', body, { boundary: 'x' }), {
    code: 'forbidden',
  })
  t.same(await store.view(), before)
})
