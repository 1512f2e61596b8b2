import { Buffer } from 'node:buffer'
import t from 'tap'
import type { CouchError } from '../../src/core/errors.ts'
import {
  decodeUtf8,
  memberValue,
  parseJson,
  spliceDocument,
  splitDocument,
} from '../../src/documents/body.ts'

const refused = (code: CouchError['code'], reason?: string) =>
  reason === undefined ? { code } : { code, reason }
const bodyOf = (text: string) => splitDocument(text).body
const valuesOf = (special: ReadonlyMap<string, string>) =>
  [...special.keys()].map((name) => [name, memberValue(special, name)])

t.test('members that begin with _ are taken out', async (t) => {
  const { special, body } = splitDocument('{"_id":"n1","title":"Milk","_rev":"1-a","_deleted":true,"_x":[1]}')
  t.equal(body, '{"title":"Milk"}')
  t.same(valuesOf(special), [
    ['_id', 'n1'],
    ['_rev', '1-a'],
    ['_deleted', true],
    ['_x', [1]],
  ])
})

t.test('what is left stays valid JSON wherever the special members stand', async (t) => {
  for (const text of [
    '{"_a":1,"b":2,"c":3}',
    '{"b":2,"_a":1,"c":3}',
    '{"b":2,"c":3,"_a":1}',
    '{"_a":1,"_b":1,"b":2,"_c":{},"_d":[],"c":3,"_e":1,"_f":1}',
    ' { "_a" : 1 , "_b" : [ 1 , 2 ] , "b" : 2 , "_c" : { } , "c" : 3 , "_d" : 1 } ',
  ]) {
    t.equal(bodyOf(text), '{"b":2,"c":3}', text)
  }
  t.equal(bodyOf('{}'), '{}')
  t.equal(bodyOf(' {\r\n\t} '), '{}')
  t.equal(bodyOf('{ "_id" : "a" , "_rev" : "b" }'), '{}')
})

t.test('the _ members that CouchDB keeps stay in the body, in their place', async (t) => {
  const kept =
    '{"_access":["a"],"x":1,"_replication_id":"r","_replication_state":"s","_replication_state_time":1,' +
    '"_replication_state_reason":null,"_replication_stats":{}}'
  t.equal(bodyOf(`{"_id":"a",${kept.slice(1)}`), kept)
  t.equal(splitDocument(kept).special.size, 0)
})

t.test('a name is recognised however it is written', async (t) => {
  const { special, body } = splitDocument(
    '{"\\u005frev":"1-a","\\u005f\\u0069d":"n","\\u005Faccess":1,"\\u0078":2}',
  )
  t.same(valuesOf(special), [
    ['_rev', '1-a'],
    ['_id', 'n'],
  ])
  t.equal(body, '{"\\u005Faccess":1,"\\u0078":2}')
})

t.test('only the top level has special members', async (t) => {
  const text = '{"a":{"_id":1,"__proto__":{"x":1}},"b":[{"_rev":2}]}'
  t.equal(bodyOf(text), text)
})

t.test('a member named __proto__ is special at the top and nothing else', async (t) => {
  const { special, body } = splitDocument('{"__proto__":{"polluted":1},"a":1}')
  t.same(memberValue(special, '__proto__'), { polluted: 1 })
  t.equal(body, '{"a":1}')
  t.equal(Reflect.get({}, 'polluted'), undefined)
})

t.test('text that JSON.parse and JSON.stringify bend is kept', async (t) => {
  for (const text of [
    '{"a":9007199254740993,"b":123456789012345678901234567890}',
    '{"a":1e400,"b":-1E-400,"c":1e5,"d":1E+2}',
    '{"a":1.0,"b":-0,"c":-0.0,"d":0.0000001,"e":0.1000}',
    '{"2":1,"1":2,"b":3,"a":4,"0":5}',
    '{"a":"\\u0041\\/\\b\\u000a","\\u0062":"\\u00e9"}',
    '{"a":"\u2028\u2029\u007f\ufeff\u00e9\u{1f600}"}',
    '{"a":"\\ud83d\\ude00\\uD83D\\uDE00"}',
    '{"":1,"\ue000":2,"\uffff":"\ufffd"}',
    '{"toJSON":1,"constructor":2,"hasOwnProperty":3}',
  ]) {
    t.equal(bodyOf(text), text)
  }
})

t.test('white space goes between tokens and stays in strings', async (t) => {
  t.equal(
    bodyOf('\r\n{ "a b"\t:\n[ 1 , "x  y" , { } , [ ] , true , null ] ,"c":{ "d" : -1.50 } }\n'),
    '{"a b":[1,"x  y",{},[],true,null],"c":{"d":-1.50}}',
  )
})

