/** Parameters, media types and headers of requests; protocol.md 1.3, 3.2, 4.2, 7.3, 7.4, 17, 19.6. */

import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import type { AttachmentAnswer } from '../../src/documents/database.ts'
import { piecesLength } from '../../src/documents/pieces.ts'
import {
  bulkMultipart,
  contentRange,
  isRangeOf,
  rangePieces,
  readRanges,
  wantsMultipart,
} from '../../src/http/header-values.ts'
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
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

t.test('query parameters', async (t) => {
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

  t.test('broken escapes and broken UTF-8 are detected', async (t) => {
    for (const text of ['a=%', 'a=%z1', 'a=%1', '%ff=1', 'a=%ff', 'a=%ED%A0%80']) {
      t.equal(parseQuery(text), BAD_QUERY, text)
    }
  })

  t.test('a boolean of documents is true for the exact text only', async (t) => {
    const query = parseQuery('a=true&b=TRUE&c=1&d=%22true%22&e')
    t.strictSame(
      ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => isOn(query, name)),
      [true, false, false, false, false, false],
    )
  })

  t.test('a boolean of views is true or false in any case, and refused otherwise', async (t) => {
    const check = shape<Record<string, string>>({ type: 'object', properties: { x: VIEW_BOOLEAN } })
    for (const text of ['true', 'TRUE', 'tRue'])
      t.equal(viewBoolean(check(parseQuery(`x=${text}`)), 'x'), true)
    for (const text of ['false', 'False']) t.equal(viewBoolean(check(parseQuery(`x=${text}`)), 'x'), false)
    t.equal(viewBoolean(parseQuery(''), 'x'), undefined)
    for (const text of ['', '1', 'yes', '"true"', ' true', 'truefalse']) {
      t.throws(() => check(parseQuery(`x=${encodeURIComponent(text)}`)), {
        code: 'query_parse_error',
        reason: `Invalid boolean parameter: ${text === '' ? '[]' : JSON.stringify(text)}`,
      })
    }
  })

  t.test('a count is a whole number from 0', async (t) => {
    const check = shape<Record<string, string>>({ type: 'object', properties: { x: COUNT } })
    t.equal(count(check(parseQuery('x=0')), 'x'), 0)
    t.equal(count(check(parseQuery('x=0012')), 'x'), 12)
    t.equal(count(parseQuery(''), 'x'), undefined)
    for (const text of ['', 'x', '1.5', '1e3', '0x10', '$&']) {
      t.throws(() => check(parseQuery(`x=${encodeURIComponent(text)}`)), {
        code: 'query_parse_error',
        reason: `Invalid value for integer: ${text === '' ? '[]' : JSON.stringify(text)}`,
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

  t.test('a schema refuses with the nearest refusal, and changes nothing', async (t) => {
    const check = shape({
      type: 'object',
      required: ['a'],
      properties: {
        a: { type: 'array', items: { type: 'string' }, refusal: ['conflict', 'a is no list: %'] },
      },
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
})

/** Calls that require JSON; protocol.md 1.3. Requests that a form can send (POST, with one of three types) must write nothing. */
t.test('content types', async (t) => {
  /** POST calls that look at no type, or at another, and why that is no harm. */
  const OTHERS: Readonly<Record<string, string>> = {
    '/_session':
      'takes a login form, as CouchDB; it lets in whoever has the password, and is refused to foreign pages',
    '/_node/:node/_config/_reload': 'as CouchDB; what it takes in is what local.ini says',
    '/_config/_reload': 'the same',
    '/_node': 'answers 400',
    '/_node/:node/*': 'answers 404',
    '/:db/_view_cleanup': 'as CouchDB; it changes nothing',
    '/:db/_all_docs/queries': 'as CouchDB; it reads',
    '/:db/_design_docs/queries': 'as CouchDB; it reads',
    '/:db/_local_docs/queries': 'as CouchDB; it reads',
    '/:db/_partition': 'answers 400',
    '/:db/_partition/:partition/_all_docs/queries': 'as CouchDB; it reads',
    '/:db/_partition/:partition/*': 'answers 404',
    '/:db/_temp_view': 'answers 410',
    '/:db/_design/:ddoc/_show': 'answers 404',
    '/:db/_design/:ddoc/_show/:fn': 'as CouchDB; it reads',
    '/:db/_design/:ddoc/_show/:fn/*': 'the same',
    '/:db/_design/:ddoc/_update': 'answers 404',
    '/:db/_design/:ddoc/_update/:fn':
      'as CouchDB: forms of a page of this server lead to it; foreign pages are refused',
    '/:db/_design/:ddoc/_update/:fn/*': 'the same',
    '/:db/_design/:ddoc/_rewrite': 'the request that it leads to is checked like any other',
    '/:db/_design/:ddoc/_rewrite/*': 'the same',
    '/:db/:docid': 'a form upload, which demands a form and a Referer of this host',
    '/:db/_design/:ddoc': 'the same',
    '/:db/_local/:local': 'the same',
    '/:db/_local/:local/*': 'answers 400',
    '/:db/_design/:ddoc/_*': 'answers 404',
  }

  /** The column of protocol.md 1.3 of calls that demand it, as far as they are there. */
  const DEMANDED = [
    '/:db',
    '/:db/_bulk_docs',
    '/:db/_bulk_get',
    '/:db/_purge',
    '/:db/_all_docs',
    '/:db/_design_docs',
    '/:db/_local_docs',
    '/:db/_changes',
    '/:db/_find',
    '/:db/_explain',
    '/:db/_index',
    '/:db/_index/_bulk_delete',
    '/:db/_revs_diff',
    '/:db/_missing_revs',
    '/:db/_ensure_full_commit',
    '/:db/_compact',
    '/:db/_design/:ddoc/_view/:view',
    '/:db/_design/:ddoc/_view/:view/queries',
    '/_dbs_info',
    '/_replicate',
  ]

  const FORMS = [
    'text/plain',
    'application/x-www-form-urlencoded',
    'multipart/form-data; boundary=x',
    undefined,
  ]

  t.test('every POST requires JSON, or is listed as an exception', async (t) => {
    const { app } = await startMemoryServer(t)
    const posts = app.paths.filter(({ methods }) => methods.POST !== undefined)
    const demanding = posts.filter(({ methods }) => methods.POST?.json === true).map(({ url }) => url)
    const others = posts.map(({ url }) => url).filter((url) => !demanding.includes(url))
    t.strictSame(
      others.filter((url) => !Object.hasOwn(OTHERS, url)),
      [],
      'a call that a form could make',
    )
    for (const url of DEMANDED) t.ok(demanding.includes(url), url)
  })

  t.test('requests that a form can send change nothing', async (t) => {
    const call = connect(t, await startTestServer(t))
    await call('PUT', '/db')
    await call('PUT', '/db/doc', { body: '{}' })
    const before = (await call('GET', '/db')).text
    const { app } = await startMemoryServer(t)
    const names: Readonly<Record<string, string>> = {
      node: '_local',
      docid: 'doc',
      ddoc: 'd',
      local: 'l',
      view: 'v',
    }
    for (const { url, methods } of app.paths) {
      if (methods.POST === undefined) continue
      const path = url.replace(/:(\w+)/g, (_, name: string) => names[name] ?? name).replace('*', 'x')
      for (const type of FORMS) {
        const headers = type === undefined ? {} : { 'content-type': type }
        const { status } = await call('POST', path, { body: '{"_id":"by-form","docs":[{"a":1}]}', headers })
        if (methods.POST.json) t.equal(status, 415, `${path} ${type}`)
      }
    }
    t.equal((await call('GET', '/db')).text, before)
  })
})

/** When an answer is multipart: protocol.md 3.2, 4.2, 7.3. */
t.test('the header Accept', async (t) => {
  t.test('a document is multipart only if the client names the type', async (t) => {
    const cases: [accept: string | undefined, expected: boolean][] = [
      [undefined, false],
      ['', false],
      ['*/*', false],
      ['multipart/*', true],
      ['multipart/*;q=0', false],
      ['multipart/*, multipart/related;q=0', false],
      ['application/json, multipart/*;q=0.9', false],
      ['application/json', false],
      ['multipart/mixed', false],
      ['multipart/related', true],
      ['Multipart/Related;type="application/json"', true],
      ['multipart/related,*/*;', true],
      ['multipart/related, application/json', true],
      ['application/json, multipart/related', true],
      ['application/json;q=0.5, multipart/related', true],
      ['application/json, multipart/related;q=0.9', false],
      ['multipart/related;q=0', false],
      ['multipart/related; q=x', false],
    ]
    for (const [accept, expected] of cases) {
      t.equal(wantsMultipart(accept, 'multipart/related'), expected, String(accept))
    }
    t.equal(wantsMultipart('multipart/mixed', 'multipart/mixed'), true)
    t.equal(wantsMultipart('multipart/*', 'multipart/mixed'), true)
    t.equal(wantsMultipart('multipart/related,*/*', 'multipart/mixed'), true, 'as CouchDB replicates')
    t.equal(wantsMultipart('multipart/related', 'multipart/mixed'), false)
    t.equal(wantsMultipart('multipart/related,*/*;q=0', 'multipart/mixed'), false)
  })

  t.test('_bulk_get is multipart only if the client rules out JSON', async (t) => {
    const cases: [accept: string | undefined, expected: ReturnType<typeof bulkMultipart>][] = [
      [undefined, null],
      ['*/*', null],
      ['text/html', null],
      ['multipart/mixed', 'multipart/mixed'],
      ['multipart/related', 'multipart/related'],
      ['multipart/related, multipart/mixed', 'multipart/mixed'],
      ['multipart/*', 'multipart/mixed'],
      ['multipart/mixed, application/json;q=0.1', null],
      ['multipart/mixed, application/*', null],
      ['multipart/mixed, */*', null],
      ['multipart/mixed, application/json;q=0, */*', 'multipart/mixed'],
      ['multipart/mixed;q=0, multipart/related', 'multipart/related'],
    ]
    for (const [accept, expected] of cases) t.equal(bulkMultipart(accept), expected, String(accept))
  })
})

/** The header Range: protocol.md 7.4, 19.6. */
t.test('the header Range', async (t) => {
  const CONTENT: AttachmentAnswer = {
    type: 'text/plain',
    length: 29,
    encoding: null,
    storedLength: 29,
    digest: 'md5-x',
    blob: 1,
  }

  t.test('ranges of 29 bytes', async (t) => {
    const one = (start: number, end: number) => [{ start, end }]
    const nine = Array.from({ length: 9 }, (_, at) => ({ start: at, end: at + 1 }))
    const cases: [header: string | undefined, expected: ReturnType<typeof readRanges>][] = [
      [undefined, 'whole'],
      ['bytes=0-28', one(0, 29)],
      ['bytes=0-', 'whole'],
      ['bytes=00-', 'whole'],
      ['bytes=0-,0-,0-', 'whole'],
      ['bytes=5-6,0-', 'whole'],
      ['bytes=2-', one(2, 29)],
      ['bytes=-3', one(26, 29)],
      ['bytes=-29', one(0, 29)],
      ['bytes=-300', one(0, 29)],
      ['bytes=-0', 'unsatisfiable'],
      ['bytes=5-3', 'unsatisfiable'],
      ['bytes=300-310', 'unsatisfiable'],
      ['bytes=29-', 'unsatisfiable'],
      ['bytes=28-28', one(28, 29)],
      ['bytes=0-300', one(0, 29)],
      ['bytes=0-99999999999999999999999', one(0, 29)],
      [`bytes=${'9'.repeat(400)}-`, 'unsatisfiable'],
      ['bytes=0-1,300-310', 'unsatisfiable'],
      [
        'bytes=0-1, 5-6 ,-2',
        [
          { start: 0, end: 2 },
          { start: 5, end: 7 },
          { start: 27, end: 29 },
        ],
      ],
      ['bytes=0-1,,5-6,', [...one(0, 2), ...one(5, 7)]],
      ['Bytes=0 - 1', one(0, 2)],
      [`bytes=${nine.map(({ start }) => `${start}-${start}`).join(',')}`, nine],
      [`bytes=${Array.from({ length: 10 }, (_, at) => `${at}-${at}`).join(',')}`, 'whole'],
      ['bytes:0-', 'whole'],
      ['bytes', 'whole'],
      ['bytes=', 'whole'],
      ['bytes=-', 'whole'],
      ['bytes=,', 'whole'],
      ['bytes=1-2,x', 'whole'],
      ['bytes=-1-2', 'whole'],
      ['bytes=1.5-2', 'whole'],
      ['bytes=0x1-2', 'whole'],
      ['items=0-5', 'whole'],
      ['', 'whole'],
    ]
    for (const [header, expected] of cases) t.strictSame(readRanges(header, 29), expected, String(header))
  })

  t.test('ranges of empty content', async (t) => {
    for (const range of ['0-0', '0-5', '-3', '1-']) {
      t.equal(readRanges(`bytes=${range}`, 0), 'unsatisfiable', range)
    }
    t.equal(readRanges('bytes=0-', 0), 'whole')
  })

  t.test('any header: no exception, and no byte outside the content', async () => {
    const number = fc.oneof(fc.nat(40), fc.bigInt({ min: 0n, max: 10n ** 30n })).map(String)
    const spec = fc.oneof(
      fc.tuple(number, number).map(([a, b]) => `${a}-${b}`),
      number.map((a) => `${a}-`),
      number.map((a) => `-${a}`),
      fc.string({ maxLength: 6 }),
    )
    const header = fc.oneof(
      fc.array(spec, { maxLength: 12 }).map((specs) => `bytes=${specs.join(',')}`),
      fc.string(),
    )
    fc.assert(
      fc.property(header, fc.nat(40), (text, length) => {
        const ranges = readRanges(text, length)
        if (typeof ranges === 'string') return true
        return (
          ranges.length > 0 &&
          ranges.length < 10 &&
          ranges.every(({ start, end }) => 0 <= start && start < end && end <= length)
        )
      }),
      { numRuns: 5000 },
    )
  })

  t.test('If-Range applies if it is exactly this ETag', async (t) => {
    t.equal(isRangeOf(undefined, '"a"'), true)
    t.equal(isRangeOf(' "a" ', '"a"'), true)
    for (const other of ['"b"', 'W/"a"', 'Wed, 21 Oct 2015 07:28:00 GMT', '', '*']) {
      t.equal(isRangeOf(other, '"a"'), false, other)
    }
  })

  t.test('several ranges are framed as CouchDB does it', async (t) => {
    const ranges = [
      { start: 0, end: 2 },
      { start: 26, end: 29 },
    ]
    t.equal(contentRange({ start: 26, end: 29 }, 29), 'bytes 26-28/29')
    const pieces = rangePieces(CONTENT, 'text/plain', ranges, 'B')
    const text = pieces.map((piece) => {
      if (typeof piece === 'string') return piece
      return piece instanceof Uint8Array ? '' : `<${piece.range?.start},${piece.range?.end}>`
    })
    t.equal(
      text.join(''),
      '--B\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/29\r\n\r\n<0,2>\r\n--B' +
        '\r\nContent-Type: text/plain\r\nContent-Range: bytes 26-28/29\r\n\r\n<26,29>\r\n--B--',
    )
    t.equal(piecesLength(pieces), text.join('').replace(/<.*?>/g, '').length + 5)
  })
})
