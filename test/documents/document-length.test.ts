/** Documents that are too large are refused by their bytes, before their text is decoded. */
import { equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { LengthScanner } from '../../src/documents/document-length.ts'
import { documentText } from '../../src/documents/request-body.ts'
import { startTestServer } from '../helpers/server.ts'
import { ADMIN, openDatabase, spooled } from './helpers.ts'

const MB = 1024 * 1024
/** As in the scanner: shorter strings are no contents. */
const MIN_CONTENT = 1024

function lengthOf(bytes: Buffer, cut: number): number {
  const scanner = new LengthScanner()
  for (let at = 0; at < bytes.length; at += cut) scanner.push(bytes.subarray(at, at + cut))
  return scanner.length
}

/** What the scanner must count, by another way: the text without its long strings among the attachments, unless a content is not ASCII. */
function expectedLength(doc: { readonly _attachments?: Record<string, { readonly data: string }> }): number {
  const all = Buffer.byteLength(JSON.stringify(doc))
  const contents = JSON.stringify(doc._attachments ?? null).matchAll(/"((?:[^"\\]|\\.)*)"/g)
  const long = [...contents].map(([, text = '']) => Buffer.byteLength(text)).filter((n) => n >= MIN_CONTENT)
  const odd = Object.values(doc._attachments ?? {}).filter(({ data }) => data.startsWith('é'))
  return long.reduce((left, n) => left - n, all) + odd.length * 1600
}

const content = fc.constantFrom(
  '',
  'a"\\',
  'x'.repeat(1023),
  'y'.repeat(1024),
  '\\"'.repeat(900),
  'é'.repeat(800),
)
const attachment = fc.record({ data: content, content_type: fc.string(), stub: fc.boolean() })
const docs = fc.record(
  {
    text: content,
    _attachments: fc.dictionary(fc.string(), attachment, { maxKeys: 3 }),
    nested: fc.record({ _attachments: content, list: fc.array(content, { maxLength: 2 }) }),
    _attachments2: content,
    last: fc.jsonValue({ maxDepth: 3 }),
  },
  { requiredKeys: [] },
)

t.test('the length of any document, in slices of any size, with any white space', async () => {
  fc.assert(
    fc.property(docs, fc.integer({ min: 1, max: 3000 }), fc.constantFrom(0, 1, 4), (doc, cut, indent) => {
      equal(lengthOf(Buffer.from(JSON.stringify(doc, null, indent)), cut), expectedLength(doc))
    }),
    { numRuns: 300 },
  )
})

t.test('a text that is not JSON ends, however it is cut', async () => {
  const parts = fc.array(fc.constantFrom('{', '}', '[', '"', '\\', ',', ':', '_attachments', 'x', ' '))
  fc.assert(
    fc.property(parts, fc.integer({ min: 1, max: 9 }), (list, cut) => {
      lengthOf(Buffer.from(list.join('')), cut)
    }),
  )
})

t.test('each way of a document into a database refuses it before its text is read', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  // Who reads the text finds that it is not UTF-8.
  const text = Buffer.concat([
    Buffer.from('{"_id":"a","x":"'),
    Buffer.alloc(12 * MB, 'x'),
    Buffer.from([0xff]),
    Buffer.from('"}'),
  ])
  const part = (head: string, end: string) => Buffer.concat([Buffer.from(head), text, Buffer.from(end)])
  const related = part('--b\r\nContent-Type: application/json\r\n\r\n', '\r\n--b--')
  const form = part('--b\r\nContent-Disposition: form-data; name="_doc"\r\n\r\n', '\r\n--b--')
  const ways = [
    ['PUT', '/notes/a', text, {}],
    ['PUT', '/notes/_local/a', text, {}],
    ['PUT', '/notes/_design/a', text, {}],
    ['POST', '/notes', text, { 'content-type': 'application/json' }],
    ['POST', '/notes/_bulk_docs', part('{"docs":[', ']}'), { 'content-type': 'application/json' }],
    ['PUT', '/notes/a', related, { 'content-type': 'multipart/related; boundary="b"' }],
    ['POST', '/notes/a', form, { 'content-type': 'multipart/form-data; boundary="b"', referer: server.url }],
  ] as const
  for (const [method, path, body, headers] of ways) {
    const { status, json } = await server.request(method, path, { body, headers })
    t.match([status, json.error], [413, 'document_too_large'], `${method} ${path}`)
  }
  t.match((await server.request('GET', '/notes')).json, { doc_count: 0 })
  const replaced = await server.request('POST', '/notes/_bulk_docs', {
    body: Buffer.from(`{"docs":[["${'x'.repeat(MB)}"]],"docs":[]}`),
    headers: { 'content-type': 'application/json' },
  })
  t.equal(replaced.status, 413, 'the length of a member that a later one replaces counts')
})

