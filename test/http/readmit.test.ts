/** Rights that are lost while a body arrives are lost in the turn of the write. */
import { once } from 'node:events'
import { connect as openSocket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { startAccountsServer } from './accounts-server.ts'
import { connect } from './client.ts'

/** Sends all of a request but the last byte. @returns what sends that, and hears the answer */
async function hold(
  t: Test,
  url: string,
  [line, body]: readonly [line: string, body: string],
  headers: readonly string[] = [],
): Promise<() => Promise<{ readonly status: number; readonly text: string }>> {
  const socket = openSocket(Number(new URL(url).port), '127.0.0.1')
  t.teardown(() => socket.destroy())
  await once(socket, 'connect')
  const heard: Buffer[] = []
  socket.on('data', (chunk) => heard.push(chunk))
  const closed = once(socket, 'close')
  const head = [
    `${line} HTTP/1.1`,
    'Host: localhost',
    'Connection: close',
    'Content-Type: application/json',
    ...headers,
  ]
  socket.write(`${[...head, `Content-Length: ${body.length}`].join('\r\n')}\r\n\r\n${body.slice(0, -1)}`)
  return async () => {
    socket.write(body.slice(-1))
    await closed
    const text = Buffer.concat(heard).toString('latin1')
    return { status: Number(text.split(' ', 2)[1]), text }
  }
}

const SET_UP = { action: 'enable_single_node', username: 'm', password: 'm', ensure_dbs_exist: [] }

const STRANGERS: readonly (readonly [line: string, body: string])[] = [
  ['PUT /_config/admins/m', '"stranger"'],
  ['PUT /_node/_local/_config/admins/m', '"stranger"'],
  ['PUT /_node/_local/_config/jwt_keys/hmac:m', '"c2VjcmV0"'],
  ['POST /_cluster_setup', JSON.stringify(SET_UP)],
  ['PUT /_users/org.couchdb.user:m', '{"name":"m","type":"user","roles":[],"password":"m"}'],
  ['PUT /db/doc', '{"n":1}'],
  ['POST /db/_bulk_docs', '{"docs":[{"_id":"doc"}]}'],
  ['PUT /db/_security', '{"admins":{"names":["m"]},"members":{"names":["m"]}}'],
]

async function adminsOf(server: TestServer, auth: string): Promise<readonly string[]> {
  const { json } = await server.request('GET', '/_node/_local/_config/admins', { auth })
  return Object.keys(json)
}

t.test('who began while the server was open ends as a stranger once there is an admin', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  t.equal((await server.request('PUT', '/db')).status, 201)
  const held = await Promise.all(STRANGERS.map((each) => hold(t, server.url, each)))
  // The heads have arrived: this request came after them.
  await sleep(50)
  t.equal((await server.request('PUT', '/_config/admins/anna', { body: '"pw"' })).status, 200)
  const auth = 'anna:pw'
  const security = (await server.request('GET', '/db/_security', { auth })).text
  const answers = await Promise.all(held.map((end) => end()))
  for (const [at, { status }] of answers.entries()) t.equal(status, 401, STRANGERS[at]![0])
  t.strictSame(await adminsOf(server, auth), ['anna'])
  t.equal((await server.request('GET', '/_users/org.couchdb.user:m', { auth })).status, 404)
  t.equal((await server.request('GET', '/db/doc', { auth })).status, 404)
  t.equal((await server.request('GET', '/db/_security', { auth })).text, security)
  t.strictSame((await server.request('GET', '/_config/jwt_keys', { auth })).json, {})
})

t.test('of those who would become the first admin exactly one does', async (t) => {
  const server = await startTestServer(t)
  const names = Array.from({ length: 8 }, (_, n) => `a${n}`)
  const answers = await Promise.all(
    names.map((name, n) =>
      n % 2 === 0
        ? server.request('PUT', `/_config/admins/${name}`, { body: '"pw"' })
        : server.request('POST', '/_cluster_setup', { body: { ...SET_UP, username: name, password: 'pw' } }),
    ),
  )
  const winners = names.filter((_, n) => answers[n]!.status < 300)
  t.equal(winners.length, 1)
  for (const { status } of answers) t.ok(status < 300 || status === 401)
  t.strictSame(await adminsOf(server, `${winners[0]}:pw`), winners)
  const [n] = (await server.request('GET', '/_config/cluster', { auth: `${winners[0]}:pw` })).text
  t.ok(n)
})

t.test('a script that names its admin while the server is open goes on as that admin', async (t) => {
  const server = await startTestServer(t)
  const headers = [`Authorization: Basic ${Buffer.from('anna:pw').toString('base64')}`]
  const end = await hold(t, server.url, ['PUT /_config/couchdb/max_dbs_open', '"99"'], headers)
  await sleep(50)
  await server.request('PUT', '/_config/admins/anna', { body: '"pw"' })
  t.equal((await end()).status, 200)
})

t.test(
  'a token is not made by a password that was changed meanwhile, nor an admin by one who is none any more',
  async (t) => {
    const server = await startAccountsServer(t, ['v'])
    const call = connect(t, server)
    const basic = (name: string) => [
      `Authorization: Basic ${Buffer.from(`${name}:${name}`).toString('base64')}`,
    ]
    const token = await hold(t, server.url, ['POST /_settee/tokens', '{"name":"phone"}'], basic('v'))
    const admin = await hold(t, server.url, ['PUT /_config/admins/x', '"pw"'], basic('t'))
    await sleep(50)
    await server.setPassword('v', 'new')
    t.equal((await call('DELETE', '/_config/admins/t', { auth: 's:s' })).status, 200)
    t.equal((await token()).status, 401)
    t.equal((await admin()).status, 401)
    t.strictSame(server.tokens.list('v'), [])
    t.equal(server.config.get('admins', 'x'), undefined)
  },
)
