/** Documents that are too large are refused by their bytes, before their text is decoded. */
import { equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { LengthScanner } from '../../src/documents/document-length.ts'
import { startTestServer } from '../helpers/server.ts'

const MB = 1024 * 1024
/** As in the scanner: shorter strings are no contents. */
const MIN_CONTENT = 1024

function lengthOf(bytes: Buffer, cut: number): number {
  const scanner = new LengthScanner()
  for (let at = 0; at < bytes.length; at += cut) scanner.push(bytes.subarray(at, at + cut))
  return scanner.length
}

/** What the scanner must count, by another way: the text without its long strings among the attachments. */
function expectedLength(doc: Record<string, unknown>): number {
  const all = Buffer.byteLength(JSON.stringify(doc))
  const contents = JSON.stringify(doc._attachments ?? null).matchAll(/"((?:[^"\\]|\\.)*)"/g)
  const long = [...contents].map(([, text = '']) => Buffer.byteLength(text)).filter((n) => n >= MIN_CONTENT)
  return long.reduce((left, n) => left - n, all)
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
  t.equal(replaced.status, 413, 'what a later member replaces is not parsed either')
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
