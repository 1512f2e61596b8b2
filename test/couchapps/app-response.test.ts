import t from 'tap'
import { readListHead, readResponse, thrownResponse } from '../../src/couchapps/app-response.ts'

const HTML = ['Content-Type', 'text/html; charset=utf-8']
const SANDBOX = ['Content-Security-Policy', 'sandbox']

t.test('responses of functions', async (t) => {
  const cases: [response: unknown, status: number, headers: readonly unknown[], body: string][] = [
    [{}, 200, [['Content-Type', 'application/json'], SANDBOX], ''],
    [{ body: 'a' }, 200, [HTML, SANDBOX], 'a'],
    [{ body: 5 }, 200, [HTML, SANDBOX], '5'],
    [{ base64: 'aGk=' }, 200, [['Content-Type', 'application/binary'], SANDBOX], 'hi'],
    [{ json: { a: 1 } }, 200, [['Content-Type', 'application/json']], '{"a":1}\n'],
    [{ json: null, body: 'x' }, 200, [HTML, SANDBOX], 'x'],
    [{ code: '404' }, 404, [['Content-Type', 'application/json'], SANDBOX], ''],
    [{ code: 404, stop: true, body: 'x' }, 404, [HTML, SANDBOX], 'x'],
    [
      { headers: { 'content-type': 'text/csv', 'X-A': 1 } },
      200,
      [['content-type', 'text/csv'], ['X-A', '1'], SANDBOX],
      '',
    ],
    [
      { headers: { 'Content-Length': '1', 'Transfer-Encoding': 'chunked' }, body: 'abc' },
      200,
      [HTML, SANDBOX],
      'abc',
    ],
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
    headers: [['Content-Type', 'application/json'], ['X-A', 'b'], SANDBOX],
  })
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
