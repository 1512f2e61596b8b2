import t from 'tap'
import { isMet, memberView, valueIn } from '../../src/config/member-view.ts'

const values = (keys: Record<string, string>) => ({
  isHosted: keys['settee/mode'] === 'hosted',
  get: (section: string, key: string) => keys[`${section}/${key}`],
})
const view = (keys: Record<string, string>, member = { name: 'anna' }) => memberView(values(keys), member)

const SET_UP = {
  'admins/root': '-pbkdf2:sha256-aa,bb,10',
  'chttpd/require_valid_user': 'true',
  'chttpd/max_http_request_size': '4294967296',
  'chttpd/port': '5984',
  'chttpd_auth/secret': 'shh',
  'couchdb/max_document_size': '50000000',
  'cors/origins': 'app://obsidian.md, capacitor://localhost ,http://localhost',
  'httpd/WWW-Authenticate': 'Basic realm="couchdb"',
  'log/file': '/var/log/settee.log',
}

t.test('what is in effect, wherever it is set, and nothing else', async (t) => {
  t.strictSame(view(SET_UP), {
    admins: {},
    chttpd: { enable_cors: 'true', max_http_request_size: '4294967296', require_valid_user: 'true' },
    chttpd_auth: { require_valid_user: 'true' },
    cors: { credentials: 'true', origins: 'app://obsidian.md,capacitor://localhost,http://localhost' },
    couchdb: { max_document_size: '50000000' },
    httpd: { enable_cors: 'true', 'WWW-Authenticate': 'Basic realm="couchdb"' },
  })
  t.strictSame(view({}), {
    admins: {},
    chttpd: { enable_cors: 'true', require_valid_user: 'false' },
    chttpd_auth: { require_valid_user: 'false' },
    cors: { credentials: 'true' },
    couchdb: {},
    httpd: { enable_cors: 'true' },
  })
})

t.test('nothing is said to be met that is not', async (t) => {
  const off = view({
    'httpd/enable_cors': 'false',
    'cors/credentials': 'false',
    'chttpd_auth/require_valid_user': 'true',
  })
  t.match(off, {
    chttpd: { enable_cors: 'false', require_valid_user: 'false' },
    chttpd_auth: { require_valid_user: 'false' },
    cors: { credentials: 'false' },
    httpd: { enable_cors: 'false' },
  })
  t.equal(view({ 'chttpd/enable_cors': 'true', 'httpd/enable_cors': 'false' }).chttpd?.enable_cors, 'true')
  const challenged = (keys: Record<string, string>) => view(keys).httpd?.['WWW-Authenticate']
  t.equal(challenged({ 'chttpd/require_valid_user': 'true' }), 'Basic realm="server"')
  t.equal(challenged({ 'chttpd/WWW-Authenticate': 'x', 'httpd/WWW-Authenticate': 'y' }), 'x')
  t.equal(challenged({ 'httpd/WWW-Authenticate': '漢字' }), undefined)
})

t.test("the account's own limit counts where it is the smaller one", async (t) => {
  const size = (general: string, maxDocumentSize: number) =>
    view({ 'couchdb/max_document_size': general }, { name: 'anna', ...{ maxDocumentSize } }).couchdb
  t.strictSame(size('50000000', 1000), { max_document_size: '1000' })
  t.strictSame(size('1000', 50_000_000), { max_document_size: '1000' })
  t.strictSame(size('infinity', 1000), { max_document_size: '1000' })
  t.strictSame(size('infinity', Number.POSITIVE_INFINITY), { max_document_size: 'infinity' })
})

t.test('only in hosted mode an account is told that databases are its to make', async (t) => {
  t.strictSame(view({ 'settee/mode': 'single' }).admins, {})
  for (const name of ['anna', '__proto__', 'toString']) {
    const { admins } = view({ 'settee/mode': 'hosted' }, { name })
    t.strictSame(Object.keys(admins ?? {}), [name])
    t.equal(
      isMet({ admins: admins ?? {} }, 'admins', name, 'of its own databases'),
      false,
      'the hint does not count as a satisfied setting',
    )
  }
})

t.test('what is met already', async (t) => {
  const shown = view(SET_UP)
  const table: [path: string, asked: string, met: boolean][] = [
    ['chttpd/require_valid_user', 'true', true],
    ['chttpd/require_valid_user', 'false', true],
    ['chttpd/require_valid_user', 'yes', false],
    ['chttpd_auth/require_valid_user', 'true', true],
    ['chttpd/enable_cors', 'true', true],
    ['httpd/enable_cors', 'true', true],
    ['cors/credentials', 'true', true],
    ['httpd/WWW-Authenticate', 'Basic realm="couchdb"', true],
    ['httpd/WWW-Authenticate', 'basic realm="mine"', true],
    ['httpd/WWW-Authenticate', 'Bearer', false],
    ['httpd/WWW-Authenticate', '', false],
    ['chttpd/max_http_request_size', '4294967296', true],
    ['chttpd/max_http_request_size', '1000', true],
    ['chttpd/max_http_request_size', '4294967297', false],
    ['chttpd/max_http_request_size', 'infinity', false],
    ['couchdb/max_document_size', '50000000', true],
    ['couchdb/max_document_size', '60000000', false],
    ['couchdb/max_document_size', '5e7', false],
    ['couchdb/max_document_size', '', false],
    ['cors/origins', 'http://localhost,app://obsidian.md', true],
    ['cors/origins', 'http://localhost, capacitor://localhost', true],
    ['cors/origins', 'http://localhost,https://evil.example', false],
    ['cors/origins', '*', false],
    ['cors/origins', '', false],
    ['cors/max_age', '3600', false],
    ['admins/anna', 'secret', false],
    ['log/level', 'info', false],
    ['__proto__/x', 'y', false],
    ['chttpd/toString', 'y', false],
  ]
  for (const [path, asked, met] of table) {
    const [section = '', key = ''] = path.split('/')
    t.equal(isMet(shown, section, key, asked), met, `${path} = ${asked}`)
  }
  const open = view({ 'cors/origins': '*', 'couchdb/max_document_size': 'infinity' })
  t.equal(isMet(open, 'cors', 'origins', 'https://any.example'), true)
  t.equal(isMet(open, 'couchdb', 'max_document_size', 'infinity'), true)
  t.equal(isMet(open, 'chttpd', 'require_valid_user', 'true'), false, 'a stricter value is not satisfied')
  t.equal(valueIn(open, 'constructor', 'name'), undefined)
})
