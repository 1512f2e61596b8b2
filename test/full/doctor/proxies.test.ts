/** Proxies with each fault in front of a real settee. The doctor names the fault, and the line to change. */
import t, { type Test } from 'tap'
import { FEED, look, NO_FEED, onlyWrong } from '../../doctor/looking.ts'
import { type ProxyFaults, startProxy } from '../../doctor/proxy.ts'
import { startTestServer } from '../../helpers/server.ts'

const server = await startTestServer(t, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
await server.request('PUT', '/notes', { auth: 'anna:secret' })

async function behind(t: Test, faults: ProxyFaults): Promise<string> {
  return `http://anna:secret@127.0.0.1:${await startProxy(t, server.url, faults)}/notes`
}

const SHORT = { bodies: [] }

async function forgetLocals(): Promise<void> {
  const { json } = await server.request('GET', '/notes/_local_docs', { auth: 'anna:secret' })
  for (const { id } of json.rows) {
    const path = `/notes/_local/${encodeURIComponent(id.slice('_local/'.length))}`
    await server.request('DELETE', path, { auth: 'anna:secret' })
  }
}

t.test('a proxy without a fault', async (t) => {
  const looked = await look(await behind(t, {}), { limits: FEED })
  onlyWrong(t, looked)
  t.equal(looked.one('feed').state, 'fine')
  t.match(looked.one('server').text, /^settee \d/)
})

t.test('a feed that a proxy buffers', async (t) => {
  const looked = await look(await behind(t, { name: 'nginx/1.22.1', buffers: true }), {
    limits: { ...SHORT, ...NO_FEED },
  })
  t.match(looked.one('feed'), { state: 'wrong', text: /^Nothing of _changes arrived in 1\.\d s/ })
  t.match(looked.cures('feed'), [/^nginx: proxy_buffering off;/])
  const lumpy = await look(await behind(t, { name: 'Caddy', stopsAfter: 1 }), {
    limits: { ...SHORT, ...NO_FEED },
  })
  t.match(lumpy.one('feed'), { state: 'wrong', text: /was silent for 1\.\d s/ })
  t.match(lumpy.cures('feed'), [/^Caddy: flush_interval -1/])
})

t.test('a feed that is cut', async (t) => {
  const soon = await look(await behind(t, { cutsAfter: 100 }), {
    limits: { ...SHORT, feedMs: 10_000, beats: 20 },
  })
  t.match(soon.one('feed'), { state: 'wrong', text: /was cut at once/ })
  t.match(soon.cures('feed'), [/nginx: proxy_read_timeout/, /Caddy/, /Traefik/, /Cloudflare/])
  // Heartbeats that are late on a busy machine are still within the limit.
  const wait = { ...SHORT, longMs: 5000, longHeartbeatMs: 1000 }
  const late = await look(await behind(t, { name: 'nginx', cutsAfter: 3000 }), { limits: wait })
  t.match(late.one('long feed'), { state: 'wrong', text: /^A feed with heartbeats was cut after 3 s/ })
  t.match(late.cures('long feed'), [/^nginx: proxy_read_timeout/])
  const idle = await look(await behind(t, { name: 'nginx', cutsIdleAfter: 3000 }), { limits: wait })
  t.match(idle.one('long feed'), { state: 'note', text: /^A feed without heartbeats was cut after 3 s/ })
  const none = await look(await behind(t, {}), { limits: { ...wait, longMs: 300 } })
  t.match(none.one('long feed'), {
    state: 'fine',
    text: /^A feed with heartbeats stayed open for .* stayed open as long/,
  })
})

t.test('a long feed that a proxy ends or buffers', async (t) => {
  const wait = { ...SHORT, longMs: 1500, longHeartbeatMs: 200 }
  const rows: [faults: ProxyFaults, text: RegExp, cure: RegExp][] = [
    [{ endsAfter: 500 }, /^A feed with heartbeats was ended after \d s/, /^nginx: proxy_read_timeout/],
    [{ buffers: true }, /^A feed with heartbeats was silent during 2 s/, /^nginx: proxy_buffering off;/],
    [{ stopsAfter: 1 }, /^A feed with heartbeats was silent for \d s/, /^nginx: proxy_buffering off;/],
  ]
  for (const [faults, text, cure] of rows) {
    const looked = await look(await behind(t, { name: 'nginx', ...faults }), {
      limits: { ...wait, ...NO_FEED },
    })
    t.match(looked.one('long feed'), { state: 'wrong', text })
    t.match(looked.cures('long feed'), [cure])
  }
})

t.test('a feed that another server answers', async (t) => {
  const rows: [status: number, text: RegExp, cure: RegExp][] = [
    [403, /^_changes answers 403/, /^you: Look for a rule about _changes/],
    [302, /^_changes answers 302/, /^you: Look for a rule about _changes/],
    [502, /^_changes answers 502/, /^nginx: proxy_pass/],
    [504, /^_changes answers 504/, /^nginx: proxy_read_timeout/],
    [200, /^_changes was ended at once/, /^nginx: proxy_read_timeout/],
  ]
  for (const [status, text, cure] of rows) {
    const own: ProxyFaults['own'] = ({ url }) => (url?.includes('/_changes?') ? { status } : undefined)
    const looked = await look(await behind(t, { name: 'nginx', own }), { limits: SHORT })
    t.match(looked.one('feed'), { state: 'wrong', text })
    t.match(looked.cures('feed'), [cure])
  }
})

t.test('a feed that disappears', async (t) => {
  const own: ProxyFaults['own'] = (request) => {
    if (request.url?.includes('/_changes?')) request.socket.destroy()
    return undefined
  }
  const looked = await look(await behind(t, { own }), { limits: SHORT })
  t.match(looked.one('feed'), { state: 'wrong', text: /^_changes fails: the connection was closed/ })
})

t.test('bodies that are too large', async (t) => {
  const nginx = await look(await behind(t, { name: 'nginx', maxBody: 1_048_576 }))
  t.match(nginx.one('bodies'), {
    state: 'wrong',
    text: /^A body of 1 MB is too large for the proxy \(nginx\): 413/,
  })
  t.strictSame(nginx.cures('bodies'), ['nginx: client_max_body_size 0;'])
  const reset = await look(await behind(t, { maxBody: 1_048_576, refusal: 'reset' }))
  t.match(reset.one('bodies'), {
    state: 'wrong',
    text: /^A body of 1 MB does not arrive: the connection was closed/,
  })
  const late = await look(
    await behind(t, { own: ({ url }) => (url?.includes('_bulk_docs') ? { status: 504 } : undefined) }),
  )
  t.match(late.one('bodies'), { state: 'wrong', text: /takes too long: 504/ })
  t.match(late.cures('bodies')[0], /^nginx: client_body_timeout/)
})

t.test('a slow line is not a fault, but a blocked body is', async (t) => {
  const limits = { ...NO_FEED, bodies: [67_109_888], bodiesMs: 2400, bodyGraceMs: 600 }
  const [slow, stuck] = await Promise.all(
    [20, Number.POSITIVE_INFINITY].map(async (readsEvery) =>
      look(await behind(t, { readsEvery }), { limits }),
    ),
  )
  t.match(slow?.one('bodies'), {
    state: 'note',
    text: /^A body of 64 MB was still being sent after \d s: the line/,
  })
  t.match(stuck?.one('bodies'), {
    state: 'wrong',
    text: /^A body of 64 MB does not arrive: no answer in time/,
  })
  t.match(stuck?.cures('bodies')[0], /^nginx: client_body_timeout/)
})

t.test("the server's own limit is distinguished from a proxy's", async (t) => {
  const path = '/_node/_local/_config/chttpd/max_http_request_size'
  await server.request('PUT', path, { auth: 'anna:secret', body: '"100000"' })
  t.teardown(() => server.request('DELETE', path, { auth: 'anna:secret' }))
  const looked = await look(await behind(t, { name: 'nginx' }))
  t.match(looked.one('bodies'), { state: 'wrong', text: /too large for the server: 413/ })
  t.match(looked.cures('bodies'), [/^settee: curl .*max_http_request_size/])
})

t.test('CORS headers that are duplicated, wrong or missing', async (t) => {
  const origin = 'access-control-allow-origin'
  const rows: [what: string, faults: ProxyFaults, text: RegExp, cure: RegExp][] = [
    [
      'star, of whom',
      { setHeaders: { [origin]: '*' } },
      /is \*, which browsers/,
      /^settee: .*credentials "true"/,
    ],
    ['twice', { addHeaders: { [origin]: '*' } }, /is sent twice/, /add_header Access-Control/],
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
    const looked = await look(await behind(t, { name: 'nginx', ...faults }), { limits: SHORT })
    onlyWrong(t, looked, 'preflights', 'cors')
    t.match(looked.one('cors'), { state: 'wrong', text }, what)
    t.match(looked.one('preflights'), { state: 'wrong', text }, what)
    t.match(looked.cures('cors').join('\n'), cure, what)
  }
})

t.test('preflights that a proxy answers', async (t) => {
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
    const looked = await look(await behind(t, faults), { limits: SHORT, origins: ['app://obsidian.md'] })
    t.match(looked.one('preflights'), { state: 'wrong', text })
    t.match(looked.cures('preflights').join('\n'), /nginx: delete the lines that answer OPTIONS/)
    t.equal(looked.one('cors').state, 'fine')
  }
  const some = answers(204, allowing({ ...headers, 'access-control-allow-methods': 'GET, PUT, DELETE' }))
  t.match((await look(await behind(t, some), { limits: SHORT })).one('preflights'), {
    text: /^Not allowed for capacitor:\/\/localhost, http:\/\/localhost: /,
  })
})

