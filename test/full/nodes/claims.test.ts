/**
 * What one node must tell the other, or must not do at the same time, on two processes over one PostgreSQL: suspensions, sessions,
 * quotas, deletions, compactions, and the replications of `_replicator` after the stop and after the death of a node.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { type NodeProcess, startNode } from '../../helpers/node-processes.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'

/** docs/scaling.md: within about a second; and feeds end within 5 s. With some time to spare, in ms. */
const TOLD_MS = 3000
const ENDED_MS = 10_000
/** docs/architecture.md: 1 s after a stop, 40 s after a death. With some time to spare, in ms. */
const AFTER_STOP_MS = 5000
const AFTER_DEATH_MS = 50_000

t.setTimeout(300_000)
const postgres = await startPostgres(t)
const store = await postgres.createDatabase()
const env = { COUCHDB_USER: 'boss', COUCHDB_PASSWORD: 'secret' }
const one = await startNode(t, { args: ['--store', store, '--hosted'], env })
// In hosted mode, too, as every node after the first.
const two = await startNode(t, { args: ['--store', store], env })
const nodes = [one, two] as const

interface Ask {
  readonly auth?: string
  readonly body?: unknown
  readonly cookie?: string
}

async function ask({ url }: NodeProcess, method: string, path: string, { auth, body, cookie }: Ask = {}) {
  const answer = await fetch(url + path, {
    method,
    headers: {
      ...(cookie === undefined && { authorization: `Basic ${btoa(auth ?? 'boss:secret')}` }),
      ...(cookie !== undefined && { cookie }),
      'content-type': 'application/json',
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  return { status: answer.status, json: JSON.parse(text || 'null'), headers: answer.headers }
}

/** @returns how long it took until something held, in ms */
async function timed(holds: () => Promise<boolean> | boolean): Promise<number> {
  const begun = performance.now()
  await until(holds)
  return Math.round(performance.now() - begun)
}

const addAccount = async (name: string) => {
  const made = await ask(one, 'POST', '/_settee/accounts', { body: { name, password: 'word' } })
  t.equal(made.status, 201)
  await until(async () => (await ask(two, 'GET', '/_session', { auth: `${name}:word` })).status === 200)
}

t.test('a suspension on one node ends requests and feeds on the other', async (t) => {
  await addAccount('anna')
  const auth = 'anna:word'
  t.equal((await ask(two, 'PUT', '/notes', { auth })).status, 201)
  const feed = await fetch(`${two.url}/notes/_changes?feed=continuous&heartbeat=1000`, {
    headers: { authorization: `Basic ${btoa(auth)}` },
  })
  let hasEnded = false
  const reading = feed.text().finally(() => {
    hasEnded = true
  })
  await ask(one, 'PUT', '/_settee/accounts/anna', { body: { suspended: true } })
  const refused = await timed(async () => (await ask(two, 'GET', '/notes', { auth })).status === 403)
  const ended = refused + (await timed(() => hasEnded))
  await reading
  await ask(two, 'PUT', '/_settee/accounts/anna', { body: { suspended: false } })
  const allowed = await timed(async () => (await ask(one, 'GET', '/notes', { auth })).status === 200)
  t.comment(`after ms: refused ${refused}, feed ended ${ended}, allowed again ${allowed}`)
  t.ok(Math.max(refused, allowed) < TOLD_MS && ended < ENDED_MS)
})

t.test('a session of one node is valid on the other, until it is ended', async (t) => {
  const begin = async () => {
    const made = await ask(one, 'POST', '/_session', {
      cookie: '',
      body: { name: 'boss', password: 'secret' },
    })
    return made.headers.get('set-cookie')?.split(';')[0] ?? ''
  }
  const name = async (cookie: string) =>
    (await ask(two, 'GET', '/_session', { cookie })).json.userCtx?.name ?? null
  // The first one of a store makes the secret of all.
  const first = await begin()
  await until(async () => (await name(first)) === 'boss')
  const cookie = await begin()
  t.equal(await name(cookie), 'boss')
  t.equal((await ask(one, 'DELETE', '/_session', { cookie })).status, 200)
  const ended = await timed(async () => (await name(cookie)) === null)
  t.ok(ended < TOLD_MS, `after ${ended} ms`)
  t.equal(await name(first), 'boss', 'another session of the account goes on')
})

t.test('databases that are made through both nodes at once stay within the quota', async (t) => {
  await addAccount('ben')
  await ask(one, 'PUT', '/_settee/accounts/ben', { body: { quota: { databases: 3 } } })
  await until(async () => (await ask(two, 'GET', '/_settee/accounts/ben')).json.quota.databases === 3)
  const make = (n: number) => ask(nodes[n % 2]!, 'PUT', `/ben-${n}`, { auth: 'ben:word' })
  const made = await Promise.all(Array.from({ length: 8 }, (_, n) => make(n)))
  t.equal(made.filter(({ status }) => status === 201).length, 3, JSON.stringify(made))
  const { databases } = (await ask(two, 'GET', '/_settee/accounts/ben')).json.usage
  t.equal(databases, 3)
  await addAccount('carl')
  const same = await Promise.all(nodes.map((node) => ask(node, 'PUT', '/carl', { auth: 'carl:word' })))
  t.same(same.map(({ status }) => status).sort(), [201, 412], 'of two creations of a name, one succeeds')
})

t.test('a check through one node finds what is damaged, and both nodes say it', async (t) => {
  const name = new URL(store).pathname.slice(1)
  await ask(one, 'PUT', '/checked')
  const { json } = await ask(one, 'PUT', '/checked/a', { body: { text: 'the right words' } })
  await ask(one, 'PUT', '/checked/b', { body: { text: 'others' } })
  await postgres.query(
    "UPDATE settee.doc SET body = replace(body, 'right', 'wrong') WHERE body LIKE '%the right words%'",
    [],
    name,
  )
  t.equal((await ask(two, 'POST', '/_settee/check', { body: {} })).status, 202)
  const shown = async (node: NodeProcess) => (await ask(node, 'GET', '/_settee/check')).json
  await until(async () => (await shown(two)).last !== null)
  const damaged = [{ database: 'checked', count: 1, parts: [{ kind: 'revision', id: 'a', rev: json.rev }] }]
  for (const node of nodes) {
    t.match(await shown(node), { damaged, running: null, last_failure: null })
    t.match(await ask(node, 'GET', '/_up?deep=1'), { status: 503 })
    t.match(await ask(node, 'GET', '/checked/a'), { status: 500, json: { error: 'file_corruption' } })
  }
  t.equal((await ask(one, 'DELETE', '/checked')).status, 200)
  await until(async () => (await ask(two, 'GET', '/_up?deep=1')).status === 200)
})

t.test('an account that is deleted through both nodes at once is gone on both', async (t) => {
  const deleted = await Promise.all(nodes.map((node) => ask(node, 'DELETE', '/_settee/accounts/ben')))
  t.ok(
    deleted.some(({ status }) => status === 200),
    JSON.stringify(deleted),
  )
  t.ok(deleted.every(({ status }) => [200, 404, 503].includes(status)))
  for (const node of nodes) {
    await until(async () => (await ask(node, 'GET', '/_settee/accounts/ben')).status === 404)
    const names = (await ask(node, 'GET', '/_all_dbs')).json as string[]
    t.same(
      names.filter((name) => name.startsWith('ben')),
      [],
    )
  }
})

t.test('a database is compacted by one node at a time', async (t) => {
  for (let n = 0; n < 20; n++) await ask(nodes[n % 2]!, 'PUT', `/notes/${n}`, { body: { text: 'x' } })
  const asked = await Promise.all(nodes.map((node) => ask(node, 'POST', '/notes/_compact', { body: {} })))
  t.same(
    asked.map(({ status }) => status),
    [202, 202],
  )
  for (const node of nodes)
    await until(async () => (await ask(node, 'GET', '/notes')).json.compact_running === false)
  const name = new URL(store).pathname.slice(1)
  const claims = await postgres.query('SELECT opener, finished FROM settee.compaction', [], name)
  t.match(claims, [{ opener: null }])
  t.ok(Number(claims[0]?.finished) >= 1 && Number(claims[0]?.finished) <= 2)
})

t.test('work that one node does alone goes on on the other, after a stop and after a death', async (t) => {
  for (const db of ['_replicator', 'source', 'target']) t.equal((await ask(one, 'PUT', `/${db}`)).status, 201)
  const doc = { source: 'source', target: 'target', continuous: true }
  t.equal((await ask(two, 'PUT', '/_replicator/copy', { body: doc })).status, 201)
  const runs = async (node: NodeProcess) =>
    ((await ask(node, 'GET', '/_active_tasks')).json as { type: string }[]).some(
      ({ type }) => type === 'replication',
    )
  const runners = async () => {
    const found = await Promise.all(nodes.map((node) => runs(node).catch(() => false)))
    return nodes.filter((_, at) => found[at])
  }
  const arrives = async (id: string, through: NodeProcess) => {
    t.equal((await ask(through, 'PUT', `/source/${id}`, { body: {} })).status, 201)
    await until(async () => (await ask(through, 'GET', `/target/${id}`)).status === 200)
  }
  await until(async () => (await runners()).length === 1)
  const [first] = (await runners()) as [NodeProcess]
  const second = first === one ? two : one
  await arrives('a', second)
  t.notOk(await runs(second), 'only one of them runs it')
  t.equal(await first.stop(), 0)
  const afterStop = await timed(() => runs(second))
  await arrives('b', second)
  await first.start()
  t.notOk(await runs(first), 'it stays where it is')

  await second.kill()
  const killed = performance.now()
  while (!(await runs(first)) && performance.now() - killed < AFTER_DEATH_MS) await sleep(250)
  const afterDeath = Math.round(performance.now() - killed)
  await arrives('c', first)
  t.comment(`after ms: stop ${afterStop}, death ${afterDeath}`)
  t.ok(afterStop < AFTER_STOP_MS && afterDeath < AFTER_DEATH_MS)
})
