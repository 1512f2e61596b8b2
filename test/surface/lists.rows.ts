/** The parameters of `_all_docs`: protocol.md 8.1. */

import type { Answer } from './answers.ts'
import { CONFLICT, DATA, DELETED, INLINE, of, STUB } from './histories.ts'
import { ABCD, ALL, live, rows, unknown } from './listed.ts'
import { failed, put, type Row, stored } from './table.ts'

const parse = (reason: string | RegExp): Answer => failed(400, 'query_parse_error', reason)

const RANGES: readonly Row[] = [
  {
    of: '8.1 key',
    says: 'one document, or none; null is none',
    given: [ABCD],
    steps: [
      [`${ALL}?key="b"`, rows('b', 1)],
      [`${ALL}?key="bb"`, { like: { rows: [] } }],
      [`${ALL}?key="x"`, { like: { rows: [] } }],
      [`${ALL}?key=1`, { like: { rows: [] } }],
      [`${ALL}?key=b`, failed(400, 'bad_request', 'invalid UTF-8 JSON')],
    ],
  },
  {
    of: '8.1 keys',
    says: 'a row a key, in their order, as often as it is named',
    given: [ABCD],
    steps: [
      [`${ALL}?keys=["d","a","d"]`, rows('dad', null)],
      [`${ALL}?keys=["d","a","b"]&descending=true`, rows('bad', null)],
      [`${ALL}?keys=["d","a","b"]&skip=1&limit=1`, rows('a', null)],
      [
        `${ALL}?keys=[1,"a",null]`,
        { json: { total_rows: 4, offset: null, rows: [unknown(1), live('a'), unknown(null)] } },
      ],
      [`${ALL}?keys={}`, failed(400, 'bad_request', '`keys` parameter must be an array.')],
      [`${ALL}?keys="d"`, failed(400, 'bad_request', '`keys` parameter must be an array.')],
    ],
  },
  {
    of: '8.1 keys with others',
    says: 'refused',
    given: [ABCD],
    steps: ['key="a"', 'startkey="a"', 'start_key="a"', 'endkey="b"', 'end_key="b"'].flatMap(
      (other): NonNullable<Row['steps']> => [
        [
          `${ALL}?keys=["a","b"]&${other}`,
          parse('`keys` is incompatible with `key`, `start_key` and `end_key`'),
        ],
        [`${ALL}?keys=[]&${other}`, rows('', null)],
      ],
    ),
  },
  {
    of: '8.1 keys with others',
    says: 'a single key is a range too, and the later one counts',
    given: [ABCD],
    steps: [
      [`${ALL}?keys=["a"]&key="a"`, rows('a', null)],
      [`${ALL}?key="b"&keys=["a"]`, rows('a', null)],
      [`${ALL}?startkey="b"&endkey="c"&keys=["a"]`, rows('a', null)],
      [`${ALL}?keys=["a"]&key="b"`, parse('`keys` is incompatible with `key`, `start_key` and `end_key`')],
      [`${ALL}?keys=["a"]&endkey="b"`, parse('`keys` is incompatible with `key`, `start_key` and `end_key`')],
      [`${ALL}?keys=["x"]`, { json: { total_rows: 4, offset: null, rows: [unknown('x')] } }],
      [`${ALL}?keys=null`, failed(400, 'bad_request', '`keys` parameter must be an array.')],
    ],
  },
  {
    of: '8.1 keys with others',
    says: 'keys of the address are the ones that count beside those of a body, unless it is only one',
    given: [ABCD],
    steps: [
      [
        [`${ALL.replace('GET', 'POST')}?keys=["d","a"]`, { json: { keys: ['b', 'c', 'x'] } }],
        rows('da', null),
      ],
      [
        [`${ALL.replace('GET', 'POST')}?keys=["d","a"]`, { json: { keys: ['b', 'c'], limit: 1 } }],
        rows('d', null),
      ],
      [
        [`${ALL.replace('GET', 'POST')}?keys=["d"]`, { json: { keys: ['b', 'c'] } }],
        parse('`keys` is incompatible with `key`, `start_key` and `end_key`'),
      ],
    ],
  },
  {
    of: ['8.1 startkey', '8.1 start_key', '8.1 endkey', '8.1 end_key'],
    says: 'from the one to the other, both with them',
    given: [ABCD],
    steps: [
      [`${ALL}?startkey="b"&endkey="c"`, rows('bc', 1)],
      [`${ALL}?start_key="bb"&end_key="cc"`, rows('c', 2)],
      [`${ALL}?startkey="c"`, rows('cd', 2)],
      [`${ALL}?endkey="b"`, rows('ab', 0)],
      [`${ALL}?startkey=1`, rows('abcd', 0)],
      [`${ALL}?endkey={}`, { like: { rows: [] } }],
      [`${ALL}?startkey=a`, failed(400, 'bad_request', 'invalid UTF-8 JSON')],
    ],
  },
  {
    of: '8.1 inclusive_end',
    says: 'false excludes the end',
    given: [ABCD],
    steps: [
      [`${ALL}?endkey="c"&inclusive_end=false`, rows('ab', 0)],
      [`${ALL}?endkey="c"&inclusive_end=TRUE`, rows('abc', 0)],
      [`${ALL}?endkey="c"&inclusive_end=no`, parse('Invalid boolean parameter: "no"')],
    ],
  },
  {
    of: '8.1 descending',
    says: 'exchanges start and end',
    given: [ABCD],
    steps: [
      [`${ALL}?descending=true`, rows('dcba', 0)],
      [`${ALL}?descending=true&startkey="c"&endkey="b"`, rows('cb', 1)],
      [`${ALL}?descending=true&startkey="c"&endkey="b"&inclusive_end=false`, rows('c', 1)],
      [`${ALL}?descending=true&startkey="b"&endkey="c"`, { like: { rows: [] } }],
      [`${ALL}?descending=x`, parse('Invalid boolean parameter: "x"')],
    ],
  },
  {
    of: ['8.1 limit', '8.1 skip'],
    says: 'must be whole numbers of at least 0',
    given: [ABCD],
    steps: [
      [`${ALL}?limit=2`, rows('ab', 0)],
      [`${ALL}?limit=1&limit=3`, rows('abc', 0)],
      [`${ALL}?skip=1&limit=2`, rows('bc', 1)],
      [`${ALL}?startkey="b"&skip=1`, rows('cd', 2)],
      [`${ALL}?limit=0`, { like: { total_rows: 4, rows: [] } }],
      [`${ALL}?skip=9`, { like: { total_rows: 4, rows: [] } }],
      [`${ALL}?limit=x`, parse('Invalid value for integer: "x"')],
      [`${ALL}?limit=-1`, parse('Invalid value for positive integer: "-1"')],
      [`${ALL}?limit=576460752303423487`, rows('abcd', 0)],
      [`${ALL}?limit=576460752303423488`, parse('Limit is too large, must not exceed 576460752303423487')],
      [`${ALL}?skip=-1`, parse('Invalid value for positive integer: "-1"')],
    ],
  },
]

