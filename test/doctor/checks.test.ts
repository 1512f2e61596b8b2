/** Findings about facts that no server of the tests can show. */
import { readFile } from 'node:fs/promises'
import fc from 'fast-check'
import t from 'tap'
import { isWell, jsonOf, linesOf, reportOf, summaryOf } from '../../src/cli/doctor-command.ts'
import { formatAddress, parseAddress } from '../../src/core/address.ts'
import { ADVICE, type CheckContext, detectStack } from '../../src/doctor/advice.ts'
import { checkBodies } from '../../src/doctor/body-checks.ts'
import { checkCredentials } from '../../src/doctor/credential-checks.ts'
import { checkDamage } from '../../src/doctor/damage-checks.ts'
import { isAnswer, limitsFor, type Reply } from '../../src/doctor/doctor-client.ts'
import { checkFeed, checkLongFeed } from '../../src/doctor/feed-checks.ts'
import {
  describe,
  FINDING_NAMES,
  type Finding,
  fine,
  note,
  quoteWithoutPassword,
  wrong,
} from '../../src/doctor/finding.ts'
import { checkLocal } from '../../src/doctor/local-checks.ts'
import {
  checkAddress,
  checkConnection,
  checkLookUp,
  type LookUpFacts,
} from '../../src/doctor/network-checks.ts'

function contextOf(text: string, mobile = false): CheckContext {
  const found = parseAddress(text)
  if (!found.ok) throw new Error('no address')
  return {
    address: found.address,
    mobile,
    stack: detectStack([]),
    quote: quoteWithoutPassword(found.address),
  }
}

const CONTEXT = contextOf('https://anna:secret@notes.example:443/notes')

function reply(status: number, json?: unknown, headers: Record<string, string> = {}): Reply {
  return { status, headers, raw: [], text: JSON.stringify(json) ?? '', json, at: 0, ms: 1 }
}

t.test('addresses', async (t) => {
  const rows: [text: string, mobile: boolean, states: string[], isGone: boolean][] = [
    ['https://a:b@h.example:443/n', false, ['fine'], false],
    ['http://a:b@h.example:80/n', false, ['note'], false],
    ['http://a:b@localhost:80/n', false, ['fine'], false],
    ['http://a:b@h.example:80/n', true, ['wrong'], false],
    ['http://a:b@h.example/', false, ['wrong', 'wrong'], true],
    ['', false, ['wrong'], true],
  ]
  for (const [text, mobile, states, isGone] of rows) {
    const { address, findings } = checkAddress(text, mobile)
    t.strictSame(
      findings.map(({ state }) => state),
      states,
      text,
    )
    t.equal(address === null, isGone)
  }
})

t.test('names', async (t) => {
  const rows: [facts: LookUpFacts, mobile: boolean, state: string, text: RegExp][] = [
    [{ failure: 'ENOTFOUND' }, false, 'wrong', /^The name notes\.example does not exist\./],
    [{ failure: 'EAI_AGAIN' }, false, 'wrong', /did not answer/],
    [{ failure: 'TIMEOUT' }, false, 'wrong', /did not answer/],
    [{ failure: 'EOTHER' }, false, 'wrong', /cannot be looked up: EOTHER/],
    [{ addresses: ['203.0.113.1'], ms: 5 }, true, 'fine', /is 203\.0\.113\.1/],
    [{ addresses: ['203.0.113.1'], ms: 2500 }, false, 'note', /took 2\.5 s/],
    [{ addresses: ['127.0.0.1', '::1'], ms: 5 }, true, 'wrong', /the phone itself/],
    [{ addresses: ['127.0.0.1'], ms: 5 }, false, 'fine', /is 127/],
    [{ addresses: ['192.168.1.4', 'fd00::1'], ms: 5 }, true, 'note', /only in this network/],
    [{ addresses: ['172.32.0.1'], ms: 5 }, true, 'fine', /./],
  ]
  for (const [facts, mobile, state, text] of rows) {
    t.match(checkLookUp(facts, { ...CONTEXT, mobile }), { state, text })
  }
})

t.test('connections', async (t) => {
  const refused = { to: '203.0.113.1', failure: 'ECONNREFUSED' }
  const lost = { to: '2001:db8::1', failure: 'TIMEOUT' }
  const good = { to: '203.0.113.1', ms: 12 }
  t.match(checkConnection([refused], CONTEXT), {
    state: 'wrong',
    text: /nothing listens/,
    cures: [{ line: /Start the/ }],
  })
  t.match(checkConnection([lost], CONTEXT), { state: 'wrong', cures: [{ line: /firewall/ }] })
  t.match(checkConnection([good, lost], CONTEXT), { state: 'note', text: /2001:db8::1: no answer in time/ })
  const noWay = { to: '2001:db8::1', failure: 'ENETUNREACH' }
  t.match(checkConnection([good, noWay], CONTEXT), {
    state: 'fine',
    text: /^Port 443 is open \(12 ms\)\. Not tried: 2001:db8::1; this machine has no IPv6\.$/,
  })
  t.match(checkConnection([noWay], CONTEXT), { state: 'wrong', cures: [{ line: /from another machine/ }] })
  t.match(checkConnection([refused, noWay], CONTEXT), { state: 'wrong', text: /nothing listens/ })
  t.match(checkConnection([good], CONTEXT), { state: 'fine', text: 'Port 443 is open (12 ms).' })
})

