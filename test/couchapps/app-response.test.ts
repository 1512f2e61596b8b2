import fc from 'fast-check'
import t from 'tap'
import { readListHead, readResponse, thrownResponse } from '../../src/couchapps/app-response.ts'
import { readRewrite } from '../../src/couchapps/rewrite-function.ts'

const HTML = ['Content-Type', 'text/html; charset=utf-8']

t.test('responses of functions', async (t) => {
  const cases: [response: unknown, status: number, headers: readonly unknown[], body: string][] = [
    [{}, 200, [['Content-Type', 'application/json']], ''],
    [{ body: 'a' }, 200, [HTML], 'a'],
    [{ body: 5 }, 200, [HTML], '5'],
    [{ base64: 'aGk=' }, 200, [['Content-Type', 'application/binary']], 'hi'],
    [{ json: { a: 1 } }, 200, [['Content-Type', 'application/json']], '{"a":1}\n'],
    [{ json: null }, 200, [['Content-Type', 'application/json']], 'null\n'],
    [{ json: null, body: 'x' }, 200, [HTML], 'null\n'],
    [{ body: 'x', json: null }, 200, [['Content-Type', 'application/json']], 'null\n'],
    [{ code: '404' }, 404, [['Content-Type', 'application/json']], ''],
    [{ code: 404, stop: true, body: 'x' }, 404, [HTML], 'x'],
    [
      { headers: { 'content-type': 'text/csv', 'X-A': 1 } },
      200,
      [
        ['content-type', 'text/csv'],
        ['X-A', '1'],
      ],
      '',
    ],
    [{ headers: { 'Content-Length': '1', 'Transfer-Encoding': 'chunked' }, body: 'abc' }, 200, [HTML], 'abc'],
  ]
  for (const [response, status, headers, body] of cases) {
    const read = readResponse(response)
    t.same(
      [read.status, read.headers, Buffer.from(read.body).toString()],
      [status, headers, body],
      JSON.stringify(response),
    )
  }
  t.equal(readResponse({ body: 'x' }, 201).status, 201)
  t.same(readListHead({ code: 202, headers: { 'X-A': 'b' } }), {
    status: 202,
    headers: [
      ['Content-Type', 'application/json'],
      ['X-A', 'b'],
    ],
  })
  t.same(readListHead({ body: '', base64: '' }).headers, [['Content-Type', 'application/binary']])
  const many = Object.fromEntries(Array.from({ length: 101 }, (_, n) => [`X-${n}`, 'a']))
  for (const bad of [
    5,
    [],
    { nonsense: 1 },
    { code: '99' },
    { code: '2e2' },
    { code: 101 },
    { code: 600 },
    { body: {} },
    { headers: [] },
    { headers: { 'X-A': {} } },
    { headers: { 'X A': 'b' } },
    { headers: { 'X-A': 'b\r\nSet-Cookie: c=d' } },
    { headers: { 'X-A': '€' } },
    { headers: many },
  ])
    t.throws(() => readResponse(bad), { code: 'external_response_error' }, JSON.stringify(bad).slice(0, 50))
})

t.test('errors that functions name themselves', async (t) => {
  t.match(thrownResponse('["not_found","nope"]'), { code: 'not_found', status: 404, reason: 'nope' })
  t.match(thrownResponse('["render_error","x"]'), { code: 'render_error', status: 500 })
  t.match(thrownResponse('["rewrite_error","x"]'), { code: 'rewrite_error', status: 500 })
  t.match(thrownResponse('["forbidden",{"a":1}]'), { status: 403, reason: { a: 1 } })
  for (const name of ['"weird"', '5', 'null', '{"a":1}'])
    t.match(
      thrownResponse(`[${name},"x"]`),
      { status: 500, headers: [['Content-Type', 'application/json']] },
      name,
    )
})

/** What acts on the whole origin, or on a proxy in front. */
const RESERVED = [
  'Set-Cookie',
  'Set-Cookie2',
  'Set-Login',
  'Clear-Site-Data',
  'Service-Worker-Allowed',
  'Secure-Session-Registration',
  'Sec-Session-Challenge',
  'X-Envoy-Immediate-Health-Check-Fail',
  'Origin-Agent-Cluster',
  'Strict-Transport-Security',
  'Public-Key-Pins',
  'Public-Key-Pins-Report-Only',
  'Expect-CT',
  'Alt-Svc',
  'Accept-CH',
  'Accept-CH-Lifetime',
  'Critical-CH',
  'Use-As-Dictionary',
  'NEL',
  'Report-To',
  'Reporting-Endpoints',
  'Content-Security-Policy-Report-Only',
  'Permissions-Policy-Report-Only',
  'Attribution-Reporting-Register-Source',
  'Access-Control-Allow-Origin',
  'Access-Control-Allow-Credentials',
  'Timing-Allow-Origin',
  'X-Permitted-Cross-Domain-Policies',
  'X-XSS-Protection',
  'Proxy-Authenticate',
  'Surrogate-Control',
  'Edge-Control',
  'X-Accel-Redirect',
  'X-Accel-Expires',
  'X-Sendfile',
  'X-Lighttpd-Send-File',
  'X-LiteSpeed-Location',
  'X-Reproxy-URL',
]
/** What a function may say about its own answer. */
const ALLOWED = [
  'Location',
  'ETag',
  'Vary',
  'Cache-Control',
  'Content-Disposition',
  'Content-Language',
  'Expires',
  'Last-Modified',
  'Link',
  'Refresh',
  'X-Frame-Options',
  'X-Plankton',
  'WWW-Authenticate',
  'Cross-Origin-Opener-Policy',
  'Referrer-Policy',
]

t.test('functions cannot set headers that act beyond their answer', async (t) => {
  const inAnyCase = (names: readonly string[]) =>
    fc
      .constantFrom(...names)
      .chain((name) =>
        fc
          .array(fc.boolean(), { minLength: name.length, maxLength: name.length })
          .map((upper) =>
            [...name].map((each, at) => (upper[at] ? each.toUpperCase() : each.toLowerCase())).join(''),
          ),
      )
  const value = fc.constantFrom('*', 'a=b', '"cookies"', '/', 'max-age=0', 1, true)
  const headers = fc.dictionary(fc.oneof(inAnyCase(RESERVED), inAnyCase(ALLOWED)), value, { maxKeys: 20 })
  const request = { method: 'GET', path: [], query: [], base: ['db', '_design', 'd'], isSecure: true }
  const readers: readonly ((headers: Record<string, unknown>) => unknown)[] = [
    (headers) => readResponse({ headers, body: '<script>' }).headers,
    (headers) => readResponse({ headers, json: {} }).headers,
    (headers) => readResponse({ headers, base64: '' }).headers,
    (headers) => readListHead({ headers }).headers,
    (headers) => {
      const texts = Object.fromEntries(Object.entries(headers).map(([name, each]) => [name, String(each)]))
      const answer = readRewrite({ code: 200, headers: texts }, request)
      return answer.type === 'answer' && answer.headers
    },
  ]
  const allowed = new Set(ALLOWED.map((name) => name.toLowerCase()))
  fc.assert(
    fc.property(headers, fc.constantFrom(...readers), (given, read) => {
      const names = (read(given) as [string, string][]).map(([name]) => name.toLowerCase())
      const expected = Object.keys(given).filter((name) => allowed.has(name.toLowerCase()))
      t.same(
        names.filter((name) => name !== 'content-type').sort(),
        expected.map((name) => name.toLowerCase()).sort(),
      )
      return names.includes('content-type')
    }),
    { numRuns: 1000 },
  )
})