/** Of the documents Z, _design/d, a, b, c and é: parameters, the listed ids, and the offset. */
const OFFSETS: readonly (readonly [query: string, ids: readonly string[], offset: number])[] = [
  ['', ['Z', '_design/d', 'a', 'b', 'c', 'é'], 0],
  ['startkey="aa"', ['b', 'c', 'é'], 3],
  ['endkey="a"', ['Z', '_design/d', 'a'], 0],
  ['startkey="b"&endkey="a"', [], 3],
  ['key="b"', ['b'], 3],
  ['key="b"&inclusive_end=false', [], 3],
  ['key="c"&startkey="b"', ['b', 'c'], 3],
  ['startkey="b"&key="c"', ['c'], 4],
  ['startkey_docid=c', ['c', 'é'], 4],
  ['start_key_doc_id=c&endkey_docid=c', ['c'], 4],
  ['startkey="b"&startkey_docid=c', ['b', 'c', 'é'], 3],
  ['key="no"', [], 5],
  ['key="gone"', [], 5],
  ['descending=true', ['é', 'c', 'b', 'a', '_design/d', 'Z'], 0],
  ['descending=true&startkey="b"', ['b', 'a', '_design/d', 'Z'], 2],
  ['descending=true&startkey="a"&endkey="b"', [], 3],
  ['descending=true&key="b"', ['b'], 2],
  ['limit=0', [], 0],
  ['skip=4', ['c', 'é'], 4],
  ['skip=100', [], 6],
  ['startkey="b"&skip=1&limit=1', ['c'], 4],
  ['descending=true&skip=1&limit=2', ['c', 'b'], 1],
  ['startkey="_design/"&endkey="_design0"', ['_design/d'], 1],
  ['startkey="zz%EF%BF%BF"', ['é'], 5],
]

const OFFSET_ROWS: Row = {
  of: ['8.2 offset', '8.2 no deleted documents', '8.2 order'],
  says: 'counts the live documents before the first row, in the direction of the query',
  given: [
    stored(...['c', 'a', 'b', '_design/d', 'Z', 'é'].map((id) => of(id, '1-a')), of('gone', '1-a', DELETED)),
  ],
  steps: OFFSETS.map(([query, ids, offset]) => [
    `${ALL}?${query}`,
    { json: { total_rows: 6, offset, rows: ids.map((id) => live(id)) } },
  ]),
}

