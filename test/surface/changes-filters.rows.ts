/** The filters of `_changes`: protocol.md 5.5. */
import { A, B, C, feed, THREE } from './feeds.ts'
import { put, type Row, stored } from './table.ts'

/** The filter in the documentation of a note app (clients.md 1.3). */
const SYNC = `function (doc, req) {
  return doc._id.indexOf('file:') === -1
}`

const MOBILE = put('_design/mobile', {
  filters: {
    sync: SYNC,
    ofType: '(doc, req) => doc.type === req.query.type',
    live: '(doc) => !doc._deleted',
    ofDesign:
      'function (doc) { return this._id === "_design/mobile" && this._rev.startsWith("1-") && doc.type === this.kept }',
    hasConflicts: '(doc) => doc._conflicts !== undefined',
    path: '(doc) => doc._revisions.start === 25 && doc._revisions.ids.length === 20 && doc._rev === "25-r25"',
    keyed: '(doc, req) => doc.key !== undefined && [req.query.key, req.query.descending].includes(doc.key)',
    asked: `(doc, req) => req.method === 'POST' && req.body.pass === doc._id && req.path[1] === '_changes' &&
      req.userCtx.roles.includes('_admin') && req.info.doc_count === 3 && req.secObj.admins !== undefined`,
  },
  kept: 'note',
  views: { notes: { map: "(doc) => { if (doc.type === 'note') { emit(1); emit(2) } }" } },
})

const NOTES = [
  put('note:1', { type: 'note' }),
  put('file:1', { type: 'file' }),
  stored(
    { _id: 'xfile:2', _rev: '1-a', _deleted: true, type: 'file' },
    { _id: 'note:2', _rev: '1-a', _deleted: true, type: 'note' },
  ),
]

/** The winner 2-c is a file, the leaf 2-b a note. */
const MIXED = stored(
  { _id: 'x', _revisions: { start: 2, ids: ['b', 'a'] }, type: 'note' },
  { _id: 'x', _revisions: { start: 2, ids: ['c', 'a'] }, type: 'file' },
)

const LONG = Array.from({ length: 25 }, (_, i) => `r${25 - i}`)

