import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import {
  BAD_QUERY,
  count,
  isOn,
  jsonParam,
  parseQuery,
  textParam,
  viewBoolean,
} from '../../src/http/request-params.ts'
import { COUNT, shape, VIEW_BOOLEAN } from '../../src/http/route-table.ts'

t.test('a query string is decoded, and the last of a repeated parameter counts', async (t) => {
  const cases: [text: string, expected: Record<string, string>][] = [
    ['', {}],
    ['&&', {}],
    ['a=1&b=2&a=3', { a: '3', b: '2' }],
    ['a', { a: '' }],
    ['a=b=c', { a: 'b=c' }],
    ['key=%22a%20b%2Bc%22', { key: '"a b+c"' }],
    ['key="a+b"', { key: '"a b"' }],
    ['keys=["a","%C3%A9"]', { keys: '["a","é"]' }],
    ['start%5Fkey=1', { start_key: '1' }],
    ['__proto__=1', { ['__proto__']: '1' }],
  ]
  for (const [text, expected] of cases) t.strictSame({ ...parseQuery(text) }, { ...expected }, text)
})

t.test('broken escapes and broken UTF-8 are told apart from parameters', async (t) => {
  for (const text of ['a=%', 'a=%z1', 'a=%1', '%ff=1', 'a=%ff', 'a=%ED%A0%80']) {
    t.equal(parseQuery(text), BAD_QUERY, text)
  }
})

t.test('a switch of documents is on for the exact text alone', async (t) => {
  const query = parseQuery('a=true&b=TRUE&c=1&d=%22true%22&e')
  t.strictSame(
    ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => isOn(query, name)),
    [true, false, false, false, false, false],
  )
})

t.test('a switch of views is on in any case, off in any case, and refused otherwise', async (t) => {
  const check = shape<Record<string, string>>({ type: 'object', properties: { x: VIEW_BOOLEAN } })
  for (const text of ['true', 'TRUE', 'tRue']) t.equal(viewBoolean(check(parseQuery(`x=${text}`)), 'x'), true)
  for (const text of ['false', 'False']) t.equal(viewBoolean(check(parseQuery(`x=${text}`)), 'x'), false)
  t.equal(viewBoolean(parseQuery(''), 'x'), undefined)
  for (const text of ['', '1', 'yes', '"true"', ' true', 'truefalse']) {
    t.throws(() => check(parseQuery(`x=${encodeURIComponent(text)}`)), {
      code: 'query_parse_error',
      reason: `Invalid boolean parameter: "${text}"`,
    })
  }
})

t.test('a count is a whole number that is not negative', async (t) => {
  const check = shape<Record<string, string>>({ type: 'object', properties: { x: COUNT } })
  t.equal(count(check(parseQuery('x=0')), 'x'), 0)
  t.equal(count(check(parseQuery('x=0012')), 'x'), 12)
  t.equal(count(parseQuery(''), 'x'), undefined)
  for (const text of ['', 'x', '1.5', '1e3', '0x10', '$&']) {
    t.throws(() => check(parseQuery(`x=${encodeURIComponent(text)}`)), {
      code: 'query_parse_error',
      reason: `Invalid value for integer: "${text}"`,
    })
  }
  t.throws(() => check(parseQuery('x=-1')), {
    code: 'query_parse_error',
    reason: 'Invalid value for positive integer: "-1"',
  })
})

t.test('a parameter may be JSON text, under either of its names', async (t) => {
  t.equal(jsonParam(parseQuery('startkey=%22a%22'), 'startkey', 'start_key'), 'a')
  t.equal(jsonParam(parseQuery('start_key=%22b%22'), 'startkey', 'start_key'), 'b')
  t.equal(jsonParam(parseQuery('other=1'), 'startkey', 'start_key'), undefined)
  t.equal(jsonParam(parseQuery('key=null'), 'key'), null)
  for (const text of ['', 'a', '{', '"a', "'a'"]) {
    t.throws(() => jsonParam(parseQuery(`key=${text}`), 'key'), { code: 'invalid_json' }, text)
  }
})

t.test('names of Object.prototype are no parameters', async (t) => {
  t.equal(textParam(parseQuery(''), 'toString'), undefined)
  t.equal(textParam(parseQuery(''), '__proto__'), undefined)
})

t.test('a shape refuses with what stands nearest to the fault, and changes nothing', async (t) => {
  const check = shape({
    type: 'object',
    required: ['a'],
    properties: { a: { type: 'array', items: { type: 'string' }, refusal: ['conflict', 'a is no list: %'] } },
    refusal: ['bad_request', 'no a'],
  })
  const given = { a: ['x'], other: 1 }
  t.equal(check(given), given)
  t.strictSame(given, { a: ['x'], other: 1 })
  const reasonOf = (value: unknown) => {
    try {
      return check(value)
    } catch (error) {
      return error instanceof CouchError ? [error.code, error.reason] : error
    }
  }
  t.strictSame(reasonOf({ a: '$&' }), ['conflict', 'a is no list: $&'])
  t.strictSame(reasonOf({}), ['bad_request', 'no a'])
  t.strictSame(reasonOf([]), ['bad_request', 'no a'])
  t.strictSame(reasonOf({ a: [1] }), ['bad_request', 'a/0 must be string'])
})
