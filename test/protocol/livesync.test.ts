/** LiveSync's whole check, with the CORS headers for each of Obsidian's origins; clients.md 1.2, R12. */
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { startMemoryServer } from '../http/memory-server.ts'
import { sh } from './curl-shell.ts'
import { checkConfiguration, checkOrigins, red, SETTINGS, type Target, write } from './livesync-check.ts'

t.test('each origin of Obsidian is allowed, for the admin and for an account', async (t) => {
  const { url } = await startMemoryServer(t)
  const admin: Target = { url, auth: 'anna:long-secret' }
  const member: Target = { url, auth: 'bert:bert' }
  t.equal(await write(admin, 'admins/anna', 'long-secret'), 200)
  for (const target of [admin, member]) t.strictSame(red(await checkOrigins(target)), [], 'from the start')
  for (const [path, value] of SETTINGS) t.equal(await write(admin, path, value), 200)
  for (const target of [admin, member])
    t.strictSame(red(await checkOrigins(target)), [], 'nothing is red after the setup')
})

const ANNA = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'long-secret' }
const BERT = { _id: 'org.couchdb.user:bert', name: 'bert', password: 'bert', type: 'user', roles: [] }

/** Sets up a server like the scripts, with an account that is not the admin. */
async function setUp(t: Test, server: TestServer): Promise<readonly Target[]> {
  const [admin, member] = ['anna:long-secret', 'bert:bert'].map((auth) => ({ url: server.url, auth }))
  t.equal(await write(admin as Target, 'chttpd_auth/iterations', '10'), 200)
  for (const [path, value] of SETTINGS) t.equal(await write(admin as Target, path, value), 200, path)
  const asAnna = { auth: 'anna:long-secret' }
  t.match(await server.request('POST', '/_users', { ...asAnna, body: BERT }), { status: 201 })
  return [admin as Target, member as Target]
}

async function isGreen(t: Test, targets: readonly Target[]): Promise<void> {
  for (const target of targets) {
    t.strictSame(red((await checkConfiguration(target)).rows), [], target.auth)
    t.strictSame(red(await checkOrigins(target)), [], target.auth)
    for (const [path, value] of SETTINGS) t.equal(await write(target, path, value), 200, path)
  }
}

t.test('the check is green for the admin and for a member of a database', async (t) => {
  const server = await startTestServer(t, { env: ANNA })
  const targets = await setUp(t, server)
  const asAnna = { auth: 'anna:long-secret' }
  t.match(await server.request('PUT', '/notes', asAnna), { status: 201 })
  const security = { admins: { names: [] }, members: { names: ['bert'] } }
  t.match(await server.request('PUT', '/notes/_security', { ...asAnna, body: security }), { status: 200 })
  await isGreen(t, targets)
  t.match(await server.request('GET', '/notes', { auth: 'bert:bert' }), { status: 200 })
})

t.test('the check is green in hosted mode for a tenant with their own database', async (t) => {
  const server = await startTestServer(t, { hosted: true, env: ANNA })
  const targets = await setUp(t, server)
  t.match(await server.request('PUT', '/notes', { auth: 'bert:bert' }), { status: 201 })
  await isGreen(t, targets)
  const own = { auth: 'anna:long-secret', body: { quota: { document_size: 1_000_000 } } }
  t.match(await server.request('PUT', '/_settee/accounts/bert', own), { status: 200 })
  const { rows } = await checkConfiguration(targets[1] as Target)
  t.strictSame(red(rows), ['couchdb/max_document_size: 1000000'], 'the limit of the account is reported')
})

/** The admin that the scripts are given. */
const AUTH = 'anna:long-secret'
const SETUP = {
  action: 'enable_single_node',
  username: 'anna',
  password: 'long-secret',
  bind_address: '0.0.0.0',
  port: 5984,
  singlenode: true,
}

