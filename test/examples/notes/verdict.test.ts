/** What the facts of a diagnosis mean: a row for each case. */
import t from 'tap'
import type { Answer, Probes } from '../../../examples/notes/src/diagnosis/probes.ts'
import { addressVerdict, verdict } from '../../../examples/notes/src/diagnosis/verdict.ts'
import { refusalFinding } from '../../../examples/notes/src/diagnosis/words.ts'
import { parseAddress } from '../../../src/core/address.ts'

const FINE: Answer = { kind: 'answer', status: 200, body: { db_name: 'notes' } }
const FAILED: Answer = { kind: 'failed' }
const WELL: Probes = {
  isOnline: true,
  origin: 'http://127.0.0.1:5173',
  database: FINE,
  isThere: null,
  design: null,
  feed: answer(200, null),
}
const HOME = 'http://anna:secret@127.0.0.1:5984/notes'
const NAMED = 'https://anna:secret@notes.example.org:6984/notes'

function answer(
  status: number,
  body: Record<string, unknown> | null = { error: 'x', reason: 'because' },
): Answer {
  return { kind: 'answer', status, body }
}

type Row = readonly [
  name: string,
  address: string,
  probes: Partial<Probes>,
  code: string | null,
  says: RegExp,
]

const ROWS: readonly Row[] = [
  ['all is well', HOME, {}, null, /^$/],
  [
    'refused: no name and no certificate are involved',
    HOME,
    { database: FAILED, isThere: false },
    'refused',
    /No server answers at 127\.0\.0\.1:5984/,
  ],
  [
    'a name over http',
    'http://h:5984/notes',
    { database: FAILED, isThere: false },
    'unreachable',
    /the name h does not exist, or nothing listens/,
  ],
  [
    'a number over https',
    'https://127.0.0.1:6984/n',
    { database: FAILED, isThere: false },
    'unreachable',
    /Either this device does not trust the certificate, or nothing listens/,
  ],
  [
    'a name over https',
    NAMED,
    { database: FAILED, isThere: false },
    'unreachable',
    /does not exist, or this device does not trust the certificate, or nothing.*cannot find out which/,
  ],
  ['CORS: a plain request is answered', NAMED, { database: FAILED, isThere: true }, 'cors', /cors\/origins/],
  [
    'offline',
    NAMED,
    { database: FAILED, isThere: false, isOnline: false },
    'offline',
    /when the network is back/,
  ],
  [
    'http from a page of https',
    'http://h:5984/n',
    { database: FAILED, isThere: false, origin: 'https://app' },
    'insecure',
    /https address/,
  ],
  ['no answer in time', NAMED, { database: { kind: 'late' } }, 'slow', /15 seconds/],
  ['401 with a password', HOME, { database: answer(401) }, 'credentials', /401.*is incorrect.*because/s],
  ['401 without', 'http://h:5984/n', { database: answer(401) }, 'credentials', /no name and password/],
  ['403', HOME, { database: answer(403) }, 'rights', /anna has no access to notes \(403\).*_security/s],
  ['404', HOME, { database: answer(404) }, 'no_database', /no database notes.*404.*lets anna use it/s],
  [
    '404 without an account: nobody could be let in',
    'http://127.0.0.1:5984/notes',
    { database: answer(404) },
    'no_database',
    /put the name and the password/,
  ],
  ['404 of a web server', HOME, { database: answer(404, null) }, 'not_couchdb', /\(404\)/],
  ['a page where a database should be', HOME, { database: answer(200, null) }, 'not_couchdb', /\(200\)/],
  ['a proxy without its server', HOME, { database: answer(502, null) }, 'server', /502.*cannot reach/s],
  ['no mobile filter', NAMED, { design: answer(404) }, 'no_mobile_filter', /_design\/mobile/],
  [
    'a design document without the filter',
    NAMED,
    { design: answer(200, { filters: { other: '' } }) },
    'no_mobile_filter',
    /leave pictures out/,
  ],
  ['a mobile filter', NAMED, { design: answer(200, { filters: { sync: '' } }) }, null, /^$/],
  [
    'a feed that is held back',
    NAMED,
    { feed: { kind: 'late' } },
    'buffered_feed',
    /proxy_buffering off.*flush_interval -1/,
  ],
  [
    'a feed that is refused is not held back',
    NAMED,
    { feed: answer(404) },
    'feed',
    /_changes\) is answered with 404/,
  ],
  ['a feed that breaks off', NAMED, { feed: FAILED }, 'feed', /_changes\) breaks off/],
  [
    'an account that is locked',
    HOME,
    {
      database: answer(403, {
        reason: 'Account is temporarily locked due to multiple authentication failures',
      }),
    },
    'locked',
    /temporarily locked \(403\).*Wait a few minutes/s,
  ],
  ['too many requests', HOME, { database: answer(429) }, 'busy', /is busy \(429\).*because/s],
  ['a mobile filter that is not let see', NAMED, { design: answer(403) }, 'rights', /403/],
  [
    'a connection that breaks off at the filter',
    NAMED,
    { design: FAILED },
    'unreachable',
    /cannot be reached/,
  ],
  ['a server that fails at the filter', NAMED, { design: answer(502, null) }, 'server', /502/],
]

