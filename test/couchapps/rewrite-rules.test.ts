import t from 'tap'
import { readRewrite } from '../../src/couchapps/rewrite-function.ts'
import { type RewriteRequest, rewriteByRules } from '../../src/couchapps/rewrite-rules.ts'

const BASE = ['db', '_design', 'app']

function request(path: string, parts: Partial<RewriteRequest> = {}): RewriteRequest {
  const segments = path.split('/').filter((segment) => segment !== '')
  return { method: 'GET', path: segments, query: [], base: BASE, isSecure: true, ...parts }
}

t.test('the first rule that matches gives the address', async (t) => {
  const rules = [
    5,
    { from: '/a', to: '/_show/x' },
    { from: '/b/:id', to: '_show/doc/:id' },
    { from: '/post', to: '_update/x', method: 'POST' },
    { from: '/any', to: '_show/any', method: '*' },
    { from: '/get', to: '_show/get', method: 'GET' },
    { from: '/key/:k', to: '_view/all', query: { key: ':k' } },
    { from: '/range/:a/:b', to: '_view/all', query: { startkey: [':a', 1], endkey: [':b', {}] } },
    {
      from: '/int/:n/:m',
      to: '_view/all',
      query: { limit: ':n', skip: ':m' },
      formats: { n: 'int', m: 'int' },
    },
    { from: '/bool/:b', to: '_view/all', query: { descending: ':b' }, formats: { b: 'bool' } },
    { from: '/fixed', to: '_view/all', query: { limit: '1', x: '*', n: 5 } },
    { from: '/db/*', to: '../../*' },
    { from: '/star/*', to: 'a/*/b' },
    { from: '/none/:x', to: '_show/:y' },
    { from: '/dots', to: './x/../_show/y' },
    { from: '/inner/*/x', to: '_show/z' },
  ]
  const cases: [path: string, expected: string, parts?: Partial<RewriteRequest>][] = [
    ['/a', '/_show/x'],
    ['/b/d1', '/_show/doc/d1?id=d1'],
    ['/b/ä b*', '/_show/doc/%C3%A4+b%2A?id=%C3%A4+b%2A'],
    ['/post', '/_update/x', { method: 'POST' }],
    ['/any', '/_show/any', { method: 'DELETE' }],
    ['/get', '/_show/get', { method: 'HEAD' }],
    ['/key/1', '/_view/all?key=%221%22&k=1'],
    ['/range/x/y', '/_view/all?startkey=%5B%22x%22%2C1%5D&endkey=%5B%22y%22%2C%7B%7D%5D&a=x&b=y'],
    ['/int/3/x', '/_view/all?limit=3&skip=x&n=3&m=x'],
    ['/bool/TRUE', '/_view/all?descending=true&b=TRUE'],
    ['/fixed', '/_view/all?limit=1&x=%2A&n=5'],
    [
      '/fixed',
      '/_view/all?limit=1&x=%2A&n=5&a=b',
      {
        query: [
          ['limit', '9'],
          ['a', 'b'],
        ],
      },
    ],
    ['/a', '/_show/x?key=%5B1%5D', { query: [['key', '[1]']] }],
    ['/db/d/e', '/db/d/e'],
    ['/db', '/db'],
    ['/star/x/y', '/a/x/y'],
    ['/none/1', '/_show/undefined?x=1'],
    ['/dots', '/_show/y'],
    ['/inner/1/x', '/_show/z'],
  ]
  for (const [path, expected, parts] of cases) {
    const own = expected.startsWith('/db') ? expected : `/db/_design/app${expected}`
    t.equal(await rewriteByRules(rules, request(path, parts)), own, path)
  }
  for (const path of ['/x', '/b', '/b/1/2', '/post', '/inner/1/y', ''])
    await t.rejects(rewriteByRules(rules, request(path)), { code: 'not_found' }, path)
  await t.rejects(rewriteByRules(rules, request('/a', { query: [['key', '{']] })), { code: 'invalid_json' })
})

t.test('rules without from match everything, and a bad rule spoils the list', async (t) => {
  t.equal(await rewriteByRules([{ to: '_show/x' }], request('/a/b')), '/db/_design/app/_show/x')
  t.equal(await rewriteByRules([{ from: '', to: '_show/x' }], request('')), '/db/_design/app/_show/x')
  const good = { from: '/a', to: '_show/x' }
  for (const [bad, code] of [
    [{ from: '/b' }, 'rewrite_error'],
    [{ from: 5, to: 'x' }, 'rewrite_error'],
    [{ to: 5 }, 'rewrite_error'],
    [{ to: '../../../_all_dbs' }, 'insecure_rewrite_rule'],
  ] as const)
    await t.rejects(rewriteByRules([good, bad], request('/a')), { code }, JSON.stringify(bad))
  for (const to of ['/:a/:b/:c/_all_dbs', '../:a/:b/_config'])
    await t.rejects(
      rewriteByRules([{ from: '/:a/:b/:c', to }], request('/../../..')),
      { code: 'insecure_rewrite_rule' },
      to,
    )
  const up = [{ from: '/a', to: '../../../_all_dbs' }]
  t.equal(await rewriteByRules(up, request('/a', { isSecure: false })), '/_all_dbs')
  await t.rejects(rewriteByRules(new Array(10_001).fill(good), request('/a')), { code: 'rewrite_error' })
})

t.test('the result of a function', async (t) => {
  const asked = request('/a', { query: [['z', '1 2']] })
  t.same(readRewrite({ path: '_show/x' }, asked), {
    type: 'request',
    address: '/db/_design/app/_show/x?z=1+2',
  })
  t.same(
    readRewrite({ path: '/../../d', query: {}, method: 'PUT', body: 'b', headers: { 'X-A': 'b' } }, asked),
    { type: 'request', address: '/db/d', method: 'PUT', body: 'b', headers: { 'X-A': 'b' } },
  )
  t.match(readRewrite({ code: 404, body: 'no' }, asked), { type: 'answer', status: 404, body: 'no' })
  t.match(readRewrite({ code: 200 }, asked), { body: null })
  for (const path of ['../../../_session', '../../../../db/x'])
    t.throws(() => readRewrite({ path }, asked), { code: 'insecure_rewrite_rule' }, path)
  t.match(readRewrite({ path: '../../../_all_dbs', query: {} }, { ...asked, isSecure: false }), {
    address: '/_all_dbs',
  })
  for (const [target, reason] of [
    [5, 'bad rewrite'],
    [[], 'bad rewrite'],
    [{}, 'Rewrite result must produce a new path.'],
    [{ path: 5 }, 'bad path'],
    [{ path: 'x', method: 5 }, 'bad method'],
    [{ path: 'x', method: 'FOO' }, 'bad method'],
    [{ path: 'x', body: {} }, 'bad body'],
    [{ path: 'x', headers: { a: 5 } }, 'bad headers'],
    [{ path: 'x', query: [] }, 'bad query'],
    [{ code: '200' }, 'bad code'],
    [{ code: 600 }, 'bad code'],
  ] as const)
    t.throws(() => readRewrite(target, asked), { code: 'rewrite_error', reason }, JSON.stringify(target))
  t.throws(() => readRewrite({ path: 'x', headers: { a: 'b\nc' } }, asked), {
    code: 'external_response_error',
  })
})
