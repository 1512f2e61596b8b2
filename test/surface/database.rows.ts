/** Databases: protocol.md 4.4, 4.5. */

import type { Answer } from './answers.ts'
import { DELETED, GONE, of } from './histories.ts'
import { failed, put, type Row, stored } from './table.ts'

const malformed = (reason: string): Answer => failed(400, 'bad_request', reason)
const MADE: Answer = { status: 201, json: { ok: true } }
const OK: Answer = { json: { ok: true } }
const NO_DATABASE: Answer = failed(404, 'not_found', 'Database does not exist.')
/** The range of the row's own databases: those of other rows are none of its business. */
const OWN = 'startkey="{db}"&endkey="{db}-z"'
const ABC = ['PUT /{db}-a', 'PUT /{db}-b', 'PUT /{db}-c'] as const
const UNDO = ['a', 'b', 'c'].map((name) => [`DELETE /{db}-${name}`, OK] as const)

const LIFE: readonly Row[] = [
  {
    of: ['4.4 PUT', '4.4 PUT Location'],
    says: 'made, with its address, in which its name is escaped',
    steps: [
      [
        ['PUT /{db}%2Fa', { headers: { host: 'localhost' } }],
        { ...MADE, headers: { location: 'http://localhost/{db}%2Fa' } },
      ],
      ['GET /{db}%2Fa', { like: { db_name: '{db}/a' } }],
      ['DELETE /{db}%2Fa', OK],
    ],
  },
  {
    of: '4.4 PUT q',
    says: 'a positive whole number, which is reported',
    steps: [
      ['PUT /{db}-a?q=8', MADE],
      ['GET /{db}-a', { like: { cluster: { q: 8, n: 1, w: 1, r: 1 } } }],
      [['POST /_dbs_info', { json: { keys: ['{db}-a'] } }], { status: 200 }],
      ['DELETE /{db}-a', OK],
      ['PUT /{db}-a?q=%2B007', MADE],
      ['GET /{db}-a', { like: { cluster: { q: 7 } } }],
      ['DELETE /{db}-a', OK],
      ['PUT /{db}-a', MADE],
      ['GET /{db}-a', { like: { cluster: { q: 1 } } }],
      ['DELETE /{db}-a', OK],
      ...['', '-1', '1.5', '4294967296', '0x10', '1e3'].map(
        (q) => [`PUT /{db}-b?q=${q}`, malformed('The `q` value should be a positive integer.')] as const,
      ),
      ['PUT /{db}-b?q=0', malformed('The `q` value should be a positive integer.')],
      ['PUT /{db}-b?q=x', malformed('The `q` value should be a positive integer.')],
    ],
  },
  {
    of: '4.4 PUT n',
    says: 'a positive whole number, without effect',
    steps: [
      ['PUT /{db}-a?n=3', MADE],
      ['GET /{db}-a', { like: { cluster: { n: 1 } } }],
      ['DELETE /{db}-a', OK],
      ['PUT /{db}-b?n=-1', malformed('The `n` value should be a positive integer.')],
    ],
  },
  {
    of: '4.4 PUT partitioned',
    says: 'true or false; not for databases of the server',
    steps: [
      ['PUT /{db}-a?partitioned=false', MADE],
      ['GET /{db}-a', { like: { props: {} } }],
      ['DELETE /{db}-a', OK],
      ['PUT /{db}-b?partitioned=true', MADE],
      ['GET /{db}-b', { like: { props: { partitioned: true } } }],
      ['DELETE /{db}-b', OK],
      ['PUT /{db}-b?partitioned=TRUE', malformed('Invalid `partitioned` parameter')],
      ['PUT /{db}%2F_users?partitioned=true', malformed('Cannot partition a system database')],
    ],
  },
  {
    of: ['4.4 PUT placement', '4.4 PUT engine'],
    says: 'has no effect',
    steps: [
      ['PUT /{db}-a?placement=zone:1&engine=couch', MADE],
      ['DELETE /{db}-a', OK],
    ],
  },
  {
    of: '4.4 PUT refusals',
    says: 'a database that is there, and names that are none',
    steps: [
      [
        'PUT /{db}',
        failed(412, 'file_exists', 'The database could not be created, the file already exists.'),
      ],
      ...['Upper', '1a', '_nosuch', 'a.b', 'a%20b', '%C3%A4', 'a*'].map(
        (name) =>
          [
            `PUT /${name}`,
            failed(
              400,
              'illegal_database_name',
              `Name: '${decodeURIComponent(name)}'. Only lowercase characters (a-z), digits (0-9), and any of the ` +
                'characters _, $, (, ), +, -, and / are allowed. Must begin with a letter.',
            ),
          ] as const,
      ),
      [`PUT /${'a'.repeat(300)}`, { status: 400, like: { error: 'database_name_too_long' } }],
    ],
  },
  {
    of: '4.4 PUT',
    says: 'every character that a name may have; a slash at the end is none of it',
    steps: [
      ['PUT /{db}_$()%2B-%2Fz9/', MADE],
      ['GET /{db}_$()%2B-%2Fz9', { like: { db_name: '{db}_$()+-/z9' } }],
      ['DELETE /{db}_$()%2B-%2Fz9', OK],
    ],
  },
  {
    of: '4.4 DELETE',
    says: 'removes the database with all its documents',
    given: ['PUT /{db}-a', ['PUT /{db}-a/x', { json: {} }]],
    steps: [
      ['DELETE /{db}-a', OK],
      ['GET /{db}-a', NO_DATABASE],
      ['PUT /{db}-a', MADE],
      ['GET /{db}-a', { like: { doc_count: 0, update_seq: /^0-/ } }],
      ['DELETE /{db}-a', OK],
    ],
  },
  {
    of: '4.4 DELETE rev',
    says: 'is refused, since the client meant a document',
    steps: [
      [
        'DELETE /{db}?rev=1-a',
        malformed(
          'You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?',
        ),
      ],
      ['GET /{db}', {}],
    ],
  },
  { of: '4.4 DELETE refusals', says: 'there is none', ask: 'DELETE /{db}-none', answer: NO_DATABASE },
  {
    of: ['4.4 GET', '4.4 HEAD'],
    says: 'answers with information; 404 if the database does not exist',
    steps: [
      ['GET /{db}', { like: { db_name: '{db}' }, headers: { 'content-length': /\d/ } }],
      ['GET /{db}/', { like: { db_name: '{db}' } }],
      ['HEAD /{db}', { text: '', headers: { 'content-type': 'application/json' } }],
      ['GET /{db}-none', NO_DATABASE],
      ['HEAD /{db}-none', { status: 404, text: '' }],
    ],
  },
]

