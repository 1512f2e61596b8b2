/** `settee serve --store`: two processes over a real PostgreSQL, which clients use as one server. */
import { randomUUID } from 'node:crypto'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t, { type Test } from 'tap'
import { build, builtSettee, freePort, untilUp } from '../../cli/child.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { type Call, connect } from '../../http/client.ts'

PouchDB.plugin(memoryAdapter)

t.setTimeout(240_000)
const PASSWORD = 'correct horse'
const server = await startPostgres(t, { password: PASSWORD })
t.before(() => build(t))

const auth = 'boss:secret'
const withoutPassword = (address: string) => address.replace(/:[^:/@]*@/, '@')

interface Node {
  readonly url: string
  readonly dataDir: string
  readonly call: Call
  /** What it has printed. */
  output(): string
  /** Sends SIGTERM. @returns the exit code */
  stop(): Promise<number | NodeJS.Signals | null>
}

async function startNode(t: Test, store: string, args: readonly string[] = []): Promise<Node> {
  const folder = await temporaryFolder(t)
  const dataDir = join(folder, 'node')
  const passwordFile = join(folder, 'password')
  await writeFile(passwordFile, `${PASSWORD}\n`, { mode: 0o600 })
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const env = {
    COUCHDB_USER: 'boss',
    COUCHDB_PASSWORD: 'secret',
    SETTEE_STORE_PASSWORD_FILE: passwordFile,
    SETTEE_LOG_LEVEL: 'debug',
  }
  const child = builtSettee(
    t,
    ['serve', '--store', store, '--port', String(port), '--data', dataDir, ...args],
    { env },
  )
  let output = ''
  for (const stream of [child.process.stdout, child.process.stderr])
    stream?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  await untilUp(child, url)
  return {
    url,
    dataDir,
    call: connect(t as never, { url }),
    output: () => output,
    stop: async () => {
      child.process.kill('SIGTERM')
      return (await child.ended).code
    },
  }
}

async function startNodes(t: Test, args: readonly string[] = []) {
  const store = withoutPassword(await server.createDatabase())
  const one = await startNode(t, store, args)
  const two = await startNode(t, store, args)
  return { store, one, two }
}

/** Follows the feed of an account. */
async function follow({ url }: Node, database: string, as: string) {
  const headers = { authorization: `Basic ${btoa(as)}` }
  const answer = await fetch(`${url}/${database}/_changes?feed=continuous&heartbeat=10000`, { headers })
  const feed = { status: answer.status, text: '', hasEnded: false }
  const read = async () => {
    for await (const chunk of answer.body ?? []) feed.text += Buffer.from(chunk).toString()
    feed.hasEnded = true
  }
  void read()
  return feed
}

/** @returns how long it took until something held, in ms */
async function timed(holds: () => boolean | Promise<boolean>): Promise<number> {
  const begun = performance.now()
  await until(holds)
  return performance.now() - begun
}

async function addUser({ call }: Node, name: string, password: string): Promise<string> {
  const json = { name, password, roles: [], type: 'user' }
  const made = await call('PUT', `/_users/org.couchdb.user:${name}`, { auth, json })
  return (made.json as { rev: string }).rev
}

t.test('what is done on one node is seen on the other, and a node keeps nothing', async (t) => {
  const { store, one, two } = await startNodes(t)
  const [{ json: first }, { json: second }] = [await one.call('GET', '/'), await two.call('GET', '/')]
  t.equal((first as { uuid: string }).uuid, (second as { uuid: string }).uuid)
  t.match(await one.call('PUT', '/notes', { auth }), { status: 201 })
  t.match(await two.call('PUT', '/notes/a', { auth, json: { text: 'x' } }), { status: 201 })
  t.match(await one.call('GET', '/notes/a', { auth }), { status: 200, json: { text: 'x' } })
  t.match(await two.call('PUT', '/notes/b/file', { auth, body: 'contents' }), { status: 201 })
  t.match(await one.call('GET', '/notes/b/file', { auth }), { text: 'contents' })

  const limit = async ({ call }: Node) =>
    (await call('GET', '/_node/_local/_config/quota/bytes', { auth })).json
  await one.call('PUT', '/_node/_local/_config/quota/bytes', { auth, json: '12345' })
  const config = await timed(async () => (await limit(two)) === '12345')
  await one.call('PUT', '/_node/_local/_config/admins/ann', { auth, json: 'word' })
  const admin = await timed(
    async () => (await two.call('GET', '/_all_dbs', { auth: 'ann:word' })).status === 200,
  )
  await addUser(one, 'carl', 'one')
  const user = await timed(
    async () => (await two.call('GET', '/_session', { auth: 'carl:one' })).status === 200,
  )
  t.comment(`seen after: setting ${config} ms, admin ${admin} ms, user ${user} ms`)

  const files = await readdir(one.dataDir, { recursive: true })
  t.same(
    files.toSorted(),
    ['control', 'control/settee.sock', 'lock', 'samples', 'store', 'store-position', 'tmp'].toSorted(),
  )
  const shown = await one.call('GET', '/_node/_local/_config/settee', { auth })
  t.match(shown.json, { store, store_password_file: String })
  for (const text of [
    one.output(),
    two.output(),
    shown.text,
    JSON.stringify(await one.call('GET', '/_settee/log', { auth })),
  ])
    t.notMatch(text, PASSWORD)
  t.match((await one.call('GET', '/_up?deep=1', { auth })).json, {
    status: 'ok',
    facts: [
      { name: 'threads' },
      { name: 'databases' },
      { name: 'store', ok: true },
      { name: 'free_space' },
      { by_store: true },
    ],
  })
  t.match(await one.call('POST', '/_settee/backups', { auth, json: {} }), {
    status: 501,
    text: /docs\/scaling\.md/,
  })
})

