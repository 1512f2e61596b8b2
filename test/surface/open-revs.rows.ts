/** open_revs: protocol.md 3.2. */
import { CONFLICT, DATA, DELETED, DIGEST, INLINE, STUB, x } from './histories.ts'
import { type AskMore, failed, type Row, stored } from './table.ts'

const MIXED: AskMore = { headers: { accept: 'multipart/mixed' } }
const WINNER = { ok: { _id: 'x', _rev: '2-c', v: 3 } }
const LOSER = { ok: { _id: 'x', _rev: '2-b', v: 2 } }
const TOMBSTONE = { ok: { _id: 'x', _rev: '2-d', _deleted: true, v: 4 } }
const JSON_PART = { 'content-type': 'application/json' }
const MISSING_PART = { 'content-type': 'application/json; error="true"' }
const ATTACHED = stored(x('1-a', { _attachments: { t: { ...INLINE, revpos: 1 } } }))
const FOLLOWS = { content_type: 'text/plain', revpos: 1, digest: DIGEST, length: 10, follows: true }

export const OPEN_REVS: readonly Row[] = [
  {
    of: ['3.2 all', '3.2 order'],
    says: 'every leaf, the deleted as well; the winner first, though nothing promises it',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x?open_revs=all', { json: [WINNER, LOSER, TOMBSTONE] }],
      ['GET /{db}/x?open_revs="all"', { json: [WINNER, LOSER, TOMBSTONE] }],
    ],
  },
  {
    of: '3.2 list',
    says: 'what is there, superseded revisions too, and what is missing',
    given: [CONFLICT],
    steps: [
      [
        'GET /{db}/x?open_revs=["2-b","1-a","3-z"]',
        { json: [LOSER, { ok: { _id: 'x', _rev: '1-a', v: 1 } }, { missing: '3-z' }] },
      ],
      ['GET /{db}/x?open_revs=%5B%222-b%22%2C%223-z%22%5D', { json: [LOSER, { missing: '3-z' }] }],
    ],
  },
  {
    of: '3.2 list',
    says: 'empty, or with something that is no revision',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x?open_revs=[]', { like: { _id: 'x' } }],
      ['GET /{db}/none?open_revs=[]', { status: 404 }],
      ['GET /{db}/x?open_revs=["junk"]', failed(400, 'bad_request', 'Invalid rev format')],
    ],
  },
  {
    of: '3.2 latest',
    says: 'the leaves below each revision, each once; what is unknown is missing',
    given: [CONFLICT, stored(x('3-e b a', { v: 5 }))],
    steps: [
      [
        'GET /{db}/x?open_revs=["2-b","2-c"]&latest=true',
        { json: [{ ok: { _id: 'x', _rev: '3-e', v: 5 } }, WINNER] },
      ],
      [
        'GET /{db}/x?open_revs=["1-a","2-b","9-z"]&latest=true',
        { json: [{ ok: { _id: 'x', _rev: '3-e', v: 5 } }, WINNER, TOMBSTONE, { missing: '9-z' }] },
      ],
    ],
  },
  {
    of: '3.2 unknown document',
    says: '404 for all, and nothing but missing for a list',
    steps: [
      ['GET /{db}/x?open_revs=all', failed(404, 'not_found', 'missing')],
      ['GET /{db}/x?open_revs=["1-a"]', { json: [{ missing: '1-a' }] }],
    ],
  },
  {
    of: '3.2 unknown document',
    says: 'a deleted document has a leaf',
    given: [stored(x('1-a', DELETED))],
    ask: 'GET /{db}/x?open_revs=all',
    answer: { json: [{ ok: { _id: 'x', _rev: '1-a', _deleted: true } }] },
  },
  {
    of: '3.2 ancestor without body',
    says: 'is missing',
    given: [stored(x('2-b a'))],
    ask: 'GET /{db}/x?open_revs=["1-a","2-b"]',
    answer: { json: [{ missing: '1-a' }, { ok: { _id: 'x', _rev: '2-b' } }] },
  },
  {
    of: '3.2 JSON bytes',
    says: 'rows with a comma between, and a newline at the end, chunked',
    given: [stored(x('1-a'))],
    ask: 'GET /{db}/x?open_revs=["1-a","1-b"]',
    answer: {
      text: '[{"ok":{"_id":"x","_rev":"1-a"}},{"missing":"1-b"}]\n',
      headers: { 'content-type': 'application/json', 'transfer-encoding': 'chunked' },
    },
  },
  {
    of: '3.2 Accept',
    says: 'JSON but for who names multipart/mixed (docs/compatibility.md)',
    given: [CONFLICT],
    steps: [
      ['GET /{db}/x?open_revs=["2-c"]', { json: [WINNER] }],
      ...['*/*', 'application/json', 'application/json, multipart/mixed;q=0.5'].map(
        (accept) => [['GET /{db}/x?open_revs=["2-c"]', { headers: { accept } }], { json: [WINNER] }] as const,
      ),
      ...[MIXED, { headers: { accept: 'multipart/*' } }].map(
        (more) =>
          [
            ['GET /{db}/x?open_revs=["2-c"]', more],
            { headers: { 'content-type': /^multipart\/mixed/ } },
          ] as const,
      ),
    ],
  },
  {
    of: '3.2 multipart framing',
    says: 'a part a revision, of type application/json where nothing is attached',
    given: [CONFLICT],
    steps: [
      [
        ['GET /{db}/x?open_revs=["2-c","2-b"]', MIXED],
        {
          headers: {
            'content-type': /^multipart\/mixed; boundary="[0-9a-f]{32}"$/,
            'transfer-encoding': 'chunked',
          },
          parts: [
            { ...JSON_PART, content: WINNER.ok },
            { ...JSON_PART, content: LOSER.ok },
          ],
          text: /^--[0-9a-f]{32}\r\nContent-Type: application\/json\r\n\r\n\{[^\n]*\}\r\n--[0-9a-f]{32}\r\n.*\r\n--[0-9a-f]{32}--$/s,
        },
      ],
    ],
  },
  {
    of: '3.2 multipart attachments',
    says: 'multipart/related in a part, with the contents whether asked for or not',
    given: [ATTACHED],
    steps: ['', '&attachments=true'].map((more) => [
      [`GET /{db}/x?open_revs=all${more}`, MIXED],
      {
        parts: [
          {
            'content-type': /^multipart\/related; boundary="[0-9a-f]{32}"$/,
            content: [
              { ...JSON_PART, content: { _id: 'x', _rev: '1-a', _attachments: { t: FOLLOWS } } },
              {
                'content-disposition': 'attachment; filename="t"',
                'content-type': 'text/plain',
                'content-length': '10',
                content: '0123456789',
              },
            ],
          },
        ],
      },
    ]),
  },
  {
    of: '3.2 multipart attachments',
    says: 'but those that atts_since knows; and in JSON only if asked for',
    given: [ATTACHED],
    steps: [
      [
        ['GET /{db}/x?open_revs=all&atts_since=["1-a"]', MIXED],
        { parts: [{ ...JSON_PART, content: { _id: 'x', _rev: '1-a', _attachments: { t: STUB } } }] },
      ],
      ['GET /{db}/x?open_revs=all', { like: [{ ok: { _attachments: { t: STUB } } }] }],
      ['GET /{db}/x?open_revs=all&attachments=true', { like: [{ ok: { _attachments: { t: DATA } } }] }],
    ],
  },
  {
    of: '3.2 multipart missing',
    says: 'a part that says so',
    given: [CONFLICT],
    ask: ['GET /{db}/x?open_revs=["2-c","1-z"]', MIXED],
    answer: {
      parts: [
        { ...JSON_PART, content: WINNER.ok },
        { ...MISSING_PART, content: { missing: '1-z' } },
      ],
    },
  },
]
