/** The setup of a new server, as scripts and Fauxton call it; protocol.md 15. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { clusterState } from '../../src/http/routes/cluster-setup-routes.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { type Ask, connect } from './client.ts'

async function start(t: Test, ini = '') {
  const dataDir = await temporaryFolder(t)
  const path = join(dataDir, 'local.ini')
  await writeFile(path, `[chttpd_auth]\niterations = 10\n${ini}`)
  const server = await startTestServer(t, { dataDir, logLevel: 'debug', logFile: join(dataDir, 'x.log') })
  const call = connect(t, server)
  const setUp = (json: unknown, ask: Ask = {}) => call('POST', '/_cluster_setup', { json, ...ask })
  return {
    call,
    setUp,
    text: () => readFile(path, 'utf8'),
    log: () => readFile(join(dataDir, 'x.log'), 'utf8'),
  }
}

/** As LiveSync's scripts send it (clients.md 1.2). */
const LIVESYNC = {
  action: 'enable_single_node',
  username: 'anna',
  password: 'long secret',
  bind_address: '0.0.0.0',
  port: 5984,
  singlenode: true,
}

t.test('a single node is set up, and a second setup changes nothing', async (t) => {
  const { call, setUp, text, log } = await start(t)
  t.match(await call('GET', '/_cluster_setup'), { status: 200, json: { state: 'cluster_disabled' } })
  const auth = 'anna:long secret'
  t.match(await setUp(LIVESYNC, { auth }), { status: 201, text: '{"ok":true}\n' })
  t.equal((await call('GET', '/_all_dbs')).status, 401, 'closed')
  t.equal((await call('GET', '/_users', { auth })).status, 200)
  t.match((await call('GET', '/_config', { auth })).json, {
    chttpd: { bind_address: '0.0.0.0', port: '5984' },
    cluster: { n: '1' },
  })
  t.strictSame((await call('GET', '/_cluster_setup', { auth })).json, { state: 'single_node_enabled' })
  const before = await text()
  t.match(before, /^anna = -pbkdf2/m)
  t.match(await setUp(LIVESYNC, { auth }), { status: 201, json: { ok: true } })
  t.equal(await text(), before)
  t.match(await setUp({ action: 'finish_cluster' }, { auth }), {
    status: 400,
    json: { error: 'bad_request', reason: 'Cluster is already finished' },
  })
  t.equal((await setUp({ action: 'enable_single_node' }, { auth })).status, 201, 'an admin is there already')
  t.equal(await text(), before)
  const changed = { ...LIVESYNC, password: 'another' }
  t.equal((await setUp(changed, { auth })).status, 201)
  t.equal((await call('GET', '/_all_dbs', { auth: 'anna:another' })).status, 200)
  t.notMatch(await log(), /long secret|another"/)
})

t.test('the named databases are created', async (t) => {
  const { call, setUp } = await start(t)
  const state = async (names: unknown) =>
    (await call('GET', `/_cluster_setup?ensure_dbs_exist=${encodeURIComponent(JSON.stringify(names))}`)).json
  await setUp({ ...LIVESYNC, ensure_dbs_exist: ['_users', 'notes'] })
  const auth = 'anna:long secret'
  t.equal((await call('GET', '/notes', { auth })).status, 200)
  t.equal((await call('DELETE', '/_config/admins/anna', { auth })).status, 200)
  t.strictSame(await state(['notes']), { state: 'single_node_disabled' }, 'no admin')
  await setUp({ action: 'enable_single_node', username: 'anna', password: 'long secret' })
  const named = encodeURIComponent('["notes","other"]')
  const path = `/_cluster_setup?ensure_dbs_exist=${named}`
  t.strictSame((await call('GET', path, { auth })).json, { state: 'single_node_disabled' })
  const finish = { action: 'finish_cluster', ensure_dbs_exist: ['notes', 'other'] }
  t.equal((await setUp(finish, { auth })).status, 201)
  t.strictSame((await call('GET', path, { auth })).json, { state: 'single_node_enabled' })
  t.equal((await setUp(finish, { auth })).status, 400)
})

t.test('refusals change nothing', async (t) => {
  const { call, setUp, text } = await start(t)
  const before = await text()
  const databases = (await call('GET', '/_all_dbs')).text
  const one = { action: 'enable_single_node' }
  const cases: [body: unknown, reason: string | RegExp][] = [
    [{}, "Invalid Action'"],
    [{ action: 'missing' }, "Invalid Action'"],
    [{ action: 1 }, '`action` must be a string.'],
    [[], "Missing JSON body'"],
    ['x', "Missing JSON body'"],
    [one, 'Cluster setup requires admin account to be configured'],
    [{ ...one, username: 'anna' }, 'An admin needs both username and password.'],
    [{ ...one, password: 'secret' }, 'An admin needs both username and password.'],
    [{ ...one, username: 'anna', password: 1 }, '`password` must be a string.'],
    [{ ...LIVESYNC, username: '' }, /name of an admin must not be empty/],
    [{ ...LIVESYNC, username: 'a:b' }, /colon/],
    [{ ...LIVESYNC, password: '' }, /password of an admin must not be empty/],
    [{ ...LIVESYNC, password: undefined, password_hash: '-pbkdf2-x' }, /looks like a hash/],
    [{ ...LIVESYNC, bind_address: 'host' }, 'Setup requires a valid IP bind_address. host is invalid.'],
    [{ ...LIVESYNC, port: 70_000 }, /chttpd\/port must be a whole number/],
    [{ ...LIVESYNC, port: {} }, /chttpd\/port must be a whole number/],
    [{ ...LIVESYNC, ensure_dbs_exist: 'notes' }, '`ensure_dbs_exist` must be an array of strings.'],
    [{ ...LIVESYNC, ensure_dbs_exist: [1] }, '`ensure_dbs_exist` must be an array of strings.'],
    [{ ...LIVESYNC, ensure_dbs_exist: Array(101).fill('a') }, /too many/],
    ...['enable_cluster', 'add_node', 'remove_node', 'receive_cookie'].map((action): [unknown, RegExp] => [
      { ...LIVESYNC, action },
      /single node and cannot join a cluster/,
    ]),
  ]
  for (const [body, reason] of cases) {
    const what = JSON.stringify(body)
    t.match(await setUp(body), { status: 400, json: { error: 'bad_request', reason } }, what)
  }
  t.match(await setUp({ ...LIVESYNC, ensure_dbs_exist: ['Notes'] }), {
    status: 400,
    json: { error: 'illegal_database_name' },
  })
  t.equal((await call('POST', '/_cluster_setup', { body: '{}' })).status, 415)
  t.equal((await call('GET', '/_cluster_setup?ensure_dbs_exist=x')).status, 400)
  t.equal(await text(), before)
  t.equal((await call('GET', '/_all_dbs')).text, databases)
})

t.test("the state follows CouchDB's rules", async (t) => {
  const state = (keys: Record<string, string>, hasAdmin: boolean, hasDatabases: boolean) =>
    clusterState({ get: (section, key) => keys[`${section}/${key}`] }, { hasAdmin, hasDatabases })
  const local = { 'chttpd/bind_address': '127.0.0.1' }
  const open = { 'chttpd/bind_address': '0.0.0.0' }
  t.equal(state({ 'couchdb/single_node': 'true', ...local }, false, false), 'single_node_enabled')
  t.equal(state({ 'cluster/n': '1', ...local }, true, true), 'single_node_enabled')
  t.equal(state({ 'cluster/n': '1' }, false, true), 'single_node_disabled')
  t.equal(state({ 'cluster/n': '1' }, true, false), 'single_node_disabled')
  t.equal(state(local, true, true), 'cluster_disabled')
  t.equal(state(open, false, true), 'cluster_disabled')
  t.equal(state(open, true, false), 'cluster_enabled')
  t.equal(state({ 'cluster/n': '3', ...open }, true, true), 'cluster_finished')
})
