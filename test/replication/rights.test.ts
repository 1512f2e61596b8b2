/** Who may replicate what; docs/replication.md, "Rights". */
import t, { type Test } from 'tap'
import { checkLiteralAddress, isPrivateAddress } from '../../src/replication/remote/remote-addresses.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'

const ADMIN = 'adm:pass'
const ANNA = 'anna:secret'
const env = { COUCHDB_USER: 'adm', COUCHDB_PASSWORD: 'pass' }

async function withAnna(t: Test): Promise<TestServer> {
  const server = await startTestServer(t, { env })
  await server.request('PUT', '/_users/org.couchdb.user:anna', {
    auth: ADMIN,
    body: { name: 'anna', password: 'secret', roles: [], type: 'user' },
  })
  for (const name of ['annas', 'copy', 'others']) await server.request('PUT', `/${name}`, { auth: ADMIN })
  for (const name of ['annas', 'copy']) {
    const body = { members: { names: ['anna'] }, admins: { names: [] } }
    await server.request('PUT', `/${name}/_security`, { auth: ADMIN, body })
  }
  await server.request('PUT', '/annas/note', { auth: ANNA, body: {} })
  return server
}

function replicate(server: TestServer, auth: string | undefined, body: object) {
  return server.request('POST', '/_replicate', { body, ...(auth !== undefined && { auth }) })
}

/** Waits until all jobs have ended. */
async function withoutJobs(server: TestServer): Promise<void> {
  const count = async () => (await server.request('GET', '/_scheduler/jobs', { auth: ADMIN })).json.total_rows
  while ((await count()) > 0) await new Promise((resolve) => setTimeout(resolve, 20))
}

t.test('users replicate with their own rights, and only admins reach private addresses', async (t) => {
  const server = await withAnna(t)
  t.equal((await replicate(server, undefined, { source: 'annas', target: 'copy' })).status, 401)
  t.match((await replicate(server, ANNA, { source: 'annas', target: 'copy' })).json, { ok: true })
  t.match(await replicate(server, ANNA, { source: 'annas', target: 'others' }), { status: 403 })
  t.match(await replicate(server, ANNA, { source: 'others', target: 'copy' }), { status: 403 })
  t.match(await replicate(server, ANNA, { source: 'annas', target: 'made', create_target: true }), {
    status: 401,
  })
  const { port } = new URL(server.url)
  for (const host of ['127.0.0.1', 'localhost', '[::1]', '[::ffff:127.0.0.1]', '0x7f.1', '2130706433']) {
    t.match(
      await replicate(server, ANNA, { source: `http://${host}:${port}/annas`, target: 'copy' }),
      { status: 403, json: { reason: /only server admins may replicate with private addresses/ } },
      host,
    )
  }
  t.match(await replicate(server, ANNA, { source: 'annas', target: 'copy', proxy: 'http://1.1.1.1' }), {
    json: { ok: true },
  })
  t.match(
    await replicate(server, ANNA, { source: 'https://a.example/x', target: 'copy', proxy: 'http://1.1.1.1' }),
    { status: 403 },
  )
  t.match(
    (
      await replicate(server, ADMIN, {
        source: `${server.url.replace('://', `://${ADMIN}@`)}/annas`,
        target: 'others',
      })
    ).json,
    { ok: true },
  )
})

t.test('a member of _replicator does not replicate from it, since only server admins list it', async (t) => {
  const server = await withAnna(t)
  const body = { members: { names: [] }, admins: { names: ['anna'] } }
  for (const name of ['_replicator', 'annas%2F_replicator']) {
    await server.request('PUT', `/${name}`, { auth: ADMIN })
    t.equal((await server.request('PUT', `/${name}/_security`, { auth: ADMIN, body })).status, 200)
  }
  const refused = await replicate(server, ANNA, { source: '_replicator', target: 'copy' })
  t.match(refused, { status: 401, json: { error: 'unauthorized', reason: 'You are not a server admin.' } })
  t.match((await replicate(server, ANNA, { source: 'annas/_replicator', target: 'copy' })).json, { ok: true })
  t.match((await replicate(server, ADMIN, { source: '_replicator', target: 'copy' })).json, { ok: true })
})

