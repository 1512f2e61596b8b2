/** The configuration over HTTP, and settings of CouchDB; protocol.md 12.1. */

import { createHash } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

/** The configuration over HTTP; protocol.md 12.1. */
t.test('calls', async (t) => {
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

  t.test('reading and writing, at every address', async (t) => {
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
      t.match((await call('GET', base)).json, {
        'some-section': { 'a key': 'two' },
        chttpd: { port: /^\d+$/ },
      })
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

  t.test('refusals change nothing', async (t) => {
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

  t.test('creating and removing admins', async (t) => {
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

  t.test('the file is read again', async (t) => {
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

  t.test('sections that clients read exist', async (t) => {
    const call = connect(t, await start(t))
    t.match((await call('GET', '/_node/_local/_config')).json, { admins: {}, httpd: {} })
  })

  t.test('what a user without admin rights sees and may change', async (t) => {
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
    t.equal(server.config.get('couchdb', 'max_document_size'), '50000000', 'the value is unchanged')
    t.notOk('x' in server.config.all())
  })

  t.test('the challenge that such a user sees is the one that is sent', async (t) => {
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
})

/** Settings of CouchDB as a moved local.ini brings them, seen from outside. */
t.test('settings of CouchDB', async (t) => {
  t.test("NODENAME and settee/node_name set the node's name", async (t) => {
    const server = await startTestServer(t, { env: { NODENAME: 'notes.example' } })
    const call = connect(t, server)
    const name = 'couchdb@notes.example'
    t.same((await call('GET', '/_node/_local')).json, { name })
    t.same((await call('GET', `/_node/${name}`)).json, { name })
    t.same((await call('GET', '/_membership')).json, { all_nodes: [name], cluster_nodes: [name] })
    t.equal((await call('GET', `/_node/${name}/_stats`)).status, 200)
    for (const other of ['_local', 'nonode@nohost', 'couchdb@127.0.0.1', name]) {
      t.equal((await call('GET', `/_node/${other}/_config/chttpd`)).status, 200, other)
    }
    t.match(await call('GET', '/_node/couchdb@elsewhere/_config'), {
      status: 404,
      json: { reason: /no such node/ },
    })
    const put = (json: string) => call('PUT', '/_node/_local/_config/settee/node_name', { json })
    t.equal((await put('a b')).status, 400)
    t.equal((await put('settee@192.0.2.1')).status, 200)
    t.same((await call('GET', '/_node/settee@192.0.2.1')).json, { name: 'settee@192.0.2.1' })
  })

  t.test('couchdb/database_dir is shown, and cannot be set', async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    const path = '/_node/_local/_config/couchdb/database_dir'
    t.match((await call('GET', path)).json, /\/databases$/)
    t.match((await call('GET', '/_node/_local/_config')).json, { couchdb: { database_dir: /\/databases$/ } })
    t.match(await call('PUT', path, { json: '/opt/couchdb/data' }), {
      status: 400,
      json: { reason: /data folder/ },
    })
  })

  t.test('couchdb/default_security sets the rights of a new database', async (t) => {
    const { url } = await startMemoryServer(t, { 'couchdb/default_security': 'everyone' })
    const call = connect(t, { url })
    const set = (json: string) => call('PUT', '/_config/couchdb/default_security', { json })
    for (const value of ['everyone', 'admin_local', 'admin_only']) {
      t.equal((await set(value)).status, 200)
      t.equal((await call('PUT', `/${value}`)).status, 201)
    }
    t.equal((await set('nobody')).status, 400)
    await call('PUT', '/_config/admins/anna', { json: 'anna' })
    t.equal((await call('GET', '/everyone')).status, 200)
    t.equal((await call('GET', '/admin_local')).status, 200)
    t.equal((await call('GET', '/admin_only')).status, 401)
    t.match((await call('GET', '/everyone/_security', { auth: 'anna:anna' })).json, {
      members: { names: [] },
    })
  })

  t.test('uuids/algorithm applies to _uuids and to documents without an id', async (t) => {
    const settings = { 'uuids/algorithm': 'utc_id', 'uuids/utc_id_suffix': '-x' }
    const call = connect(t, await startMemoryServer(t, settings))
    const form = /^[0-9a-f]{14}-x$/
    t.match((await call('GET', '/_uuids?count=2')).json, { uuids: [form, form] })
    await call('PUT', '/db')
    t.match((await call('POST', '/db', { json: {} })).json, { id: form })
    t.match((await call('POST', '/db/_bulk_docs', { json: { docs: [{}, {}] } })).json, [
      { id: form },
      { id: form },
    ])
    await call('PUT', '/_config/uuids/algorithm', { json: 'random' })
    t.match((await call('GET', '/_uuids')).json, { uuids: [/^[0-9a-f]{32}$/] })
    t.match(
      (await call('POST', '/db', { json: {} })).json,
      { id: /^[0-9a-f]{32}$/ },
      'the setting takes effect at once',
    )
    t.equal((await call('PUT', '/_config/uuids/algorithm', { json: 'best' })).status, 400)
  })

  t.test('chttpd/decode_plus_to_space', async (t) => {
    const call = connect(t, await startMemoryServer(t, { 'chttpd/decode_plus_to_space': 'false' }))
    await call('PUT', '/a+b')
    t.same((await call('GET', '/_all_dbs')).json, ['a+b'])
    t.match((await call('PUT', '/a+b/x+y', { json: {} })).json, { id: 'x+y' })
    const rows = async (key: string) => (await call('GET', `/a+b/_all_docs?key=${key}`)).json
    t.match(await rows('%22x+y%22'), { rows: { length: 0 } }, 'a space in a query all the same')
    t.match(await rows('%22x%2By%22'), { rows: [{ id: 'x+y' }] })
    await call('PUT', '/_config/chttpd/decode_plus_to_space', { json: 'true' })
    t.match((await call('PUT', '/a%2Bb/x+y', { json: {} })).json, { id: 'x y' })
  })

  t.test('chttpd/x_forwarded_host and similar keys name the headers of a trusted proxy', async (t) => {
    const settings = {
      'settee/trusted_proxies': 'loopback',
      'chttpd/x_forwarded_host': 'X-My-Host',
      'chttpd/x_forwarded_proto': 'X-My-Proto',
      'httpd/x_forwarded_ssl': 'X-My-Ssl',
    }
    const server = await startMemoryServer(t, settings)
    const call = connect(t, server)
    let at = 0
    const located = async (headers: Record<string, string>) =>
      String((await call('PUT', `/d${at++}`, { headers })).headers.location).replace(/\d+$/, '#')
    t.equal(await located({ 'X-My-Host': 'a.example' }), 'http://a.example/d#')
    t.equal(await located({ 'X-My-Proto': 'https', 'X-My-Host': 'a.example' }), 'https://a.example/d#')
    t.equal(
      await located({ 'X-My-Ssl': 'on' }),
      `https://127.0.0.1:${server.port}/d#`,
      'a header name of [httpd] counts',
    )
    t.equal(
      await located({ 'X-Forwarded-Host': 'a.example' }),
      `http://127.0.0.1:${server.port}/d#`,
      'the default header name no longer counts',
    )
  })

  t.test('chttpd/allow_jsonp', async (t) => {
    const call = connect(t, await startMemoryServer(t))
    await call('PUT', '/db')
    await call('PUT', '/db/x', { json: { a: 1 } })
    const headers = { 'content-type': 'application/json' }
    await call('PUT', '/db/y/a.json', { body: '{"z":1}', headers })
    t.match(await call('GET', '/db/x?callback=f'), {
      headers: { 'content-type': 'application/json' },
      json: { a: 1 },
    })
    await call('PUT', '/_config/chttpd/allow_jsonp', { json: 'true' })
    const script = async (path: string, status = 200) => {
      const answer = await call('GET', path)
      t.equal(answer.status, status, path)
      t.equal(answer.headers['content-type'], 'application/javascript', path)
      const [, json = 'null'] = /^\/\* CouchDB \*\/f\.g\[0\]\((.*)\);\n$/s.exec(answer.text) ?? []
      return JSON.parse(json) as unknown
    }
    t.match(await script('/?callback=f.g[0]'), { couchdb: 'Welcome' })
    t.match(await script('/db/x?callback=f.g[0]'), { a: 1 })
    t.match(await script('/db/_all_docs?callback=f.g[0]'), { rows: [{ id: 'x' }] })
    t.match(await script('/db/_changes?callback=f.g[0]'), { results: [{ id: 'x' }] })
    t.match(await script('/db/_changes?feed=longpoll&callback=f.g[0]'), { results: [{ id: 'x' }] })
    t.match(await script('/db/none?callback=f.g[0]', 404), { error: 'not_found' })
    t.match(await script('/none?callback=f.g[0]', 404), { error: 'not_found' })
    for (const own of ['/_settee/standby/settings', '/_settee/log', '/_settee/databases/db']) {
      const { headers } = await call('GET', `${own}?callback=f.g[0]`)
      t.equal(headers['content-type'], 'application/json', own)
    }
    const head = await call('HEAD', '/db/_all_docs?callback=f')
    t.match(head, { status: 200, headers: { 'content-type': 'application/javascript' }, text: '' })
    for (const bad of ['f(1)', 'a;b', 'alert%281%29', '%3C', 'é', 'f'.repeat(257)]) {
      t.match(await call('GET', `/db/x?callback=${encodeURI(bad)}`), {
        status: 400,
        headers: { 'content-type': 'application/json' },
        json: { error: 'bad_request', reason: 'invalid_callback' },
      })
    }
    t.match(await call('GET', '/db/x?callback='), { json: { a: 1 } })
    t.match(await call('GET', '/db/y/a.json?callback=f'), { text: '{"z":1}' }, 'an attachment is what it is')
    t.match(await call('POST', '/db/_all_docs?callback=f', { json: { keys: [] } }), { json: { rows: [] } })
  })

  t.test('attachments/compression_level', async (t) => {
    const call = connect(t, await startTestServer(t))
    await call('PUT', '/_node/_local/_config/attachments/compression_level', { json: '8' })
    t.equal(
      (await call('PUT', '/_node/_local/_config/attachments/compression_level', { json: '10' })).status,
      400,
    )
    for (const db of ['/db', '/copy']) await call('PUT', db)
    const text = 'A long note, and a long one. '.repeat(200)
    const headers = { 'content-type': 'text/markdown' }
    const { rev } = (await call('PUT', '/db/x/n.md', { body: text, headers })).json as { rev: string }
    const coded = await call('GET', '/db/x/n.md', { headers: { 'accept-encoding': 'gzip' } })
    const digest = createHash('md5').update(coded.bytes).digest('base64')
    t.match(coded.headers, {
      'content-encoding': 'gzip',
      'content-type': 'text/markdown',
      etag: `"${digest}"`,
      'accept-ranges': 'none',
      'content-length': String(coded.bytes.length),
      vary: /Accept-Encoding/,
    })
    t.equal(gunzipSync(coded.bytes).toString(), text)
    const plain = await call('GET', '/db/x/n.md', { headers: { range: 'bytes=0-3' } })
    t.match(plain, {
      status: 200,
      text,
      headers: { etag: `"${digest}"`, 'content-length': String(text.length) },
    })
    t.equal(plain.headers['content-encoding'], undefined)
    const known = await call('GET', '/db/x/n.md', { headers: { 'if-none-match': `"${digest}"` } })
    t.match(known, { status: 304, text: '' })
    const stub = { digest: `md5-${digest}`, length: text.length, stub: true }
    const stubs = async (path: string) =>
      ((await call('GET', path)).json as { _attachments: Record<string, object> })._attachments
    t.strictSame(await stubs('/db/x'), { 'n.md': { content_type: 'text/markdown', revpos: 1, ...stub } })
    const told = { encoding: 'gzip', encoded_length: coded.bytes.length }
    t.match(await stubs('/db/x?att_encoding_info=true'), { 'n.md': { ...stub, ...told } })
    const related = await call('GET', '/db/x?attachments=true&revs=true&att_encoding_info=true', {
      headers: { accept: 'multipart/related' },
    })
    t.match(related.text, 'Content-Encoding: gzip')
    t.ok(related.bytes.includes(coded.bytes), 'sent as it is stored')
    const put = await call('PUT', `/copy/x?new_edits=false&rev=${rev}`, {
      body: related.bytes,
      headers: { 'content-type': String(related.headers['content-type']) },
    })
    t.equal(put.status, 201)
    t.match(
      await stubs('/copy/x?att_encoding_info=true'),
      { 'n.md': { ...stub, ...told } },
      'replicated as it is stored',
    )
    t.equal((await call('GET', '/copy/x/n.md')).text, text)
  })

  t.test('chttpd_auth/authentication_db acts at once, in both directions', async (t) => {
    const env = { COUCHDB_USER: 'root', COUCHDB_PASSWORD: 'root' }
    const call = connect(t, await startTestServer(t, { env }))
    const auth = 'root:root'
    const user = (name: string) => ({ name, type: 'user', roles: [], password: name })
    const add = async (database: string, name: string) => {
      const answer = await call('PUT', `/${database}/org.couchdb.user:${name}`, { json: user(name), auth })
      t.equal(answer.status, 201, name)
      return (await call('GET', `/${database}/org.couchdb.user:${name}`, { auth })).json as object
    }
    const session = async (name: string) =>
      (await call('GET', '/_session', { auth: `${name}:${name}` })).status
    const config = '/_node/_local/_config/chttpd_auth/authentication_db'
    t.notOk('password' in (await add('_users', 'bert')))
    t.equal(await session('bert'), 200)
    const { headers } = await call('POST', '/_session', { json: { name: 'bert', password: 'bert' } })
    const cookie = String(headers['set-cookie']).split(';')[0]
    // An ordinary database, which is open, and whose members would read everything.
    await call('PUT', '/people', { auth })
    await call('PUT', '/people/_security', {
      json: { members: { names: ['anna', 'bert'], roles: [] } },
      auth,
    })
    t.ok('password' in (await add('people', 'early')), 'an ordinary document')
    t.equal((await call('GET', '/people/_all_docs', { auth: 'bert:bert' })).status, 200)

    t.equal((await call('PUT', config, { json: 'people', auth })).status, 200)
    t.equal(await session('bert'), 401, 'an account that was remembered')
    t.notMatch((await call('GET', '/_session', { headers: { cookie: String(cookie) } })).json, {
      userCtx: { name: 'bert' },
    })
    t.notOk('password' in (await add('people', 'anna')), 'hashed at once')
    t.equal(await session('anna'), 200)
    t.match((await call('GET', '/_session', { auth })).json, { info: { authentication_db: 'people' } })
    t.equal((await call('GET', '/people/_all_docs', { auth: 'anna:anna' })).status, 401)
    t.equal((await call('GET', '/people/org.couchdb.user:early', { auth: 'anna:anna' })).status, 404)
    t.notOk('password' in (await add('_users', 'carl')), '_users stays protected')

    t.equal((await call('DELETE', config, { auth })).status, 200)
    t.equal(await session('anna'), 401)
    t.equal(await session('bert'), 200)
    t.equal(await session('carl'), 200)
    // One that does not exist yet.
    t.equal((await call('PUT', config, { json: 'later', auth })).status, 200)
    t.equal(await session('bert'), 401)
    t.equal((await call('PUT', '/later', { auth })).status, 201)
    t.notOk('password' in (await add('later', 'dora')))
    t.equal(await session('dora'), 200)
  })

  t.test('chttpd_auth/authentication_db names the database of accounts', async (t) => {
    const dataDir = await temporaryFolder(t)
    const ini =
      '[couch_httpd_auth]\nauthentication_db = people\n[chttpd_auth]\niterations = 10\n[admins]\nroot = root\n'
    await writeFile(join(dataDir, 'local.ini'), ini, { mode: 0o600 })
    const call = connect(t, await startTestServer(t, { dataDir }))
    const auth = 'root:root'
    t.strictSame((await call('GET', '/_all_dbs', { auth })).json, ['people'])
    for (const name of ['anna', 'bert']) {
      const json = { name, type: 'user', roles: [], password: name }
      t.equal((await call('PUT', `/people/org.couchdb.user:${name}`, { json, auth })).status, 201)
    }
    const session = await call('GET', '/_session', { auth: 'anna:anna' })
    t.match(session.json, { userCtx: { name: 'anna' }, info: { authentication_db: 'people' } })
    const stored = await call('GET', '/people/org.couchdb.user:anna', { auth })
    t.match(stored.json, { derived_key: /./, password_scheme: 'pbkdf2' })
    t.notOk('password' in (stored.json as object))
    await call('PUT', '/_node/_local/_config/couchdb/users_db_security_editable', { json: 'true', auth })
    await call('PUT', '/people/_security', { json: { members: { names: [], roles: [] } }, auth })
    t.equal((await call('GET', '/people/org.couchdb.user:anna', { auth: 'anna:anna' })).status, 200)
    t.equal(
      (await call('GET', '/people/org.couchdb.user:bert', { auth: 'anna:anna' })).status,
      404,
      "another's",
    )
    t.equal((await call('GET', '/people/_all_docs', { auth: 'anna:anna' })).status, 401)
    await call('PUT', '/_users', { auth })
    t.match(
      await call('PUT', '/_users/org.couchdb.user:carl', {
        json: { name: 'carl', type: 'user', roles: [], password: 'carl' },
        auth,
      }),
      { status: 201 },
    )
    t.notOk(
      'password' in ((await call('GET', '/_users/org.couchdb.user:carl', { auth })).json as object),
      'hashed there, too',
    )
    t.equal((await call('GET', '/_session', { auth: 'carl:carl' })).status, 401)
  })
})