t.test('of duplicate names the last member takes the place of the first, at every level', async (t) => {
  t.equal(bodyOf('{"a":1,"a":2}'), '{"a":2}')
  t.equal(bodyOf('{"a":1,"b":2,"a":3,"c":4,"a":5}'), '{"a":5,"b":2,"c":4}')
  t.equal(bodyOf('{"x":[{"a":1,"b":2,"a":{"c":1,"c":2}}]}'), '{"x":[{"a":{"c":2},"b":2}]}')
  t.equal(bodyOf('{ "a" : [ 1 ] , "b" : 2 , "a" : [ 3 , 4 ] }'), '{"a":[3,4],"b":2}')
  t.equal(
    bodyOf('{"_id":1, "a":1, "b":0, "a": {"z":1, "y":2, "z": 3}, "_id":2}'),
    '{"a":{"z":3,"y":2},"b":0}',
  )
  t.equal(bodyOf('{"a":1,"\\u0061":2}'), '{"\\u0061":2}')
  t.equal(splitDocument('{"_id":1,"_id":2,"\\u005fid":3}').special.get('_id'), '3')
})

t.test('a special member may hold anything, duplicates and white space too', async (t) => {
  const { special, body } = splitDocument('{"a":1, "_x" : { "p":1, "p" : [ 1 , 2 ] } , "a":2}')
  t.same(memberValue(special, '_x'), { p: [1, 2] })
  t.equal(body, '{"a":2}')
})

t.test('JSON that is no object is refused as such', async (t) => {
  for (const text of ['[]', ' [{}]', '"a"', '1', 'true', 'null', '['.repeat(600) + ']'.repeat(600)]) {
    t.throws(() => splitDocument(text), refused('document_not_object'), text)
  }
})

t.test('a document is put together in the order of CouchDB', async (t) => {
  const [id, rev] = ['n1', '2-b']
  t.equal(spliceDocument({ id, rev, body: '{}' }), '{"_id":"n1","_rev":"2-b"}')
  t.equal(spliceDocument({ id, rev, body: '{"a":1.0}' }), '{"_id":"n1","_rev":"2-b","a":1.0}')
  t.equal(
    spliceDocument({
      id,
      rev,
      body: '{"a":1}',
      deleted: true,
      extra: '"_revisions":{"start":2,"ids":["b"]}',
    }),
    '{"_id":"n1","_rev":"2-b","a":1,"_deleted":true,"_revisions":{"start":2,"ids":["b"]}}',
  )
  t.equal(
    spliceDocument({ id: 'a"\\\n\u2028', rev, body: '{}', deleted: false, extra: '' }),
    '{"_id":"a\\"\\\\\\n\u2028","_rev":"2-b"}',
  )
})

t.test('parseJson parses, or refuses as CouchDB does', async (t) => {
  t.same(parseJson('[1,{"a":null}]'), [1, { a: null }])
  t.throws(() => parseJson('{'), { code: 'invalid_json', status: 400, reason: 'invalid UTF-8 JSON' })
  const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)
  t.ok(parseJson(nested(512)))
  t.throws(() => parseJson(nested(513)), refused('too_deep'))
  t.throws(
    () => parseJson(`{"a":${nested(100_000)}}`),
    refused('too_deep'),
    'before anything walks through it',
  )
  t.ok(parseJson(`[${`${nested(511)},`.repeat(3)}1]`), 'many of them are no depth')
})

t.test('decodeUtf8 takes UTF-8 and nothing else', async (t) => {
  t.equal(decodeUtf8(Buffer.from('')), '')
  t.equal(decodeUtf8(Buffer.from('plain')), 'plain')
  t.equal(decodeUtf8(Buffer.from('é€\u{1f600}')), 'é€\u{1f600}')
  t.equal(decodeUtf8(new Uint8Array(Buffer.from('xéx')).subarray(1, 3)), 'é', 'a view into a larger buffer')
  t.equal(decodeUtf8(Buffer.from([0xef, 0xbb, 0xbf, 0x7b, 0x7d])), '\ufeff{}', 'a byte order mark stays')
  for (const bytes of [[0xff], [0xc3], [0xc0, 0x80], [0xed, 0xa0, 0x80], [0x61, 0xe2, 0x82]]) {
    t.throws(() => decodeUtf8(new Uint8Array(bytes)), refused('invalid_json'))
  }
})