t.test('contents of attachments do not count, and neither does white space', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const data = Buffer.alloc(9 * MB, 'x').toString('base64')
  const doc = { _attachments: { a: { content_type: 'image/png', data } }, x: 'y'.repeat(1000) }
  t.equal((await server.request('PUT', '/notes/a', { body: doc })).status, 201)
  const spaces = Buffer.from(`{"a":${' '.repeat(12 * MB)}1}`)
  t.equal((await server.request('PUT', '/notes/b', { body: spaces })).status, 201)
  t.match((await server.request('GET', '/notes/a')).json._attachments.a, { length: 9 * MB })
})

const base64 = Buffer.alloc(3000, 'settee').toString('base64')
/** JSON texts of what stands in `_attachments`, sound and not. */
const value = fc.constantFrom(
  ...[
    base64,
    base64.slice(0, 1368),
    'x'.repeat(5000),
    `${base64.slice(0, 2000)}\\n ${base64.slice(2000)}`,
    '',
  ],
  ...[
    base64.replaceAll('A', '\\u0041'),
    `${base64}\n`,
    `${base64}\\`,
    `${base64}\\q`,
    `${base64}ä`,
    base64.slice(1),
  ],
)
const member = fc.record({
  name: fc.constantFrom('data', 'content_type', 'd\\u0061ta', 'digest', 'x'),
  value,
})
const entry = fc.oneof(
  { weight: 5, arbitrary: value.map((data) => `{"content_type": "a/b", "data" : "${data}"}`) },
  fc
    .array(member, { maxLength: 3 })
    .map((members) => `{${members.map(({ name, value }) => `"${name}":"${value}"`).join(' , ')}}`),
  value.map((data) => `["data","${data}"]`),
  value.map((data) => `{"data":["${data}"],"x":{"data":"${data}"},"stub":true}`),
  value.map((data) => `"${data}"`),
)
const attached = fc.array(fc.record({ name: fc.constantFrom('a', 'b', 'data'), entry }), { maxLength: 3 })

t.test('a document in a file is the same with and without the contents in its text', async (t) => {
  const { database } = await openDatabase()
  const padding = 'p'.repeat(1.1 * MB)
  const rev = async (id: string, given: string, isInFile: boolean) => {
    const body = isInFile ? await spooled(t, given) : { bytes: Buffer.from(given) }
    try {
      return (await database.put(ADMIN, id, body, {})).rev
    } catch (error) {
      if (!(error instanceof CouchError)) throw error
      return error.status
    }
  }
  let n = 0
  const stored = new Set<string | number>()
  await fc.assert(
    fc.asyncProperty(fc.array(attached, { minLength: 1, maxLength: 2 }), async (lists) => {
      const members = lists.map(
        (list) => `"_attachments":{${list.map(({ name, entry }) => `"${name}": ${entry}`).join()}}`,
      )
      const given = `{"data":"${base64}",${members.join()},"p":"${padding}"}`
      n += 1
      const expected = await rev(`memory-${n}`, given, false)
      equal(await rev(`file-${n}`, given, true), expected)
      stored.add(expected)
    }),
    { numRuns: 60 },
  )
  t.ok(stored.size > 3, `${stored.size} outcomes`)
})

t.test('the text of a long document in a file has no contents', async (t) => {
  const given = `{"_attachments":{"a":{"data":"${'x'.repeat(4 * MB)}"},"b":{"data":"${base64}"}}}`
  const read = await documentText(await spooled(t, given), { maxDocumentSize: 8 * MB })
  t.ok(read.text.length < 200, read.text)
})
