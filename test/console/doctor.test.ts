/** What the console's doctor concludes from its facts. */
import t from 'tap'
import type { FeedFacts, ServerReply } from '../../console/src/screens/doctor/facts.ts'
import { byUrgency, reportOf } from '../../console/src/screens/doctor/finding.ts'
import * as verdicts from '../../console/src/screens/doctor/verdicts.ts'
import { detectStack } from '../../src/doctor/advice.ts'

const AT = Date.UTC(2026, 2, 1, 12)
const WELCOME = { couchdb: 'Welcome', vendor: { name: 'settee', version: '1.2.3' } }
const HEADERS = {
  server: 'CouchDB/3.5.0 (settee/1.2.3)',
  'cache-control': 'must-revalidate',
  'x-couch-request-id': '0123456789',
  'content-type': 'application/json',
  date: new Date(AT).toUTCString(),
}

function reply(
  status: number,
  json: unknown,
  headers: Readonly<Record<string, string>> = HEADERS,
): ServerReply {
  return {
    status,
    json,
    text: JSON.stringify(json) ?? '',
    headers: Object.entries(headers),
    at: AT,
    ms: 7,
    protocol: '',
  }
}

const NGINX: verdicts.Surroundings = {
  isSecure: true,
  isLoopback: false,
  origin: 'https://notes.example.org',
  stack: detectStack([{ raw: [['server', 'nginx']], text: '', json: WELCOME }]),
}

t.test('connection, server and HTTP', async (t) => {
  t.match(verdicts.encryptionFinding({ ...NGINX, isSecure: false }), { state: 'note', help: /TLS/ })
  t.match(verdicts.encryptionFinding({ ...NGINX, isSecure: false, isLoopback: true }), { state: 'fine' })
  t.match(verdicts.serverFinding(reply(200, WELCOME)), {
    state: 'fine',
    text: 'settee 1.2.3 answers after 7 ms.',
  })
  t.match(verdicts.serverFinding(reply(502, undefined)), { state: 'wrong', text: /502/ })
  t.match(verdicts.serverFinding({ failure: 'late' }), { state: 'wrong', text: /no answer in time/ })
  t.match(verdicts.httpFinding('h2', NGINX), { state: 'fine' })
  t.match(verdicts.httpFinding('http/1.1', NGINX), {
    state: 'note',
    cures: [{ place: 'nginx', line: /http2 on/ }],
  })
  t.match(verdicts.httpFinding('', NGINX), { state: 'skipped' })
})

t.test('headers that a proxy changes', async (t) => {
  const found = (headers: Readonly<Record<string, string>>) =>
    verdicts.headersFinding(reply(200, WELCOME, { ...HEADERS, ...headers }), NGINX)
  t.match(found({}), { state: 'fine' })
  t.match(found({ 'access-control-allow-origin': 'a, a' }), {
    state: 'wrong',
    cures: [{ line: /add_header/ }],
  })
  t.match(found({ 'cache-control': 'max-age=3600' }), { state: 'wrong', text: /max-age=3600/ })
  t.match(found({ server: 'nginx' }), { state: 'note', cures: [{ line: 'proxy_pass_header Server;' }] })
  const { 'x-couch-request-id': _id, ...others } = HEADERS
  t.match(verdicts.headersFinding(reply(200, WELCOME, others), NGINX), { state: 'note', text: /Request-ID/ })
})

t.test('clocks', async (t) => {
  const off = (seconds: number) =>
    verdicts.clockFinding(reply(200, WELCOME, { date: new Date(AT + seconds * 1000).toUTCString() })).state
  t.strictSame([off(0), off(-59), off(100), off(-400)], ['fine', 'fine', 'note', 'wrong'])
  t.match(verdicts.clockFinding(reply(200, WELCOME, {})), { state: 'note' })
})

t.test('logins', async (t) => {
  const session = (name: string | null, authenticated?: string) =>
    reply(200, { userCtx: { name }, info: { authenticated } })
  t.equal(verdicts.sessionFinding(session('anna', 'cookie'), NGINX).state, 'fine')
  t.equal(verdicts.sessionFinding(session('anna', 'proxy'), NGINX).state, 'note')
  t.equal(verdicts.sessionFinding(session(null), NGINX).state, 'wrong')
  t.equal(verdicts.passwordFinding(session('anna'), 'anna', NGINX).state, 'fine')
  t.match(verdicts.passwordFinding(session(null), 'anna', NGINX), {
    state: 'wrong',
    cures: [{ line: /Authorization/ }],
  })
  t.match(verdicts.passwordFinding(reply(401, undefined), 'anna', NGINX), { cures: [{ line: /auth_basic/ }] })
  t.equal(verdicts.passwordFinding(null, 'anna', NGINX).state, 'skipped')
})