t.test('credentials, where the answers are odd', async (t) => {
  const user = (userCtx: unknown) => reply(200, { ok: true, userCtx })
  const ok = reply(200, {})
  const rows: [session: Reply, database: Reply, state: string, text: RegExp][] = [
    [reply(404, { error: 'not_found', reason: 'x' }), ok, 'fine', /database accepts them/],
    [{ failure: 'TIMEOUT' }, { failure: 'TIMEOUT' }, 'wrong', /could not be checked: no answer in time/],
    [user({ name: 'bea', roles: [] }), ok, 'note', /another name: bea/],
    [user({ name: null, roles: 'x' }), ok, 'wrong', /do not reach the server/],
    [user(null), ok, 'fine', /accepts them/],
    [
      reply(401, { error: 'unauthorized', reason: 'Authentication required.' }),
      ok,
      'wrong',
      /do not reach the server/,
    ],
    [reply(401, undefined), ok, 'wrong', /The proxy asks/],
  ]
  for (const [session, database, state, text] of rows) {
    t.match(checkCredentials({ session, database }, CONTEXT), { state, text })
  }
})

t.test('damage that the server knows of', async (t) => {
  const up = (status: number, scrub: object) => reply(status, { facts: [null, { name: 'scrub', ...scrub }] })
  const rows: [answer: Reply, state: string, text: RegExp][] = [
    [up(200, { ok: true, last: '2026-11-22T01:30:00Z' }), 'fine', /Last read at 2026-11-22T01:30:00Z\./],
    [up(200, { ok: true, last: null }), 'fine', /Not everything was read yet/],
    [up(503, { ok: true, last: null }), 'fine', /./],
    [up(503, { ok: false, damaged: [{ database: 'notes' }] }), 'wrong', /parts of a database\./],
    [up(503, { ok: false, damaged: [{}, {}] }), 'wrong', /parts of 2 databases\./],
    [up(503, { ok: false, damaged: [] }), 'wrong', /could not read everything/],
    [reply(200, { status: 'ok' }), 'skipped', /does not say/],
    [reply(403, {}), 'skipped', /Only server admins/],
    [{ failure: 'TIMEOUT' }, 'skipped', /does not say/],
  ]
  for (const [answer, state, text] of rows) t.match(checkDamage(answer), { state, text })
  const facts = [
    { name: 'free_space', ok: true, unsafe_file_system: 'tmpfs' },
    { name: 'scrub', ok: true, last: null },
  ]
  t.match(checkDamage(reply(200, { facts })), {
    state: 'note',
    text: /on a file system \(tmpfs\) that may lose/,
  })
})

t.test('documents that cannot be deleted, or differ from what was written', async (t) => {
  const facts = {
    id: '_local/x',
    put: reply(201, {}),
    got: reply(200, {}),
    isSame: true,
    removed: reply(200, {}),
  }
  t.match(checkLocal(facts, CONTEXT), { state: 'fine' })
  t.match(checkLocal({ ...facts, removed: reply(403, {}) }, CONTEXT), {
    state: 'wrong',
    text: /could not be deleted: 403/,
    cures: [{ line: 'Delete the document _local/x by hand.' }],
  })
  t.match(checkLocal({ ...facts, isSame: false }, CONTEXT), {
    state: 'wrong',
    text: /is not the one that was written/,
  })
  const denied = reply(403, { error: 'forbidden', reason: 'Quota' })
  t.match(checkLocal({ ...facts, put: denied }, CONTEXT), {
    state: 'wrong',
    text: /403 forbidden: Quota/,
    cures: [{}],
  })
})

