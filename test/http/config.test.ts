/** The configuration over HTTP; protocol.md 12.1. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

/** With hashes that cost nothing. */
async function start(t: Test) {
  const dataDir = await temporaryFolder(t)
  const path = join(dataDir, 'local.ini')
  await writeFile(path, '[chttpd_auth]\niterations = 10\n', { mode: 0o600 })
  const server = await startTestServer(t, { dataDir, logLevel: 'debug', logFile: join(dataDir, 'x.log') })
  return { ...server, path, log: () => readFile(join(dataDir, 'x.log'), 'utf8') }
}

const BASES = [
  '/_config',
  '/_node/_local/_config',
  '/_node/nonode@nohost/_config',
  '/_node/couchdb@127.0.0.1/_config',
]

t.test('reading and writing, under every address', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  for (const base of BASES) {
    const key = `${base}/some-section/a%20key`
    t.match(await call('GET', key), {
      status: 404,
      json: { error: 'not_found', reason: 'unknown_config_value' },
    })
    t.match(await call('PUT', key, { body: '" one "' }), { status: 200, text: '""\n' }, base)
    t.match(await call('PUT', key, { body: '"two"' }), { status: 200, text: '"one"\n' })
    t.match(await call('GET', key), { status: 200, text: '"two"\n' })
    t.match((await call('GET', `${base}/some-section`)).json, { 'a key': 'two' })
    t.match((await call('GET', base)).json, { 'some-section': { 'a key': 'two' }, chttpd: { port: /^\d+$/ } })
    t.match(await readFile(server.path, 'utf8'), 'a key = two')
    t.match(await call('DELETE', key), { status: 200, text: '"two"\n' })
    t.match(await call('DELETE', key), { status: 404, json: { reason: 'unknown_config_value' } })
  }
  t.strictSame((await call('GET', '/_config/nothing')).json, {})
  t.strictSame((await call('GET', '/_node/_local')).json, { name: 'nonode@nohost' })
})

t.test('X-Couch-Persist: false stays in memory', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  const headers = { 'X-Couch-Persist': 'false' }
  await call('PUT', '/_config/a/b', { body: '"c"', headers })
  t.equal((await call('GET', '/_config/a/b')).json, 'c')
  t.notMatch(await readFile(server.path, 'utf8'), '[a]')
})

t.test('what is refused, and changes nothing', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  const before = (await call('GET', '/_config')).text
  const cases: [path: string, body: string, status: number, error: string, reason: RegExp][] = [
    ['/_config/a/b', 'text', 400, 'bad_request', /^invalid UTF-8 JSON$/],
    ['/_config/a/b', '1', 400, 'bad_request', /^a JSON string expected$/],
    ['/_config/a/b', '{}', 400, 'bad_request', /^a JSON string expected$/],
    ['/_config/a/b', 'null', 400, 'bad_request', /^a JSON string expected$/],
    ['/_config/a/b', '', 400, 'bad_request', /^invalid UTF-8 JSON$/],
    ['/_config/a/b', '"\\n"x', 400, 'bad_request', /JSON/],
    ['/_config/a/b', '"a\\nb"', 400, 'bad_request', /^Invalid configuration value/],
    ['/_config/a%5B/b', '"x"', 400, 'bad_request', /^Invalid configuration section/],
    ['/_config/a/b%0A', '"x"', 400, 'bad_request', /^Invalid configuration key/],
    ['/_config/daemons/b', '"x"', 403, 'forbidden', /^Config section blacklisted/],
    ['/_config/admins/anna', 'secret', 400, 'bad_request', /JSON/],
    ['/_config/admins/anna', '""', 400, 'bad_request', /empty/],
    ['/_config/admins/anna', '42', 400, 'bad_request', /string expected/],
    ['/_node/x/_config/a/b', '"x"', 404, 'not_found', /^no such node: x$/],
  ]
  for (const [path, body, status, error, reason] of cases) {
    t.match(await call('PUT', path, { body }), { status, json: { error, reason } }, `${path} ${body}`)
  }
  t.match(await call('GET', '/_node/x'), { status: 404, json: { reason: 'no such node: x' } })
  t.equal((await call('GET', '/_config')).text, before, 'the server is open still')
  t.equal((await call('PUT', '/db')).status, 201)
})