t.test('refusals without CORS headers', async (t) => {
  const faults: ProxyFaults = {
    own: ({ url, method }) =>
      url?.includes('_local/') && method === 'GET' ? { status: 404, text: 'gone' } : undefined,
  }
  const looked = await look(await behind(t, faults), { limits: SHORT })
  t.match(looked.one('cors'), { state: 'wrong', text: /cannot read refusals/ })
})

t.test('writes that a proxy refuses', async (t) => {
  const refuses = (status: number, methods: readonly string[]): ProxyFaults => ({
    name: 'nginx',
    own: ({ method, url }) =>
      methods.includes(method!) && url?.includes('_local/') ? { status, text: '<html>' } : undefined,
  })
  const put = await look(await behind(t, refuses(403, ['PUT'])), { limits: SHORT })
  t.match(put.one('local'), { state: 'wrong', text: /^Nothing can be written: 403\./ })
  t.strictSame(put.cures('local'), ['nginx: delete limit_except { ... }'])
  const gone = await look(await behind(t, refuses(502, ['PUT'])), { limits: SHORT })
  t.match(gone.cures('local'), [/^nginx: proxy_pass/])
  const stays = await look(await behind(t, refuses(405, ['DELETE'])), { limits: SHORT })
  t.match(stays.one('local'), {
    state: 'wrong',
    text: /^The document that was written could not be deleted: 405/,
  })
  t.match(stays.cures('local'), [/^you: Delete the document _local\/settee-doctor-\w+ by hand/])
  await forgetLocals()
})

