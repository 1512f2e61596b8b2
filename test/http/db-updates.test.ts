/** What happens to databases, over the wire; protocol.md 4.9. */

import t, { type Test } from 'tap'
import { request } from 'undici'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

interface Row {
  db_name: string
  type: string
  seq: string
}

function rowsOf(json: unknown): string[] {
  return (json as { results: Row[] }).results.map((row) => `${row.db_name} ${row.type}`)
}

/** Reads a feed as it comes. */
async function follow(t: Test, url: string) {
  const { statusCode, headers, body } = await request(url)
  const chunks: string[] = []
  let wake = () => {}
  const done = (async () => {
    for await (const chunk of body) {
      chunks.push(String(chunk))
      wake()
    }
  })().catch(() => undefined)
  t.teardown(async () => {
    body.destroy()
    await done
  })
  const text = () => chunks.join('')
  const until = async (expected: RegExp) => {
    while (!expected.test(text())) await new Promise<void>((resolve) => (wake = resolve))
  }
  return { status: statusCode, headers, until, done, text }
}

t.test('databases made, written to and deleted', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/a')
  await call('PUT', '/_replicator')
  const first = await call('GET', '/_db_updates')
  t.match(first.headers, { 'content-type': 'application/json', etag: /^"[\w-]+"$/ })
  t.strictSame(
    rowsOf(first.json),
    ['_users created', 'a created', '_replicator created'],
    'system databases too',
  )
  const { last_seq } = first.json as { last_seq: string }
  const etag = String(first.headers.etag)
  t.equal((await call('GET', '/_db_updates', { headers: { 'if-none-match': etag } })).status, 304)

  await call('PUT', '/a/_local/l', { body: '{}' })
  await call('PUT', '/a/doc', { body: '{}' })
  const waited = await call('GET', `/_db_updates?feed=longpoll&since=${last_seq}`)
  t.strictSame(rowsOf(waited.json), ['a updated'])
  await call('DELETE', '/a')
  const whole = ['_users created', 'a created', '_replicator created', 'a updated', 'a deleted']
  t.strictSame(rowsOf((await call('GET', '/_db_updates')).json), whole)
  const head = await call('HEAD', '/_db_updates')
  t.strictSame([head.status, head.text], [200, ''])
  t.strictSame(rowsOf((await call('GET', '/_db_updates?descending=true&limit=1')).json), ['a deleted'])
})

t.test('updates outlast the server, and what was written just before its end is told', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/a')
  await call('PUT', '/a/doc', { body: '{}' })
  await server.close()
  const again = await startTestServer(t, { dataDir: server.dataDir })
  t.strictSame(rowsOf((await connect(t, again)('GET', '/_db_updates')).json), [
    '_users created',
    'a created',
    'a updated',
  ])
})

t.test('a continuous feed and an event stream', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  const lines = await follow(t, `${server.url}/_db_updates?feed=continuous&since=now&heartbeat=50`)
  const events = await follow(t, `${server.url}/_db_updates?feed=eventsource&since=now`)
  t.match(lines.headers, { 'x-accel-buffering': 'no', 'cache-control': 'must-revalidate, no-transform' })
  t.match(events.headers, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache, no-transform' })
  await lines.until(/^\n/)
  await call('PUT', '/a')
  await lines.until(/\{"db_name":"a","type":"created","seq":"2-[\w-]+"\}\n/)
  await events.until(/data: \{"db_name":"a","type":"created","seq":"(2-[\w-]+)"\}\nid: "\1"\n\n/)
  await call('POST', '/a/_bulk_docs', { json: { docs: [{}, {}] } })
  await lines.until(/\{"db_name":"a","type":"updated","seq":"3-[\w-]+"\}\n/)
  await server.close()
  await lines.done
  t.match(lines.text(), /\{"last_seq":"3-[\w-]+"\}\n$/, 'the end of the server is an end in order')
})

t.test('a feed ends when its reader is no admin any more', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  const feed = await follow(t, `${server.url}/_db_updates?feed=continuous&since=now&heartbeat=60000`)
  await call('PUT', '/_node/_local/_config/admins/s', { body: '"s"' })
  await feed.done
  t.match(feed.text(), /^\{"last_seq":"1-[\w-]+"\}\n$/)
  t.match(await call('GET', '/_db_updates'), {
    status: 401,
    json: { error: 'unauthorized', reason: 'You are not a server admin.' },
  })
  t.equal((await call('GET', '/_db_updates', { auth: 's:s' })).status, 200)
})

t.test('what is refused', async (t) => {
  const call = connect(t, await startTestServer(t))
  const cases: [query: string, reason: string][] = [
    ['limit=x', 'invalid_integer'],
    ['heartbeat=-1', 'invalid_integer'],
    ['timeout=1.0', 'invalid_integer'],
    ['feed=other', 'Supported `feed` types: normal, continuous, longpoll, eventsource'],
    ['since=rubbish', "Malformed sequence supplied in 'since' parameter."],
  ]
  for (const [query, reason] of cases) {
    const { status, json } = await call('GET', `/_db_updates?${query}`)
    t.strictSame([status, json], [400, { error: 'bad_request', reason }], query)
  }
})