const LISTS: readonly Row[] = [
  {
    of: '4.4 _all_dbs',
    says: 'lists the names in byte order',
    given: [...ABC],
    steps: [
      ['GET /_all_dbs', { json: ['_users', '{db}', '{db}-a', '{db}-b', '{db}-c'] }],
      ['HEAD /_all_dbs', { text: '' }],
      ...UNDO,
    ],
  },
  {
    of: ['4.4 _all_dbs startkey', '4.4 _all_dbs endkey', '4.4 _all_dbs inclusive_end'],
    says: 'from one to another, under either name',
    given: [...ABC],
    steps: [
      ['GET /_all_dbs?startkey="{db}-a"&endkey="{db}-b"', { json: ['{db}-a', '{db}-b'] }],
      ['GET /_all_dbs?start_key="{db}-b"&end_key="{db}-c"', { json: ['{db}-b', '{db}-c'] }],
      ['GET /_all_dbs?startkey="{db}-a"&endkey="{db}-b"&inclusive_end=false', { json: ['{db}-a'] }],
      ...UNDO,
    ],
  },
  {
    of: ['4.4 _all_dbs descending', '4.4 _all_dbs limit', '4.4 _all_dbs skip'],
    says: 'backwards, so many, after so many',
    given: [...ABC],
    steps: [
      ['GET /_all_dbs?descending=true&startkey="{db}-z"&endkey="{db}-b"', { json: ['{db}-c', '{db}-b'] }],
      ['GET /_all_dbs?key="{db}-a"', { json: ['{db}-a'] }],
      [`GET /_all_dbs?${OWN}&limit=2`, { json: ['{db}', '{db}-a'] }],
      [`GET /_all_dbs?${OWN}&skip=1&limit=2`, { json: ['{db}-a', '{db}-b'] }],
      [`GET /_all_dbs?${OWN}&limit=0`, { json: [] }],
      ['GET /_all_dbs?limit=x', failed(400, 'query_parse_error', 'Invalid value for integer: "x"')],
      [
        'GET /_all_dbs?limit=-1',
        failed(400, 'query_parse_error', 'Invalid value for positive integer: "-1"'),
      ],
      ['GET /_all_dbs?descending=x', failed(400, 'query_parse_error', 'Invalid boolean parameter: "x"')],
      ...UNDO,
    ],
  },
  {
    of: '4.4 _all_dbs ETag',
    says: 'until there are others',
    given: [['GET /_all_dbs', { keep: { etag: 'header etag' } }]],
    steps: [
      [['GET /_all_dbs', { headers: { 'if-none-match': '{etag}' } }], { status: 304, text: '' }],
      ['PUT /{db}-a', MADE],
      [['GET /_all_dbs', { headers: { 'if-none-match': '{etag}' } }], {}],
      ['DELETE /{db}-a', OK],
    ],
  },
  {
    of: ['4.4 _dbs_info', '4.4 _dbs_info parameters'],
    says: 'what GET of each says, in the ranges of _all_dbs',
    given: ['PUT /{db}-a', 'PUT /{db}-b'],
    steps: [
      [
        `GET /_dbs_info?${OWN}`,
        {
          like: [
            { key: '{db}', info: { db_name: '{db}', doc_count: 0 } },
            { key: '{db}-a', info: { db_name: '{db}-a' } },
            { key: '{db}-b', info: { db_name: '{db}-b' } },
          ],
        },
      ],
      [
        'GET /_dbs_info?startkey="{db}-z"&descending=true&skip=1&limit=1&endkey="{db}"',
        { like: [{ key: '{db}-a' }] },
      ],
      ['GET /_dbs_info?startkey="{db}-a"&endkey="{db}-b"&inclusive_end=false', { like: [{ key: '{db}-a' }] }],
      ['DELETE /{db}-a', OK],
      ['DELETE /{db}-b', OK],
    ],
  },
  {
    of: '4.4 _dbs_info keys',
    says: 'answers for the named databases, in that order',
    ask: ['POST /_dbs_info', { json: { keys: ['none', '{db}'] } }],
    answer: {
      like: [
        { key: 'none', error: 'not_found' },
        { key: '{db}', info: { db_name: '{db}' } },
      ],
    },
  },
  {
    of: '4.4 _dbs_info keys',
    says: 'knows no database by a key that is no string',
    ask: ['POST /_dbs_info', { json: { keys: [1, null, {}, 'Bad'] } }],
    answer: { json: [1, null, {}, 'Bad'].map((key) => ({ key, error: 'not_found' })) },
  },
  {
    of: '4.4 _dbs_info refusals',
    says: 'keys that are none, or more than 100',
    steps: [
      [['POST /_dbs_info', { json: {} }], malformed('`keys` member must exist.')],
      [['POST /_dbs_info', { json: { keys: 'x' } }], malformed('`keys` member must be an array.')],
      [['POST /_dbs_info', { json: { keys: Array(101).fill('x') } }], malformed('too_many_keys')],
      [['POST /_dbs_info', { body: '{}' }], { status: 415 }],
    ],
  },
  {
    of: '4.4 system databases',
    says: 'is created and listed like any other database',
    steps: ['_replicator', '_global_changes', '{db}%2F_users'].flatMap((name) => [
      [`PUT /${name}`, MADE] as const,
      [`GET /_all_dbs?startkey="${name.replace('%2F', '/')}"&limit=1`, { json: [name.replace('%2F', '/')] }],
      [`DELETE /${name}`, OK] as const,
    ]),
  },
]

