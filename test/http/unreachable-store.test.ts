/** A server whose engine does not reach its store for a while. */
import t from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { CouchError } from '../../src/core/errors.ts'
import { startMemoryServer } from './memory-server.ts'

/** The ids of the first rows of a continuous feed, which is left then. */
async function idsIn({ body }: Response, count: number): Promise<string[]> {
  let text = ''
  for await (const bytes of body ?? []) {
    text += Buffer.from(bytes).toString()
    const rows = text
      .split('\n')
      .slice(0, -1)
      .filter((line) => line !== '')
    if (rows.length >= count) return rows.map((row) => (JSON.parse(row) as { id: string }).id)
  }
  return []
}

t.test(
  'what an unreachable store cannot answer gets 503, and works again when the store is back',
  async (t) => {
    let isReachable = true
    const onOperation = () => {
      if (!isReachable) throw new CouchError('store_unavailable')
    }
    const { url, config } = await startMemoryServer(t, {}, () => {}, { onOperation })
    await setAdmin(config, 'admin', 'secret')
    const headers = {
      authorization: `Basic ${Buffer.from('admin:secret').toString('base64')}`,
      'content-type': 'application/json',
    }
    const call = async (method: string, path: string, body?: object) => {
      const sent = body === undefined ? {} : { body: JSON.stringify(body) }
      const answer = await fetch(`${url}${path}`, { method, headers, ...sent })
      return { status: answer.status, retry: answer.headers.get('retry-after'), text: await answer.text() }
    }
    t.equal((await call('PUT', '/notes')).status, 201)
    t.equal((await call('PUT', '/notes/a', { n: 1 })).status, 201)
    t.equal(
      (await call('PUT', '/notes/_design/rules', { validate_doc_update: 'function () {}' })).status,
      201,
    )

    const requests: [method: string, path: string, body?: object][] = [
      ['GET', '/notes'],
      ['GET', '/notes/a'],
      ['PUT', '/notes/b', { n: 2 }],
      ['POST', '/notes/_bulk_docs', { docs: [{ _id: 'c' }] }],
      ['POST', '/notes/_bulk_docs', { new_edits: false, docs: [{ _id: 'd', _rev: '1-a' }] }],
      ['POST', '/notes/_bulk_get', { docs: [{ id: 'a' }] }],
      ['POST', '/notes/_revs_diff', { a: ['1-b'] }],
      ['GET', '/notes/_all_docs'],
      ['GET', '/notes/_changes'],
      ['GET', '/notes/_changes?feed=longpoll'],
      ['GET', '/notes/_changes?feed=continuous'],
      ['PUT', '/notes/_local/l', { n: 1 }],
      ['PUT', '/notes/_security', { admins: {} }],
      ['PUT', '/more'],
    ]
    const live = await fetch(`${url}/notes/_changes?feed=continuous&since=now&heartbeat=1000`, { headers })
    const waiting = call('GET', '/notes/_changes?feed=longpoll&since=now&timeout=1000')
    // The feed has its first page, which it needs before it waits, when a later request is answered.
    await call('GET', '/notes/a')
    isReachable = false
    for (const [method, path, body] of requests) {
      const { status, retry, text } = await call(method, path, body)
      t.strictSame([status, retry], [503, '5'], `${method} ${path}`)
      t.match(JSON.parse(text), { error: 'service_unavailable', reason: /store .* cannot be reached/ })
    }
    const health = await call('GET', '/_up?deep=1')
    t.equal(health.status, 503)
    const { facts } = JSON.parse(health.text) as { facts: { name: string; ok: boolean }[] }
    t.same(
      facts.filter(({ ok }) => !ok),
      [{ name: 'store', ok: false, reason: 'The store of the databases cannot be reached.' }],
    )
    t.match(
      JSON.parse((await waiting).text),
      { results: [], last_seq: /^2-/ },
      'a feed that waits ends in order',
    )

    isReachable = true
    for (const [method, path, body] of requests) {
      if (path.endsWith('feed=continuous') || path.endsWith('feed=longpoll')) continue
      const { status } = await call(method, path, body)
      t.ok(status < 300, `${method} ${path}: ${status}`)
    }
    t.same(await idsIn(live, 3), ['b', 'c', 'd'], 'a feed that waits goes on')
    t.equal((await call('GET', '/_up?deep=1')).status, 200)
    t.match(JSON.parse((await call('GET', '/notes/_changes?feed=longpoll')).text), { last_seq: /^5-/ })
  },
)
