/** Proxies with each fault, before a real settee: the doctor says what it is, and which line to change. */
import t, { type Test } from 'tap'
import { startTestServer } from '../../helpers/server.ts'
import { FEED, look, NO_FEED, onlyWrong } from './looking.ts'
import { type ProxyFaults, startProxy } from './proxy.ts'

const server = await startTestServer(t, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
await server.request('PUT', '/notes', { auth: 'anna:secret' })

async function behind(t: Test, faults: ProxyFaults): Promise<string> {
  return `http://anna:secret@127.0.0.1:${await startProxy(t, server.url, faults)}/notes`
}

const SHORT = { bodies: [] }

t.test('a proxy without a fault', async (t) => {
  const looked = await look(await behind(t, {}), { pace: FEED })
  onlyWrong(t, looked)
  t.equal(looked.one('feed').state, 'fine')
  t.match(looked.one('server').text, /^settee \d/)
})

t.test('a feed that is kept back', async (t) => {
  const looked = await look(await behind(t, { name: 'nginx/1.22.1', buffers: true }), {
    pace: { ...SHORT, ...NO_FEED },
  })
  t.match(looked.one('feed'), { state: 'wrong', text: /^Nothing of _changes came in 1\.\d s/ })
  t.match(looked.cures('feed'), [/^nginx: location .*_changes.* proxy_buffering off;/])
  const lumpy = await look(await behind(t, { name: 'Caddy', stopsAfter: 1 }), {
    pace: { ...SHORT, ...NO_FEED },
  })
  t.match(lumpy.one('feed'), { state: 'wrong', text: /stood still for 1\.\d s/ })
  t.match(lumpy.cures('feed'), [/^Caddy: .*flush_interval -1/])
})

t.test('a feed that is cut', async (t) => {
  const soon = await look(await behind(t, { cutsAfter: 100 }), {
    pace: { ...SHORT, feedMs: 10_000, beats: 20 },
  })
  t.match(soon.one('feed'), { state: 'wrong', text: /was cut at once/ })
  t.match(soon.cures('feed'), [/nginx: proxy_read_timeout/, /Caddy/, /Traefik/, /Cloudflare/])
  const wait = { ...SHORT, longMs: 4000, longHeartbeatMs: 100 }
  const late = await look(await behind(t, { name: 'nginx', cutsAfter: 3000 }), { pace: wait })
  t.match(late.one('long feed'), { state: 'wrong', text: /^A feed with heartbeats was cut after 3 s/ })
  t.match(late.cures('long feed'), [/^nginx: proxy_read_timeout/])
  const idle = await look(await behind(t, { name: 'nginx', cutsIdleAfter: 2000 }), { pace: wait })
  t.match(idle.one('long feed'), { state: 'note', text: /^A feed without heartbeats was cut after 2 s/ })
  const none = await look(await behind(t, {}), { pace: { ...wait, longMs: 300 } })
  t.match(none.one('long feed'), { state: 'fine', text: /^A feed with heartbeats lived for/ })
})

t.test('bodies that are too large', async (t) => {
  const nginx = await look(await behind(t, { name: 'nginx', maxBody: 1_048_576 }))
  t.match(nginx.one('bodies'), { state: 'wrong', text: /^1 MB are too much for the proxy \(nginx\): 413/ })
  t.strictSame(nginx.cures('bodies'), ['nginx: client_max_body_size 0;'])
  const reset = await look(await behind(t, { maxBody: 1_048_576, refusal: 'reset' }))
  t.match(reset.one('bodies'), { state: 'wrong', text: /^1 MB do not arrive: the connection was closed/ })
  const late = await look(
    await behind(t, { own: ({ url }) => (url?.includes('_bulk_docs') ? { status: 504 } : undefined) }),
  )
  t.match(late.one('bodies'), { state: 'wrong', text: /take too long: 504/ })
  t.match(late.cures('bodies')[0], /^nginx: client_body_timeout/)
})

t.test("the server's own limit is told apart", async (t) => {
  const path = '/_node/_local/_config/chttpd/max_http_request_size'
  await server.request('PUT', path, { auth: 'anna:secret', body: '"100000"' })
  t.teardown(() => server.request('DELETE', path, { auth: 'anna:secret' }))
  const looked = await look(await behind(t, { name: 'nginx' }))
  t.match(looked.one('bodies'), { state: 'wrong', text: /too much for the server: 413/ })
  t.match(looked.cures('bodies'), [/^settee: curl .*max_http_request_size/])
})

t.test('headers of CORS that are twice, wrong or gone', async (t) => {
  const origin = 'access-control-allow-origin'
  const rows: [what: string, faults: ProxyFaults, text: RegExp, cure: RegExp][] = [
    ['twice', { addHeaders: { [origin]: '*' } }, /is there twice/, /add_header Access-Control/],
    ['star', { setHeaders: { [origin]: '*' } }, /is \*, which browsers/, /add_header Access-Control/],
    [
      'of another',
      { setHeaders: { [origin]: 'https://x.example' } },
      /is https:\/\/x\.example/,
      /cors\/origins/,
    ],
    ['gone', { dropHeaders: [origin] }, /there is no Access-Control-Allow-Origin/, /cors\/origins/],
    [
      'no credentials',
      { dropHeaders: ['access-control-allow-credentials'] },
      /-Credentials: true is missing/,
      /cors/,
    ],
  ]
  for (const [what, faults, text, cure] of rows) {
    const looked = await look(await behind(t, { name: 'nginx', ...faults }), { pace: SHORT })
    onlyWrong(t, looked, 'preflights', 'cors')
    t.match(looked.one('cors'), { state: 'wrong', text }, what)
    t.match(looked.one('preflights'), { state: 'wrong', text }, what)
    t.match(looked.cures('cors').join('\n'), cure, what)
  }
})

t.test('preflights that a proxy answers itself', async (t) => {
  const answers = (status: number, headers: Record<string, string> = {}): ProxyFaults => ({
    name: 'nginx',
    own: ({ method }) => (method === 'OPTIONS' ? { status, headers } : undefined),
  })
  const allowing = (more: Record<string, string>) => ({
    'access-control-allow-origin': 'app://obsidian.md',
    'access-control-allow-credentials': 'true',
    ...more,
  })
  const headers = { 'access-control-allow-headers': 'Authorization, Content-Type' }
  const rows: [faults: ProxyFaults, text: RegExp][] = [
    [answers(401), /there is no Access-Control-Allow-Origin \(401/],
    [answers(403, allowing({})), /the status is 403/],
    [answers(204, allowing({ 'access-control-allow-methods': 'GET, POST' })), /Methods lacks PUT, DELETE/],
    [
      answers(204, allowing({ 'access-control-allow-methods': 'PUT, DELETE' })),
      /Headers lacks authorization/,
    ],
  ]
  for (const [faults, text] of rows) {
    const looked = await look(await behind(t, faults), { pace: SHORT, origins: ['app://obsidian.md'] })
    t.match(looked.one('preflights'), { state: 'wrong', text })
    t.match(looked.cures('preflights').join('\n'), /nginx: delete the lines that answer OPTIONS/)
    t.equal(looked.one('cors').state, 'fine')
  }
  const some = answers(204, allowing({ ...headers, 'access-control-allow-methods': 'GET, PUT, DELETE' }))
  t.match((await look(await behind(t, some), { pace: SHORT })).one('preflights'), {
    text: /^Not allowed to capacitor:\/\/localhost, http:\/\/localhost: /,
  })
})

t.test('refusals without headers of CORS', async (t) => {
  const faults: ProxyFaults = {
    own: ({ url, method }) =>
      url?.includes('_local/') && method === 'GET' ? { status: 404, text: 'gone' } : undefined,
  }
  const looked = await look(await behind(t, faults), { pace: SHORT })
  t.match(looked.one('cors'), { state: 'wrong', text: /may not read refusals/ })
})

t.test('what is taken off on the way', async (t) => {
  const naked = await look(await behind(t, { dropRequestHeaders: ['authorization'] }), { pace: SHORT })
  t.match(naked.one('credentials'), { state: 'wrong', text: /do not arrive at the server/ })
  t.match(naked.cures('credentials')[0], /^nginx: proxy_set_header Authorization/)
  t.match(naked.findings.at(-1), { name: 'rest', state: 'skipped' })
  const nameless = await look(await behind(t, { name: 'nginx/1.27' }), { pace: SHORT })
  onlyWrong(t, nameless)
  t.match(nameless.one('version'), { state: 'note', text: /The header Server says nginx\/1\.27/ })
  t.strictSame(nameless.cures('version'), ['nginx: proxy_pass_header Server;'])
  t.match(nameless.one('server').text, /^settee .*, behind nginx\.$/)
})

t.test('a proxy that goes by the name of the server, but for what it refuses itself', async (t) => {
  const faults: ProxyFaults = {
    maxBody: 1024,
    own: ({ method }) =>
      method === 'TRACE' ? { status: 405, headers: { server: 'nginx/1.22.1' } } : undefined,
  }
  t.strictSame((await look(await behind(t, faults))).cures('bodies'), ['nginx: client_max_body_size 0;'])
})

t.test('paths that are decoded', async (t) => {
  const looked = await look(await behind(t, { rewrite: (path) => path.replaceAll('%2F', '/') }), {
    pace: SHORT,
  })
  onlyWrong(t, looked, 'paths')
  t.match(looked.one('paths').text, /does not arrive: 400 bad_request/)
  t.match(looked.cures('paths')[0], /^nginx: proxy_pass http:\/\/127\.0\.0\.1:5984; {2}# no slash/)
  const plus = await look(await behind(t, { rewrite: (path) => path.replaceAll('%2B', '%20') }), {
    pace: SHORT,
  })
  t.match(plus.one('paths'), { state: 'wrong', text: /it became _local\/settee-doctor-\w+-path\/ =/ })
  const left = await server.request('GET', '/notes/_local_docs', { auth: 'anna:secret' })
  t.strictSame(left.json.rows, [], 'nothing is left')
})

t.test('a server that does not know its address', async (t) => {
  const looked = await look(await behind(t, { setRequestHeaders: { host: 'inside:5984' } }), { pace: SHORT })
  t.match(looked.one('location'), { state: 'note', text: /^The server takes http:\/\/inside:5984 for/ })
  t.match(looked.cures('location').join('\n'), /trusted_proxies.*\nnginx: proxy_set_header Host/)
})

t.test('who else may answer', async (t) => {
  const all = (status: number, headers = {}, text = ''): ProxyFaults => ({
    own: () => ({ status, headers: { 'content-type': 'text/html', ...headers }, text }),
  })
  const rows: [faults: ProxyFaults, text: RegExp, cure: RegExp][] = [
    [
      all(301, { location: 'https://notes.example/' }),
      /sent on to https:\/\/notes\.example/,
      /that is meant/,
    ],
    [all(502, { server: 'nginx' }), /answers 502: it does not reach/, /^nginx: proxy_pass[^\n]*$/],
    [all(502, { 'content-type': 'text/plain' }, 'Bad Gateway'), /answers 502/, /^Traefik: [^\n]*$/],
    [all(530, { 'cf-ray': '1' }), /answers 530/, /^Cloudflare: the tunnel/],
    [all(401, { server: 'Caddy' }), /asks for a password of its own/, /^Caddy: delete basic_auth/],
    [
      all(403, { 'cf-mitigated': 'challenge', server: 'cloudflare' }),
      /asks for a human/,
      /^Cloudflare: Security/,
    ],
    [
      all(200, {}, '<html>It works!</html>'),
      /no CouchDB: GET \/ answers 200 with text\/html/,
      /Look at the port/,
    ],
    [all(400, {}, 'The plain HTTP request was sent to HTTPS port'), /This port speaks TLS/, /https/],
  ]
  for (const [faults, text, cure] of rows) {
    const looked = await look(await behind(t, faults))
    t.match(looked.one('server'), { state: 'wrong', text })
    t.match(looked.cures('server').join('\n'), cure)
    t.equal(looked.findings.at(-1)?.name, 'server')
  }
})

t.test('nobody answers', async (t) => {
  const mute = await look(await behind(t, { own: () => undefined, swallows: true }), {
    pace: { ...SHORT, bodies: [4096], bodiesMs: 500, bodyGraceMs: 100 },
  })
  t.match(mute.one('bodies'), { state: 'wrong', text: /do not arrive: no answer in time/ })
})
