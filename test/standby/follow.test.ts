/** A standby and its primary, both listening, with the commands of the control socket. */
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { ControlCommands } from '../../src/control/control-commands.ts'
import { reachServer } from '../../src/control/control-socket.ts'
import type { StandbyReport } from '../../src/standby/standby.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'

const ADMIN = { COUCHDB_USER: 'root', COUCHDB_PASSWORD: 'relax' }
const auth = 'root:relax'

async function controlsOf({ dataDir }: TestServer): Promise<ControlCommands> {
  const controls = await reachServer(dataDir)
  if (controls === null) throw new Error('the server does not listen')
  return controls
}

async function startPair(t: Test) {
  const primary = await startTestServer(t, { env: ADMIN })
  const standby = await startTestServer(t)
  return { primary, standby, controls: await controlsOf(standby), address: addressOf(primary) }
}

const addressOf = ({ url }: TestServer) => url.replace('//', `//${auth}@`)

async function until(controls: ControlCommands, holds: (report: StandbyReport) => boolean): Promise<void> {
  for (let report = await controls.readStandby({}); !holds(report); report = await controls.readStandby({})) {
    if (report.state === 'halted') throw new Error(report.reason ?? '')
    await delay(50)
  }
}

const isCurrent = ({ lagSeconds, waiting }: StandbyReport) => waiting === 0 && (lagSeconds ?? 99) < 4

t.test('everything is copied, writes are refused, and a promoted standby is the primary', async (t) => {
  const { primary, standby, controls, address } = await startPair(t)
  const put = (path: string, body: unknown) => primary.request('PUT', path, { auth, body })
  await put('/notes', '')
  await put('/notes/_security', { members: { names: ['anna'], roles: [] }, admins: { names: [], roles: [] } })
  await put('/notes/_revs_limit', '7')
  await put('/notes/a', { n: 1 })
  await put('/notes/_design/own', {
    validate_doc_update: 'function (doc) { if (doc._id === "b") throw { forbidden: "no" } }',
  })
  await put('/notes/_local/settings', { n: 2, text: 'a\u2028b\nc' })
  await put('/parts?partitioned=true', '')
  await put('/_users/org.couchdb.user:anna', { name: 'anna', password: 'secret', roles: [], type: 'user' })
  await put('/_replicator', '')
  const job = { source: 'notes', target: 'http://anna:hidden@127.0.0.1:9/x', continuous: true }
  await put('/_replicator/job', job)
  await put('/_node/_local/_config/cors/origins', JSON.stringify('https://notes.example'))
  await put('/_node/_local/_config/log/level', JSON.stringify('none'))
  const session = await primary.request('POST', '/_session', { body: { name: 'anna', password: 'secret' } })
  const cookie = String(session.headers['set-cookie']).split(';')[0] as string
  const made = await primary.request('POST', '/_settee/tokens?account=anna', {
    auth,
    body: { name: 'phone' },
  })
  const admins = await primary.request('POST', '/_settee/tokens', {
    auth,
    body: { name: 'tablet', admin: true },
  })
  for (const path of ['settings', 'tokens']) {
    const withToken = { auth: `root:${admins.json.token}` }
    t.equal((await primary.request('GET', `/_settee/standby/${path}`, withToken)).status, 403)
    t.notMatch((await primary.request('GET', `/_settee/standby/${path}`, { auth })).text, made.json.token)
  }
  const report = await controls.follow({ url: address, again: false })
  t.match(report, { state: 'following', reason: null })
  t.notMatch(JSON.stringify(report), /relax/)
  await until(controls, isCurrent)
  const token = `anna:${made.json.token}`
  while ((await standby.request('GET', '/notes', { auth: token })).status === 401) await delay(50)
  for (const options of [{ auth }, { auth: 'anna:secret' }, { auth: token }, { headers: { cookie } }]) {
    t.match(await standby.request('GET', '/notes/a', options), { status: 200, json: { n: 1 } })
  }
  t.equal((await standby.request('GET', '/notes/a')).status, 401)
  t.equal((await standby.request('GET', '/notes/_revs_limit', { auth })).text.trim(), '7')
  t.match((await standby.request('GET', '/notes/_local/settings', { auth })).json, {
    ...{ _rev: '0-1', n: 2, text: 'a\u2028b\nc' },
  })
  t.match((await standby.request('GET', '/parts', { auth })).json, { props: { partitioned: true } })
  const config = await standby.request('GET', '/_node/_local/_config', { auth })
  t.equal(config.json.cors.origins, 'https://notes.example')
  t.notMatch(config.text, /"secret":"[^*"]/, 'the secret of sessions is not shown')

  await t.test('a change is refused as a whole, and reads with a body are served', async (t) => {
    for (const [method, path, body] of [
      ['PUT', '/notes/b', {}],
      ['POST', '/notes/_bulk_docs', { docs: [{ _id: 'b' }] }],
      ['PUT', '/notes/_local/x', {}],
      ['DELETE', '/notes', undefined],
      ['POST', '/_settee/tokens', { name: 'x' }],
      ['POST', '/_replicate', { source: 'notes', target: 'x' }],
    ] as const) {
      const refused = await standby.request(method, path, { auth, body })
      t.match(refused, { status: 503, json: { error: 'service_unavailable' } }, `${method} ${path}`)
      t.match(refused.headers, { 'retry-after': '10' })
    }
    const found = await standby.request('POST', '/notes/_find', { auth, body: { selector: { n: 1 } } })
    t.equal(found.json.docs.length, 1)
    await t.rejects(controls.setPassword({ name: 'anna', password: 'x', create: false }), { code: 'standby' })
  })

  const [here, there] = await Promise.all(
    [standby, primary].map(async (server) => ({
      doc: (await server.request('GET', '/_replicator/job', { auth })).text,
      jobs: (await server.request('GET', '/_scheduler/jobs', { auth })).json.total_rows,
      key: (await server.request('GET', '/_settee/standby/settings', { auth })).json.sealing_key,
    })),
  )
  t.match(here, { doc: there?.doc, key: there?.key, jobs: 0 }, 'only the primary runs its replications')

  await put('/notes/a', { n: 3, _rev: (await primary.request('GET', '/notes/a', { auth })).json._rev })
  const changed = () => standby.request('GET', '/notes/a', { auth })
  while ((await changed()).json.n !== 3) await delay(50)
  const seen = await changed()
  const health = await standby.request('GET', '/_up?deep=1', { auth })
  t.match(
    health.json.facts.find(({ name }: { name: string }) => name === 'standby'),
    { ok: true },
  )
  t.match((await standby.request('GET', '/_node/_local/_prometheus', { auth })).text, /^settee_standby_lag/m)
  const { json: standbyState } = await standby.request('GET', '/_settee/standby', { auth })
  t.match(standbyState, {
    role: 'standby',
    state: 'following',
    first: `${primary.url}/`,
    max_lag: 60,
    failures: [],
  })
  t.equal(typeof standbyState.lag, 'number')
  const { json: tstandbyState } = await primary.request('GET', '/_settee/standby', { auth })
  t.match(tstandbyState, { role: 'first', state: 'none', first: null, followers: [{ address: '127.0.0.1' }] })

  const began = performance.now()
  const outcome = await controls.promote({})
  t.ok(performance.now() - began < 10_000, 'it waits for no lag')
  const { uuid } = (await primary.request('GET', '/')).json
  t.match(outcome, { uuid })
  t.equal((await standby.request('GET', '/')).json.uuid, uuid)
  const saved = await standby.request('PUT', '/notes/a', { auth, body: { n: 4, _rev: seen.json._rev } })
  t.equal(saved.status, 201)
  t.match(await controls.readStandby({}), { state: 'none', first: null })
  while ((await standby.request('GET', '/_scheduler/jobs', { auth })).json.total_rows !== 1) await delay(50)
  await t.rejects(controls.follow({ url: address, again: true }), /former primary/)
  await t.rejects(controls.promote({}), /no standby/)
})