t.test('feeds', async (t) => {
  const facts = { heartbeatMs: 1000, watchedMs: 2500, status: 200, arrivals: [5], ended: null, failure: null }
  const rows: [change: Partial<Parameters<typeof checkFeed>[0]>, state: string, text: RegExp][] = [
    [{ arrivals: [5, 6, 1010, 2020] }, 'fine', /first byte after 5 ms, then every 1\.0 s/],
    [{ arrivals: [1005, 2020] }, 'fine', /then every 1\.0 s/],
    [{ arrivals: [5], watchedMs: 3500 }, 'wrong', /was silent for 3\.5 s/],
    [{ arrivals: [5, 3010] }, 'wrong', /was silent for 3\.0 s/],
    [{ arrivals: [3000], watchedMs: 3500 }, 'wrong', /was silent for 3\.0 s/],
    [{ arrivals: [], ended: 'order', watchedMs: 20 }, 'wrong', /was ended at once/],
    [{ arrivals: [] }, 'wrong', /Nothing of _changes arrived/],
    [{ status: 502 }, 'wrong', /answers 502/],
    [{ failure: 'ECONNRESET' }, 'wrong', /fails: the connection was closed/],
    [{ ended: 'order' }, 'wrong', /was ended at once/],
  ]
  for (const [change, state, text] of rows)
    t.match(checkFeed({ ...facts, ...change }, CONTEXT), { state, text })
})

t.test('a feed that is cut after its first bytes has a status', async (t) => {
  const state = { status: 200, failure: null, firstMs: 5, silentMs: 60_000 }
  const beating = { ...state, lasted: 60_000, ended: 'cut' } as const
  t.match(checkLongFeed({ beating, heartbeatMs: 10_000, silent: beating }, CONTEXT), {
    state: 'wrong',
    text: 'A feed with heartbeats was cut after 60 s: the connection was closed.',
    cures: [{ line: /^proxy_read_timeout/ }, {}, {}, {}],
  })
})

t.test('bodies that are not tried', async (t) => {
  const taken = { bytes: 1_049_600, reply: reply(201, []), ms: 900 }
  const not = { bytes: 67_109_888, reply: null, ms: 57_500 }
  t.match(checkBodies([taken, not], CONTEXT), {
    state: 'fine',
    text: 'The server accepts bodies of 1 MB. 64 MB would take 58 s on this line; --long tries it.',
  })
  const odd = { bytes: 1_049_600, reply: reply(403, undefined, { 'content-type': 'text/html' }), ms: 5 }
  const refused = checkBodies([odd], CONTEXT)
  t.match(refused, { state: 'wrong', text: /is refused: 403 with text\/html/ })
  t.match(refused.cures, [{ place: 'nginx', line: 'client_max_body_size 0;' }, {}, {}, {}])
  // A JSON answer comes from the server and not from a proxy, and a limit would be 413.
  const ill = { ...odd, reply: reply(503, { error: 'unavailable', reason: 'busy' }) }
  t.match(checkBodies([ill], CONTEXT), { text: /is refused: 503 unavailable: busy/, cures: [] })
})

t.test('slow heartbeats of PouchDB Server behind a proxy are not a fault', async (t) => {
  const stack = detectStack([
    { raw: [['server', 'nginx/1.22']], text: '', json: { 'express-pouchdb': 'Welcome!' } },
  ])
  const facts = { heartbeatMs: 1000, watchedMs: 3500, status: 200, ended: null, failure: null }
  t.match(checkFeed({ ...facts, arrivals: [5] }, { ...CONTEXT, stack }), { state: 'note', text: /every 6 s/ })
  t.match(checkFeed({ ...facts, arrivals: [] }, { ...CONTEXT, stack }), { state: 'wrong' })
})

t.test("a server's text is quoted in one line, and never with the password", async (t) => {
  const { quote } = contextOf('http://anna:p%40s%22s@h:1/n')
  t.equal(quote('a\n\u001b[31mb'), 'a \\u{1b}[31mb')
  t.equal(quote('x'.repeat(500)).length, 163)
  const forms = [
    'p@s"s',
    'P@S"S',
    'p%40s%22s',
    encodeURIComponent('p@s"s'),
    'p@s\\"s',
    Buffer.from('anna:p@s"s').toString('base64'),
  ]
  for (const form of forms) t.equal(quote(`you sent ${form}!`), '(a text that repeats the password)')
  t.equal(
    describe(reply(400, { error: 'e', reason: 'got p@s"s.' }), quote),
    '400 (a text that repeats the password)',
  )
  t.notOk(isAnswer({ failure: 'x' }))
})

t.test('every piece of advice is one line for a known place', async (t) => {
  for (const [name, lines] of Object.entries(ADVICE)) {
    t.ok(Object.keys(lines).length > 0, name)
    for (const line of Object.values(lines)) t.match(line, /^\S[^\n]+$/)
  }
})

t.test('time limits', async (t) => {
  const usual = limitsFor({ quick: false, long: false })
  t.strictSame(
    usual.bodies.map((bytes) => bytes > 1_048_576),
    [true, true, true],
  )
  t.equal(limitsFor({ quick: true, long: false }).bodies.length, 1)
  t.ok((limitsFor({ quick: false, long: true }).longMs ?? 0) > 100_000)
})

