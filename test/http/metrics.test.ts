/** Metrics and health; protocol.md 4.4, 15. */
import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { request as send } from 'node:http'
import { connect as connectSocket, type Socket } from 'node:net'
import { join } from 'node:path'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { RequestTally } from '../../src/http/plugins/request-metrics.ts'
import { gatherFacts } from '../../src/metrics/health.ts'
import { collector, type Metric } from '../../src/metrics/metric.ts'
import { SampleFile } from '../../src/metrics/sampler.ts'
import { COLUMNS, SAMPLE_BYTES, type Sampled } from '../../src/metrics/samples.ts'
import { type ReadFamily, readPrometheus, sampleOf } from '../helpers/prometheus-text.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.setTimeout(900_000)

t.test('metrics', async (t) => {
  const PATH = '/_node/_local/_prometheus'

  type Families = ReadonlyMap<string, ReadFamily>

  interface Asked {
    request(method: string, path: string): Promise<{ readonly text: string }>
  }

  async function scrape(server: Asked): Promise<Families> {
    return readPrometheus((await server.request('GET', PATH)).text)
  }

  /** Scrapes until something holds. */
  async function scrapeUntil(server: Asked, holds: (families: Families) => boolean): Promise<Families> {
    for (;;) {
      const families = await scrape(server)
      if (holds(families)) return families
      await turn()
    }
  }

  /** Requests that are over, those of scrapes left out. */
  function requests(families: Families, labels: Record<string, string> = {}): number {
    const { samples = [] } = families.get('settee_http_requests_total') ?? {}
    return samples
      .filter(({ labels: { route } }) => route !== '/_node/:node/_prometheus')
      .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
      .reduce((sum, { value }) => sum + value, 0)
  }

  /** Whether nothing is under way but the scrape itself. */
  function isAlone(families: Families): boolean {
    return sampleOf(families, 'settee_http_requests_under_way') === 1
  }

  async function socketTo(t: Test, { url }: { readonly url: string }): Promise<Socket> {
    const socket = connectSocket(Number(new URL(url).port), '127.0.0.1')
    t.teardown(() => socket.destroy())
    socket.on('error', () => undefined)
    await once(socket, 'connect')
    return socket
  }

  t.test('the text, and its changing values', async (t) => {
    const server = await startTestServer(t)
    const answer = await server.request('GET', PATH)
    t.equal(answer.status, 200)
    t.equal(answer.headers['content-type'], 'text/plain; version=0.0.4; charset=utf-8')
    const before = readPrometheus(answer.text)
    await server.request('PUT', '/db')
    await server.request('PUT', '/db/doc', { body: {} })
    await server.request('GET', '/db/doc')
    await server.request('GET', '/db/doc')
    await server.request('GET', '/db/missing')
    await server.request('POST', '/db/_bulk_docs', {
      body: { docs: [{ _id: 'a' }, { _id: 'b' }, { _id: 'c' }] },
    })
    const after = await scrapeUntil(server, (families) => requests(families) === 6 && isAlone(families))
    const moved = (name: string, labels?: Record<string, string>) =>
      (sampleOf(after, name, labels) ?? 0) - (sampleOf(before, name, labels) ?? 0)
    t.equal(requests(after, { route: '/:db/:docid', method: 'GET', status: '200' }), 2)
    t.equal(requests(after, { route: '/:db/:docid', method: 'GET', status: '404' }), 1)
    t.equal(moved('couchdb_httpd_status_codes', { code: '404' }), 1)
    t.equal(moved('couchdb_httpd_request_methods', { method: 'PUT' }), 2)
    t.equal(moved('couchdb_httpd_bulk_requests_total'), 1)
    t.equal(
      sampleOf(after, 'settee_http_request_duration_seconds_count', { class: 'document', method: 'GET' }),
      3,
    )
    t.equal(moved('settee_databases'), 1)
    t.equal(moved('couchdb_open_databases'), 1)
    t.equal(moved('couchdb_document_writes_total'), 4)
    t.equal(moved('settee_commit_updates_sum'), 4)
    t.ok(moved('couchdb_commits_total') >= 2)
    t.ok(moved('settee_commit_writes_sum') >= 4)
    t.ok(moved('settee_http_received_bytes_total') > 0)
    t.ok(moved('settee_http_sent_bytes_total') > 0)
    t.ok(moved('settee_thread_busy_seconds_total', { thread: 'http' }) > 0)
    t.equal(sampleOf(after, 'settee_database_thread_answering', { thread: 'database-1' }), 1)
    t.ok((sampleOf(after, 'settee_http_open_connections') ?? 0) >= 1)
    t.ok((sampleOf(after, 'process_resident_memory_bytes') ?? 0) > 1e7)
    t.ok((sampleOf(after, 'settee_data_free_bytes') ?? 0) > 0)
  })

  t.test('every request is counted once, however it ends', async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/db')
    const { headers } = await server.request('PUT', '/db/doc', { body: { text: 'x'.repeat(5000) } })
    t.ok(headers.etag)
    const calls: [method: string, path: string, sent?: Record<string, string>][] = [
      ['GET', '/db/doc'],
      ['GET', '/db/doc', { 'accept-encoding': 'gzip' }],
      ['GET', '/db/doc', { prefer: 'return=minimal' }],
      ['GET', '/db/doc', { 'if-none-match': String(headers.etag) }],
      ['HEAD', '/db/doc'],
      ['HEAD', '/db/_changes'],
      ['HEAD', '/db/_all_docs'],
      ['GET', '/db/_all_docs'],
      ['GET', '/db/_changes'],
      ['GET', '/db/_changes?feed=longpoll&timeout=1&since=now'],
      ['GET', '/nowhere'],
      ['PATCH', '/db/doc'],
      ['PROPFIND', '/db/doc'],
      ['GET', '/%zz'],
      ['GET', `/db/${'x'.repeat(60_000)}`],
      ['PUT', '/db/doc/att'],
      ['OPTIONS', '/'],
    ]
    for (const [method, path, sent = {}] of calls) await server.request(method, path, { headers: sent })
    const refused = await sendTooMuch(server)
    const broken = await leaveWhileSending(t, server)
    const leaving = await leaveWhileWaiting(t, server)
    const expected = 2 + calls.length + refused + broken + leaving
    const after = await scrapeUntil(server, (families) => requests(families) >= expected && isAlone(families))
    t.equal(requests(after), expected)
    t.equal(requests(after, { method: 'HEAD' }), 3)
    t.equal(requests(after, { method: 'OTHER' }), 1)
    t.equal(requests(after, { status: '413' }), 1)
    t.equal(requests(after, { status: 'aborted' }), 1, 'the upload that broke off')
    t.equal(sampleOf(after, 'settee_http_broken_answers_total'), 1 + leaving)
    t.match(await server.request('GET', '/_node/_local/_stats/couchdb/httpd/requests/value'), { status: 200 })
  })

  /** A body that is refused while it is still being sent. @returns how many requests that takes */
  async function sendTooMuch(server: TestServer): Promise<number> {
    await server.request('PUT', '/_node/_local/_config/chttpd/max_http_request_size', { body: '"1000"' })
    const upload = send(`${server.url}/db/_bulk_docs`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'content-length': '100000' },
    })
    upload.on('error', () => undefined)
    upload.write('x'.repeat(2000))
    const [answer] = await once(upload, 'response')
    answer.resume()
    upload.end('x'.repeat(98_000))
    await once(answer, 'end')
    return 2
  }

  /** A client that breaks off its upload. @returns how many requests that is */
  async function leaveWhileSending(t: Test, server: TestServer): Promise<number> {
    const socket = await socketTo(t, server)
    socket.write('PUT /db/other HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"a":')
    await scrapeUntil(server, (families) => sampleOf(families, 'settee_http_requests_under_way') === 2)
    socket.destroy()
    await scrapeUntil(server, (families) => requests(families, { status: 'aborted' }) === 1)
    return 1
  }

  /** A client that leaves a feed, and two requests that wait behind it. @returns how many these are */
  async function leaveWhileWaiting(t: Test, server: TestServer): Promise<number> {
    const socket = await socketTo(t, server)
    const head = 'HTTP/1.1\r\nHost: localhost\r\n\r\n'
    socket.write(`GET /db/_changes?feed=continuous ${head}GET /db/doc ${head}GET / ${head}`)
    await scrapeUntil(server, (families) => sampleOf(families, 'settee_http_requests_under_way') === 4)
    await scrapeUntil(
      server,
      (families) => sampleOf(families, 'settee_open_feeds', { feed: 'continuous' }) === 1,
    )
    socket.destroy()
    return 3
  }

  t.test('a feed counts while it is open, and its time does not', async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/db')
    for (const feed of ['continuous', 'longpoll', 'eventsource']) {
      const asked = send(`${server.url}/db/_changes?feed=${feed}&since=now`)
      asked.on('error', () => undefined)
      asked.end()
      await once(asked, 'response')
      const open = await scrapeUntil(
        server,
        (families) => sampleOf(families, 'settee_open_feeds', { feed }) === 1,
      )
      t.equal(sampleOf(open, 'couchdb_httpd_clients_requesting_changes'), 1, feed)
      asked.destroy()
      await scrapeUntil(server, (families) => sampleOf(families, 'settee_open_feeds', { feed }) === 0)
    }
    const after = await scrapeUntil(
      server,
      (families) => requests(families, { route: '/:db/_changes' }) === 3,
    )
    t.equal(sampleOf(after, 'settee_http_request_duration_seconds_count', { class: 'changes' }), undefined)
  })

  t.test('a scrape does not wait for a busy thread', async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/db')
    await server.request('PUT', '/db/first', { body: {} }) // its thread runs
    const docs = Array.from({ length: 3000 }, (_, n) => ({ _id: `d${n}`, text: 'x'.repeat(1000) }))
    const bulk = server.request('POST', '/db/_bulk_docs', { body: { docs } })
    const during = await scrapeUntil(
      server,
      (families) => (sampleOf(families, 'settee_database_thread_calls', { thread: 'database-2' }) ?? 0) > 0,
    )
    t.equal(sampleOf(during, 'settee_database_thread_answering', { thread: 'database-2' }), 1)
    t.equal((await bulk).status, 201)
    const after = await scrape(server)
    // One is the design document of `_users`.
    t.equal(sampleOf(after, 'couchdb_document_writes_total'), 3002)
  })

  t.test('nothing that a client sends becomes a label', async (t) => {
    const server = await startTestServer(t)
    const mark = 'zzmark'
    await server.request('PUT', `/${mark}`)
    await server.request('PUT', `/${mark}/${mark}`, { body: {} })
    for (const path of [
      `/${mark}/_design/${mark}/_view/${mark}`,
      `/${mark}/x/${mark}`,
      `/_${mark}`,
      `/%zz${mark}`,
    ]) {
      for (const method of ['GET', 'POST', 'PROPFIND']) {
        await server.request(method, path, {
          headers: { 'x-http-method-override': mark },
          auth: `${mark}:${mark}`,
        })
      }
    }
    await server.request('GET', `/${mark}/_changes?feed=${mark}`)
    t.notMatch((await server.request('GET', PATH)).text, mark)
  })

  t.test('invalid requests are counted apart', async (t) => {
    const server = await startTestServer(t)
    const socket = await socketTo(t, server)
    socket.write('this is not HTTP\r\n\r\n')
    await once(socket, 'data')
    const after = await scrape(server)
    t.equal(sampleOf(after, 'settee_http_invalid_requests_total'), 1)
    t.equal(requests(after), 0)
  })

  t.test('valid and invalid credentials', async (t) => {
    const server = await startMemoryServer(t)
    const call = connect(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    for (const auth of ['s:s', 's:s', 's:wrong']) await call('GET', '/', { auth })
    const families = readPrometheus((await call('GET', PATH, { auth: 's:s' })).text)
    t.equal(sampleOf(families, 'settee_credential_checks_total', { outcome: 'right' }), 3)
    t.equal(sampleOf(families, 'settee_credential_checks_total', { outcome: 'wrong' }), 1)
    t.equal(sampleOf(families, 'settee_credential_hashes_total'), 2)
  })

  t.test('server admins and users with the role _metrics may read them', async (t) => {
    const server = await startMemoryServer(t)
    const call = connect(t, server)
    await call('PUT', '/_config/admins/s', { body: '"s"' })
    for (const path of [
      PATH,
      '/_node/_local/_stats',
      '/_node/_local/_stats/couchdb',
      '/_node/_local/_system',
      '/_settee/samples?period=month',
    ]) {
      for (const [auth, status] of [
        [undefined, 401],
        ['o:o', 401],
        ['_metrics:_metrics', 200],
        ['s:s', 200],
      ] as const) {
        const ask = auth === undefined ? {} : { auth }
        const got = await call('GET', path, ask)
        t.equal(got.status, status, `${path} ${auth}`)
        if (status === 401)
          t.match(got.json, {
            error: 'unauthorized',
            reason: 'You are not a server admin or read-only metrics user',
          })
        const head = await call('HEAD', path, ask)
        t.equal(head.status, status)
        t.equal(head.text, '')
        t.equal(head.headers['content-type'], got.headers['content-type'])
      }
    }
    t.equal((await call('GET', '/_dbs_info', { auth: '_metrics:_metrics' })).status, 401)
    t.equal((await call('GET', '/_all_dbs', { auth: '_metrics:_metrics' })).status, 401)
  })

  t.test('the samples of earlier runs of the server', async (t) => {
    const dataDir = await temporaryFolder(t)
    const earlier = await SampleFile.open(dataDir, { warn: () => t.fail('a warning') })
    const none = Object.fromEntries(COLUMNS.map(({ name }) => [name, null])) as Sampled
    earlier.store(earlier.samples.add(Date.now() - 5 * 60_000, { ...none, saves: 2.5, memory_bytes: 1e8 }))
    await earlier.close()
    const server = await startTestServer(t, { dataDir })
    const day = await server.request('GET', '/_settee/samples')
    t.match(day.json, { period: 'day', step: 60, points: 1440, units: { saves: /second/ } })
    t.strictSame(Object.keys(day.json.mean), Object.keys(day.json.units))
    t.equal(day.json.mean.saves.length, 1440)
    t.strictSame(day.json.mean.saves.filter(Number.isFinite), [2.5])
    t.notOk('max' in day.json)
    const month = await server.request('GET', '/_settee/samples?period=month')
    t.match(month.json, { period: 'month', step: 1800, points: 1488 })
    t.equal(month.json.max.memory_bytes.length, 1488)
    t.strictSame(month.json.max.memory_bytes.filter(Number.isFinite), [1e8])
    t.match(await server.request('GET', '/_settee/samples?period=year'), {
      status: 400,
      json: { error: 'bad_request', reason: '`period` must be day or month.' },
    })
    await server.close()
    t.equal((await stat(join(dataDir, 'samples'))).size, SAMPLE_BYTES)
  })

  t.test('the tree of stats, and unknown paths', async (t) => {
    const call = connect(t, await startTestServer(t))
    const whole = (await call('GET', '/_node/_local/_stats')).json as { couchdb: { httpd: object } }
    t.match(whole, { couchdb: { httpd: { requests: { value: Number, type: 'counter', desc: String } } } })
    t.match(whole, { mango: { unindexed_queries: { type: 'counter', value: 0 } } })
    const part = await call('GET', '/_node/nonode@nohost/_stats/couchdb/httpd?flush=true')
    t.strictSame(Object.keys(part.json as object), Object.keys(whole.couchdb.httpd))
    t.match((await call('GET', '/_node/_local/_stats/couchdb/httpd_status_codes/200')).json, {
      type: 'counter',
    })
    for (const path of [
      '_stats/nothing',
      '_stats/couchdb/nothing',
      '_stats/constructor',
      '_stats/couchdb/x/y',
    ]) {
      t.match(await call('GET', `/_node/_local/${path}`), { status: 200, json: null }, path)
    }
    for (const path of ['_stats', '_stats/couchdb', '_system', '_prometheus']) {
      t.match(await call('GET', `/_node/other/${path}`), {
        status: 404,
        json: { reason: 'no such node: other' },
      })
    }
    t.match(await call('GET', '/_node/_local/_versions'), { status: 404 }, 'other paths of a node answer 404')
    const system = (await call('GET', '/_node/_local/_system')).json
    t.match(system, {
      uptime: Number,
      memory: { processes: Number, processes_used: Number, binary: Number, other: Number },
      run_queue: 0,
      message_queues: { 'database-1': 0 },
      process_count: 2,
      os_proc_count: 0,
    })
  })

  t.test('other parts of the server add theirs; a failing one hides nothing', async (t) => {
    const metric: Metric<readonly { account: string; bytes: number }[]> = {
      name: 'settee_tenant_bytes',
      type: 'gauge',
      help: 'Bytes that an account has stored.',
      labels: ['account'],
      read: (tenants) => tenants.map(({ account, bytes }) => ({ labels: { account }, value: bytes })),
    }
    const { url, lines } = await startMemoryServer(t, {}, (app) => {
      const collectors = [
        collector([metric], () => [{ account: 'anna', bytes: 7 }]),
        collector([], () => Promise.reject(new Error('no usage'))),
      ]
      Object.assign(app.services, { collectors })
    })
    const families = readPrometheus((await connect(t, { url })('GET', PATH)).text)
    t.equal(sampleOf(families, 'settee_tenant_bytes', { account: 'anna' }), 7)
    t.ok(families.has('couchdb_httpd_requests_total'))
    t.match(lines.join(''), /cannot report its metrics/)
    t.match(lines.join(''), /no usage/)
  })
})