const INFO: readonly Row[] = [
  {
    of: [
      '4.5 db_name',
      '4.5 props',
      '4.5 cluster',
      '4.5 compact_running',
      '4.5 disk_format_version',
      '4.5 sizes',
    ],
    says: 'all members, of which those of a cluster say that there is none',
    ask: 'GET /{db}',
    answer: {
      json: {
        db_name: '{db}',
        update_seq: /^0-[\w-]+$/,
        purge_seq: /^0-[\w-]+$/,
        doc_count: 0,
        doc_del_count: 0,
        sizes: { file: /^[1-9]\d*$/, external: /^\d+$/, active: /^\d+$/ },
        compact_running: false,
        disk_format_version: 8,
        instance_start_time: /^\d+$/,
        cluster: { q: 1, n: 1, w: 1, r: 1 },
        props: {},
      },
    },
  },
  {
    of: '4.5 sizes',
    says: 'counts the written bytes as external',
    given: [put('x', { text: 'y'.repeat(10_000) })],
    ask: 'GET /{db}',
    answer: { like: { sizes: { external: /^1\d{4}$/ } } },
  },
  {
    of: '4.5 update_seq',
    says: 'grows with each write, not with one that fails, one of _local or one that is known',
    given: [stored({ _id: 'x', _rev: '1-a' }), stored({ _id: 'y', _rev: '1-a' })],
    steps: [
      ['GET /{db}', { like: { update_seq: /^2-/ } }],
      [put('x'), { status: 409 }],
      [put('_local/x'), { status: 201 }],
      [stored({ _id: 'x', _rev: '1-a' }), { status: 201 }],
      ['GET /{db}', { like: { update_seq: /^2-/ } }],
    ],
  },
  {
    of: ['4.5 doc_count', '4.5 doc_del_count'],
    says: 'live ones with design documents; those whose winner is deleted',
    given: [
      GONE,
      put('y'),
      put('_design/d'),
      put('_local/l'),
      stored(of('z', '1-a'), of('z', '2-b a', DELETED)),
    ],
    ask: 'GET /{db}',
    answer: { like: { doc_count: 2, doc_del_count: 2 } },
  },
  {
    of: '4.5 purge_seq',
    says: 'grows with each purge',
    given: [stored({ _id: 'x', _rev: '1-a' }), ['POST /{db}/_purge', { json: { x: ['1-a'] } }]],
    ask: 'GET /{db}',
    answer: { like: { purge_seq: /^1-/ } },
  },
  {
    of: '4.5 instance_start_time',
    says: 'seconds, the same for as long as the database lives',
    given: [['GET /{db}', { keep: { born: 'instance_start_time' } }], put('x')],
    steps: [
      ['GET /{db}', { like: { instance_start_time: '{born}' } }],
      ['GET /{db}', { text: /"instance_start_time":"\d{10}"/ }],
    ],
  },
  {
    of: '4.5 nothing of 1.x',
    says: 'no data_size, disk_size, other, committed_update_seq',
    ask: 'GET /{db}',
    answer: { text: /^(?!.*(data_size|disk_size|other|committed_update_seq))/ },
  },
]

export const DATABASE: readonly Row[] = [...LIFE, ...LISTS, ...INFO]