t.test('nothing is left behind when answers are lost', async (t) => {
  for (const lost of ['PUT', 'DELETE']) {
    let times = 0
    const loses: ProxyFaults['loses'] = ({ method, url }) =>
      method === lost && url?.includes('_local/') === true && times++ < 2
    const looked = await look(await behind(t, { loses }), { limits: SHORT })
    if (lost === 'PUT') t.match(looked.one('local'), { state: 'wrong', text: /^Nothing can be written/ })
    t.equal(times > 0, true)
    const left = await server.request('GET', '/notes/_local_docs', { auth: 'anna:secret' })
    t.strictSame(left.json.rows, [], lost)
  }
})

t.test('a wrong password is tried once, even if the server does not say who is known', async (t) => {
  let logins = 0
  const own: ProxyFaults['own'] = ({ url, headers }) => {
    if (url === '/_session') return { status: 404, text: 'no' }
    if (headers.authorization !== undefined) logins += 1
    return undefined
  }
  const address = (await behind(t, { own })).replace('secret', 'wrong')
  const looked = await look(address, { limits: SHORT })
  t.match(looked.one('credentials'), { state: 'wrong', text: /^Name or password is wrong/ })
  t.equal(logins, 1)
  t.equal((await look(await behind(t, { own }), { limits: SHORT })).one('credentials').state, 'fine')
})