/** Makes hashes cheap, before the passwords are set. */
async function start(t: Test): Promise<TestServer & { port: number }> {
  const server = await startTestServer(t)
  await server.request('PUT', '/_config/chttpd_auth/iterations', { body: '"10"' })
  return { ...server, port: Number(new URL(server.url).port) }
}

/** The commands of the scripts, with the node's name that each of them uses. */
function commands(node: string): string[] {
  const at = 'http://127.0.0.1:5984'
  const json = '-H "Content-Type: application/json"'
  const asAnna = `--user "${AUTH}"`
  const setup = `curl -sf -X POST "${at}/_cluster_setup" ${json} -d '${JSON.stringify(SETUP)}' ${asAnna}`
  const puts = SETTINGS.map(([path, value]) => {
    const url = `${at}/_node/${node}/_config/${path}`
    return `curl -sf -X PUT "${url}" ${json} -d '${JSON.stringify(value)}' ${asAnna}`
  })
  return [`curl -sf "${at}/_up"`, setup, ...puts]
}

t.test('the shell scripts succeed twice, and the check is green for the admin', async (t) => {
  const server = await start(t)
  for (const node of ['_local', 'nonode@nohost', '_local']) {
    for (const command of commands(node)) {
      const { status, body } = await sh(command, server.port)
      t.ok(status === 200 || status === 201, `${command}: ${status} ${body}`)
    }
  }
  t.match(await sh('curl http://127.0.0.1:5984/_up', server.port), { status: 200, body: /"status":"ok"/ })
  const database = `http://127.0.0.1:5984/obsidiannotes --user "${AUTH}"`
  t.equal((await sh(`curl ${database}`, server.port)).status, 404)
  t.equal((await sh(`curl -sf -X PUT ${database}`, server.port)).status, 201)
  t.equal((await sh(`curl ${database}`, server.port)).status, 200)
  const report = await checkConfiguration({ url: server.url, auth: AUTH })
  t.strictSame(red(report.rows), [])
  t.ok(report.isAdmin)
})

t.test('the script for Deno succeeds', async (t) => {
  const { request } = await start(t)
  const auth = AUTH
  t.equal((await request('POST', '/_cluster_setup', { body: SETUP, auth })).status, 201)
  const headers = { 'content-type': 'application/json' }
  for (const [path, value] of SETTINGS) {
    const body = JSON.stringify(value)
    t.match(
      await request('PUT', `/_node/_local/_config/${path}`, { body, auth, headers }),
      { status: 200 },
      path,
    )
  }
  for (const status of [201, 412]) {
    t.equal((await request('PUT', '/obsidiannotes', { auth, headers })).status, status)
  }
  const version = { type: 'versioninfo', version: 12 }
  t.equal(
    (await request('PUT', '/obsidiannotes/obsydian_livesync_version', { body: version, auth })).status,
    201,
  )
})

t.test('the buttons of the check turn it green', async (t) => {
  const server = await start(t)
  await server.request('PUT', '/_config/admins/anna', { body: '"long-secret"' })
  const target: Target = { url: server.url, auth: AUTH }
  const before = await checkConfiguration(target)
  t.ok(red(before.rows).includes('couchdb/max_document_size: 8000000'), 'an unsatisfied setting is red')
  for (const { fix } of before.rows) if (fix) t.equal(await write(target, ...fix), 200, fix[0])
  t.strictSame(red((await checkConfiguration(target)).rows), [])
})

t.test('a server without admins can be checked', async (t) => {
  const { url } = await start(t)
  t.equal((await checkConfiguration({ url, auth: AUTH })).isAdmin, false)
})

