import assert from 'node:assert/strict'
import fc from 'fast-check'
import { parse } from 'ini'
import t from 'tap'
import { deleteInText, parseIni, setInText } from '../../src/config/ini-file.ts'
import { checkSetting } from '../../src/config/values.ts'
import { readAsCouchDb } from './couchdb-reader.ts'

const asObject = (text: string) =>
  Object.fromEntries([...parseIni(text)].map(([name, keys]) => [name, Object.fromEntries(keys)]))

t.test('a file of CouchDB is read as CouchDB reads it', (t) => {
  const text = [
    '\ufeff; CouchDB local.ini',
    'stray = before any section',
    '[couchdb]',
    'single_node=true',
    'uuid = 0123',
    '  max_document_size   =  50000000  ',
    '[chttpd] ',
    'require_valid_user = true ; a comment',
    'port = 5984;no comment without white space',
    '#bind_address = 1.2.3.4',
    ';bind_address = 1.2.3.4',
    '',
    '[httpd]',
    'WWW-Authenticate = Basic realm="couchdb"',
    'enable_cors = null',
    'empty =',
    '[admins]',
    'anna = pass#word\\\\;=x',
    'bertha = -pbkdf2:sha256-aa,bb,10',
    '[a.b]',
    'list[] = 1',
    'no option here',
    '= no key',
    '[broken] tail',
    'x = 1',
    '[cors]',
    'origins = app://obsidian.md,',
    ' capacitor://localhost ; phones',
    ' http://localhost',
    '[couchdb]',
    'uuid = second wins',
  ].join('\r\n')
  t.strictSame(asObject(text), {
    couchdb: { single_node: 'true', uuid: 'second wins', max_document_size: '50000000' },
    chttpd: { require_valid_user: 'true', port: '5984;no comment without white space' },
    httpd: { 'WWW-Authenticate': 'Basic realm="couchdb"', enable_cors: 'null', empty: '' },
    admins: { anna: 'pass#word\\\\;=x', bertha: '-pbkdf2:sha256-aa,bb,10' },
    'a.b': { 'list[]': '1', x: '1' },
    cors: { origins: 'app://obsidian.md, capacitor://localhost http://localhost' },
  })
  const couch = readAsCouchDb(text)
  t.equal(couch.get('admins/anna'), 'pass#word\\\\;=x')
  t.equal(couch.get('cors/origins'), 'app://obsidian.md, capacitor://localhost http://localhost')
  t.end()
})

t.test('names that live on Object.prototype are names like any other', (t) => {
  const text = '[__proto__]\n__proto__ = 1\nconstructor = 2\n[toString]\nhasOwnProperty = 3\n'
  const sections = parseIni(text)
  t.strictSame([...sections.keys()], ['__proto__', 'toString'])
  t.strictSame([...sections.get('__proto__')!], [['__proto__', '1'], ['constructor', '2']]) // biome-ignore format: pairs
  t.equal(({} as Record<string, unknown>).constructor, Object)
  t.end()
})

t.test('values in double quotes are read, as the package ini does', (t) => {
  t.equal(parseIni('[a]\nb = "x ; y"').get('a')?.get('b'), 'x ; y')
  t.equal(parseIni('[a]\nb = "x" ; y').get('a')?.get('b'), 'x')
  t.equal(parseIni('[a]\nb = "x" y').get('a')?.get('b'), '"x" y')
  t.equal(parseIni('[a]\nb = "\\q"').get('a')?.get('b'), '"\\q"', 'no JSON: as it stands')
  t.end()
})

t.test('a key is changed in its place', (t) => {
  const text = '; mine\n[chttpd]\n# about the port\nport=1 ; old\nbind_address = ::1\n\n[log]\nlevel = info\n'
  t.equal(setInText(text, 'chttpd', 'port', '2'), text.replace('port=1 ;', 'port=2 ;'))
  t.equal(setInText(text, 'log', 'level', 'debug'), text.replace('info', 'debug'))
  t.equal(setInText(text, 'chttpd', 'x', 'y'), text.replace('::1\n', '::1\nx = y\n'))
  t.equal(setInText(text, 'admins', 'anna', 'y'), `${text}\n[admins]\nanna = y\n`)
  t.equal(deleteInText(text, 'chttpd', 'port'), text.replace('port=1 ; old\n', ''))
  t.equal(deleteInText(text, 'chttpd', 'level'), text)
  t.end()
})

t.test('ends of lines and continuations are respected', (t) => {
  t.equal(setInText('[a]\r\nb = 1', 'a', 'c', '2'), '[a]\r\nb = 1\r\nc = 2\r\n')
  t.equal(setInText('[a]\nb = 1\n more\nc = 2\n', 'a', 'b', '3'), '[a]\nb = 3\nc = 2\n')
  t.equal(deleteInText('[a]\nb = 1\n more\nc = 2\n', 'a', 'b'), '[a]\nc = 2\n')
  t.equal(setInText('[a]\n orphan\n', 'a', 'b', '1'), '[a]\n orphan\nb = 1\n')
  t.equal(setInText('', 'a', 'b', '1'), '[a]\nb = 1\n')
  t.equal(
    setInText('[a]\nb = 1\n[c]\nd = 1\n[a]\nb = 2\n', 'a', 'b', '3'),
    '[a]\nb = 1\n[c]\nd = 1\n[a]\nb = 3\n',
  )
  t.equal(deleteInText('[a]\nb = 1\n[a]\nb = 2\n', 'a', 'b'), '[a]\n[a]\n')
  t.end()
})

t.test('quotes are used only where nothing else gives the value back', (t) => {
  const lineOf = (value: string) => setInText('', 's', 'k', value).split('\n')[1]
  t.equal(lineOf('Basic realm="couchdb"'), 'k = Basic realm="couchdb"')
  t.equal(lineOf('a#b\\c;d=e'), 'k = a#b\\c;d=e')
  t.equal(lineOf('a ;b'), 'k = "a ;b"')
  t.equal(lineOf('"a"'), 'k = "\\"a\\""')
  t.equal(lineOf(''), 'k = ')
  const text = setInText('[s]\nk = 1 ; "\n', 's', 'k', '"x')
  t.equal(parseIni(text).get('s')?.get('k'), '"x', 'a quote in the comment does not close one in the value')
  t.end()
})

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
