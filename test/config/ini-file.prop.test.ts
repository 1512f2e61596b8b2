import assert from 'node:assert/strict'
import fc from 'fast-check'
import { parse } from 'ini'
import t from 'tap'
import { deleteInText, parseIni, setInText } from '../../src/config/ini-file.ts'
import { checkSetting } from '../../src/config/values.ts'
import { readAsCouchDb } from './couchdb-reader.ts'

const accepted = (section: string, key: string, value: string): boolean => {
  try {
    checkSetting(section, key, value)
    return true
  } catch {
    return false
  }
}
const name = fc.oneof(
  // Few names, so that settings often meet lines of the file.
  { weight: 6, arbitrary: fc.constantFrom('a', 'b') },
  fc.constantFrom('a', 'b', 'a.b', '__proto__', 'constructor', 'a;b', 'a"b', 'ä', 'a b', '"q"'),
  fc.string({ minLength: 1, maxLength: 8, unit: 'grapheme' }).map((text) => text.trim()),
)
const piece = fc.constantFrom(
  '"',
  '\\',
  ';',
  '#',
  ' ;',
  '=',
  ' ',
  "'",
  'x',
  'true',
  '\t',
  '\u00a0',
  'ß',
  'null',
  ':',
)
const value = fc
  .oneof(
    fc.array(piece, { maxLength: 8 }).map((parts) => parts.join('')),
    fc.string({ unit: 'grapheme' }),
  )
  .map((text) => text.trim())
const setting = fc.tuple(name, name, value).filter(([section, key, value]) => accepted(section, key, value))
const line = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom('[a]', '[b]', 'a = 1 ; why', 'a=2', ' more', 'b = "x" ; "') },
  name.map((text) => `[${text}]`),
  fc
    .tuple(name, fc.constantFrom('=', ' = ', ' ='), value, fc.constantFrom('', ' ; why'))
    .map((parts) => parts.join('')),
  name.map((text) => `; ${text}`),
  fc.constantFrom('', '   ', '# = c', ' more', ' more ; and', '\tmore', '[x', '=', 'word', '[a] b', '\ufeff'),
)
const file = fc
  .array(fc.tuple(line, fc.constantFrom('\n', '\n', '\r\n')), { maxLength: 20 })
  .chain((lines) =>
    fc.constantFrom(lines.map((parts) => parts.join('')).join(''), lines.map(([text]) => text).join('\n')),
  )
const flat = (text: string): Map<string, string> => {
  const all = [...parseIni(text)].flatMap(([section, keys]) =>
    [...keys].map(([key, value]): [string, string] => [JSON.stringify([section, key]), value]),
  )
  return new Map(all.sort(([a], [b]) => (a < b ? -1 : 1)))
}
const comments = (text: string): string[] => text.split(/[\r\n]+/).filter((line) => /^\s*[;#]/.test(line))

t.test('what is set is read, and everything else stays as it is', (t) => {
  fc.assert(
    fc.property(file, setting, (text, [section, key, value]) => {
      const after = setInText(text, section, key, value)
      const id = JSON.stringify([section, key])
      const expected = new Map(
        [...flat(text), [id, value]].sort(([a], [b]) => (a! < b! ? -1 : 1)) as [string, string][],
      )
      assert.deepEqual([...flat(after)], [...expected])
      assert.deepEqual(comments(after), comments(text))
      assert.equal(setInText(after, section, key, value), after, 'setting it again changes nothing')
    }),
    { numRuns: 2000 },
  )
  t.end()
})

t.test('what is deleted is gone, and everything else stays as it is', (t) => {
  fc.assert(
    fc.property(file, setting, (text, [section, key, value]) => {
      const before = flat(text)
      before.delete(JSON.stringify([section, key]))
      const after = deleteInText(setInText(text, section, key, value), section, key)
      assert.deepEqual([...flat(after)], [...before])
      assert.deepEqual(comments(after), comments(text))
    }),
    { numRuns: 1000 },
  )
  t.end()
})

t.test('what is written CouchDB reads as well, and mostly the package ini too', (t) => {
  const differs = /^".*"$|\s;| =|= |^;/s // CouchDB cannot write these at all
  const plain = /^[^;#\\'"[\]]*$/
  fc.assert(
    fc.property(setting, ([section, key, value]) => {
      const text = setInText('', section, key, value)
      if (!differs.test(value)) assert.equal(readAsCouchDb(text).get(`${section}/${key}`), value)
      if (![value, key, section].every((part) => plain.test(part) && !part.includes('__proto__'))) return
      if (section.includes('.')) return
      assert.equal(String((parse(text) as Record<string, Record<string, unknown>>)[section]?.[key]), value)
    }),
    { numRuns: 1000 },
  )
  t.end()
})
