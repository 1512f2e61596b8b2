/** No answer may run as a page of the server's origin, whoever made its headers. */
import type { OutgoingHttpHeaders } from 'node:http'
import fc from 'fast-check'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import t, { type Test } from 'tap'
import { openStream, sendStream } from '../../src/http/transport/json-stream.ts'
import { connect } from './client.ts'
import { openSession, startSecureMemoryServer } from './http2-client.ts'
import { startMemoryServer } from './memory-server.ts'

const PUBLIC = { config: { access: 'public' } } as const

/** Headers that would run the answer as a page. */
const HOSTILE: readonly (readonly [name: string, value: string])[] = [
  ['Content-Security-Policy', "default-src * 'unsafe-inline'"],
  ['content-security-policy', 'sandbox allow-scripts allow-same-origin'],
  ['CONTENT-SECURITY-POLICY', ''],
  ['X-Content-Type-Options', 'sniff'],
  ['x-CONTENT-type-OPTIONS', ''],
  ['Content-Type', 'text/html'],
  ['content-type', 'application/json'],
  ['X-Frame-Options', 'ALLOWALL'],
]

type Given = readonly (readonly [name: string, value: string])[]
const given = fc.array(fc.constantFrom(...HOSTILE), { maxLength: 6 })

/** The ways in which a route can send what is not settee's own, now or in future. */
const WAYS: Readonly<
  Record<string, (request: FastifyRequest, reply: FastifyReply, headers: Given) => unknown>
> = {
  reply: (_request, reply, headers) => {
    for (const [name, value] of headers) reply.header(name, value)
    return reply.send('<script>')
  },
  'raw-head': (_request, reply, headers) => {
    reply.hijack()
    reply.raw.writeHead(200, Object.fromEntries(headers))
    reply.raw.end('<script>')
  },
  'raw-headers-and-head': (_request, reply, headers) => {
    reply.hijack()
    for (const [name, value] of headers) reply.raw.setHeader(name, value)
    reply.raw.writeHead(200, { 'X-Other': 'a' })
    reply.raw.end('<script>')
  },
  'raw-without-a-head': (_request, reply, headers) => {
    reply.hijack()
    for (const [name, value] of headers) reply.raw.setHeader(name, value)
    reply.raw.end('<script>')
  },
  'flushed-headers': (_request, reply, headers) => {
    reply.hijack()
    for (const [name, value] of headers) reply.raw.setHeader(name, value)
    reply.raw.flushHeaders()
    reply.raw.write('<script>')
    reply.raw.end()
  },
  'opened-stream': async (request, reply, headers) => {
    const stream = openStream(request, reply, { status: 200, headers: Object.fromEntries(headers) })
    await stream.write(Buffer.from('<script>'))
    await stream.end()
  },
  'sent-stream': async (request, reply, headers) => {
    const chunks = (async function* () {
      yield Buffer.from('<script>')
    })()
    await sendStream(request, reply, { status: 203, headers: Object.fromEntries(headers), chunks })
  },
  'not-modified': (_request, reply, headers) => {
    for (const [name, value] of headers) reply.header(name, value)
    return reply.code(304).send()
  },
  redirect: (_request, reply, headers) => {
    for (const [name, value] of headers) reply.header(name, value)
    return reply.redirect('/_utils/')
  },
}

/** Headers of a client, or of a request inside another. */
const ASKED: readonly OutgoingHttpHeaders[] = [
  {},
  { prefer: 'return=minimal' },
  { prefer: 'respond-async, Return="minimal"', origin: 'app://obsidian.md' },
  { range: 'bytes=0-1', 'accept-encoding': 'gzip' },
  { accept: 'multipart/mixed', 'x-requested-with': 'a' },
]

function hostileRoutes(routes: Map<string, Given>): (app: FastifyInstance) => void {
  return (app) => {
    for (const [way, send] of Object.entries(WAYS)) {
      app.get(`/_way/${way}`, PUBLIC, async (request, reply) => {
        await send(request, reply, routes.get(way) ?? [])
        return reply
      })
    }
  }
}

interface Answer {
  readonly status: number | undefined
  readonly headers: Readonly<Record<string, unknown>>
}

