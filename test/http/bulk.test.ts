/** Large bodies and lists of many documents in one call; protocol.md 4.1 to 4.3, 8. The rest is in test/surface. */
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { sharedTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'

t.test('bulk calls', async (t) => {
  const startShared = sharedTestServer(t)
  async function start(t: Test) {
    const call = connect(t, await startShared())
    await call('PUT', '/db')
    return { call }
  }

  t.test('a bulk body may be compressed, and large', async (t) => {
    const { call } = await start(t)
    const docs = Array.from({ length: 300 }, (_, i) => ({ _id: `d${i}`, text: 'x'.repeat(40_000) }))
    const body = gzipSync(JSON.stringify({ docs }))
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
    const answer = await call('POST', '/db/_bulk_docs', { body, headers })
    t.equal(answer.status, 201)
    t.equal((answer.json as { ok: true }[]).filter(({ ok }) => ok).length, 300)
    t.match((await call('GET', '/db')).json, { doc_count: 300 })
  })

  t.test('a short answer has a length', async (t) => {
    const { call } = await start(t)
    const headers = { 'content-type': 'application/json', 'accept-encoding': 'gzip' }
    const docs = [{ _id: 'short' }]
    const written = await call('POST', '/db/_bulk_docs', { body: JSON.stringify({ docs }), headers })
    const read = await call('POST', '/db/_bulk_get', { body: '{"docs":[{"id":"short"}]}', headers })
    for (const { headers, text } of [written, read]) {
      t.equal(Number(headers['content-length']), text.length)
      t.notOk(headers['content-encoding'])
    }
  })

  t.test('values that are nested too deep are refused', async (t) => {
    const { call } = await start(t)
    const deep = '['.repeat(20_000) + ']'.repeat(20_000)
    const headers = { 'content-type': 'application/json' }
    const refused = { status: 400, json: { error: 'bad_request', reason: /nested deeper/ } }
    for (const [name, body] of [
      ['_bulk_get', `{"docs":[{"id":${deep}}]}`],
      ['_bulk_get', `{"docs":[{"id":"x","rev":${deep}}]}`],
      ['_all_docs', `{"keys":[${deep}]}`],
      ['_purge', `{"x":${deep}}`],
      ['_changes', `{"selector":${deep}}`],
    ] as const) {
      t.match(await call('POST', `/db/${name}`, { body, headers }), refused, name)
    }
    t.match(await call('GET', `/db/_all_docs?key=${deep}`), refused)
    // Where only revisions may stand, the first list is refused before the next is looked at.
    const wrong = { status: 400, json: { error: 'bad_request', reason: 'Invalid rev format' } }
    t.match(await call('POST', '/db/_revs_diff', { body: `{"x":${deep}}`, headers }), wrong)
  })

  t.test('long gzipped lists cost little, and others are served meanwhile', async (t) => {
    const { call } = await start(t)
    const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' }
    const send = (path: string, text: string) =>
      call('POST', `/db/${path}`, { body: gzipSync(text), headers })
    const many = (unit: string, count: number) => `[${`${unit},`.repeat(count)}${unit}]`
    const cases: [path: string, text: string, status: number, error: string][] = [
      ['_revs_diff', `{"a":${many('{}', 1_000_000)}}`, 400, 'bad_request'],
      ['_missing_revs', `{"a":${many('"1-a"', 10_000)}}`, 413, 'too_large'],
      ['_bulk_get', `{"docs":${many('{}', 10_000)}}`, 413, 'max_bulk_get_count_exceeded'],
      ['_bulk_docs', `{"docs":${many('{}', 10_000)}}`, 413, 'max_bulk_docs_count_exceeded'],
      ['_all_docs', `{"keys":${many('{}', 200_000)}}`, 413, 'too_large'],
      ['_all_docs/queries', `{"queries":${many('{}', 10_000)}}`, 413, 'too_large'],
      ['_changes?filter=_doc_ids', `{"doc_ids":${many('"a"', 50_000)}}`, 413, 'too_large'],
    ]
    for (const [path, text, status, error] of cases) {
      const [refused, saved] = await Promise.all([
        send(path, text),
        call('PUT', `/db/${encodeURIComponent(`beside ${path}`)}`, { json: {} }),
      ])
      t.match([refused.status, refused.json, saved.status], [status, { error }, 201], path)
    }
    const fitting = `{"docs":${many('{"id":"_all_docs"}', 9_999)}}`
    t.equal(((await send('_bulk_get', fitting)).json as { results: unknown[] }).results.length, 10_000)
  })
})
