import t from 'tap'
import { deleteInText, parseIni, setInText } from '../../src/config/ini-file.ts'
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