t.test('making and removing admins', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  const name = encodeURIComponent('Anna Müller')
  t.match(await call('PUT', `/_config/admins/${name}`, { body: '"secret"' }), { status: 200, text: '""\n' })
  t.equal((await call('GET', '/_config')).status, 401)
  const auth = 'Anna Müller:secret'
  const stored = (await call('GET', `/_config/admins/${name}`, { auth })).json
  t.match(stored, /^-pbkdf2/)
  t.notMatch(await readFile(server.path, 'utf8'), 'secret')
  const changed = await call('PUT', `/_node/_local/_config/admins/${name}`, { body: '"other"', auth })
  t.strictSame([changed.status, changed.json], [200, stored])
  t.equal((await call('GET', '/_config', { auth })).status, 401)
  const removed = await call('DELETE', `/_config/admins/${name}`, { auth: 'Anna Müller:other' })
  t.equal(removed.status, 200)
  t.equal((await call('GET', '/_config')).status, 200, 'open again')
  t.notMatch(await server.log(), /secret|other"/)
})

t.test('secrets are set, and never shown', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  const MASK = '**********'
  for (const [section, key] of [
    ['chttpd_auth', 'secret'],
    ['couch_httpd_auth', 'secret'],
    ['jwt_keys', 'hmac%3Afoo'],
    ['ssl', 'password'],
  ] as const) {
    const path = `/_config/${section}/${key}`
    t.equal((await call('PUT', path, { body: '"s3cr3t-one"' })).json, '', 'there was none')
    t.equal((await call('GET', path)).json, MASK)
    t.match((await call('GET', `/_config/${section}`)).json, { [decodeURIComponent(key)]: MASK })
    t.match((await call('GET', '/_config')).json, { [section]: { [decodeURIComponent(key)]: MASK } })
    t.equal((await call('PUT', path, { body: '"s3cr3t-two"' })).json, MASK, 'the old value')
    for (const mask of [MASK, '*', ' **** ']) {
      const refused = await call('PUT', path, { body: JSON.stringify(mask) })
      t.match(refused, {
        status: 400,
        json: { error: 'bad_request', reason: /mask of a secret/ },
      })
    }
    t.match(await readFile(server.path, 'utf8'), 's3cr3t-two', 'it is kept')
    t.equal((await call('DELETE', path)).json, MASK)
    t.equal((await call('GET', path)).status, 404)
  }
  t.equal((await call('PUT', '/_config/jwt_keys/rsa%3Afoo', { body: '"public"' })).status, 200)
  t.equal((await call('GET', '/_config/jwt_keys/rsa%3Afoo')).json, 'public')
  t.equal((await call('PUT', '/_config/cors/origins', { body: '"*"' })).status, 200, 'no secret: any value')
  t.notMatch(await server.log(), 's3cr3t')
})

t.test('the file is read anew', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  await call('PUT', '/_config/a/b', { body: '"memory"', headers: { 'X-Couch-Persist': 'false' } })
  await writeFile(server.path, '[chttpd_auth]\niterations = 10\n[couchdb]\nmax_document_size = 20\n')
  t.match(await call('POST', '/_node/_local/_config/_reload'), { status: 200, text: '{"ok":true}\n' })
  t.equal((await call('GET', '/_config/a/b')).status, 404)
  await call('PUT', '/db')
  t.equal(
    (await call('PUT', '/db/x', { body: '{"text":"more than twenty bytes"}' })).status,
    413,
    'in effect',
  )
  await writeFile(server.path, '[couchdb]\nmax_document_size = 30\nword\n')
  t.match(await call('POST', '/_config/_reload'), {
    status: 400,
    json: { error: 'bad_request', reason: /^Line 3 of .*local\.ini is not a section.* has not changed\.$/ },
  })
  t.equal((await call('GET', '/_config/couchdb/max_document_size')).json, '20')
  t.match(await server.log(), /"level":"info".*reloaded the configuration/)
  t.match(await server.log(), /"level":"warn".*Line 3 of.*the configuration has an error; nothing changed/)
  t.match(await call('POST', '/_node/x/_config/_reload'), {
    status: 404,
    json: { reason: 'no such node: x' },
  })
  t.match(await call('GET', '/_config/_reload'), { status: 405, headers: { allow: 'POST' } })
})

t.test('sections that clients look into are there', async (t) => {
  const call = connect(t, await start(t))
  t.match((await call('GET', '/_node/_local/_config')).json, { admins: {}, httpd: {} })
})

