/** Answers that mean harm, and what is asked of the server when it gets them. */
import { gzipSync } from 'node:zlib'
import { deep, document, feed, long, missing, REV, type Reply, row, type Script } from './remote.ts'

export interface Hostility {
  readonly name: string
  readonly how: 'replicate' | 'move' | 'follow'
  readonly script: Script
}

const MB = 1024 * 1024

/** The script of one path; others are answered plausibly. */
function at(pattern: RegExp, reply: () => Reply | object): Script {
  return ({ url: { pathname } }) => (pattern.test(pathname) ? reply() : null)
}

const streamed = (...args: Parameters<typeof long>): Reply => ({ body: long(...args) })

/** Bodies that are no good answer to any question. */
const BODIES: readonly (readonly [string, () => Reply | object])[] = [
  ['an object that does not end', () => streamed('{"a":[', '1,')],
  ['members without an end', () => streamed('{', `"${'m'.repeat(1000)}":1,`)],
  ['small members without an end', () => streamed('{', '"a":1,')],
  ['one string of gigabytes', () => streamed('{"update_seq":"', 'x'.repeat(1000))],
  ['one line of spaces', () => streamed('', ' '.repeat(1000))],
  ['lists in lists', () => ({ body: deep() })],
  [
    'lists in lists, in each member',
    () => ({ body: `{"update_seq":${deep(400_000)},"uuid":${deep(400_000)}}` }),
  ],
  ['objects where texts belong', () => ({ update_seq: { toString: 1, valueOf: 1 }, uuid: {}, vendor: 7 })],
  ['null', () => ({ body: 'null' })],
  ['not JSON', () => ({ body: '{"a":nul}' })],
  ['prototypes', () => ({ body: '{"__proto__":{"update_seq":"9-x"},"constructor":{"prototype":{}}}' })],
  ['a bomb of gzip', bomb],
  ['headers of a megabyte', () => ({ headers: { 'x-long': 'x'.repeat(MB) }, body: '{}' })],
  [
    'cookies',
    () => ({ headers: { 'set-cookie': Array.from({ length: 5000 }, (_, n) => `a${n}=b`) }, body: '{}' }),
  ],
  ['headers of one letter', () => ({ headers: { a: Array.from({ length: 80_000 }, () => '') }, body: '{}' })],
  ['less than it announces', () => ({ headers: { 'content-length': '1000' }, body: '{}' })],
  ['an error of megabytes', () => ({ status: 500, body: long('{"error":"x","reason":"', 'x'.repeat(1000)) })],
  ['an error with objects', () => ({ status: 400, body: '{"error":{"toString":1},"reason":"no"}' })],
  ['redirects without an end', () => ({ status: 307, headers: { location: '/notes/' }, body: '' })],
  ['a redirect to a file', () => ({ status: 307, headers: { location: 'file:///etc/passwd' }, body: '' })],
]

function bomb(): Reply {
  const body = gzipSync(Buffer.alloc(96 * MB, '{"a":['))
  return { headers: { 'content-encoding': 'gzip' }, body }
}

function* rows(make: (n: number) => object, count: number): Generator<Uint8Array> {
  yield Buffer.from('{"results":[')
  for (let n = 0; n < count; n += 100) {
    const some = Array.from({ length: 100 }, (_, at) => JSON.stringify(make(n + at)))
    yield Buffer.from(`${n === 0 ? '' : ','}${some.join()}`)
  }
  yield Buffer.from('],"last_seq":"1-x","pending":0}')
}

const FEEDS: readonly (readonly [string, () => Reply | object])[] = [
  ['rows without an end', () => ({ body: rows((n) => row(`d${n}`, `${n}-x`), 1_000_000) })],
  ['rows without sequences', () => ({ body: rows((n) => row(`d${n}`, null), 1_000_000) })],
  [
    'rows without revisions',
    () => ({ body: rows((n) => ({ id: `d${n}`, seq: null, changes: [] }), 1_000_000) }),
  ],
  ['ids of a megabyte', () => ({ body: rows((n) => row('i'.repeat(MB) + n, n), 200) })],
  [
    'a row of 100 MB',
    () => ({ body: long('{"results":[{"id":"a","seq":1,"changes":[', '{"rev":"1-a"},', '', 100 * MB) }),
  ],
  [
    'a row of lists in lists',
    () => ({ body: `{"results":[{"id":"a","seq":${deep(400_000)},"changes":[]}]}` }),
  ],
  ['a last sequence of lists', () => ({ body: `{"results":[],"last_seq":${deep(1000)}}` })],
  ['a last sequence of a megabyte', () => feed([row('a', 's'.repeat(900_000))], 's'.repeat(900_000))],
  ['rows that are no rows', () => feed([null, 7, 'x', [], { id: {}, changes: {} }])],
  [
    'revisions that are none',
    () => feed([row('a', '1-x', null, 7, {}, 'x'.repeat(100_000), '../x', '__proto__')]),
  ],
  ['ids of all kinds', () => feed(IDS.map((id) => row(id, '1-x')))],
]