t.test('once the admin has set up the server, the check is green for everybody', async (t) => {
  const { url, config } = await startMemoryServer(t)
  const open: Target = { url, auth: AUTH }
  t.equal(await write(open, 'admins/anna', 'long-secret'), 200)
  for (const [path, value] of SETTINGS) t.equal(await write(open, path, value), 200)
  const member: Target = { url, auth: 'bert:bert' }
  const report = await checkConfiguration(member)
  t.strictSame(red(report.rows), [])
  t.equal(report.rows.length, 7)
  t.notOk(report.isAdmin, 'the report says that the account is no admin')
  const before = config.all()
  for (const [path, value] of SETTINGS)
    t.equal(await write(member, path, value), 200, `the scripts work: ${path}`)
  t.equal(await write(member, 'couchdb/max_document_size', '60000000'), 403)
  t.equal(await write(member, 'admins/bert', 'bert'), 403)
  t.strictSame(config.all(), before, 'the configuration is unchanged')
})

t.test('an unmet requirement is red for every account, and no button changes it', async (t) => {
  const { url } = await startMemoryServer(t)
  t.equal(await write({ url, auth: AUTH }, 'admins/anna', 'long-secret'), 200)
  const member: Target = { url, auth: 'bert:bert' }
  const { rows } = await checkConfiguration(member)
  const size = rows.find(({ name }) => name === 'couchdb/max_document_size')
  t.match(size, { isGreen: false, found: '8000000' })
  for (const { fix } of rows) if (fix) t.equal(await write(member, ...fix), 403, fix[0])
})

t.test('the first admin, created as in the guide of CouchDB 1.x', async (t) => {
  const { port } = await start(t)
  const steps: [command: string, status: number, body: string | RegExp][] = [
    ['curl -X PUT http://127.0.0.1:5984/my-inkdrop-notes', 201, '{"ok":true}\n'],
    ['curl http://127.0.0.1:5984/_all_dbs', 200, /"my-inkdrop-notes"/],
    [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`, 200, '""\n'],
    ['curl http://127.0.0.1:5984/_all_dbs', 401, /You are not a server admin/],
    ['curl http://anna:secret@127.0.0.1:5984/_all_dbs', 200, /"my-inkdrop-notes"/],
    ['curl http://anna:secret@127.0.0.1:5984/_config/admins', 200, /^\{"anna":"-pbkdf2/],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-inkdrop-notes/_security -d '{"admins":{"names":["anna"]}}'`,
      200,
      '{"ok":true}\n',
    ],
  ]
  for (const [command, status, body] of steps) {
    const printed = await sh(command, port)
    t.equal(printed.status, status, command)
    t.match(printed.body, body, command)
  }
})

t.test('the screens of Fauxton', async (t) => {
  const { request } = await start(t)
  t.match((await request('GET', '/_cluster_setup')).json, { state: /^(?:cluster|single_node)_/ })
  const { json: nodes } = await request('GET', '/_membership')
  t.strictSame(nodes.all_nodes, nodes.cluster_nodes)
  t.equal(nodes.all_nodes.length, 1, 'there is one node, so Fauxton opens its configuration at once')
  const node = `/_node/${nodes.all_nodes[0]}/_config`
  t.match((await request('GET', node)).json, { chttpd: { port: /^\d+$/ } })
  t.equal((await request('PUT', `${node}/admins/anna`, { body: '"secret"' })).json, '')
  const auth = 'anna:secret'
  t.match((await request('PUT', `${node}/admins/anna`, { body: '"new"', auth })).json, /^-pbkdf2/)
  const changed = 'anna:new'
  for (const [key, value] of [
    ['cors/origins', 'https://notes.example,http://localhost:3000'],
    ['cors/credentials', 'true'],
    ['cors/headers', 'accept, authorization, content-type, origin, referer, x-csrf-token'],
    ['cors/methods', 'GET, PUT, POST, HEAD, DELETE'],
    ['chttpd/enable_cors', 'true'],
    ['some_section/some key', 'any value'],
  ] as const) {
    const path = `${node}/${encodeURI(key)}`
    t.equal((await request('PUT', path, { body: JSON.stringify(value), auth: changed })).status, 200, key)
    t.equal((await request('GET', path, { auth: changed })).json, value, key)
    t.equal((await request('DELETE', path, { auth: changed })).json, value, key)
  }
})
