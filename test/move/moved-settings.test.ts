/** Which settings of an old server come along. */
import t from 'tap'
import { isShown, movedSettings } from '../../src/move/moved-settings.ts'

const HASH = '-pbkdf2-0123456789abcdef0123456789abcdef01234567,0123456789abcdef0123456789abcdef,10'

t.test('admins with hashes, CORS as a whole, and values that differ from defaults', async (t) => {
  const old = {
    admins: { anna: HASH, broken: 'plain' },
    couchdb: { max_document_size: '1000', max_attachment_size: 'infinity', uuid: 'u' },
    chttpd: { port: '5984', enable_cors: 'true', require_valid_user: 'true' },
    httpd: { max_http_request_size: '5000' },
    couch_httpd_auth: { timeout: '600', public_fields: 'name' },
    cors: { origins: 'https://a.example', credentials: 'true', methods: '' },
    chttpd_auth: { secret: '**********' },
    jwt_keys: { 'hmac:_default': 'aGVsbG8=' },
    log: { level: 'debug' },
  }
  const found = movedSettings(old)
  t.same(
    found.map(({ section, key, value }) => `${section}/${key}=${value}`),
    [
      `admins/anna=${HASH}`,
      'couchdb/max_document_size=1000',
      'chttpd/max_http_request_size=5000',
      'chttpd/require_valid_user=true',
      'chttpd_auth/public_fields=name',
      'jwt_keys/hmac:_default=aGVsbG8=',
      'chttpd/enable_cors=true',
      'cors/origins=https://a.example',
      'cors/credentials=true',
    ],
  )
  t.same(
    found.filter((each) => !isShown(each)).map(({ section }) => section),
    ['admins', 'jwt_keys'],
  )
})

t.test("CORS that is off, and the defaults of PouchDB's server, stay", async (t) => {
  t.same(movedSettings({ cors: { origins: 'https://a.example' }, chttpd: { enable_cors: 'false' } }), [])
  t.same(movedSettings({ pouchdb_server: {}, httpd: { enable_cors: 'true' }, cors: { origins: '*' } }), [])
})
