/** Reading attachments: ranges, codings, validators; protocol.md 7.4, 19.6. */
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { digestOf, storeRevisions } from '../documents/stored-attachments.ts'
import { partsOf } from '../helpers/multipart-parts.ts'
import { connect } from './client.ts'
import { startStoredServer } from './stored-server.ts'

const TEXT = 'This is a base64 encoded text'
const ETAG = '"aEI7pOYCRBLTRQvvqYrrJQ=="'
const CODED = 'a text that is stored as gzip'
const STORED = gzipSync(CODED)
const CODED_ETAG = `"${digestOf(STORED).slice(4)}"`

async function start(t: Test) {
  const server = await startStoredServer(t)
  const { store } = server
  const call = connect(t, server)
  const attachments = [
    { name: 'plain', content: TEXT },
    { name: 'coded', content: CODED, gzip: true, type: 'text/markdown' },
    { name: 'empty', content: '' },
  ]
  await storeRevisions(store, 'doc', { rev: '1-a', attachments })
  const ask = (range: string, headers: Record<string, string> = {}, path = '/db/doc/plain') =>
    call('GET', path, { headers: { range, ...headers } })
  return { ...server, call, ask }
}

t.test('one range', async (t) => {
  const { ask, call } = await start(t)
  const cases: [range: string, place: string, text: string][] = [
    ['bytes=0-28', 'bytes 0-28/29', TEXT],
    ['bytes=2-', 'bytes 2-28/29', TEXT.slice(2)],
    ['bytes=-3', 'bytes 26-28/29', 'ext'],
    ['bytes=5-300', 'bytes 5-28/29', TEXT.slice(5)],
    ['bytes=3-3', 'bytes 3-3/29', 's'],
  ]
  for (const [range, place, text] of cases) {
    const answer = await ask(range)
    t.match(answer, {
      status: 206,
      text,
      headers: {
        'content-range': place,
        'content-length': String(text.length),
        'content-type': 'text/plain',
        'accept-ranges': 'bytes',
        etag: ETAG,
        'content-security-policy': 'sandbox',
        'cache-control': 'must-revalidate',
      },
    })
    const head = await call('HEAD', '/db/doc/plain', { headers: { range } })
    t.match(head, { status: 206, text: '', headers: { 'content-range': place } }, `HEAD ${range}`)
    t.equal(head.headers['content-length'], String(text.length))
  }
})

t.test('the whole', async (t) => {
  const { ask } = await start(t)
  const ten = Array.from({ length: 10 }, (_, at) => `${at}-${at}`).join(',')
  for (const range of ['bytes=0-', 'bytes=0-,0-,0-', 'bytes:0-', `bytes=${ten}`, 'x', 'bytes=a-b']) {
    const answer = await ask(range)
    t.match(answer, { status: 200, text: TEXT, headers: { 'content-length': '29' } }, range)
    t.equal(answer.headers['content-range'], undefined)
  }
})

t.test('no range that there is', async (t) => {
  const { ask } = await start(t)
  for (const range of ['bytes=5-3', 'bytes=300-310', 'bytes=29-', 'bytes=-0']) {
    t.match(
      await ask(range),
      {
        status: 416,
        headers: { 'content-range': 'bytes */29', 'content-type': 'application/json' },
        json: { error: 'requested_range_not_satisfiable', reason: 'Requested range not satisfiable' },
      },
      range,
    )
  }
  t.match(await ask('bytes=0-5', {}, '/db/doc/empty'), {
    status: 416,
    headers: { 'content-range': 'bytes */0' },
  })
  t.match(await ask('bytes=0-', {}, '/db/doc/empty'), { status: 200, headers: { 'content-length': '0' } })
})

t.test('several ranges', async (t) => {
  const { ask, call } = await start(t)
  const answer = await ask('bytes=0-3,-4,5-6')
  t.match(answer, { status: 206, headers: { etag: ETAG, 'accept-ranges': 'bytes' } })
  t.match(answer.headers['content-type'], /^multipart\/byteranges; boundary="[0-9a-f]{32}"$/)
  t.equal(answer.headers['content-length'], String(answer.bytes.length))
  t.same(
    partsOf(answer.headers['content-type'], answer.bytes).map(({ headers, text }) => [headers, text]),
    [
      ['bytes 0-3/29', 'This'],
      ['bytes 25-28/29', 'text'],
      ['bytes 5-6/29', 'is'],
    ].map(([place, text]) => [{ 'content-type': 'text/plain', 'content-range': place }, text]),
  )
  const head = await call('HEAD', '/db/doc/plain', { headers: { range: 'bytes=0-3,-4,5-6' } })
  t.match(head, { status: 206, text: '' })
  t.equal(head.headers['content-length'], String(answer.bytes.length))
})