const IDS = [
  '',
  '_design/..',
  '_design/',
  '_local/x',
  '../x',
  '../../_users',
  '_x',
  '__proto__',
  'a\u0000b',
  '%2e%2e',
]

let turns = 0
const MOVING: readonly (readonly [string, () => Reply | object])[] = [
  ['a feed that goes back and forth', () => feed([row('a', `${++turns % 2}-x`)], `${turns % 2}-x`)],
]

/** What `_bulk_get` has instead of the document `a`. */
const DOCUMENTS: readonly (readonly [string, () => Reply | object])[] = [
  ['another id', () => got(document('other'))],
  ['a local document', () => got(document('_local/x'))],
  ['a design document', () => got(document('_design/..', { views: { v: { map: 'x'.repeat(MB) } } }))],
  ['a start of a billion', () => got(document('a', { _revisions: { start: 1e9, ids: ['a'.repeat(32)] } }))],
  [
    'a million ancestors',
    () =>
      got(
        document('a', {
          _revisions: { start: 1_000_000, ids: Array.from({ length: 1_000_000 }, (_, n) => `${n}`) },
        }),
      ),
  ],
  [
    'ancestors that are no texts',
    () => got(document('a', { _revisions: { start: '1', ids: [null, {}, 7] } })),
  ],
  ['unknown members', () => got(document('a', { _secret: 1 }))],
  [
    'lists in lists',
    () => ({ body: `{"results":[{"id":"a","docs":[{"ok":{"_id":"a","_rev":"${REV}","x":${deep()}}}]}]}` }),
  ],
  ['a document of 100 MB', () => gotText('"x":[', '1,', '1]')],
  ['a document of 100 MB of backslashes', () => gotText('"x":"', '\\\\', '"')],
  ['an attachment stub for each byte', () => gotText('"_attachments":{', '"a":{},', '"z":{"length":1}}')],
  ['results without an end', () => streamed('{"results":[', '{"id":"a","docs":[]},')],
  [
    'documents without an end in one result',
    () => streamed('{"results":[{"id":"a","docs":[', '{"ok":{"_id":"a"}},'),
  ],
  [
    'attachments whose data lies',
    () =>
      got(
        document('a', {
          _attachments: {
            short: { content_type: 'a/b', revpos: 1, digest: 'md5-AAAA', length: 1e12, stub: true },
            odd: { content_type: 7, revpos: -1, data: '%%%', encoding: 'gzip', encoded_length: 1 },
          },
        }),
      ),
  ],
]

function got(ok: object): object {
  return { results: [{ id: 'a', docs: [{ ok }] }] }
}

function gotText(begin: string, repeated: string, end: string): Reply {
  const head = `{"results":[{"id":"a","docs":[{"ok":{"_id":"a","_rev":"${REV}",${begin}`
  return { body: long(head, repeated, `${end}}}]}]}`, 100 * MB) }
}

const MULTIPART = { 'content-type': 'multipart/mixed; boundary="b"' }

/** What `GET /notes/a?open_revs` has, at a server without `_bulk_get`. */
const OPENED: readonly (readonly [string, () => Reply | object])[] = [
  [
    'a part that does not end',
    () => ({
      headers: MULTIPART,
      body: long('--b\r\nContent-Type: application/json\r\n\r\n', 'x', '', 64 * MB),
    }),
  ],
  ['headers of a part that do not end', () => ({ headers: MULTIPART, body: long('--b\r\n', 'X-A: b\r\n') })],
  [
    'parts without an end',
    () => ({
      headers: MULTIPART,
      body: long('', '--b\r\nContent-Type: application/json\r\n\r\n{}\r\n', '--b--'),
    }),
  ],
  [
    'a boundary of a megabyte',
    () => ({ headers: { 'content-type': `multipart/mixed; boundary="${'b'.repeat(8000)}"` }, body: 'x' }),
  ],
  [
    'a boundary with control characters',
    () => ({ headers: { 'content-type': 'multipart/mixed; boundary="\t"' }, body: 'x' }),
  ],
  [
    'JSON that is no document in a part',
    () => ({ headers: MULTIPART, body: '--b\r\nContent-Type: application/json\r\n\r\nnul\r\n--b--' }),
  ],
  [
    'an attachment that lies about its length',
    () => ({
      headers: MULTIPART,
      body:
        '--b\r\nContent-Type: multipart/related; boundary="c"\r\n\r\n--c\r\nContent-Type: application/json\r\n\r\n' +
        `{"_id":"a","_rev":"${REV}","_attachments":{"x":{"follows":true,"length":1000000000000,"content_type":"a/b"}}}` +
        '\r\n--c\r\n\r\nshort\r\n--c--\r\n--b--',
    }),
  ],
  ['JSON with a row for each byte', () => streamed('[', '{},')],
  [
    'JSON of 100 MB',
    () => ({ body: long(`[{"ok":{"_id":"a","_rev":"${REV}","x":[`, '1,', '1]}}]', 100 * MB) }),
  ],
]

