import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import type { CouchError } from '../../src/core/errors.ts'
import { splitAnyDocument, splitDocument } from '../../src/documents/body.ts'
import { DocumentScanner, type IsCut } from '../../src/documents/json-scanner.ts'

const refused = (code: CouchError['code'], reason?: string) =>
  reason === undefined ? { code } : { code, reason }
function scanDocument(text: string, isCut: IsCut): DocumentScanner {
  const scanner = new DocumentScanner(text, 0, isCut)
  scanner.advance()
  scanner.end()
  return scanner
}

const bodyOf = (text: string) => splitDocument(text).body

t.test('what is to be left out is told in spans of the text', async (t) => {
  const scanned = scanDocument('{"x":1, "b":[2 ]}', (name) => name === 'x')
  t.same([...scanned.cut], [['x', '1']])
  t.same(scanned.gaps, [1, 6, 6, 7, 7, 8, 14, 15], 'the member, the comma, and white space')
  t.same(scanned.moves, [])
})

t.test('a later member of the same name is moved, and its own place left out', async (t) => {
  const scanned = scanDocument('{"a":1,"b":2,"a":3}', () => false)
  t.match(scanned.moves, [{ start: 1, end: 6, from: 13, to: 18 }])
  t.same(scanned.gaps, [12, 18])
})

t.test('only names of the top level are asked about', async (t) => {
  const asked: string[] = []
  scanDocument('{"a":{"b":1},"\\u0063":[{"d":1}]}', (name) => asked.push(name) < 0)
  t.same(asked, ['a', 'c'])
})

t.test('every character may stand in names and values that JSON lets stand there', async (t) => {
  const wrong: string[] = []
  for (let point = 0x20; point <= 0x10ffff; point += point < 0x3000 || point > 0xd700 ? 1 : 97) {
    const c = String.fromCodePoint(point)
    const text = `{"x${c}":"${c}"}`
    const isAllowed = c !== '"' && c !== '\\' && (point < 0xd800 || point > 0xdfff)
    if (isAllowed && bodyOf(text) !== text) wrong.push(point.toString(16))
    if (point > 0x11000) point += 1021
  }
  t.same(wrong, [])
})

t.test('a value nests at most 512 levels deep, the document not counted', async (t) => {
  const arrays = (n: number) => '['.repeat(n) + ']'.repeat(n)
  const objects = (n: number) => '{"a":'.repeat(n) + 1 + '}'.repeat(n)
  for (const nest of [arrays, objects]) {
    t.equal(bodyOf(`{"a":${nest(512)}}`), `{"a":${nest(512)}}`)
    t.throws(() => splitDocument(`{"a":${nest(513)}}`), refused('too_deep'))
    t.throws(() => splitDocument(`{"_a":${nest(513)}}`), refused('too_deep'), 'also in special members')
    t.throws(
      () => splitDocument(`{"a":${nest(513)},"a":1}`),
      refused('too_deep'),
      'also where a duplicate follows',
    )
    t.throws(() => splitDocument(`{"a":${nest(1e6)}}`), refused('too_deep'))
  }
  const wide = `{"a":[${'[],'.repeat(2000)}[]],"b":${arrays(512)},"c":${arrays(512)}}`
  t.equal(bodyOf(wide), wide)
})

t.test('text that is no JSON is refused', async (t) => {
  for (const text of [
    '',
    ' ',
    '{',
    '}',
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{,}',
    '{"a":1 "b":2}',
    '{"a":1}x',
    '{"a":1}{}',
    "{'a':1}",
    '{a:1}',
    '{"a":01}',
    '{"a":1.}',
    '{"a":.5}',
    '{"a":+1}',
    '{"a":-}',
    '{"a":1e}',
    '{"a":1e+}',
    '{"a":0x10}',
    '{"a":NaN}',
    '{"a":tru}',
    '{"a":True}',
    '{"a":nulls}',
    '{"a":[1,]}',
    '{"a":[,]}',
    '{"a":[1 2]}',
    '{"a":[}]}',
    '{"a":"\\x41"}',
    '{"a":"\\N"}',
    '{"a":"\\U0041"}',
    '{"a":"\\u004"}',
    '{"a":"\\u00g0"}',
    '{"a":"',
    '{"a":"\\',
    '{"a":"\n"}',
    '{"a":"\u0000"}',
    '{"a":"\u001f"}',
    '{"a\t":1}',
    '\ufeff{}',
    '{}\u00a0',
    '{\u2028}',
    '/**/{}',
    '[1',
  ]) {
    t.throws(() => splitDocument(text), refused('invalid_json', 'invalid UTF-8 JSON'), encodeURI(text))
  }
})