t.test('what a limited account sees and may ask for', async (t) => {
  const server = await startMemoryServer(t, {
    'chttpd/require_valid_user': 'true',
    'chttpd_auth/secret': 'shh',
    'couchdb/max_document_size': '50000000',
    'httpd/WWW-Authenticate': 'Basic realm="couchdb"',
  })
  const call = connect(t, server)
  await call('PUT', '/_config/admins/root', { body: '"root"' })
  const auth = 'anna:anna'
  for (const base of BASES) {
    const { status, json, text } = await call('GET', base, { auth })
    t.equal(status, 200)
    t.match(json, {
      admins: {},
      couchdb: { max_document_size: '50000000' },
      chttpd: { require_valid_user: 'true' },
    })
    t.notMatch(text, /root|shh|port|\*\*|local\.ini/, 'nothing else')
    t.strictSame((await call('GET', `${base}/couchdb`, { auth })).json, { max_document_size: '50000000' })
    t.strictSame((await call('GET', `${base}/admins`, { auth })).json, {})
    t.strictSame((await call('GET', `${base}/log`, { auth })).json, {})
    t.equal((await call('GET', `${base}/couchdb/max_document_size`, { auth })).json, '50000000')
    for (const path of ['admins/root', 'log/level', 'chttpd_auth/secret', 'chttpd/port', 'x/y']) {
      t.match(await call('GET', `${base}/${path}`, { auth }), {
        status: 404,
        json: { reason: 'unknown_config_value' },
      })
      t.match(await call('PUT', `${base}/${path}`, { auth, body: '"x"' }), {
        status: 403,
        json: { error: 'forbidden', reason: 'Only a server admin may change the configuration.' },
      })
    }
    t.equal((await call('GET', base)).status, 401)
    t.equal((await call('GET', base, { auth: 'anna:wrong' })).status, 401)
  }
  const put = (path: string, body: string) => call('PUT', `/_node/_local/_config/${path}`, { auth, body })
  t.match(await put('couchdb/max_document_size', '" 50000000 "'), { status: 200, text: '"50000000"\n' })
  t.match(await put('couchdb/max_document_size', '"1000"'), { status: 200, text: '"50000000"\n' })
  t.match(await put('couchdb/max_document_size', '"60000000"'), {
    status: 403,
    json: {
      error: 'forbidden',
      reason:
        'Only a server admin may change couchdb/max_document_size, which is "50000000" for this account.',
    },
  })
  t.match(await put('couchdb/max_document_size', '1000'), {
    status: 400,
    json: { reason: 'a JSON string expected' },
  })
  t.equal((await put('admins/anna', '"anna"')).status, 403, 'no way to become an admin')
  t.equal((await call('DELETE', '/_config/couchdb/max_document_size', { auth })).status, 403)
  t.equal((await call('DELETE', '/_config/x/y', { auth })).status, 403)
  t.equal((await call('GET', '/_node/x/_config', { auth })).status, 404)
  t.equal((await call('POST', '/_config/_reload', { auth })).status, 401)
  t.equal(server.config.get('couchdb', 'max_document_size'), '50000000', 'and nothing has changed')
  t.notOk('x' in server.config.all())
})

t.test('the challenge that a limited account is told is the one that is sent', async (t) => {
  const server = await startMemoryServer(t)
  const call = connect(t, server)
  await call('PUT', '/_config/admins/root', { body: '"root"' })
  t.match(await call('GET', '/_config'), { status: 401, json: { reason: 'You are not a server admin.' } })
  for (const settings of [
    {},
    { 'chttpd/require_valid_user': 'true' },
    { 'httpd/WWW-Authenticate': 'Basic realm="a"' },
    { 'chttpd/WWW-Authenticate': 'Basic realm="b"' },
    { 'chttpd/WWW-Authenticate': '漢字' },
  ]) {
    for (const [path, value] of Object.entries(settings)) {
      const [section = '', key = ''] = path.split('/')
      await server.config.set(section, key, value)
    }
    const told = await call('GET', '/_config/httpd/WWW-Authenticate', { auth: 'anna:anna' })
    const sent = (await call('GET', '/_all_dbs')).headers['www-authenticate']
    t.equal(told.status === 200 ? told.json : undefined, sent, JSON.stringify(settings))
  }
})
