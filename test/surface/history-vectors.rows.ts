/** Winners, merges and missing revisions: the vectors of protocol.md 19.1 to 19.3. */

import type { Answer } from './answers.ts'
import { DELETED, of, x } from './histories.ts'
import { type Ask, failed, put, type Row, stored } from './table.ts'

/** A line of 19.1: leaves, the deleted ones with (d), and what is seen of them in whatever order they came. */
function winner(
  number: number,
  leaves: readonly string[],
  seen: Readonly<Record<string, unknown>>,
  changes: readonly string[],
): Row {
  const docs = (id: string) =>
    leaves.map((leaf) => of(id, leaf.replace('(d)', ''), leaf.endsWith('(d)') ? DELETED : {}))
  const row = {
    changes: changes.map((rev) => ({ rev })),
    ...(seen._deleted === true && { deleted: true }),
  }
  const read = (id: string): readonly [Ask, Answer] => [
    `GET /{db}/${id}?conflicts=true&deleted_conflicts=true&deleted=true`,
    { json: { _id: id, ...seen } },
  ]
  return {
    of: `19.1 #${number}`,
    says: leaves.join(', '),
    given: [stored(...docs('x')), stored(...docs('y').reverse())],
    steps: [
      read('x'),
      read('y'),
      [
        'GET /{db}/_changes?style=all_docs',
        {
          like: {
            results: [
              { id: 'x', ...row },
              { id: 'y', ...row },
            ],
          },
        },
      ],
      ['GET /{db}/x', seen._deleted === true ? failed(404, 'not_found', 'deleted') : {}],
    ],
  }
}

const AFF = `0aff${'0'.repeat(28)}`
const AEE = `0aee${'f'.repeat(28)}`

const WINNERS: readonly Row[] = [
  winner(
    1,
    ['2-b a', '2-c a', '2-d a(d)'],
    { _rev: '2-c', _conflicts: ['2-b'], _deleted_conflicts: ['2-d'] },
    ['2-c', '2-b', '2-d'],
  ),
  winner(2, ['3-a b c(d)', '2-z c'], { _rev: '2-z', _deleted_conflicts: ['3-a'] }, ['2-z', '3-a']),
  winner(3, ['10-a', '9-f'], { _rev: '10-a', _conflicts: ['9-f'] }, ['10-a', '9-f']),
  winner(4, ['2-a x(d)', '2-b x(d)'], { _rev: '2-b', _deleted: true, _deleted_conflicts: ['2-a'] }, [
    '2-b',
    '2-a',
  ]),
  winner(5, [`2-${AFF} x`, `2-${AEE} x`], { _rev: `2-${AFF}`, _conflicts: [`2-${AEE}`] }, [
    `2-${AFF}`,
    `2-${AEE}`,
  ]),
]

const WRITTEN: Answer = { status: 201, json: [] }
const CHAIN = stored(x('3-c b a'))
const at = (seq: number): readonly [Ask, Answer] => [
  'GET /{db}',
  { like: { update_seq: new RegExp(`^${seq}-`) } },
]
const seen = (json: Readonly<Record<string, unknown>>): readonly [Ask, Answer] => [
  'GET /{db}/x?conflicts=true&revs=true',
  { json: { _id: 'x', ...json } },
]