t.test('a lone surrogate is refused, for it cannot be written as UTF-8', async (t) => {
  const reason = 'invalid UTF-8 JSON: lone surrogate'
  for (const string of [
    '\\ud800',
    '\\uDFFF',
    'a\\ud83d',
    '\\ude00\\ud83d',
    '\\ud83d\\u0041',
    '\\ud83dx',
    '\ud83d',
    '\ude00',
  ]) {
    t.throws(() => splitDocument(`{"a":"${string}"}`), refused('invalid_json', reason), string)
    t.throws(() => splitDocument(`{"a":{"${string}":1}}`), refused('invalid_json', reason), string)
    t.throws(() => splitDocument(`{"_id":"${string}"}`), refused('invalid_json', reason), string)
  }
})

t.test('large documents take time in proportion', { timeout: 60_000 }, async (t) => {
  const list = (n: number, item: (i: number) => string) => Array.from({ length: n }, (_, i) => item(i)).join()
  const long = `{"a":"${'x'.repeat(10e6)}"}`
  t.equal(bodyOf(long), long)
  const escapes = `{"a":"${'\\u00e9\\n'.repeat(1e6)}"}`
  t.equal(bodyOf(escapes), escapes)
  const members = `{${list(1e5, (i) => `"k${i}":${i}`)}}`
  t.equal(bodyOf(members), members)
  t.equal(bodyOf(`{${list(1e5, (i) => `"k":${i}`)}}`), '{"k":99999}')
  t.equal(bodyOf(`{${list(1e5, (i) => ` "_k" :${i}`)}}`), '{}')
  const spaced = `{"a":[${list(1e6, () => ' 1 ')}]}`
  t.equal(bodyOf(spaced), spaced.replaceAll(' ', ''))
  let nested = `[${list(3e5, () => ' 1 ')}]`
  for (let i = 0; i < 500; i += 1) nested = `{"a":0,"a":${nested}}`
  t.equal(bodyOf(`{"a":${nested}}`), `{"a":${nested.replaceAll(' ', '').replaceAll('"a":0,', '')}}`)
})

t.test('others have their turns while a long document is read', { timeout: 60_000 }, async (t) => {
  const many = (text: string, bytes = 2e6) => text.repeat(bytes / text.length)
  const names = Array.from({ length: 2e5 }, (_, i) => `"${i}":1`).join()
  for (const text of [
    `{"a":[${many('[],')}1]}`,
    `{"a":[${many('1 , ')}1]}`,
    `{"a":"${many('\\u0041', 2e7)}"}`,
    `{${names}}`,
    `{"_attachments":{${names}}}`,
    `{"x":[${many('1 ,')}1],${many('{"a":1,"a":2},', 1e5).replaceAll('{', '"y":{')}"x":[${many('1 ,')}1]}`,
  ]) {
    let turns = 0
    let isRead = false
    const reading = Promise.resolve(splitAnyDocument(text)).then((split) => {
      isRead = true
      return split
    })
    for (; !isRead; turns += 1) await nextTurn()
    t.equal((await reading).body, bodyOf(text))
    t.ok(turns > 3, `${turns} turns`)
  }
})

t.test('a document has a bound on values, on members of open objects, and on duplicates', async (t) => {
  const many = (n: number, item: (i: number) => string) => Array.from({ length: n }, (_, i) => item(i)).join()
  const tooLarge = (reason: RegExp) => ({ code: 'document_too_large', reason })
  t.throws(() => splitDocument(`{"a":[${many(2e6, () => '1')}]}`), tooLarge(/more than 2000000 JSON values/))
  const members = (n: number) => many(n, (i) => `"${i}":1`)
  t.throws(
    () => splitDocument(`{"a":{${members(2e5)},"b":{${members(2e5)}}}}`),
    tooLarge(/more than 400000 members/),
  )
  const closed = `{"a":{${members(2e5)}},"b":{${members(2e5)}}}`
  t.equal(bodyOf(closed), closed)
  const duplicates = (n: number) => `{"a":[${many(n, () => '{"a":1,"a":2}')}]}`
  t.equal(bodyOf(duplicates(1e4)), `{"a":[${many(1e4, () => '{"a":2}')}]}`)
  t.throws(() => splitDocument(duplicates(1e4 + 1)), tooLarge(/more than 10000 names/))
})