t.test('rights that one node takes away end feeds and sessions on the other', async (t) => {
  const { one, two } = await startNodes(t)
  await one.call('PUT', '/notes', { auth })
  const rev = await addUser(one, 'carl', 'one')
  const secure = (name: string) =>
    one.call('PUT', '/notes/_security', {
      auth,
      json: { admins: { names: [] }, members: { names: [name], roles: [] } },
    })
  await secure('carl')
  await until(async () => (await two.call('GET', '/notes', { auth: 'carl:one' })).status === 200)
  const feed = await follow(two, 'notes', 'carl:one')
  await one.call('PUT', '/notes/a', { auth, json: {} })
  const heard = await timed(() => feed.text.includes('"id":"a"'))
  await secure('ann')
  const ended = await timed(() => feed.hasEnded)
  t.match(await two.call('GET', '/notes', { auth: 'carl:one' }), { status: 403 })
  await secure('carl')
  await until(async () => (await two.call('GET', '/notes', { auth: 'carl:one' })).status === 200)
  const json = { _rev: rev, name: 'carl', password: 'two', roles: [], type: 'user' }
  t.match(await one.call('PUT', '/_users/org.couchdb.user:carl', { auth, json }), { status: 201 })
  const refused = await timed(
    async () => (await two.call('GET', '/notes', { auth: 'carl:one' })).status === 401,
  )
  const token = await one.call('POST', '/_settee/tokens', { auth: 'carl:two', json: { name: 'phone' } })
  t.equal(token.status, 201, token.text)
  const { id, token: secret } = token.json as { id: string; token: string }
  t.match(await two.call('GET', '/notes', { auth: `carl:${secret}` }), { status: 200 })
  const other = await follow(two, 'notes', `carl:${secret}`)
  t.match(await one.call('DELETE', `/_settee/tokens/${id}`, { auth: 'carl:two' }), { status: 200 })
  const revoked = await timed(
    async () => (await two.call('GET', '/notes', { auth: `carl:${secret}` })).status === 401,
  )
  const closed = await timed(() => other.hasEnded)
  t.comment(
    `after ms: change heard ${heard}, feed ended ${ended}, old password refused ${refused}, token revoked ${revoked}, its feed ended ${closed}`,
  )
  t.ok(ended < 10_000 && closed < 10_000)
})

t.test('PouchDB devices sync live through both nodes, while one of them stops and comes back', async (t) => {
  const { store, one, two } = await startNodes(t)
  await one.call('PUT', '/notes', { auth })
  const devices = [one, two].map(({ url }) => {
    const local = new PouchDB(`device-${randomUUID()}`, { adapter: 'memory' })
    const remote = new PouchDB(`${url}/notes`, { auth: { username: 'boss', password: 'secret' } } as never)
    const sync = local.sync(remote, { live: true, retry: true })
    t.teardown(() => sync.cancel())
    return local
  })
  const [phone, laptop] = devices as [PouchDB.Database, PouchDB.Database]
  const has = (device: PouchDB.Database, id: string) =>
    device.get(id).then(
      () => true,
      () => false,
    )
  await phone.put({
    _id: 'from-phone',
    _attachments: { 'a.txt': { content_type: 'text/plain', data: btoa('hello') } },
  })
  await until(() => has(laptop, 'from-phone'))
  await laptop.put({ _id: 'from-laptop' })
  await until(() => has(phone, 'from-laptop'))
  const begun = performance.now()
  t.equal(await two.stop(), 0)
  const took = performance.now() - begun
  t.ok(took < 10_000, `gone after ${took} ms`)
  await phone.put({ _id: 'meanwhile' })
  const again = await startNode(t, store)
  t.match(await again.call('GET', '/notes/from-laptop', { auth }), { status: 200 })
  const late = new PouchDB(`device-${randomUUID()}`, { adapter: 'memory' })
  await until(async () => (await again.call('GET', '/notes/meanwhile', { auth })).status === 200)
  await late.replicate.from(
    new PouchDB(`${again.url}/notes`, { auth: { username: 'boss', password: 'secret' } } as never),
  )
  t.equal((await late.info()).doc_count, 3)
})

t.test(
  'commands work on the folder of a node, running or stopped, and say what a store does itself',
  async (t) => {
    const { store, one } = await startNodes(t)
    await one.call('PUT', '/notes', { auth })
    await one.call('PUT', '/notes/a', { auth, json: {} })
    const env = { SETTEE_DATA: one.dataDir, SETTEE_STORE: store, PGPASSWORD: PASSWORD }
    const run = (...args: string[]) => builtSettee(t, args, { env }).ended
    t.match(await run('export', 'notes'), { code: 0, stdout: /"_id":"a"/ })
    t.match(await run('backup'), { code: 1, stderr: /docs\/scaling\.md/ })
    t.equal(await one.stop(), 0)
    t.match(await run('export', 'notes'), { code: 0, stdout: /"_id":"a"/ })
    t.match(await run('backup'), { code: 1, stderr: /docs\/scaling\.md/ })
    const without = builtSettee(t, ['size'], { env: { SETTEE_DATA: one.dataDir } }).ended
    t.match(await without, { code: 1, stderr: /is the folder of a node whose databases are in postgres:/ })
    const passwd = builtSettee(t, ['account', 'list'], { env }).ended
    t.match(await passwd, { code: 0, stdout: /boss/ })
  },
)