t.test('jobs belong to the user who has started them', async (t) => {
  const server = await withAnna(t)
  const body = { source: 'annas', target: 'copy', continuous: true }
  const { json } = await replicate(server, ANNA, body)
  await server.request('PUT', '/_users/org.couchdb.user:bob', {
    auth: ADMIN,
    body: { name: 'bob', password: 'b', roles: [], type: 'user' },
  })
  const cancel = { cancel: true, id: json._local_id }
  t.equal((await replicate(server, 'bob:b', cancel)).status, 401)
  t.equal((await server.request('GET', '/_scheduler/jobs', { auth: ANNA })).status, 401)
  t.equal((await replicate(server, 'bob:b', body)).status, 401)
  t.match((await replicate(server, ADMIN, cancel)).json, { ok: true })
  await withoutJobs(server)
  for (let n = 0; n < 20; n++) {
    t.equal((await replicate(server, ANNA, { ...body, doc_ids: [`${n}`] })).status, 202)
  }
  t.match(await replicate(server, ANNA, { ...body, doc_ids: ['21'] }), { status: 429 })
})

t.test('a job ends with the rights of its user', async (t) => {
  const server = await withAnna(t)
  const path = '/_users/org.couchdb.user:anna'
  const body = { source: 'annas', target: 'copy', continuous: true }
  const account = { name: 'anna', roles: [], type: 'user' }
  const change = async (members: object) => {
    const { json } = await server.request('GET', path, { auth: ADMIN })
    await server.request('PUT', path, { auth: ADMIN, body: { ...account, _rev: json._rev, ...members } })
  }
  t.equal((await replicate(server, ANNA, body)).status, 202)
  await change({ password: 'another' })
  await withoutJobs(server)
  t.equal((await replicate(server, 'anna:another', body)).status, 202)
  await change({ _deleted: true })
  await withoutJobs(server)
})

t.test('in hosted mode only server admins replicate', async (t) => {
  const server = await startTestServer(t, { env, hosted: true })
  await server.request('PUT', '/_users/org.couchdb.user:anna', {
    auth: ADMIN,
    body: { name: 'anna', password: 'long enough secret', roles: [], type: 'user' },
  })
  t.match(await replicate(server, 'anna:long enough secret', { source: 'a', target: 'b' }), {
    status: 403,
    json: { reason: /replicates only for its admins/ },
  })
  t.match(await replicate(server, ADMIN, { source: 'a', target: 'b' }), { status: 500 })
})

t.test('private addresses are those that only this server reaches', async (t) => {
  const isPrivate = ['10.1.2.3', '127.9.9.9', '169.254.169.254', '172.31.0.1', '192.168.1.1', '0.0.0.0']
  const more = [
    '100.64.0.1',
    '255.255.255.255',
    '::1',
    '::',
    'fe80::1%eth0',
    'fd00::1',
    '::ffff:10.0.0.1',
    'name',
  ]
  for (const address of [...isPrivate, ...more, '64:ff9b::a00:1', '2002:a00:1::'])
    t.ok(isPrivateAddress(address), address)
  for (const address of ['1.1.1.1', '172.32.0.1', '93.184.216.34', '2606:4700::1111', '::ffff:8.8.8.8']) {
    t.notOk(isPrivateAddress(address), address)
  }
})

/** The forms in which an IPv6 address leads to an IPv4 address, or has it inside. */
const EMBEDDED: Readonly<Record<string, (high: string, low: string) => string>> = {
  'IPv4-compatible': (high, low) => `::${high}:${low}`,
  'IPv4-mapped': (high, low) => `::ffff:${high}:${low}`,
  SIIT: (high, low) => `::ffff:0:${high}:${low}`,
  'RFC 6052': (high, low) => `64:ff9b::${high}:${low}`,
  'RFC 8215': (high, low) => `64:ff9b:1::${high}:${low}`,
  '6to4': (high, low) => `2002:${high}:${low}::1`,
  Teredo: (high, low) => `2001:0:${high}:${low}::1`,
}
/** The first and the last address of each private network of IPv4. */
const ENDS = [
  ...['0.0.0.0', '0.255.255.255', '10.0.0.0', '10.255.255.255', '100.64.0.0', '100.127.255.255'],
  ...['127.0.0.1', '127.255.255.255', '169.254.0.0', '169.254.169.254', '172.16.0.0', '172.31.255.255'],
  ...['192.0.0.0', '192.0.0.255', '192.168.0.0', '192.168.255.255', '198.18.0.0', '198.19.255.255'],
  ...['224.0.0.1', '240.0.0.0', '255.255.255.255'],
]