t.test('two Server headers, as Caddy sends them, are one header to a page', async (t) => {
  const both = { server: ['Caddy', 'CouchDB/3.5.0 (settee/0.1.0)'] }
  const looked = await look(await behind(t, { setHeaders: both }), { limits: SHORT })
  t.match(looked.one('version'), { state: 'fine', text: /Caddy, CouchDB\/3\.5\.0 \(settee\/0\.1\.0\)/ })
  t.match(looked.one('server').text, /behind Caddy\.$/)
})

t.test('headers that a proxy removes', async (t) => {
  const naked = await look(await behind(t, { dropRequestHeaders: ['authorization'] }), { limits: SHORT })
  t.match(naked.one('credentials'), { state: 'wrong', text: /do not reach the server/ })
  t.match(naked.cures('credentials')[0], /^nginx: proxy_set_header Authorization/)
  t.match(naked.findings.at(-1), { name: 'rest', state: 'skipped' })
  const nameless = await look(await behind(t, { name: 'nginx/1.27' }), { limits: SHORT })
  onlyWrong(t, nameless)
  t.match(nameless.one('version'), { state: 'note', text: /The header Server is nginx\/1\.27/ })
  t.strictSame(nameless.cures('version'), ['nginx: proxy_pass_header Server;'])
  t.match(nameless.one('server').text, /^settee .*, behind nginx\.$/)
})

t.test('a proxy that sends the name of the server, except in its own refusals', async (t) => {
  const faults: ProxyFaults = {
    maxBody: 1024,
    own: ({ method }) =>
      method === 'TRACE' ? { status: 405, headers: { server: 'nginx/1.22.1' } } : undefined,
  }
  t.strictSame((await look(await behind(t, faults))).cures('bodies'), ['nginx: client_max_body_size 0;'])
})

