/** Accounts in `_users`, created, used and deleted over HTTP; protocol.md 11. */
import { createHash, pbkdf2Sync } from 'node:crypto'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import nano from 'nano'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { sealSession } from '../../src/auth/sessions.ts'
import {
  onlyOneServer,
  settled,
  startTestServer,
  type TestServer,
  temporaryFolder,
} from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

const OWN_FILES = onlyOneServer('It looks into the files of a server, or its log.')
const ADMIN = 'root:sesame'
const ENV = { COUCHDB_USER: 'root', COUCHDB_PASSWORD: 'sesame' }
const OPEN = { members: { names: [], roles: [] }, admins: { names: [], roles: ['_admin'] } }

/** A server with few hash rounds. With `isOpen`, users may read and change their own documents. */
async function start(t: Test, { isOpen = false, logFile = '' } = {}): Promise<TestServer> {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), '[chttpd_auth]\niterations = 10\n')
  const log = logFile === '' ? {} : { logFile, logLevel: 'debug' }
  const server = await startTestServer(t, { dataDir, env: ENV, ...log })
  if (isOpen) {
    await set(server, 'couchdb', 'users_db_security_editable', 'true')
    const { status } = await server.request('PUT', '/_users/_security', { auth: ADMIN, body: OPEN })
    t.equal(status, 200)
  }
  return server
}

async function set(server: TestServer, section: string, key: string, value: string): Promise<void> {
  const path = `/_node/_local/_config/${section}/${key}`
  const { status, text } = await server.request('PUT', path, { auth: ADMIN, body: JSON.stringify(value) })
  if (status !== 200) throw new Error(text)
  await settled(server)
}

async function putUser(server: TestServer, name: string, doc: object, auth = ADMIN) {
  const path = `/_users/org.couchdb.user:${encodeURIComponent(name)}`
  return server.request('PUT', path, { auth, body: { name, type: 'user', roles: [], ...doc } })
}

async function statusOf(asked: Promise<unknown>): Promise<number> {
  return asked.then(
    () => 200,
    (error: { statusCode: number }) => error.statusCode,
  )
}

async function who(server: TestServer, auth: string): Promise<number> {
  return (await server.request('GET', '/', { auth })).status
}

t.test('a new server has _users, closed to everybody but admins', async (t) => {
  const server = await start(t)
  t.same((await server.request('GET', '/_all_dbs', { auth: ADMIN })).json, ['_users'])
  const design = await server.request('GET', '/_users/_design/_auth', { auth: ADMIN })
  t.match(design.json, { language: 'javascript', validate_doc_update: /doc\.type must be user/ })
  const security = { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } }
  t.same((await server.request('GET', '/_users/_security', { auth: ADMIN })).json, security)
  const secured = await server.request('PUT', '/_users/_security', { auth: ADMIN, body: OPEN })
  t.equal(secured.status, 403)
  t.match(secured.json, {
    error: 'forbidden',
    reason: "You can't edit the security object of the user database.",
  })
  await putUser(server, 'anna', { password: 'x' })
  const own = await server.request('GET', '/_users/org.couchdb.user:anna', { auth: 'anna:x' })
  t.equal(own.status, 403, 'as in CouchDB 3, not even their own document')
  t.equal((await server.request('GET', '/_users/_all_docs')).status, 401)
})