t.test('a private address is one in every form', async (t) => {
  for (const address of ENDS) {
    const [a = 0, b = 0, c = 0, d = 0] = address.split('.').map(Number)
    const group = (x: number, y: number) => (x * 256 + y).toString(16)
    const number = ((a * 256 + b) * 256 + c) * 256 + d
    const octal = [a, b, c, d].map((part) => `0${part.toString(8)}`).join('.')
    const texts = [address, `${number}`, `0x${number.toString(16)}`, octal, `${a}.${(b * 256 + c) * 256 + d}`]
    for (const text of texts) {
      const { hostname } = new URL(`http://${text}/`)
      t.throws(() => checkLiteralAddress(hostname), { code: 'EPRIVATE' }, text)
    }
    for (const [name, form] of Object.entries(EMBEDDED)) {
      const { hostname } = new URL(`http://[${form(group(a, b), group(c, d))}]/`)
      t.throws(() => checkLiteralAddress(hostname), { code: 'EPRIVATE' }, `${name}: ${hostname}`)
    }
  }
  const others = [
    '::',
    '::1',
    '100::1',
    '200::1',
    '3fff::1',
    '4000::1',
    '5f00::1',
    '8000::1',
    'fe80::1',
    'fec0::1',
  ]
  for (const address of others) t.ok(isPrivateAddress(address), address)
  for (const address of ['2a00:1450:4001::1', '2606:4700::1111', '3ffe::1', '::ffff:101:101'])
    t.notOk(isPrivateAddress(address), address)
})

t.test('in hosted mode tenants replicate if the operator allows it, within their quotas', async (t) => {
  const server = await startTestServer(t, { env, hosted: true })
  const auth = 'anna:long enough secret'
  await server.request('PUT', '/_users/org.couchdb.user:anna', {
    auth: ADMIN,
    body: { name: 'anna', password: 'long enough secret', roles: [], type: 'user' },
  })
  await server.request('PUT', '/_settee/accounts/anna', {
    auth: ADMIN,
    body: { quota: { documents: 15, replications: 1 } },
  })
  for (const path of ['/plans', '/anna%2F_replicator']) await server.request('PUT', path, { auth })
  const docs = Array.from({ length: 8 }, (_, n) => ({ _id: `${n}` }))
  await server.request('POST', '/plans/_bulk_docs', { auth, body: { docs } })
  const body = { source: 'plans', target: 'second', create_target: true }
  const write = () => server.request('PUT', '/anna%2F_replicator/x', { auth, body })
  t.match(await write(), { status: 403, json: { reason: /replicates only for its admins/ } })
  await server.request('PUT', '/_node/_local/_config/settee/hosted_replication', {
    auth: ADMIN,
    body: '"true"',
  })
  t.match(await write(), { status: 201 })
  for (;;) {
    const { json } = await server.request('GET', '/anna%2F_replicator/x', { auth })
    if (json._replication_state !== 'completed') continue
    // Those of both databases, and the document itself.
    t.match(json._replication_stats, { docs_written: 6, doc_write_failures: 2 })
    break
  }
  t.equal((await server.request('GET', '/second', { auth })).json.doc_count, 6)
  const continuous = { ...body, continuous: true }
  t.equal((await replicate(server, auth, { ...continuous, doc_ids: ['1'] })).status, 202)
  t.equal((await replicate(server, auth, { ...continuous, doc_ids: ['2'] })).status, 429)
  await server.request('DELETE', '/_node/_local/_config/settee/hosted_replication', { auth: ADMIN })
  await withoutJobs(server)
})