for (const [name, text, probes, code, says] of ROWS) {
  t.test(name, async (t) => {
    const parsed = parseAddress(text)
    if (!parsed.ok) throw new Error('no address')
    const { finding, checks } = verdict(parsed.address, { ...WELL, ...probes })
    t.equal(finding?.code ?? null, code)
    const said = finding === null ? '' : `${finding.title} ${finding.detail}`
    t.match(said, says)
    t.notMatch(`${said} ${finding?.command}`, /secret/, 'no password is shown')
    t.equal(checks.filter(({ state }) => state === 'wrong').length, code === null ? 0 : 1)
  })
}

t.test('on the hosted server nobody is sent to an Address that nobody has typed', async (t) => {
  const parsed = parseAddress(NAMED)
  if (!parsed.ok) throw new Error('no address')
  for (const [status, says] of [
    [401, /token.*Sign out, and sign in again/],
    [403, /does not let the account/],
    [404, /Sign out, and sign in again/],
  ] as const) {
    const { finding } = verdict(parsed.address, { ...WELL, database: answer(status) }, true)
    t.match(finding?.detail, says)
    t.notMatch(`${finding?.title} ${finding?.detail} ${finding?.command}`, /Address|curl/)
  }
})

t.test('the command for the filter leaves the rest of the design document alone', async (t) => {
  const parsed = parseAddress(NAMED)
  if (!parsed.ok) throw new Error('no address')
  const there = {
    _id: '_design/mobile',
    _rev: '3-a',
    views: { it: { map: "emit('x')" } },
    filters: { other: 'o' },
  }
  const { finding } = verdict(parsed.address, { ...WELL, design: answer(200, there) })
  const said = /-d '(.*)'$/.exec(finding?.command ?? '')?.[1]?.replaceAll("'\\''", "'") ?? ''
  t.match(JSON.parse(said), { ...there, filters: { other: 'o', sync: /^function \(doc\)/ } })
})

t.test('what a server says to a request of the sync', async (t) => {
  const parsed = parseAddress(NAMED)
  if (!parsed.ok) throw new Error('no address')
  const finding = refusalFinding(parsed.address, { status: 413, reason: 'too large for anna:secret' })
  t.match(finding, { code: 'refusal', title: /413/, detail: /too large/ })
  t.notMatch(JSON.stringify(finding), /secret/)
  t.equal(refusalFinding(parsed.address, { message: 'Failed to fetch' }), null)
})

t.test('no port, and other faults of the address, all of them', async (t) => {
  const parsed = parseAddress('http://notes.example.org', { mobile: true })
  if (parsed.ok) throw new Error('an address')
  const { finding, checks } = addressVerdict(parsed.faults)
  t.equal(finding?.code, 'address')
  t.equal(checks[0]?.state, 'wrong')
  t.same(
    finding?.points,
    parsed.faults.map(({ reason, mend }) => `${reason} ${mend}`),
    'each is a point of its own',
  )
  const single = addressVerdict(parsed.faults.slice(0, 1)).finding
  t.match(single, { title: parsed.faults[0]?.reason, detail: parsed.faults[0]?.mend })
})
