/** Large bodies and lists of many documents in one call; protocol.md 4.1 to 4.3, 8. The rest is in test/surface. */
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { type Answer, connect } from './client.ts'

t.test('bulk calls', async (t) => {
  async function start(t: Test) {
    const call = connect(t, await startTestServer(t))
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

/** Lists of documents; protocol.md 8. */
t.test('lists', async (t) => {
  /** A database of `0` to `3`, a design document, a `_local` one, and `gone`, which was deleted. */
  async function start(t: Test) {
    const call = connect(t, await startTestServer(t))
    await call('PUT', '/db')
    const docs = ['0', '1', '2', '3', '_design/d', '_local/l'].map((_id) => ({ _id }))
    await call('POST', '/db/_bulk_docs', { json: { docs: [...docs, { _id: 'gone', _deleted: true }] } })
    return call
  }

  function ids({ json }: Answer): unknown[] {
    return (json as { rows: { key: unknown }[] }).rows.map(({ key }) => key)
  }

  t.test('parameters of the query', async (t) => {
    const call = await start(t)
    const cases: [query: string, keys: string[], envelope?: object][] = [
      ['', ['0', '1', '2', '3', '_design/d'], { total_rows: 5, offset: 0 }],
      ['startkey="2"', ['2', '3', '_design/d'], { total_rows: 5, offset: 2 }],
      ['start_key="1"&end_key="2"', ['1', '2']],
      ['startkey="1"&endkey="2"&inclusive_end=false', ['1']],
      ['descending=true&startkey="2"&endkey="1"', ['2', '1']],
      ['startkey="3"&endkey="1"', []],
      ['key="1"', ['1']],
      ['key="none"', []],
      ['limit=2&skip=1', ['1', '2'], { offset: 1 }],
      ['limit=0', []],
      ['startkey=1', ['0', '1', '2', '3', '_design/d']],
      ['endkey={}', []],
      ['key=1', []],
      ['keys=["3","none","gone","3"]', ['3', 'none', 'gone', '3'], { offset: null }],
      ['keys=[]', []],
      ['limit=1&limit=3', ['0', '1', '2']],
      [
        'stale=ok&update=false&sorted=true&unknown=1&r=1&reduce=false&group=false&group_level=0&startkey_docid=2&endkey_docid=1',
        ['0', '1', '2', '3', '_design/d'],
      ],
    ]
    for (const [query, keys, envelope = {}] of cases) {
      const answer = await call('GET', `/db/_all_docs?${encodeURI(query)}`)
      t.equal(answer.status, 200, query)
      t.strictSame(ids(answer), keys, query)
      t.match(answer.json, envelope)
    }
  })

  t.test('rows', async (t) => {
    const call = await start(t)
    const rev = /^1-[0-9a-f]{32}$/
    const plain = await call('GET', '/db/_all_docs?key="1"')
    t.match((plain.json as { rows: unknown[] }).rows[0], { id: '1', key: '1', value: { rev } })
    t.match(plain.text, /^\{"total_rows":5,"offset":1,"rows":\[\r\n\{.*\}\r\n\]\}\n$/)
    t.equal(plain.headers.etag, undefined)
    const keyed = await call('GET', '/db/_all_docs?keys=["gone","none"]&include_docs=true')
    t.match((keyed.json as { rows: unknown[] }).rows, [
      { id: 'gone', key: 'gone', value: { rev, deleted: true }, doc: null },
      { key: 'none', error: 'not_found' },
    ])
    t.match((await call('GET', '/db/_all_docs?include_docs=TRUE&limit=1')).json, {
      rows: [{ doc: { _id: '0' } }],
    })
    t.match((await call('GET', '/db/_all_docs?update_seq=true')).json, { update_seq: /^\d+-/ })
    const head = await call('HEAD', '/db/_all_docs')
    t.strictSame([head.status, head.text], [200, ''])
  })

  t.test('POST accepts the same in its body', async (t) => {
    const call = await start(t)
    const post = (json: unknown, query = '') => call('POST', `/db/_all_docs${query}`, { json })
    t.strictSame(ids(await post({ keys: ['3', '1'] })), ['3', '1'])
    t.strictSame(ids(await post({ keys: ['3', '1'] }, '?descending=true')), ['1', '3'])
    t.strictSame(ids(await post({})), ['0', '1', '2', '3', '_design/d'])
    t.strictSame(ids(await post({ keys: null, limit: 1 })), ['0'])
    t.strictSame(ids(await post({ start_key: '1\u0000', limit: 1 })), ['2'])
    t.strictSame(ids(await post({ limit: 3 }, '?limit=1')), ['0'], 'the address wins')
    t.match((await post({ keys: ['1'], include_docs: true, deleted: 'ok' }, '?')).json, {
      rows: [{ doc: { _id: '1' } }],
    })
    t.match(await post({ keys: 1 }), {
      status: 400,
      json: { error: 'bad_request', reason: '`keys` body member must be an array.' },
    })
    t.strictSame(ids(await post({ startkey: 1, endkey: '1', reduce: false, group: false })), ['0', '1'])
    t.strictSame(ids(await post({ key: null })), [])
    const refused: [body: object, error: string, reason: string][] = [
      [{ queries: [] }, 'bad_request', 'The `queries` parameter is no longer supported at this endpoint'],
      [{ reduce: true }, 'query_parse_error', 'Reduce is invalid for map-only views.'],
      [{ group_level: 1 }, 'query_parse_error', 'Invalid use of grouping on a map view.'],
      [{ limit: 'x' }, 'query_parse_error', 'Invalid value for integer: "x"'],
      [{ skip: -1 }, 'query_parse_error', 'Invalid value for positive integer: -1'],
      [{ descending: 1 }, 'query_parse_error', 'Invalid boolean parameter: 1'],
    ]
    for (const [body, error, reason] of refused) {
      const { status, json } = await post(body)
      t.strictSame([status, json], [400, { error, reason }])
    }
    t.match(await post([]), { status: 400, json: { reason: 'Request body must be a JSON object' } })
    t.equal((await call('POST', '/db/_all_docs', { body: '{}' })).status, 415)
  })

  t.test('refusals', async (t) => {
    const call = await start(t)
    const cases: [query: string, error: string, reason: string][] = [
      ['limit=x', 'query_parse_error', 'Invalid value for integer: "x"'],
      ['skip=-1', 'query_parse_error', 'Invalid value for positive integer: "-1"'],
      ['descending=yes', 'query_parse_error', 'Invalid boolean parameter: "yes"'],
      ['include_docs=', 'query_parse_error', 'Invalid boolean parameter: ""'],
      ['reduce=true', 'query_parse_error', 'Reduce is invalid for map-only views.'],
      ['group=true', 'query_parse_error', 'Invalid use of grouping on a map view.'],
      ['group_level=1', 'query_parse_error', 'Invalid use of grouping on a map view.'],
      ['group=yes', 'query_parse_error', 'Invalid boolean parameter: "yes"'],
      ['startkey=a', 'bad_request', 'invalid UTF-8 JSON'],
      ['keys={}', 'bad_request', '`keys` parameter must be an array.'],
      [
        'keys=["1"]&key="1"',
        'query_parse_error',
        '`keys` is incompatible with `key`, `start_key` and `end_key`',
      ],
    ]
    for (const [query, error, reason] of cases) {
      const answer = await call('GET', `/db/_all_docs?${encodeURI(query)}`)
      t.strictSame([answer.status, answer.json], [400, { error, reason }], query)
    }
  })

  t.test('_design_docs and _local_docs', async (t) => {
    const call = await start(t)
    const design = await call('GET', '/db/_design_docs')
    t.match(design.json, { total_rows: 1, rows: [{ id: '_design/d', key: '_design/d' }] })
    const local = await call('GET', '/db/_local_docs?include_docs=true')
    t.match(local.json, {
      total_rows: null,
      offset: null,
      rows: [{ id: '_local/l', value: { rev: '0-1' }, doc: {} }],
    })
    t.strictSame(ids(await call('POST', '/db/_design_docs', { json: { keys: ['_design/d'] } })), [
      '_design/d',
    ])
    t.strictSame(ids(await call('POST', '/db/_local_docs', { json: {} })), ['_local/l'])
  })

  t.test('several queries in one body', async (t) => {
    const call = await start(t)
    const post = (path: string, json: unknown) => call('POST', `/db/${path}`, { json })
    const three = await post('_all_docs/queries', {
      queries: [{ keys: ['3', 'none'] }, { startkey: '1', endkey: '2' }, { limit: 1, update_seq: true }],
    })
    t.equal(three.status, 200)
    const { results } = three.json as { results: { rows: { key: string }[] }[] }
    t.strictSame(
      results.map(({ rows }) => rows.map(({ key }) => key)),
      [['3', 'none'], ['1', '2'], ['0']],
    )
    t.match(results, [{ total_rows: 5, offset: null }, { total_rows: 5, offset: 1 }, { update_seq: /^\d+-/ }])
    t.match(three.text, /^\{"results":\[\r\n\{"total_rows":5,"offset":null,"rows":\[\r\n/)
    t.match(three.text, /\r\n\]\},\r\n\{"total_rows":5,"offset":1,/)
    t.ok(three.text.endsWith('\r\n]}\r\n]}\n'))
    t.equal((await post('_all_docs/queries', { queries: [] })).text, '{"results":[\r\n\r\n]}\n')
    t.match((await post('_all_docs/queries?limit=1', { queries: [{}, { limit: 2 }] })).json, {
      results: [{ rows: { length: 1 } }, { rows: { length: 2 } }],
    })
    t.match((await post('_design_docs/queries', { queries: [{ include_docs: true }, { limit: 0 }] })).json, {
      results: [{ total_rows: 1, rows: [{ doc: { _id: '_design/d' } }] }, { rows: [] }],
    })
    t.match((await post('_local_docs/queries', { queries: [{}] })).json, {
      results: [{ total_rows: null, rows: [{ id: '_local/l' }] }],
    })
    t.equal((await call('POST', '/db/_all_docs/queries', { body: '{"queries":[]}' })).status, 200, 'any type')
  })

  t.test('one invalid query refuses all', async (t) => {
    const call = await start(t)
    const cases: [body: unknown, reason: string][] = [
      [{}, 'POST body must include `queries` parameter.'],
      [{ queries: {} }, '`queries` member must be an array.'],
      [{ queries: [{}, 1] }, '`queries` member must be an array of objects.'],
      [{ queries: [{}, { keys: 1 }] }, '`keys` member must be an array.'],
      [{ queries: [{ limit: -1 }] }, 'Invalid value for positive integer: -1'],
      [
        { queries: [{}, { keys: [], key: 'x' }] },
        '`keys` is incompatible with `key`, `start_key` and `end_key`',
      ],
      [[], 'Request body must be a JSON object'],
    ]
    for (const [json, reason] of cases) {
      t.match(await call('POST', '/db/_all_docs/queries', { json }), { status: 400, json: { reason } })
    }
    const get = await call('GET', '/db/_all_docs/queries')
    t.strictSame([get.status, get.headers.allow], [405, 'POST'])
  })
})