async function checkWays(
  t: Test,
  routes: Map<string, Given>,
  ask: (method: string, path: string, headers: OutgoingHttpHeaders) => Promise<Answer>,
) {
  const inAll = fc.tuple(
    fc.constantFrom(...Object.keys(WAYS)),
    given,
    fc.constantFrom(...ASKED),
    fc.constantFrom('GET', 'HEAD'),
    fc.constantFrom('', '?callback=alert', '?_method=DELETE'),
  )
  await fc.assert(
    fc.asyncProperty(inAll, async ([way, headers, asked, method, query]) => {
      routes.set(way, headers)
      const answer = await ask(method, `/_way/${way}${query}`, asked)
      const { 'content-security-policy': policy, 'x-content-type-options': options } = answer.headers
      t.strictSame(
        [policy, options],
        ['sandbox', 'nosniff'],
        `${method} ${way} ${JSON.stringify([headers, asked])}`,
      )
      return policy === 'sandbox' && options === 'nosniff'
    }),
    { numRuns: 200 },
  )
}

t.test('whatever is not made by settee itself is sandboxed', async (t) => {
  const routes = new Map<string, Given>()
  const settings = { 'chttpd/allow_jsonp': 'true', 'chttpd/prefer_minimal': '' }
  await t.test('HTTP/1.1', async (t) => {
    const call = connect(t, await startMemoryServer(t, settings, hostileRoutes(routes)))
    await checkWays(t, routes, (method, path, headers) =>
      call(method, path, { headers: headers as Record<string, string> }),
    )
  })
  await t.test('HTTP/2', async (t) => {
    const { secureUrl, tls } = await startSecureMemoryServer(t, settings, hostileRoutes(routes))
    const { ask } = await openSession(t, secureUrl, tls.cert)
    await checkWays(t, routes, (method, path, headers) => ask(`${method} ${path}`, { headers }))
  })
})

t.test("settee's own JSON and text have nosniff alone", async (t) => {
  const settings = { 'chttpd/allow_jsonp': 'true' }
  const call = connect(t, await startMemoryServer(t, settings))
  await call('PUT', '/db')
  await call('PUT', '/db/doc', { body: '{"html":"<script>"}' })
  for (const [method, path, headers = {}] of [
    ['GET', '/'],
    ['HEAD', '/db/doc'],
    ['GET', '/db/doc', { prefer: 'return=minimal' }],
    ['GET', '/db/_all_docs'],
    ['GET', '/db/_changes?feed=normal'],
    ['GET', '/db/<script>'],
    ['GET', '/%zz'],
    ['PATCH', '/db'],
    ['GET', '/_session'],
    ['GET', '/_node/_local/_prometheus'],
  ] as const) {
    const { headers: got } = await call(method, path, { headers })
    t.equal(got['x-content-type-options'], 'nosniff', `${method} ${path}`)
    t.notOk('content-security-policy' in got, `${method} ${path}`)
  }
  t.match((await call('GET', '/db/doc?callback=f')).headers, {
    'content-type': 'application/javascript',
    'content-security-policy': 'sandbox',
  })
})

t.test('only section [csp] changes the policy of attachments', async (t) => {
  const server = await startMemoryServer(t)
  const { config } = server
  const call = connect(t, server)
  await call('PUT', '/db')
  const headers = { 'content-type': 'text/html' }
  await call('PUT', '/db/doc/page', { body: '<script>', headers })
  const { headers: first } = await call('GET', '/db/doc/page')
  const policies = async () =>
    Promise.all(
      [{}, { 'if-none-match': String(first.etag) }, { range: 'bytes=0-1' }, { range: 'bytes=0-0,2-3' }].map(
        async (headers) =>
          (await call('GET', '/db/doc/page', { headers })).headers['content-security-policy'],
      ),
    )
  const all = (policy: unknown) => [policy, policy, policy, policy]
  t.strictSame(await policies(), all('sandbox'))
  await config.set('csp', 'attachments_header_value', 'sandbox allow-scripts')
  t.strictSame(await policies(), all('sandbox allow-scripts'))
  await config.set('csp', 'showlist_enable', 'false')
  t.strictSame(await policies(), all('sandbox allow-scripts'), 'it has a setting of its own')
  await config.set('csp', 'attachments_enable', 'false')
  t.strictSame(await policies(), all(undefined))
  t.match((await call('GET', '/db/doc/page')).headers, { 'x-content-type-options': 'nosniff' })
  await t.rejects(config.set('csp', 'attachments_header_value', 'sandbox\r\nX-A: b'), { code: 'bad_request' })
})