export const rows: readonly Row[] = [
  {
    of: ['5.5 _doc_ids', '5.1 doc_ids'],
    says: 'what is listed, in a POST or in the query',
    given: THREE,
    steps: [
      [['POST /{db}/_changes?filter=_doc_ids', { json: { doc_ids: ['c', 'b', 'z'] } }], feed([B, C], 8, 0)],
      ['GET /{db}/_changes?filter=_doc_ids&doc_ids=%5B%22c%22%2C%22a%22%2C%22zz%22%5D', feed([A, C], 8, 0)],
      [['POST /{db}/_changes?filter=_doc_ids', { json: { doc_ids: [] } }], { ids: [] }],
      [['POST /{db}/_changes', { json: { doc_ids: ['c'] } }], { ids: ['a', 'b', 'c'] }],
    ],
  },
  {
    of: '5.5 _doc_ids',
    says: 'in feeds that wait',
    ask: [
      'POST /{db}/_changes?filter=_doc_ids&feed=continuous&limit=1&heartbeat=60000',
      { json: { doc_ids: ['y'] }, meanwhile: [put('x'), put('y')] },
    ],
    answer: { ids: ['y'] },
  },
  {
    of: ['5.5 _selector', '5.1 selector'],
    says: 'passes what matches, deleted documents included',
    given: [MOBILE, ...NOTES],
    steps: [
      [
        ['POST /{db}/_changes?filter=_selector', { json: { selector: { type: 'note' } } }],
        { ids: ['note:1', 'note:2'] },
      ],
      [
        [
          'POST /{db}/_changes?filter=_selector',
          { json: { selector: { type: 'note', _deleted: { $exists: false } } } },
        ],
        { ids: ['note:1'] },
      ],
      [
        ['POST /{db}/_changes?filter=_selector', { json: { selector: { type: { $ne: 'file' } } } }],
        { ids: ['note:1', 'note:2'] },
      ],
      [
        ['POST /{db}/_changes?filter=_selector', { json: { selector: { type: { $exists: false } } } }],
        { ids: ['_design/mobile'] },
      ],
    ],
  },
  {
    of: ['5.5 _selector', '5.1 fields'],
    says: 'fields are those of the document that it adds',
    given: [put('x', { type: 'note', deep: { a: 1, b: 2 } })],
    steps: [
      [
        [
          'POST /{db}/_changes?filter=_selector&include_docs=true',
          { json: { selector: { type: 'note' }, fields: ['_id', 'deep.a'] } },
        ],
        { ids: ['x'], text: /"doc":\{"_id":"x","deep":\{"a":1\}\}\}/ },
      ],
      [
        [
          'POST /{db}/_changes?filter=_selector&include_docs=true',
          { json: { selector: { type: 'note' }, fields: [] } },
        ],
        { like: { results: [{ doc: { type: 'note', deep: { b: 2 } } }] } },
      ],
    ],
  },
  {
    of: '5.5 _selector',
    says: 'in feeds that wait',
    ask: [
      'POST /{db}/_changes?filter=_selector&feed=longpoll&heartbeat=60000',
      { json: { selector: { n: 1 } }, meanwhile: [put('x'), put('y', { n: 1 })] },
    ],
    answer: { ids: ['y'] },
  },
  {
    of: '5.5 _design',
    says: 'design documents',
    given: [MOBILE, ...NOTES],
    ask: 'GET /{db}/_changes?filter=_design',
    answer: { ids: ['_design/mobile'], like: { last_seq: /^5-/ } },
  },
  {
    of: '5.5 _view',
    says: 'what the map function emits anything for, once each, deleted documents too',
    given: [MOBILE, ...NOTES],
    ask: 'GET /{db}/_changes?filter=_view&view=mobile/notes',
    answer: { ids: ['note:1', 'note:2'] },
  },
  {
    of: '5.5 function',
    says: 'what it says yes to, in feeds of every kind, tombstones too',
    given: [MOBILE, ...NOTES],
    steps: ['normal', 'longpoll', 'continuous&timeout=0', 'eventsource&timeout=0'].map((kind) => [
      `GET /{db}/_changes?filter=mobile/sync&feed=${kind}`,
      { ids: ['_design/mobile', 'note:1', 'note:2'] },
    ]),
  },
  {
    of: '5.5 function',
    says: 'in feeds that wait',
    given: [MOBILE],
    steps: [
      [
        [
          'GET /{db}/_changes?filter=mobile/sync&feed=longpoll&since=now&heartbeat=60000',
          { meanwhile: [put('file:1'), put('note:1')] },
        ],
        { ids: ['note:1'] },
      ],
      [
        [
          'GET /{db}/_changes?filter=mobile/ofType&type=b&feed=continuous&since=now&limit=1&heartbeat=60000',
          { meanwhile: [put('x', { type: 'a' }), put('y', { type: 'b' })] },
        ],
        { ids: ['y'] },
      ],
    ],
  },
  {
    of: '5.5 req',
    says: 'the request, as a filter function sees it',
    given: [MOBILE, put('x'), put('y')],
    ask: ['POST /{db}/_changes?filter=mobile/asked', { json: { pass: 'y' } }],
    answer: { ids: ['y'] },
  },
  {
    of: '5.5 req',
    says: 'parameters that are JSON values as such, and other texts as they are',
    given: [MOBILE, put('x', { key: 'TRUE' }), put('y', { key: true }), put('z', { key: 'a' })],
    steps: [
      ['GET /{db}/_changes?filter=mobile/keyed&key="a"&descending=true', { ids: ['z', 'y'] }],
      ['GET /{db}/_changes?filter=mobile/keyed&key=a&descending=TRUE', { ids: ['x', 'z'] }],
      [['POST /{db}/_changes?filter=mobile/keyed&key=a', { json: {} }], { ids: ['z'] }],
    ],
  },
  {
    of: '5.5 function',
    says: 'has its design document as this, with id and revision',
    given: [MOBILE, ...NOTES],
    ask: 'GET /{db}/_changes?filter=mobile/ofDesign',
    answer: { ids: ['note:1', 'note:2'] },
  },
  {
    of: '5.5 main_only',
    says: 'is decided by the winner, also when it is deleted',
    given: [MOBILE, MIXED, stored({ _id: 'y', _rev: '1-a', _deleted: true })],
    steps: [
      ['GET /{db}/_changes?filter=mobile/ofType&type=file', { ids: ['x'] }],
      ['GET /{db}/_changes?filter=mobile/ofType&type=note', { ids: [] }],
      ['GET /{db}/_changes?filter=mobile/live', { ids: ['_design/mobile', 'x'] }],
      [['POST /{db}/_changes?filter=_selector', { json: { selector: { type: 'note' } } }], { ids: [] }],
    ],
  },
  {
    of: '5.5 all_docs',
    says: 'is decided leaf by leaf; only those that pass are listed',
    given: [MOBILE, MIXED],
    steps: [
      [
        'GET /{db}/_changes?filter=mobile/ofType&type=note&style=all_docs',
        { ids: ['x'], text: /"changes":\[\{"rev":"2-b"\}\]/ },
      ],
      ['GET /{db}/_changes?filter=mobile/ofType&type=book&style=all_docs', { ids: [] }],
      [
        ['POST /{db}/_changes?filter=_selector&style=all_docs', { json: { selector: { type: 'note' } } }],
        { ids: ['x'], text: /"changes":\[\{"rev":"2-b"\}\]/ },
      ],
      [
        'GET /{db}/_changes?filter=_view&view=mobile/notes&style=all_docs',
        { ids: ['x'], text: /"changes":\[\{"rev":"2-b"\}\]/ },
      ],
    ],
  },
  {
    of: '5.5 doc',
    says: 'has its _rev and the last twenty of its _revisions',
    given: [MOBILE, stored({ _id: 'x', _revisions: { start: 25, ids: LONG } })],
    ask: 'GET /{db}/_changes?filter=mobile/path',
    answer: { ids: ['x'] },
  },
  {
    of: '5.5 doc',
    says: 'has its _conflicts where it stands for all leaves, asked for or not',
    given: [MOBILE, MIXED],
    steps: [
      ['GET /{db}/_changes?filter=mobile/hasConflicts', { ids: ['x'] }],
      ['GET /{db}/_changes?filter=mobile/hasConflicts&conflicts=true', { ids: ['x'] }],
      ['GET /{db}/_changes?filter=mobile/hasConflicts&style=all_docs', { ids: [] }],
      [
        ['POST /{db}/_changes?filter=_selector', { json: { selector: { _conflicts: ['2-b'] } } }],
        { ids: ['x'] },
      ],
    ],
  },
  {
    of: '5.5 last_seq',
    says: 'continues past rows that do not match',
    given: [MOBILE, ...NOTES],
    steps: [
      ['GET /{db}/_changes?filter=_design', { like: { last_seq: /^5-/ } }],
      ['GET /{db}/_changes?filter=mobile/ofType&type=book', { ids: [], like: { last_seq: /^5-/ } }],
      ['GET /{db}/_changes?filter=mobile/sync&limit=2', { like: { last_seq: /^2-/ } }],
    ],
  },
  {
    of: '5.5 limit',
    says: 'counts the rows that match',
    given: [MOBILE, ...NOTES],
    steps: [
      ['GET /{db}/_changes?filter=mobile/sync&limit=3', { ids: ['_design/mobile', 'note:1', 'note:2'] }],
      ['GET /{db}/_changes?filter=mobile/sync&limit=1&descending=true', { ids: ['note:2'] }],
    ],
  },
]