t.test('paths that a proxy decodes', async (t) => {
  const looked = await look(await behind(t, { rewrite: (path) => path.replaceAll('%2F', '/') }), {
    limits: SHORT,
  })
  onlyWrong(t, looked, 'paths')
  t.match(looked.one('paths').text, /does not arrive unchanged: 400 bad_request/)
  t.match(looked.cures('paths')[0], /^nginx: proxy_pass http:\/\/127\.0\.0\.1:5984; {2}# no slash/)
  const plus = await look(await behind(t, { rewrite: (path) => path.replaceAll('%2B', '%20') }), {
    limits: SHORT,
  })
  t.match(plus.one('paths'), { state: 'wrong', text: /it became _local\/settee-doctor-\w+-path\/ =/ })
  const left = await server.request('GET', '/notes/_local_docs', { auth: 'anna:secret' })
  t.strictSame(left.json.rows, [], 'nothing is left')
})

t.test('a server that does not know its address', async (t) => {
  const looked = await look(await behind(t, { setRequestHeaders: { host: 'inside:5984' } }), {
    limits: SHORT,
  })
  t.match(looked.one('location'), {
    state: 'note',
    text: /^The server assumes that its address is http:\/\/inside:5984/,
  })
  t.match(looked.cures('location').join('\n'), /trusted_proxies.*\nnginx: proxy_set_header Host/)
})

t.test('other programs that may answer', async (t) => {
  const all = (status: number, headers = {}, text = ''): ProxyFaults => ({
    own: () => ({ status, headers: { 'content-type': 'text/html', ...headers }, text }),
  })
  const rows: [faults: ProxyFaults, text: RegExp, cure: RegExp][] = [
    [
      all(301, { location: 'https://notes.example/' }),
      /redirects to https:\/\/notes\.example/,
      /that it redirects to/,
    ],
    [
      all(302, {
        location:
          'https://team.cloudflareaccess.com/cdn-cgi/access/login/notes.example?kid=hidden&meta=hidden',
        'cf-ray': '1',
      }),
      /redirects to https:\/\/team\.cloudflareaccess\.com\/cdn-cgi\/access\/login\/notes\.example, which looks like a login/,
      /^Cloudflare: Zero Trust > Access[\s\S]*\nyou: .*--header 'NAME: VALUE'/,
    ],
    [
      all(303, { location: 'https://auth.example/?rd=https%3A%2F%2Fnotes.example%2F', server: 'nginx' }),
      /redirects to https:\/\/auth\.example\/, which looks like a login/,
      /^nginx: delete the lines auth_basic, auth_basic_user_file and auth_request/,
    ],
    [
      all(302, { location: '/oauth2/start?rd=%2F' }),
      /\/oauth2\/start, which looks like a login/,
      /nginx: delete/,
    ],
    [all(307, { location: '/' }), /which looks like a login/, /nginx: delete/],
    [
      all(301, { location: 'https://www.notes.example' }),
      /redirects to .*on the way/,
      /that it redirects to/,
    ],
    [all(403, { server: 'Caddy' }), /refuses the request with 403/, /^Caddy: delete basic_auth/],
    [all(502, { server: 'nginx' }), /answers 502: it does not reach/, /^nginx: proxy_pass[^\n]*$/],
    [all(502, { 'content-type': 'text/plain' }, 'Bad Gateway'), /answers 502/, /^Traefik: [^\n]*$/],
    [all(530, { 'cf-ray': '1' }), /answers 530/, /^Cloudflare: set the tunnel/],
    [all(401, { server: 'Caddy' }), /asks for a password of its own/, /^Caddy: delete basic_auth/],
    [
      all(403, { 'cf-mitigated': 'challenge', server: 'cloudflare' }),
      /asks for a human/,
      /^Cloudflare: Security/,
    ],
    [
      all(200, {}, '<html>It works!</html>'),
      /not a CouchDB: GET \/ answers 200 with text\/html/,
      /Check the port/,
    ],
    [all(400, {}, 'The plain HTTP request was sent to HTTPS port'), /This port uses TLS/, /https/],
  ]
  for (const [faults, text, cure] of rows) {
    const looked = await look(await behind(t, faults))
    t.match(looked.one('server'), { state: 'wrong', text })
    t.match(looked.cures('server').join('\n'), cure)
    t.equal(looked.findings.at(-1)?.name, 'server')
  }
})

t.test('a proxy that blocks _find for LiveSync', async (t) => {
  const version = '/notes/obsydian_livesync_version'
  const { json } = await server.request('PUT', version, { auth: 'anna:secret', body: {} })
  t.teardown(() => server.request('DELETE', `${version}?rev=${json.rev}`, { auth: 'anna:secret' }))
  const find = (status: number, text = '<html>'): ProxyFaults => ({
    name: 'nginx',
    own: ({ url }) => (url?.endsWith('/_find') ? { status, text } : undefined),
  })
  const rows: [faults: ProxyFaults, text: RegExp, cure: RegExp][] = [
    [find(403), /cannot start to sync .* \(403/, /^you: Look for a rule about _find/],
    [find(504), /fails \(504/, /^nginx: proxy_read_timeout/],
    [find(502), /fails \(502/, /^nginx: proxy_pass/],
    [
      find(404, '{"error":"not_found","reason":"missing"}'),
      /404 not_found: missing/,
      /^you: Update the server/,
    ],
    [find(200, '{}'), /fails \(200/, /./],
  ]
  for (const [faults, text, cure] of rows) {
    const looked = await look(await behind(t, faults), { limits: SHORT })
    t.match(looked.one('find'), { state: 'wrong', text })
    t.match(looked.cures('find').join('\n'), cure)
  }
  t.equal((await look(await behind(t, {}), { limits: SHORT })).one('find').state, 'fine')
})

t.test('no server answers', async (t) => {
  const mute = await look(await behind(t, { own: () => undefined, swallows: true }), {
    limits: { ...SHORT, bodies: [4096], bodiesMs: 500, bodyGraceMs: 100 },
  })
  t.match(mute.one('bodies'), { state: 'wrong', text: /does not arrive: no answer in time/ })
})

t.test('a login wall that lets an app pass by its headers', async (t) => {
  const wall: ProxyFaults['own'] = ({ headers, method }) => {
    if (method === 'OPTIONS') return undefined
    const isApp =
      headers['cf-access-client-id'] === 'abc.access' && headers['cf-access-client-secret'] === 'hidden word'
    return isApp ? undefined : { status: 302, headers: { location: 'https://auth.example/login?rd=x' } }
  }
  const address = await behind(t, { own: wall })
  t.match((await look(address, { limits: SHORT })).one('server'), { state: 'wrong', text: /login page/ })
  const headers = { 'cf-access-client-id': 'abc.access', 'cf-access-client-secret': 'hidden word' }
  const passed = await look(address, { limits: SHORT, headers })
  onlyWrong(t, passed)
  t.match(passed.one('preflights'), { state: 'fine' })
  const wrong = { ...headers, 'cf-access-client-id': 'other.access' }
  t.match((await look(address, { limits: SHORT, headers: wrong })).one('server'), { state: 'wrong' })
  const asksBack: ProxyFaults['own'] = ({ headers }) => ({
    status: 500,
    headers: { 'content-type': 'application/json' },
    text: JSON.stringify({ error: 'no', reason: `not ${String(headers['cf-access-client-secret'])}` }),
  })
  const repeated = await look(await behind(t, { own: asksBack }), { limits: SHORT, headers })
  t.notMatch(JSON.stringify(repeated.findings), /hidden/)
  t.match(repeated.one('server').text, /a text that repeats a header/)
})

t.test('a server below a path', async (t) => {
  const stripped = (path: string) => path.replace(/^\/obsidian(?=\/)/, '')
  const below = async (faults: ProxyFaults, path: string) =>
    look((await behind(t, faults)).replace('/notes', path), { limits: FEED, mobile: false })
  const well = await below({ rewrite: stripped, own: onlyBelow }, '/obsidian/notes')
  onlyWrong(t, well)
  t.match(well.one('address').text, /\/obsidian\/notes$/)
  const whole = await below({ own: onlyBelow }, '/obsidian/notes')
  t.match(whole.one('server'), {
    state: 'wrong',
    text: /GET \/obsidian\/ answers 404/,
    cures: [{ line: /serves the server at \/obsidian\/ and removes this path/ }],
  })
})

/** A site that has something else at all other paths. */
const onlyBelow: NonNullable<ProxyFaults['own']> = ({ url, method }) =>
  url?.startsWith('/obsidian/') || method === 'TRACE'
    ? undefined
    : { status: 200, text: '<html>Another page' }
