/** What a reader knows already: protocol.md 3.1. */
import { CONFLICT } from './histories.ts'
import { put, type Row } from './table.ts'

export const ETAG: readonly Row[] = [
  {
    of: '3.1 ETag',
    says: 'the revision that is read, in quotes',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x', { headers: { etag: '"2-c"' } }],
      ['GET /{db}/x?rev=2-b&revs=true', { headers: { etag: '"2-b"' } }],
    ],
  },
  {
    of: '3.1 ETag of _local',
    says: 'changes with the content',
    given: [
      put('_local/l', { v: 1 }),
      ['GET /{db}/_local/l', { keep: { etag: 'header etag' } }],
      put('_local/m', { v: 2 }),
    ],
    steps: [
      ['GET /{db}/_local/l', { headers: { etag: '{etag}' } }],
      [['GET /{db}/_local/l', { headers: { 'if-none-match': '{etag}' } }], { status: 304, text: '' }],
      [put('_local/l', { _rev: '0-1', v: 2 }), { status: 201 }],
      [['GET /{db}/_local/l', { headers: { 'if-none-match': '{etag}' } }], { status: 200 }],
    ],
  },
  {
    of: '3.1 no ETag with meta',
    says: 'none where conflicts, revisions or the number in the feed came out',
    given: [CONFLICT, put('y')],
    steps: [
      ['GET /{db}/x?conflicts=true', { headers: { etag: undefined } }],
      ['GET /{db}/x?deleted_conflicts=true', { headers: { etag: undefined } }],
      ['GET /{db}/x?revs_info=true', { headers: { etag: undefined } }],
      ['GET /{db}/x?local_seq=true', { headers: { etag: undefined } }],
      ['GET /{db}/y?conflicts=true&deleted_conflicts=true', { headers: { etag: /^"1-/ } }],
      ['GET /{db}/x?revs=true', { headers: { etag: '"2-c"' } }],
    ],
  },
  {
    of: '3.1 If-None-Match',
    says: 'the ETag, in a list by commas or spaces, weak or not: 304 without a body',
    given: [CONFLICT],
    steps: ['"2-c"', 'W/"2-c"', '"1-a","2-c"', '"1-a" "2-c"', '"1-a", W/"2-c"'].flatMap((tags) =>
      ['GET', 'HEAD'].map(
        (method) =>
          [
            [`${method} /{db}/x`, { headers: { 'if-none-match': tags } }],
            { status: 304, text: '', headers: { etag: '"2-c"' } },
          ] as const,
      ),
    ),
  },
  {
    of: '3.1 If-None-Match',
    says: 'another revision, or one without quotes, which is no ETag',
    given: [CONFLICT],
    steps: ['"2-b"', '2-c'].map((tags) => [
      ['GET /{db}/x', { headers: { 'if-none-match': tags } }],
      { json: { _id: 'x', _rev: '2-c', v: 3 } },
    ]),
  },
]