t.test('the life of an account, with curl', async (t) => {
  const server = await start(t, { isOpen: true })
  t.equal(await who(server, 'anna:one'), 401)
  const made = await putUser(server, 'anna', { password: 'one', roles: ['team'] })
  t.match(made, { status: 201, json: { ok: true, id: 'org.couchdb.user:anna' } })
  t.equal(await who(server, 'anna:one'), 200)
  t.equal(await who(server, 'anna:two'), 401)

  const own = await server.request('GET', '/_users/org.couchdb.user:anna', { auth: 'anna:one' })
  t.match(own.json, { name: 'anna', roles: ['team'], password_scheme: 'pbkdf2', iterations: 10 })
  t.equal(own.json.password, undefined)
  const changed = await putUser(server, 'anna', { ...own.json, password: 'two' }, 'anna:one')
  t.equal(changed.status, 201)
  t.equal(await who(server, 'anna:one'), 401, 'the old password is refused at once')
  t.equal(await who(server, 'anna:two'), 200)

  await server.request('PUT', '/notes', { auth: ADMIN })
  const security = { members: { roles: ['team'] } }
  await server.request('PUT', '/notes/_security', { auth: ADMIN, body: security })
  t.equal((await server.request('GET', '/notes', { auth: 'anna:two' })).status, 200, 'roles count')
  const later = await server.request('GET', '/_users/org.couchdb.user:anna', { auth: ADMIN })
  await putUser(server, 'anna', { ...later.json, roles: [] })
  t.equal(
    (await server.request('GET', '/notes', { auth: 'anna:two' })).status,
    403,
    'a user without the role is refused',
  )

  const { json } = await server.request('GET', '/_users/org.couchdb.user:anna', { auth: ADMIN })
  await server.request('DELETE', `/_users/org.couchdb.user:anna?rev=${json._rev}`, { auth: ADMIN })
  t.equal(await who(server, 'anna:two'), 401, 'a deleted user is refused at once')
  t.equal((await putUser(server, 'bert', { password: 'b' }, '_:_')).status, 201, 'strangers may sign up')
  t.equal(await who(server, 'bert:b'), 200)
})

t.test('the same with nano', async (t) => {
  const server = await start(t, { isOpen: true })
  const as = (name: string, password: string) =>
    nano({ url: server.url.replace('//', `//${name}:${password}@`) }).use<Record<string, unknown>>('_users')
  const id = 'org.couchdb.user:anna'
  const admin = as('root', 'sesame')
  await admin.insert({ name: 'anna', type: 'user', roles: [], password: 'one' }, id)
  const doc = await as('anna', 'one').get(id)
  await as('anna', 'one').insert({ ...doc, password: 'two' })
  t.equal(await statusOf(as('anna', 'one').get(id)), 401)
  t.equal(await statusOf(as('anna', 'two').get('org.couchdb.user:root')), 404)
  const bulk = await admin.bulk({
    docs: [
      { _id: 'org.couchdb.user:bert', name: 'bert', type: 'user', roles: [], password: 'b' },
      { _id: 'org.couchdb.user:carl', name: 'carl', type: 'user' },
    ],
  })
  t.match(bulk, [{ ok: true }, { error: 'forbidden', reason: 'doc.roles must exist' }])
  t.equal(await who(server, 'bert:b'), 200)
  const listed = await admin.list()
  t.equal(listed.rows.length, 3)
})