const SWITCHES: readonly Row[] = [
  {
    of: ['8.1 include_docs', '8.1 conflicts'],
    says: 'the winners, with their conflicts if those are asked for too',
    given: [CONFLICT],
    steps: [
      [
        `${ALL}?include_docs=true`,
        {
          json: {
            total_rows: 1,
            offset: 0,
            rows: [live('x', '2-c', { doc: { _id: 'x', _rev: '2-c', v: 3 } })],
          },
        },
      ],
      [
        `${ALL}?include_docs=true&conflicts=true`,
        { like: { rows: [{ doc: { _id: 'x', _rev: '2-c', v: 3, _conflicts: ['2-b'] } }] } },
      ],
      [`${ALL}?include_docs=TRUE`, { like: { rows: [{ doc: { _id: 'x' } }] } }],
      [`${ALL}?include_docs=`, parse('Invalid boolean parameter: []')],
      [`HEAD /{db}/_all_docs`, { text: '' }],
      [`${ALL}?conflicts=true`, { json: { total_rows: 1, offset: 0, rows: [live('x', '2-c')] } }],
    ],
  },
  {
    of: ['8.1 attachments', '8.1 att_encoding_info'],
    says: 'in base64; of an encoding there is nothing to say',
    given: [put('x', { _attachments: { t: INLINE } }, { keep: { rev: 'rev' } })],
    steps: [
      [
        `${ALL}?include_docs=true&attachments=true`,
        { like: { rows: [{ doc: { _attachments: { t: DATA } } }] } },
      ],
      [
        `${ALL}?include_docs=true&att_encoding_info=true`,
        {
          json: {
            total_rows: 1,
            offset: 0,
            rows: [live('x', '{rev}', { doc: { _id: 'x', _rev: '{rev}', _attachments: { t: STUB } } })],
          },
        },
      ],
    ],
  },
  {
    of: '8.1 update_seq',
    says: 'in the envelope; null with keys',
    given: [ABCD],
    steps: [
      [`${ALL}?update_seq=true&limit=0`, { json: { total_rows: 4, offset: 0, update_seq: /^5-/, rows: [] } }],
      [
        `${ALL}?update_seq=true&keys=["a"]`,
        { json: { total_rows: 4, offset: null, update_seq: null, rows: [live('a')] } },
      ],
    ],
  },
  {
    of: ['8.1 startkey_docid', '8.1 endkey_docid'],
    says: 'takes the place of a missing startkey or endkey',
    given: [ABCD],
    steps: [
      [`${ALL}?startkey_docid=c`, rows('cd', 2)],
      [`${ALL}?end_key_doc_id=b&start_key_doc_id=b`, rows('b', 1)],
      [`${ALL}?startkey="b"&startkey_docid=c`, rows('bcd', 1)],
      [`${ALL}?descending=true&endkey_docid=c`, rows('dc', 0)],
    ],
  },
  {
    of: ['stale', 'update', 'stable', 'sorted'].map((name) => `8.1 ${name}`),
    says: 'a value that views do not have is refused',
    given: [ABCD],
    steps: [
      [`${ALL}?stale=no`, parse('Invalid value for `stale`.')],
      [`${ALL}?update=TRUE`, parse('Invalid value for `update`.')],
      [`${ALL}?stable=x`, parse('Invalid value for `stable`.')],
      [`${ALL}?sorted=x`, parse('Invalid boolean parameter: "x"')],
    ],
  },
  {
    of: ['stale', 'update', 'stable', 'sorted'].map((name) => `8.1 ${name}`),
    says: 'is accepted and has no effect',
    given: [ABCD],
    steps: [
      'stale=ok',
      'stale=update_after',
      'update=false',
      'update=lazy',
      'stable=true',
      'sorted=false',
      'stale=ok&update=false&sorted=true&unknown=1&r=1&reduce=false&group=false&group_level=0',
    ].map((query) => [`${ALL}?${query}`, rows('abcd', 0)]),
  },
  {
    of: ['8.1 reduce', '8.1 group'],
    says: 'there is nothing to reduce',
    given: [ABCD],
    steps: [
      [`${ALL}?reduce=true`, parse('Reduce is invalid for map-only views.')],
      [`${ALL}?group=true`, parse('Invalid use of grouping on a map view.')],
      [`${ALL}?group=yes`, parse('Invalid boolean parameter: "yes"')],
      [`${ALL}?group_level=1`, parse('Invalid use of grouping on a map view.')],
      [`${ALL}?group_level=x`, parse('Invalid value for integer: "x"')],
      [`${ALL}?reduce=x`, parse('Invalid boolean parameter: "x"')],
      [
        `${ALL}?group=false&group_level=1`,
        parse("Can't specify group=false and group_level>0 at the same time"),
      ],
      [`${ALL}?reduce=false`, rows('abcd', 0)],
    ],
  },
  {
    of: '8.1 unknown parameters',
    says: 'ignored',
    given: [ABCD],
    ask: `${ALL}?foo=bar&_x=1`,
    answer: rows('abcd', 0),
  },
]

export const LISTS: readonly Row[] = [...RANGES, OFFSET_ROWS, ...SWITCHES]