t.test('docs/doctor.md has every finding, and every line to change', async (t) => {
  const text = await readFile(new URL('../../docs/doctor.md', import.meta.url), 'utf8')
  const headings = [...text.matchAll(/^### (.+)$/gm)].map(([, name]) => name)
  t.strictSame(headings, FINDING_NAMES)
  for (const lines of Object.values(ADVICE)) {
    for (const [place, line] of Object.entries(lines)) t.ok(text.includes(`    ${place}: ${line}\n`), line)
  }
})

const CURES = [
  { place: 'nginx', line: 'a on;' },
  { place: 'Caddy', line: 'b' },
]

t.test('each finding is one line', async (t) => {
  t.equal(linesOf(fine('clock', 'Right.')), 'fine   clock        Right.\n')
  t.equal(linesOf(note('http', 'Slow.', CURES.slice(0, 1))), 'note   http         Slow. nginx: a on;\n')
  t.equal(
    linesOf(wrong('feed', 'Cut.', CURES)),
    'WRONG  feed         Cut.\n                    nginx: a on;\n                    Caddy: b\n',
  )
  t.equal(linesOf(wrong('feed', 'a\nb')), 'WRONG  feed         a b\n')
  t.equal(summaryOf([fine('clock', '')], 1234), 'Nothing is wrong (1.2 s).\n')
  t.equal(
    summaryOf([wrong('cors', ''), note('http', '')], 50),
    '1 thing is wrong, 1 thing could be better (0.1 s).\n',
  )
  t.ok(isWell([note('http', '')]))
  t.notOk(isWell([wrong('http', '')]))
})

t.test('JSON has the address without credentials', async (t) => {
  const json = jsonOf('https://anna:secret@h.example:443/n', [wrong('cors', 'x', CURES)], 3.7)
  t.strictSame(JSON.parse(json), {
    address: 'https://h.example:443/n',
    ok: false,
    ms: 4,
    findings: [{ name: 'cors', state: 'wrong', text: 'x', cures: CURES }],
  })
  t.match(JSON.parse(jsonOf('nonsense', [], 0)), { address: null })
})

t.test('a report identifies nobody', async (t) => {
  const address = 'https://anna:secret@notes.example.org:6984/vault'
  const findings: Finding[] = [
    fine('address', 'https://notes.example.org:6984/vault'),
    fine('look-up', 'notes.example.org is 203.0.113.9, 2001:db8::12:1.'),
    wrong('rights', 'anna may not read vault.', [
      { place: 'nginx', line: 'proxy_pass http://127.0.0.1:5984;' },
    ]),
    fine('version', 'Server: CouchDB/3.5.0, at 12:30:45'),
  ]
  const report = reportOf(address, findings, '0.1.0')
  t.match(report, /^```\nsettee doctor 0\.1\.0, Node \d[^\n]*; https, port 6984\n/)
  t.match(report, /https:\/\/<host>:6984\/<database>\n/)
  t.match(report, /<host> is <address>, <address>\.\n/)
  t.match(report, /<user> may not read <database>\..*http:\/\/127\.0\.0\.1:5984/)
  t.match(report, /CouchDB\/3\.5\.0/)
  t.notMatch(report, /anna|vault|notes\.example|203\.0|db8/)
})

t.test('a report masks the other hosts of a certificate, its authority and another account', async (t) => {
  const address = 'https://anna:secret@notes.smith.example:6984/vault'
  const findings: Finding[] = [
    { ...wrong('certificate', 'The certificate of Smith Home CA expired.'), names: ['Smith Home CA'] },
    wrong(
      'certificate',
      'It is not of notes.smith.example: altnames: DNS:*.smith.example, DNS:www.private.test',
    ),
    { ...note('credentials', 'The server knows this account by another name: bea.'), names: ['bea'] },
    wrong('server', 'Everything is sent on to https://cloud.smith.example/ and http://private.test:80/x'),
    wrong('preflights', 'Not allowed to https://app.private.test, app://obsidian.md, http://localhost.'),
  ]
  const report = reportOf(address, findings, '1')
  t.notMatch(report, /smith|private|\bbea\b/i)
  t.match(report, /app:\/\/obsidian\.md, http:\/\/localhost\./)
  t.strictSame(Object.keys(JSON.parse(jsonOf(address, findings, 1)).findings[0]), [
    ...['name', 'state', 'text', 'cures'],
  ])
})

t.test('property: no report contains the host, the account or the database', async () => {
  const word = fc.stringMatching(/^[a-z]{12,20}$/)
  fc.assert(
    fc.property(word, word, word, word, (host, username, database, password) => {
      const parts = { scheme: 'https', username, password, host: `${host}.org`, port: 443, database } as const
      const text = `${parts.host} and ${username}, ${host}.org:443/${database}. "${username}"`
      const report = reportOf(formatAddress(parts), [wrong('cors', text)], '1')
      for (const secret of [parts.host, username, database, password]) {
        if (report.includes(secret)) return false
      }
      return true
    }),
  )
})
