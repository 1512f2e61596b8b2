/** `_up`, and how the server is for those who watch over it. */
import t from 'tap'
import { gatherFacts } from '../../src/metrics/health.ts'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.test('in depth it is for server admins and readers of metrics', async (t) => {
  const call = connect(t, await startMemoryServer(t))
  t.match(await call('GET', '/_up?deep=1'), { status: 200 }, 'while nobody is an admin everybody is')
  await call('PUT', '/_config/admins/s', { body: '"s"' })
  const statuses = async (path: string) => {
    const callers = [undefined, 'm:m', '_metrics:_metrics', 's:s', 's:wrong']
    const asked = callers.map((auth) => call('GET', path, auth === undefined ? {} : { auth }))
    return (await Promise.all(asked)).map(({ status }) => status)
  }
  t.strictSame(await statuses('/_up?deep=1'), [401, 401, 200, 200, 401])
  t.strictSame(await statuses('/_up?deep=true'), [401, 401, 200, 200, 401])
  for (const plain of ['/_up', '/_up?deep=0', '/_up?deep', '/_up?x=1']) {
    t.strictSame(await statuses(plain), [200, 200, 200, 200, 200], plain)
  }
  t.equal((await call('HEAD', '/_up?deep=1', { auth: 's:s' })).status, 200)
  t.equal((await call('HEAD', '/_up?deep=1')).status, 401)
})

t.test('a server that is well', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  await server.request('PUT', '/notes/a', { body: {} })
  const { status, json } = await server.request('GET', '/_up?deep=1')
  t.equal(status, 200)
  t.match(json, { status: 'ok', seeds: {} })
  const named = new Map<string, object>(json.facts.map((fact: { name: string }) => [fact.name, fact]))
  t.match(named.get('threads'), { ok: true, silent: 0, deaths: 0, last_death: null })
  t.strictSame(named.get('databases'), { name: 'databases', ok: true, count: 0, faulty: [] })
  t.equal(json.facts.length, named.size, 'each fact stands once')
  t.match(named.get('backup'), {
    ok: true,
    last: null,
    age: null,
    interval: 0,
    reason: /^No backups are scheduled/,
  })
  t.strictSame((await server.request('GET', '/_up')).json, { status: 'ok', seeds: {} })
})

t.test('what does not answer is a fact', async (t) => {
  const good = { name: 'x', ok: true }
  const broken = async () => {
    throw new Error('no')
  }
  const silent = () => new Promise<never>(() => {})
  const facts = await gatherFacts([async () => [good], broken, silent], 10)
  t.match(facts, [good, { name: 'health', ok: false }, { name: 'health', ok: false }])
})