const withoutBulkGet =
  (reply: () => Reply | object): Script =>
  ({ url: { pathname } }) => {
    if (pathname === '/notes/_bulk_get') return missing()
    return pathname === '/notes/a' ? reply() : null
  }

const CHECKPOINTS: readonly (readonly [string, () => Reply | object])[] = [
  [
    'a history of 30,000 sessions',
    () => ({
      session_id: 'a',
      source_last_seq: 1,
      replication_id_version: 4,
      history: Array.from({ length: 30_000 }, (_, n) => ({ session_id: `${n}`, recorded_seq: n })),
    }),
  ],
  [
    'sequences of all kinds',
    () => ({ session_id: {}, source_last_seq: [[]], history: [null, 7, { recorded_seq: {} }] }),
  ],
]

/** The calls of a standby besides those of a move. */
const FOLLOWED = [
  ['settings', /standby\/settings$/],
  ['tokens', /standby\/tokens$/],
  ['_db_updates', /_db_updates$/],
  ['the database', /^\/notes\/$/],
  ['_all_dbs', /^\/_all_dbs$/],
] as const

const token = (n: number, more: object = {}): object => ({
  ...{
    id: String(n).padStart(12, '0'),
    account: 'anna',
    name: 'x',
    isAdmin: true,
    hash: 'A'.repeat(43),
    created: 1,
  },
  ...more,
})
const OTHER_TOKENS = { toString: 1, lastUse: { time: {} }, positions: 7 }
const settings = (found: object) => at(/standby\/settings$/, () => ({ settings: found, sealing_key: null }))

const FOLLOWING: readonly (readonly [string, Script])[] = [
  [
    'pages of tokens without an end',
    ({ url: { pathname } }) =>
      pathname.endsWith('/tokens')
        ? { tokens: [token(++turns)], next: String(turns).padStart(12, '0') }
        : null,
  ],
  [
    'pages of tokens that go in a circle',
    ({ url: { pathname } }) =>
      pathname.endsWith('/tokens') ? { tokens: [token(1)], next: `a${turns++ % 2}` } : null,
  ],
  [
    'tokens that are none',
    at(/tokens$/, () => ({ tokens: [null, 7, token(1, OTHER_TOKENS), { id: '__proto__' }], next: {} })),
  ],
  ['a key that is none', at(/standby\/settings$/, () => ({ settings: {}, sealing_key: 'x'.repeat(MB / 2) }))],
  [
    'sections that are texts',
    settings({ admins: 'x'.repeat(MB / 2), __proto__: { a: 'b' }, constructor: { name: 'x' } }),
  ],
  [
    'settings of the machine',
    settings({
      chttpd: { port: '1', bind_address: '0.0.0.0' },
      settee: { mode: 'hosted', backup_folder: '/etc' },
      log: { file: '/etc/passwd' },
      admins: { root: 'plain' },
    }),
  ],
  [
    'values with lines',
    settings({
      cors: { origins: 'a\n[admins]\nevil = x' },
      'a]\n[admins': { evil: 'x' },
      chttpd_auth: { 'x = y\n[admins]\nevil': 'x' },
    }),
  ],
  [
    'limits of nothing',
    settings({
      purge: { max_revisions_number: '0', max_document_id_number: '-1' },
      couchdb: { max_document_size: '0' },
    }),
  ],
  ['names that lead elsewhere', at(/_all_dbs$/, () => ['../x', '..', 'a/../b', '__proto__'])],
  [
    'updates of names that lead elsewhere',
    at(/_db_updates$/, () => ({
      results: [{ db_name: '../x', type: 'updated', seq: '2-x' }],
      last_seq: '2-x',
    })),
  ],
  [
    'updates without an end',
    at(/_db_updates$/, () => ({
      results: [{ db_name: `n${++turns}`, type: 'updated', seq: `${turns}-x` }],
      last_seq: `${turns}-x`,
    })),
  ],
  [
    'updates that are none',
    at(/_db_updates$/, () => ({ results: [null, { db_name: {}, type: 'x', seq: {} }], last_seq: {} })),
  ],
  ['a million databases', at(/_all_dbs$/, () => ({ body: namesOf(1_000_000) }))],
  [
    'purges that are none',
    ({ url: { pathname } }) => {
      if (pathname === '/notes/')
        return {
          update_seq: `${++turns}-x`,
          purge_seq: `${turns}-x`,
          instance_start_time: '0',
          sizes: null,
          props: 7,
        }
      return pathname.endsWith('_purged_infos')
        ? { purged_infos: [null, { id: {}, revs: {} }, { id: 'a', revs: [7] }] }
        : null
    },
  ],
  [
    'a database that is gone at each look',
    ({ url: { pathname } }) => (pathname === '/notes/' && turns++ % 2 === 0 ? missing() : null),
  ],
]