t.test('counters of requests', async (t) => {
  t.test('requests are counted by route, method and status', async (t) => {
    const tally = new RequestTally()
    const route = tally.route('/:db/:docid')
    route.add('GET', 200, 1)
    route.add('GET', 200, 2)
    route.add('GET', 404, 1)
    tally.route('/:db/:docid').add('PUT', 201, 1)
    tally.noRoute.add('PROPFIND', 405, null)
    tally.route('/:db/_changes').add('GET', null, null)
    t.strictSame(tally.counts().requests, [
      { route: 'none', method: 'OTHER', status: 405, count: 1 },
      { route: '/:db/:docid', method: 'GET', status: 200, count: 2 },
      { route: '/:db/:docid', method: 'GET', status: 404, count: 1 },
      { route: '/:db/:docid', method: 'PUT', status: 201, count: 1 },
      { route: '/:db/_changes', method: 'GET', status: null, count: 1 },
    ])
  })

  t.test('durations are counted by class and method, except of waiting feeds', async (t) => {
    const tally = new RequestTally()
    const cases: [route: string, of: string][] = [
      ['/:db/:docid', 'document'],
      ['/:db/_design/:ddoc', 'document'],
      ['/:db/_local/:local', 'local_document'],
      ['/:db/:docid/*', 'attachment'],
      ['/:db/_design/:ddoc/*', 'attachment'],
      ['/:db/_bulk_docs', 'bulk_docs'],
      ['/:db/_bulk_get', 'bulk_get'],
      ['/:db/_revs_diff', 'revs_diff'],
      ['/:db/_all_docs/queries', 'all_docs'],
      ['/:db/_find', 'find'],
      ['/:db/_changes', 'changes'],
      ['/_db_updates', 'changes'],
      ['/:db/_design/:ddoc/_view/:view', 'view'],
      ['/:db/_security', 'database'],
      ['/:db', 'database'],
      ['/_node/:node/_config', 'server'],
      ['/', 'server'],
    ]
    for (const [route] of cases) tally.route(route).add('GET', 200, 20)
    tally.route('/:db/_changes').add('GET', 200, null)
    const counted = tally.counts().durations.map(({ class: name, method, seconds }) => {
      t.equal(method, 'GET')
      const { counts, bounds } = seconds
      const at = bounds.indexOf(0.025)
      t.equal(
        counts[at],
        counts.reduce((a, b) => a + b, 0),
        '20 ms lie in the bucket of 25',
      )
      return [name, counts[at]]
    })
    const expected = new Map<string, number>()
    for (const [, of] of cases) expected.set(of, (expected.get(of) ?? 0) + 1)
    t.strictSame(new Map(counted as [string, number][]), expected)
  })

  t.test('a feed is open while it is sent, however it ends', async (t) => {
    const tally = new RequestTally()
    await tally.whileOpen('continuous', async () => {
      t.match(tally.counts().openFeeds, { continuous: 1, longpoll: 0 })
    })
    await t.rejects(tally.whileOpen('continuous', () => Promise.reject(new Error('broken'))))
    t.match(tally.counts().openFeeds, { normal: 0, longpoll: 0, continuous: 0, eventsource: 0 })
  })
})

/** `_up`, also with `deep`. */
t.test('health', async (t) => {
  t.test('the deep check is for server admins and readers of metrics', async (t) => {
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

  t.test('a healthy server', async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/notes')
    await server.request('PUT', '/notes/a', { body: {} })
    const { status, json } = await server.request('GET', '/_up?deep=1')
    t.equal(status, 200)
    t.match(json, { status: 'ok', seeds: {} })
    const named = new Map<string, object>(json.facts.map((fact: { name: string }) => [fact.name, fact]))
    t.match(named.get('threads'), { ok: true, silent: 0, deaths: 0, last_death: null })
    t.strictSame(named.get('databases'), { name: 'databases', ok: true, count: 0, faulty: [] })
    t.strictSame(named.get('store'), { name: 'store', ok: true })
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

  t.test('a part that does not answer is reported', async (t) => {
    const good = { name: 'x', ok: true }
    const broken = async () => {
      throw new Error('no')
    }
    const silent = () => new Promise<never>(() => {})
    const facts = await gatherFacts([async () => [good], broken, silent], 10)
    t.match(facts, [good, { name: 'health', ok: false }, { name: 'health', ok: false }])
  })
})