t.test('If-Range', async (t) => {
  const { ask } = await start(t)
  t.equal((await ask('bytes=0-3', { 'if-range': ETAG })).status, 206)
  for (const other of ['"other"', `W/${ETAG}`, new Date().toUTCString()]) {
    t.match(await ask('bytes=0-3', { 'if-range': other }), { status: 200, text: TEXT }, other)
  }
  t.equal((await ask('bytes=300-', { 'if-range': '"other"' })).status, 200)
})

t.test('any Range at all is answered, and 206 with just its bytes', async (t) => {
  const { ask } = await start(t)
  const number = fc.nat(40).map(String)
  const spec = fc.oneof(
    fc.tuple(number, number).map((pair) => pair.join('-')),
    number.map((first) => `${first}-`),
    number.map((last) => `-${last}`),
    fc.string({ unit: 'grapheme-ascii', maxLength: 5 }),
  )
  const header = fc.array(spec, { maxLength: 5 }).map((specs) => `bytes=${specs.join(',')}`)
  await fc.assert(
    fc.asyncProperty(header, async (range) => {
      const { status, headers, bytes, text } = await ask(range)
      if (status === 200) return text === TEXT
      if (status === 416) return headers['content-range'] === 'bytes */29'
      const parts = headers['content-range']
        ? [{ headers: headers as Record<string, string>, text }]
        : partsOf(headers['content-type'], bytes)
      return (
        status === 206 &&
        parts.every((part) => {
          const [, start, end] = /^bytes (\d+)-(\d+)\/29$/.exec(part.headers['content-range'] ?? '') ?? []
          return part.text === TEXT.slice(Number(start), Number(end) + 1)
        })
      )
    }),
    { numRuns: 300 },
  )
})

t.test('what is stored as gzip goes out so, or inflated', async (t) => {
  const { call } = await start(t)
  const get = (accept?: string, method = 'GET') =>
    call(method, '/db/doc/coded', { headers: accept === undefined ? {} : { 'accept-encoding': accept } })
  const common = {
    'content-type': 'text/markdown',
    etag: CODED_ETAG,
    'accept-ranges': 'none',
    vary: 'Accept-Encoding',
  }
  for (const accept of ['gzip', 'br, gzip;q=0.5', '*']) {
    const answer = await get(accept)
    t.match(answer, { status: 200, headers: { ...common, 'content-encoding': 'gzip' } }, accept)
    t.ok(answer.bytes.equals(STORED))
    t.equal(answer.headers['content-length'], String(STORED.length))
  }
  for (const accept of [undefined, 'br', 'gzip;q=0', 'identity']) {
    const answer = await get(accept)
    t.match(answer, { status: 200, text: CODED, headers: common }, String(accept))
    t.equal(answer.headers['content-encoding'], undefined)
    t.equal(answer.headers['content-length'], String(CODED.length))
  }
  t.match(await get('gzip', 'HEAD'), {
    status: 200,
    text: '',
    headers: { 'content-encoding': 'gzip', 'content-length': String(STORED.length) },
  })
  const ranged = await call('GET', '/db/doc/coded', { headers: { range: 'bytes=0-3' } })
  t.match(ranged, { status: 200, text: CODED }, 'there are no ranges of it')
})

t.test('a plain content is never compressed', async (t) => {
  const { call } = await start(t)
  const answer = await call('GET', '/db/doc/plain', { headers: { 'accept-encoding': 'gzip, br' } })
  t.match(answer, { status: 200, text: TEXT, headers: { 'accept-ranges': 'bytes' } })
  t.equal(answer.headers['content-encoding'], undefined)
  t.equal(answer.headers.vary, 'Origin')
})

t.test('If-None-Match', async (t) => {
  const { call } = await start(t)
  const get = (name: string, match: string) =>
    call('GET', `/db/doc/${name}`, { headers: { 'if-none-match': match, range: 'bytes=0-1' } })
  t.match(await get('plain', ETAG), { status: 304, text: '', headers: { etag: ETAG } })
  t.match(await get('coded', `"x", W/${CODED_ETAG}`), { status: 304, headers: { etag: CODED_ETAG } })
  t.equal((await get('plain', CODED_ETAG)).status, 206)
})