function* namesOf(count: number): Generator<Uint8Array> {
  yield Buffer.from('["notes"')
  for (let n = 0; n < count; n += 1000) {
    yield Buffer.from(Array.from({ length: 1000 }, (_, each) => `,"n${n + each}"`).join(''))
  }
  yield Buffer.from(']')
}

/** The calls of a move besides the documents. */
const CALLS = [
  ['the welcome', /^\/$/],
  ['_all_dbs', /^\/_all_dbs$/],
  ['the configuration', /_config$/],
  ['the log', /^\/_log$/],
  ['the database', /^\/notes\/$/],
  ['_security', /_security$/],
  ['_revs_limit', /_revs_limit$/],
  ['_local_docs', /_local_docs$/],
  ['_all_docs', /_all_docs$/],
] as const

const LISTS: readonly (readonly [string, Script])[] = [
  ['names without an end', at(/_all_dbs$/, () => streamed('[', '"a",'))],
  ['names of a megabyte', at(/_all_dbs$/, () => streamed('[', `"${'n'.repeat(MB)}",`))],
  [
    'names that lead elsewhere',
    at(/_all_dbs$/, () => ['../x', '..', '', 'a/../b', '__proto__', 'constructor', '_users/../x', 'A', 7]),
  ],
  ['lines of the log', at(/_log$/, () => ({ body: logLines() }))],
  [
    'local documents without an end',
    at(/_local_docs$/, () => streamed('{"rows":[', '{"id":"_local/a","doc":{"_id":"_local/a"}},')),
  ],
  [
    'a design document of 60 MB',
    at(/_all_docs$/, () => ({
      body: long('{"rows":[{"doc":{"_id":"_design/a","x":[', '1,', '1]}}]}', 60 * MB),
    })),
  ],
  [
    'a language that is none',
    at(/_all_docs$/, () => ({
      rows: [{ doc: { _id: { toString: 1 }, language: { toString: 1 } } }, null, 7],
    })),
  ],
  ['a winner that is none', at(/_all_docs$/, () => ({ rows: [null, { value: null }, { value: 7 }] }))],
]

function* logLines(): Generator<Uint8Array> {
  for (let n = 0; n < 2000; n++) {
    const lines = Array.from(
      { length: 10 },
      (_, at) => `GET /${n}x${at}${'n'.repeat(8000)}/_local/${n}${'i'.repeat(8000)}\n`,
    )
    yield Buffer.from(lines.join(''))
  }
}

function cases(
  how: Hostility['how'],
  where: string,
  replies: readonly (readonly [string, () => Reply | object])[],
  script: (reply: () => Reply | object) => Script,
): Hostility[] {
  return replies.map(([what, reply]) => ({ how, name: `${how}, ${where}: ${what}`, script: script(reply) }))
}

export const HOSTILITIES: readonly Hostility[] = [
  ...cases('replicate', 'the database', BODIES, (reply) => at(/^\/notes\/$/, reply)),
  ...cases('replicate', 'a checkpoint', [...BODIES, ...CHECKPOINTS], (reply) => at(/_local\//, reply)),
  ...cases('replicate', '_changes', [...BODIES, ...FEEDS, ...MOVING], (reply) => at(/_changes$/, reply)),
  ...cases('replicate', '_bulk_get', [...BODIES, ...DOCUMENTS], (reply) => at(/_bulk_get$/, reply)),
  ...cases('replicate', 'open_revs', [...BODIES, ...OPENED], withoutBulkGet),
  ...CALLS.flatMap(([where, pattern]) => cases('move', where, BODIES, (reply) => at(pattern, reply))),
  ...cases('move', '_changes', [...FEEDS, ...MOVING], (reply) => at(/_changes$/, reply)),
  ...LISTS.map(([what, script]) => ({ how: 'move', name: `move: ${what}`, script }) as const),
  ...FOLLOWED.flatMap(([where, pattern]) => cases('follow', where, BODIES, (reply) => at(pattern, reply))),
  ...FOLLOWING.map(([what, script]) => ({ how: 'follow', name: `follow: ${what}`, script }) as const),
]