t.test(
  'a server with databases of its own, a strange server, and wrong credentials are refused',
  async (t) => {
    const { primary, standby, controls, address } = await startPair(t)
    const follow = (url: string) => controls.follow({ url, again: false })
    await t.rejects(follow(address.replace('relax', 'wrong')), /cannot be followed.*incorrect/)
    await t.rejects(follow(primary.url), /cannot be followed/)
    await t.rejects(follow('ftp://x'), { code: 'invalid_replication' })
    await t.rejects(follow(standby.url), /this server itself/)
    await standby.request('PUT', '/own')
    await t.rejects(follow(address), /databases of its own \(own\)/)
    await t.rejects(controls.follow({ url: null, again: false }), /no standby/)
  },
)

async function damage({ dataDir, ...server }: TestServer): Promise<void> {
  await server.stop()
  const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'))
  file.prepare(`UPDATE revision SET body = replace(body, 'of b', 'of x') WHERE body LIKE '%of b%'`).run()
  file.prepare('UPDATE chunk SET data = zeroblob(length(data))').run()
  file.close()
  await server.start()
}

for (const which of ['standby', 'primary'] as const)
  t.test(`what the disk of a ${which} has damaged comes from the other`, async (t) => {
    const { primary, standby, controls, address } = await startPair(t)
    await primary.request('PUT', '/notes', { auth })
    for (const id of ['a', 'b', 'c'])
      await primary.request('PUT', `/notes/${id}`, { auth, body: { text: `of ${id}` } })
    const picture = { auth, body: 'the bytes of a picture', headers: { 'content-type': 'image/png' } }
    const { _rev: rev } = (await primary.request('GET', '/notes/c', { auth })).json
    await primary.request('PUT', `/notes/c/picture?rev=${rev}`, picture)
    await controls.follow({ url: address, again: false })
    await until(controls, isCurrent)
    const damaged = { standby, primary }[which]
    await damage(damaged)
    const paths = ['/notes/b', '/notes/c?attachments=true']
    const answers = () => Promise.all(paths.map((path) => damaged.request('GET', path, { auth })))
    const before = (await primary.request('GET', '/notes', { auth })).json.instance_start_time
    if (which === 'primary') {
      // It asks its primary what is damaged when it starts, and once a minute.
      await standby.stop()
      await standby.start()
      await until(await controlsOf(standby), isCurrent)
    }
    for (const { status } of await answers()) t.equal(status, 500)
    if (which === 'primary') {
      await standby.stop()
      await standby.start()
    }
    while ((await answers()).some(({ status }) => status !== 200)) await delay(50)
    const [b, c] = await answers()
    t.match(b?.json, { text: 'of b' })
    t.equal(c?.json._attachments.picture.data, Buffer.from('the bytes of a picture').toString('base64'))
    t.match(await (await controlsOf(standby)).readStandby({}), { state: 'following', refused: 0 })
    t.equal(
      (await primary.request('GET', '/notes', { auth })).json.instance_start_time,
      before,
      'devices compare nothing',
    )
  })
