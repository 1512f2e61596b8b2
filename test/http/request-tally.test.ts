import t from 'tap'
import { RequestTally } from '../../src/http/plugins/request-metrics.ts'

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

t.test('durations are counted by class and method, but for those that say nothing', async (t) => {
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

t.test('a feed is open while it is sent, however that ends', async (t) => {
  const tally = new RequestTally()
  await tally.whileOpen('continuous', async () => {
    t.match(tally.counts().openFeeds, { continuous: 1, longpoll: 0 })
  })
  await t.rejects(tally.whileOpen('continuous', () => Promise.reject(new Error('broken'))))
  t.match(tally.counts().openFeeds, { normal: 0, longpoll: 0, continuous: 0, eventsource: 0 })
})