t.test('origins of apps', async (t) => {
  const origins = 'app://obsidian.md, capacitor://localhost,http://localhost'
  t.equal(verdicts.originsFinding({ isOn: true, origins }, NGINX).state, 'fine')
  t.equal(verdicts.originsFinding({ isOn: true, origins: '*' }, NGINX).state, 'fine')
  t.match(verdicts.originsFinding({ isOn: true, origins: 'http://localhost' }, NGINX), {
    state: 'note',
    text: /obsidian/,
    cures: [{ place: 'settee' }],
  })
  t.equal(verdicts.originsFinding({ isOn: false, origins }, NGINX).state, 'note')
  t.equal(verdicts.originsFinding(null, NGINX).state, 'skipped')
})

t.test('addresses and paths', async (t) => {
  const put = (location: string) => reply(201, { ok: true }, { ...HEADERS, location })
  t.equal(verdicts.locationFinding(put('https://notes.example.org/notes/_local/x'), NGINX).state, 'fine')
  t.match(verdicts.locationFinding(put('http://127.0.0.1:5984/notes/_local/x'), NGINX), {
    state: 'note',
    cures: [{ place: 'settee' }, { line: /X-Forwarded-Proto/ }],
  })
  t.equal(verdicts.pathsFinding(reply(200, {}), NGINX).state, 'fine')
  t.match(verdicts.pathsFinding(reply(404, { error: 'not_found', reason: 'missing' }), NGINX), {
    state: 'wrong',
  })
  t.match(verdicts.localFinding(reply(405, undefined), NGINX), {
    state: 'wrong',
    cures: [{ line: /limit_except/ }],
  })
  t.match(verdicts.localFinding(reply(507, { error: 'full', reason: 'x' }), NGINX), {
    state: 'wrong',
    cures: [],
  })
})

t.test('feeds that a proxy holds up or cuts', async (t) => {
  const facts = (arrivals: readonly number[], more: Partial<FeedFacts> = {}): FeedFacts => ({
    status: 200,
    arrivals,
    ended: 'open',
    watchedMs: 6000,
    heartbeatMs: 1000,
    ...more,
  })
  const state = (fed: FeedFacts) => verdicts.feedFinding(fed, NGINX).state
  t.equal(state(facts([10, 1010, 2020, 3030])), 'fine')
  t.equal(state(facts([])), 'wrong')
  t.equal(state(facts([3900, 3901, 3902])), 'wrong', 'all at once, and late')
  t.equal(state(facts([10, 4000])), 'wrong')
  t.equal(state(facts([10], { ended: 'cut' })), 'wrong')
  t.equal(state(facts([], { status: 403 })), 'wrong')
  const long = (arrivals: readonly number[], ended: FeedFacts['ended'] = 'open') =>
    verdicts.longFeedFinding(facts(arrivals, { ended, heartbeatMs: 10_000, watchedMs: 60_000 }), NGINX).state
  t.equal(long([10_000, 20_000, 30_000, 40_000, 50_000, 59_000]), 'fine')
  t.equal(long([10_000, 20_000]), 'wrong', 'silent')
  t.equal(long([10_000, 60_000], 'order'), 'wrong')
  t.equal(verdicts.longFeedFinding(null, NGINX).state, 'skipped')
})

t.test('bodies', async (t) => {
  const sent = (bytes: number, answer: Parameters<typeof verdicts.isServerReply>[0]) => ({
    bytes,
    reply: answer,
    ms: 100,
  })
  t.match(
    verdicts.bodiesFinding([sent(1_000_000, reply(201, [])), sent(10_000_000, reply(201, []))], NGINX),
    {
      state: 'fine',
      text: 'Bodies of 1 MB and 10 MB arrive, at 100 MB a second.',
    },
  )
  t.match(verdicts.bodiesFinding([sent(1_000_000, reply(413, undefined))], NGINX), {
    text: /a proxy: 413/,
    cures: [{ place: 'nginx', line: 'client_max_body_size 0;' }],
  })
  t.match(verdicts.bodiesFinding([sent(1_000_000, reply(413, { error: 'too_large' }))], NGINX), {
    cures: [{ place: 'settee' }],
  })
  t.match(verdicts.bodiesFinding([sent(1_000_000, { failure: 'late' })], NGINX), {
    cures: [{ line: /timeout/ }],
  })
  t.match(verdicts.bodiesFinding([sent(1_000_000, reply(504, undefined))], NGINX), { text: /too long/ })
})

t.test('the report has a line for each finding, and what to do below it', async (t) => {
  const findings = [verdicts.httpFinding('h2', NGINX), verdicts.pathsFinding({ failure: 'none' }, NGINX)]
  const lines = reportOf(byUrgency(findings)).split('\n')
  t.match(lines[0], /^wrong: Paths: /)
  t.match(lines[1], /^ {4}nginx: proxy_pass/)
  t.match(lines.at(-1), /^fine: HTTP: /)
})