const MERGES: readonly Row[] = [
  {
    of: '19.2 #1',
    says: 'a path for nothing: ancestors without bodies',
    steps: [
      [CHAIN, WRITTEN],
      ['GET /{db}/x', { json: { _id: 'x', _rev: '3-c' } }],
      ['GET /{db}/x?rev=2-b', failed(404, 'not_found', 'missing')],
      [
        'GET /{db}/x?revs_info=true',
        {
          like: {
            _revs_info: [
              { rev: '3-c', status: 'available' },
              { rev: '2-b', status: 'missing' },
              { rev: '1-a', status: 'missing' },
            ],
          },
        },
      ],
      [['POST /{db}/_revs_diff', { json: { x: ['1-a', '2-b', '3-c'] } }], { json: {} }],
    ],
  },
  {
    of: '19.2 #2',
    says: 'a branch: one new number in the feed',
    given: [CHAIN],
    steps: [
      [stored(x('3-d b a')), WRITTEN],
      seen({ _rev: '3-d', _revisions: { start: 3, ids: ['d', 'b', 'a'] }, _conflicts: ['3-c'] }),
      at(2),
    ],
  },
  {
    of: '19.2 #3',
    says: 'the same again',
    given: [CHAIN],
    steps: [
      [stored(x('3-c b a', { other: 'body' })), WRITTEN],
      at(1),
      seen({ _rev: '3-c', _revisions: { start: 3, ids: ['c', 'b', 'a'] } }),
    ],
  },
  {
    of: '19.2 #4',
    says: 'an ancestor',
    given: [CHAIN],
    steps: [
      [stored(x('2-b a', { v: 1 })), WRITTEN],
      at(1),
      ['GET /{db}/x?rev=2-b', { status: 404 }],
      seen({ _rev: '3-c', _revisions: { start: 3, ids: ['c', 'b', 'a'] } }),
    ],
  },
  {
    of: '19.2 #5',
    says: 'a descendant, with unknown ones between',
    given: [stored(x('1-a'))],
    steps: [
      [stored(x('4-d c b a')), WRITTEN],
      seen({ _rev: '4-d', _revisions: { start: 4, ids: ['d', 'c', 'b', 'a'] } }),
      ['GET /{db}/x?open_revs=["2-b","3-c"]', { json: [{ missing: '2-b' }, { missing: '3-c' }] }],
    ],
  },
  {
    of: '19.2 #6',
    says: 'a revision without a path: a second root',
    given: [stored(x('1-a'))],
    steps: [
      [stored({ _id: 'x', _rev: '3-x' }), WRITTEN],
      seen({ _rev: '3-x', _revisions: { start: 3, ids: ['x'] }, _conflicts: ['1-a'] }),
    ],
  },
  {
    of: '19.2 #7',
    says: 'a known leaf, whose path joins two roots; what comes later grows on it',
    given: [stored(x('1-a')), stored({ _id: 'x', _rev: '3-x' })],
    steps: [
      [stored(x('3-x y a')), WRITTEN],
      ['GET /{db}/x', { like: { _rev: '3-x' } }],
      [stored(x('4-z x y a')), WRITTEN],
      seen({ _rev: '4-z', _revisions: { start: 4, ids: ['z', 'x', 'y', 'a'] } }),
    ],
  },
  {
    of: '19.2 #8',
    says: 'a live branch beside a tombstone',
    given: [stored(x('2-b a', DELETED))],
    steps: [
      ['GET /{db}/x', { status: 404 }],
      [stored(x('2-c a')), WRITTEN],
      [
        'GET /{db}/x?deleted_conflicts=true',
        { json: { _id: 'x', _rev: '2-c', _deleted_conflicts: ['2-b'] } },
      ],
    ],
  },
  {
    of: '19.2 #9',
    says: 'neither _rev nor _revisions: nothing of the request is stored',
    steps: [
      [stored(x('1-a'), { _id: 'y' }), { status: 400, like: { error: 'bad_request' } }],
      ['GET /{db}/x', { status: 404 }],
      at(0),
    ],
  },
]

const diff = (json: unknown): Ask => ['POST /{db}/_revs_diff', { json }]
const LEAVES = stored(of('d', '2-b a'), of('d', '2-c a'))

/** What `_revs_diff` and `_missing_revs` answer; the one also says which ancestors are there. */
function both(
  asked: unknown,
  missing: Readonly<Record<string, unknown>>,
  ancestors = {},
): (readonly [Ask, Answer])[] {
  const each = Object.entries(missing).map(([id, revs]) => [id, { missing: revs, ...ancestors }])
  return [
    [diff(asked), { json: Object.fromEntries(each) }],
    [['POST /{db}/_missing_revs', { json: asked }], { json: { missing_revs: missing } }],
  ]
}

const DIFFS: readonly Row[] = [
  {
    of: '19.3 #1',
    says: 'ancestors are the leaves below the highest that is missing',
    given: [LEAVES],
    steps: both(
      { d: ['1-xyz', '2-def', '3-klm', '2-b'] },
      { d: ['1-xyz', '2-def', '3-klm'] },
      { possible_ancestors: ['2-c', '2-b'] },
    ),
  },
  {
    of: '19.3 #2',
    says: 'none below',
    given: [LEAVES],
    steps: both({ d: ['1-pqr'] }, { d: ['1-pqr'] }),
  },
  {
    of: '19.3 #3',
    says: 'all known',
    given: [LEAVES],
    steps: both({ d: ['1-a', '2-b'] }, {}),
  },
  {
    of: '19.3 #4',
    says: 'answers nothing to an empty request',
    given: [LEAVES],
    steps: [...both({ d: [] }, {}), ...both({}, {})],
  },
  {
    of: '19.3 #5',
    says: 'an unknown document',
    steps: both({ n: ['1-a'] }, { n: ['1-a'] }),
  },
  {
    of: '19.3 #6',
    says: 'no list, or no revision',
    given: [put('d')],
    steps: [
      [diff({ d: '1-a' }), { status: 400, like: { error: 'bad_request' } }],
      [diff({ d: ['1'] }), failed(400, 'bad_request', 'Invalid rev format')],
    ],
  },
]

export const HISTORY_VECTORS: readonly Row[] = [...WINNERS, ...MERGES, ...DIFFS]