t.test('users of CouchDB 1.x, 2.x and 3.x keep their passwords, and weak hashes are replaced', async (t) => {
  const server = await start(t)
  const salt = '5f2d1a0c9b8e7d6c5b4a39281706f5e4'
  const key = (password: string, rounds: number, length: number, digest: string) =>
    pbkdf2Sync(password, salt, rounds, length, digest).toString('hex')
  const sha = createHash('sha1').update(`pw${salt}`).digest('hex')
  const table: Record<string, object> = {
    'one-x': { salt, password_sha: sha },
    'one-five': { salt, password_scheme: 'simple', password_sha: sha },
    'two-x': { salt, password_scheme: 'pbkdf2', iterations: 10, derived_key: key('pw', 10, 20, 'sha1') },
    'two-old': { salt, password_scheme: 'pbkdf2', derived_key: key('pw', 10_000, 20, 'sha1') },
    three: {
      salt,
      password_scheme: 'pbkdf2',
      pbkdf2_prf: 'sha256',
      iterations: 20,
      derived_key: key('pw', 20, 32, 'sha256'),
    },
    'three-five': {
      salt,
      password_scheme: 'simple+pbkdf2',
      pbkdf2_prf: 'sha256',
      iterations: 20,
      derived_key: key(sha, 20, 32, 'sha256'),
    },
  }
  for (const [name, hash] of Object.entries(table)) {
    const body = { _rev: '3-0123456789abcdef0123456789abcdef', name, type: 'user', roles: [], ...hash }
    const path = `/_users/org.couchdb.user:${name}?new_edits=false`
    t.equal((await server.request('PUT', path, { auth: ADMIN, body })).status, 201, name)
    t.equal(await who(server, `${name}:wrong`), 401, name)
    t.equal(await who(server, `${name}:pw`), 200, name)
  }
  const upgraded = async (name: string) => {
    for (;;) {
      const { json } = await server.request('GET', `/_users/org.couchdb.user:${name}`, { auth: ADMIN })
      if (json._rev.startsWith('4-')) return json
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  for (const name of Object.keys(table).filter((each) => each !== 'three')) {
    const { derived_key: derived, ...doc } = await upgraded(name)
    t.match(doc, { password_scheme: 'pbkdf2', pbkdf2_prf: 'sha256', iterations: 10, salt }, name)
    t.equal(doc.password_sha, undefined, name)
    t.equal(derived, key('pw', 10, 32, 'sha256'), name)
    t.equal(await who(server, `${name}:pw`), 200, name)
  }
  const { json } = await server.request('GET', '/_users/org.couchdb.user:three', { auth: ADMIN })
  t.match(json, { _rev: /^3-/, iterations: 20 }, 'one that is good enough stays')
})

t.test(
  'an admin may have a document, too: the roles of both, the password of the configuration',
  async (t) => {
    const server = await start(t)
    await putUser(server, 'root', { password: 'other', roles: ['team'] })
    t.equal(await who(server, 'root:other'), 401)
    t.equal(await who(server, ADMIN), 200)
  },
)

t.test('only server admins delete _users, which deletes all accounts', async (t) => {
  const server = await start(t)
  await putUser(server, 'anna', { password: 'one' })
  t.equal(await who(server, 'anna:one'), 200)
  t.equal((await server.request('DELETE', '/_users', { auth: 'anna:one' })).status, 401)
  t.equal((await server.request('DELETE', '/_users', { auth: ADMIN })).status, 200)
  t.equal(await who(server, 'anna:one'), 401)
  t.equal((await server.request('PUT', '/_users', { auth: 'anna:one' })).status, 401)
  t.equal((await server.request('PUT', '/_users', { auth: ADMIN })).status, 201)
  t.equal(await who(server, 'anna:one'), 401)
  const refused = await putUser(server, 'anna', { roles: 'x' })
  t.match(
    refused,
    { status: 403, json: { reason: 'doc.roles must be an array' } },
    'its rules are there again',
  )
  await putUser(server, 'anna', { password: 'two' })
  t.equal(await who(server, 'anna:two'), 200)
})

t.test('passwords must match the configured pattern', async (t) => {
  const server = await start(t)
  await set(server, 'chttpd_auth', 'password_regexp', '[".{6}", {"[0-9]", "A digit is missing."}]')
  const refused = await putUser(server, 'anna', { password: 'longer' })
  t.equal(refused.status, 400)
  t.equal(
    refused.text,
    '{"error":"bad_request","reason":"Password does not conform to requirements. A digit is missing."}\n',
  )
  t.equal((await putUser(server, 'anna', { password: 'l0nger' })).status, 201)
  const path = '/_node/_local/_config/chttpd_auth/password_regexp'
  const bad = await server.request('PUT', path, { auth: ADMIN, body: '"[\\"a\\""' })
  t.equal(bad.status, 400, bad.text)
})

t.test('no password is found in the data folder or in the log', OWN_FILES, async (t) => {
  const logs = t.testdir({})
  const logFile = join(logs, 'settee.log')
  const server = await start(t, { isOpen: true, logFile })
  const secret = 'Xylophone-7421'
  await putUser(server, 'anna', { password: secret })
  const docs = Array.from({ length: 30 }, (_, n) => ({
    _id: `org.couchdb.user:u${n}`,
    name: `u${n}`,
    type: 'user',
    roles: [],
    password: `${secret}-${n}`,
    filler: 'x'.repeat(100_000),
  }))
  await server.request('POST', '/_users/_bulk_docs', { auth: ADMIN, body: { docs } })
  await server.request('POST', '/_users/_bulk_docs', {
    auth: ADMIN,
    body: `{"docs":[{"password":"${secret}"`,
  })
  await putUser(server, 'u1', { password: secret, roles: 1 })
  t.equal(await who(server, `anna:${secret}`), 200)
  const more = docs.map((doc) => ({ ...doc, filler: 'x'.repeat(300_000) }))
  const large = await server.request('POST', '/_users/_bulk_docs', { auth: ADMIN, body: { docs: more } })
  t.equal(large.status, 413, 'a body that would be spooled to a file is refused')
  t.match(large.json.reason, /the limit for _users is 8388608 bytes/)
  await server.close()
  const files = await readdir(server.dataDir, { recursive: true, withFileTypes: true })
  const paths = files.filter((file) => file.isFile()).map((file) => join(file.parentPath, file.name))
  for (const file of [...paths, logFile]) {
    t.notOk((await readFile(file)).includes(secret), file)
  }
  t.ok(paths.some((file) => file.endsWith('_users.sqlite')))
})

t.test('feeds and views of _users are for admins', async (t) => {
  const server = await start(t, { isOpen: true })
  await putUser(server, 'anna', { password: 'x' })
  const view = { views: { names: { map: 'function (doc) { emit(doc.name) }' } } }
  t.equal((await server.request('PUT', '/_users/_design/d', { auth: ADMIN, body: view })).status, 201)
  const rows: [method: string, path: string, body: object | undefined, status: number][] = [
    ['GET', '/_users/_changes', undefined, 401],
    ['GET', '/_users/_changes?include_docs=true&filter=_view&view=d/names', undefined, 401],
    ['POST', '/_users/_changes?filter=_doc_ids', { doc_ids: ['org.couchdb.user:anna'] }, 401],
    ['GET', '/_users/_all_docs', undefined, 401],
    ['POST', '/_users/_all_docs', { keys: ['org.couchdb.user:anna'] }, 401],
    ['GET', '/_users/_design_docs', undefined, 401],
    ['GET', '/_users/_local_docs', undefined, 401],
    ['GET', '/_users/_design/d/_view/names', undefined, 403],
    ['POST', '/_users/_design/d/_view/names/queries', { queries: [{}] }, 403],
    ['GET', '/_users/_design/d/_info', undefined, 403],
    ['GET', '/_users/_design/d', undefined, 403],
    ['POST', '/_users/_revs_diff', { 'org.couchdb.user:anna': ['1-a'] }, 403],
  ]
  for (const [method, path, body, status] of rows) {
    const asked = body === undefined ? {} : { body }
    const refused = await server.request(method, path, { auth: 'anna:x', ...asked })
    t.equal(refused.status, status, `${method} ${path}: ${refused.text}`)
    t.notMatch(refused.text, /derived_key|"rows"|"results"/)
    const { status: good } = await server.request(method, path, { auth: ADMIN, ...asked })
    t.equal(good, 200, `${method} ${path}, as an admin`)
  }
  const feed = await server.request('GET', '/_users/_changes?feed=continuous&timeout=1', { auth: 'anna:x' })
  t.equal(feed.status, 401)
})

t.test('couch_peruser: a database for each account, also for earlier ones, after a restart', async (t) => {
  const server = await start(t)
  await putUser(server, 'anna', { password: 'x' })
  await set(server, 'couch_peruser', 'enable', 'true')
  const own = '/userdb-616e6e61'
  const until = async (path: string, auth: string, status: number) => {
    while ((await server.request('GET', path, { auth })).status !== status) {
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
  }
  await until(own, 'anna:x', 200)
  t.equal((await server.request('PUT', `${own}/note`, { auth: 'anna:x', body: {} })).status, 201)
  t.equal((await server.request('PUT', `${own}/_design/d`, { auth: 'anna:x', body: {} })).status, 201)
  await putUser(server, 'zoë/1', { password: 'z' })
  const name = `/userdb-${Buffer.from('zoë/1').toString('hex')}`
  await until(name, 'zoë/1:z', 200)
  t.equal((await server.request('GET', own, { auth: 'zoë/1:z' })).status, 403)
  await server.stop()
  await server.start()
  t.match((await server.request('GET', own, { auth: 'anna:x' })).json, { doc_count: 2 })
  await set(server, 'couch_peruser', 'delete_dbs', 'true')
  const { json } = await server.request('GET', '/_users/org.couchdb.user:anna', { auth: ADMIN })
  await server.request('DELETE', `/_users/org.couchdb.user:anna?rev=${json._rev}`, { auth: ADMIN })
  await until(own, ADMIN, 404)
  t.equal((await server.request('GET', name, { auth: 'zoë/1:z' })).status, 200)
})

async function startWithSessions(
  t: Test,
  options: Parameters<typeof startTestServer>[1] = {},
): Promise<TestServer> {
  const server = await startTestServer(t, options)
  const set = (key: string, value: string) =>
    server.request('PUT', `/_node/_local/_config/${key}`, { body: JSON.stringify(value) })
  await set('chttpd_auth/iterations', '10')
  await set('admins/s', 'secret-of-s')
  await settled(server)
  await server.request('PUT', '/db', { auth: 's:secret-of-s' })
  return server
}

async function logIn(server: TestServer): Promise<string> {
  const body = { username: 's', password: 'secret-of-s' }
  const { headers } = await server.request('POST', '/_session', { body })
  return String(headers['set-cookie']).split(';', 1)[0] ?? ''
}

/** A feed, and its outcome. */
async function openFeed(
  t: Test,
  server: TestServer,
  headers: Record<string, string>,
  path = '/db/_changes?feed=continuous&heartbeat=100',
) {
  const agent = new Agent()
  t.teardown(() => agent.destroy())
  const answer = await request(server.url + path, { dispatcher: agent, headers })
  const { statusCode, body } = answer
  const feed = { statusCode, headers: answer.headers, text: '', hasEnded: false }
  body.on('data', (chunk) => {
    feed.text += String(chunk)
  })
  for (const event of ['end', 'error', 'close']) {
    body.on(event, () => {
      feed.hasEnded = true
    })
  }
  return feed
}

t.test('a feed outlives its cookie, but not its session', async (t) => {
  const server = await startWithSessions(t, { env: { COUCHDB_SECRET: 'known' } })
  const auth = 's:secret-of-s'
  const { json: hash } = await server.request('GET', '/_node/_local/_config/admins/s', { auth })
  const salt = String(hash).split(',')[1] ?? ''
  const seconds = Math.floor(Date.now() / 1000) - 595
  const cookie = `AuthSession=${sealSession('s', seconds.toString(16).toUpperCase(), `known${salt}`, 'sha256')}`
  const feed = await openFeed(t, server, { cookie })
  t.equal(feed.statusCode, 200)
  const renewed = String(feed.headers['set-cookie']).split(';', 1)[0] ?? ''
  t.match(renewed, /^AuthSession=[\w-]{20,}$/, 'its head renews the session')
  await until('its own cookie has run out', async () => {
    const { status } = await server.request('GET', '/db', { headers: { cookie } })
    return status === 401
  })
  // Access rights have changed, so each feed checks its caller again.
  await server.request('PUT', '/_node/_local/_config/admins/other', { auth, body: '"x"' })
  await server.request('PUT', '/db/doc', { auth, body: '{}' })
  await until('a change comes', () => feed.text.includes('"id":"doc"'))
  t.notOk(feed.hasEnded)
  await server.request('DELETE', '/_session', { headers: { cookie: renewed } })
  await until('the feed ends with the session', () => feed.hasEnded)
})

t.test('each kind of feed ends with its session; feeds of other sessions continue', async (t) => {
  const server = await startWithSessions(t)
  const [mine, other] = [await logIn(server), await logIn(server)]
  const paths = ['continuous', 'eventsource', 'longpoll'].flatMap((kind) =>
    ['/db/_changes', '/_db_updates'].map(
      (path) => `${path}?feed=${kind}&since=now&heartbeat=100&timeout=60000`,
    ),
  )
  const feeds = await Promise.all(paths.map((path) => openFeed(t, server, { cookie: mine }, path)))
  const theirs = await openFeed(t, server, { cookie: other })
  t.ok(feeds.every(({ statusCode }) => statusCode === 200))
  await server.request('DELETE', '/_session', { headers: { cookie: mine } })
  await until('they have ended', () => feeds.every(({ hasEnded }) => hasEnded))
  t.notOk(theirs.hasEnded)
})

t.test('a feed whose password has changed ends, and counts for no lockout', async (t) => {
  const server = await startWithSessions(t)
  const auth = 's:secret-of-s'
  const authorization = `Basic ${Buffer.from(auth).toString('base64')}`
  const feeds = await Promise.all(Array.from({ length: 10 }, () => openFeed(t, server, { authorization })))
  await server.request('PUT', '/_node/_local/_config/admins/s', { auth, body: '"another"' })
  await until('they have ended', () => feeds.every(({ hasEnded }) => hasEnded))
  t.equal((await server.request('GET', '/db', { auth: 's:another' })).status, 200)
})

t.test('nano logs in with a cookie', async (t) => {
  const server = await startWithSessions(t)
  const couch = nano({ url: server.url })
  const login = await couch.auth('s', 'secret-of-s')
  t.match(login, { ok: true, name: 's', roles: ['_admin'] })
  t.match(await couch.session(), { userCtx: { name: 's' } })
  t.match(await couch.use('db').insert({}, 'by-cookie'), { ok: true })
})

t.test('the filter of docs/operating.md finds every failed login, and its address', OWN_FILES, async (t) => {
  const logFile = join(await temporaryFolder(t), 'settee.log')
  const server = await startWithSessions(t, { logFile, logLevel: 'info' })
  const names = ['s', 'x","address":"192.0.2.9","account":"', '"msg":"a login failed"}', '1.2.3.4', 'é漢']
  for (const name of names) {
    for (let guess = 0; guess < 6; guess++) {
      const body = { name, password: `wrong-${guess}` }
      const { status } = await server.request('POST', '/_session', { body })
      t.equal(status, guess < 5 ? 401 : 403)
    }
  }
  await server.close()
  const page = await readFile(new URL('../../docs/operating.md', import.meta.url), 'utf8')
  const pattern = /^failregex = (.*)$/m.exec(page)?.[1] ?? ''
  const filter = new RegExp(pattern.replace('<ADDR>', '(?<address>[0-9a-f.:]+)'))
  const lines = (await readFile(logFile, 'utf8')).trim().split('\n')
  const found = lines.flatMap((line) => {
    // fail2ban removes the date before it matches.
    const undated = line.replace(/"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/, '')
    return filter.exec(undated)?.groups?.address ?? []
  })
  t.equal(found.length, names.length * 5)
  t.strictSame([...new Set(found)], ['127.0.0.1'])
  t.notOk(lines.some((line) => line.includes('wrong-')))
})
