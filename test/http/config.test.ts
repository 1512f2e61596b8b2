/** The configuration over HTTP; protocol.md 12.1. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { connect } from './client.ts'

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
