/** PUT of a document: protocol.md 3.3. */
import { related } from '../helpers/related.ts'
import type { Answer } from './answers.ts'
import { CHAIN, CONFLICT, DELETED, GONE, INLINE, x } from './histories.ts'
import { failed, put, type Row, stored } from './table.ts'

const CONFLICTING: Answer = failed(409, 'conflict', 'Document update conflict.')
const malformed = (reason: string | RegExp): Answer => failed(400, 'bad_request', reason)

/** The answer of a write whose revision has this generation. */
const saved = (generation: number, status = 201): Answer => ({
  status,
  json: { ok: true, id: 'x', rev: new RegExp(`^${generation}-[0-9a-f]{32}$`) },
})

const FOLLOWS = { content_type: 'text/plain', length: 5, follows: true }

export const PUT: readonly Row[] = [
  {
    of: ['3.3 JSON body', '3.3 201', '3.3 never existed, no rev'],
    says: 'made: 201, with its revision as ETag and its address as Location',
    steps: [
      [
        put('x', { v: 1 }, { keep: { rev: 'rev' }, headers: { host: 'notes.localhost:81' } }),
        {
          status: 201,
          text: '{"ok":true,"id":"x","rev":"{rev}"}\n',
          headers: { etag: '"{rev}"', location: 'http://notes.localhost:81/{db}/x' },
        },
      ],
      ['GET /{db}/x', { json: { _id: 'x', _rev: '{rev}', v: 1 } }],
    ],
  },
  {
    of: '3.3 201',
    says: 'in Location the id is escaped, also the slash of a design document',
    steps: [
      [put('a%2Fb%20%3F'), { status: 201, headers: { location: /\/a%2Fb%20%3F$/ }, like: { id: 'a/b ?' } }],
      [put('_design%2Fd'), { status: 201, headers: { location: /\/_design%2Fd$/ } }],
    ],
  },
  {
    of: '3.3 JSON body',
    says: 'its _id is ignored: the address names the document',
    steps: [
      [put('x', { _id: 'y', v: 1 }), saved(1)],
      ['GET /{db}/x', { like: { _id: 'x', v: 1 } }],
      ['GET /{db}/y', { status: 404 }],
    ],
  },
  {
    of: '3.3 multipart body',
    says: 'a document whose attachment follows it',
    steps: [
      [
        [
          'PUT /{db}/x',
          {
            headers: { 'content-type': 'multipart/related; boundary="B"' },
            body: related('B', { v: 1, _attachments: { t: FOLLOWS } }, [{ content: 'hello' }]),
          },
        ],
        saved(1),
      ],
      ['GET /{db}/x/t', { text: 'hello', headers: { 'content-type': 'text/plain' } }],
    ],
  },
  {
    of: '3.3 content type unchecked',
    says: 'none, or any',
    steps: [
      [['PUT /{db}/x', { body: '{}' }], saved(1)],
      [['PUT /{db}/y', { body: '{}', headers: { 'content-type': 'text/plain' } }], { status: 201 }],
      ...['application/x-www-form-urlencoded', 'rubbish', ';;;', 'application/json'].map(
        (type, index) =>
          [
            [`PUT /{db}/z${index}`, { body: '{"a":1}', headers: { 'content-type': type } }],
            { status: 201 },
          ] as const,
      ),
    ],
  },
  { of: '3.3 _rev', says: 'the parent', given: [CHAIN], ask: put('x', { _rev: '3-c' }), answer: saved(4) },
  {
    of: '3.3 _revisions',
    says: 'the parent with its path; _rev is then ignored',
    given: [CHAIN],
    steps: [
      [put('x', { _rev: '1-a', _revisions: { start: 3, ids: ['c', 'b', 'a'] } }), saved(4)],
      [
        'GET /{db}/x?revs=true',
        { like: { _revisions: { start: 4, ids: [/^[0-9a-f]{32}$/, 'c', 'b', 'a'] } } },
      ],
    ],
  },
  { of: '3.3 rev', says: 'the parent', given: [CHAIN], ask: put('x?rev=3-c'), answer: saved(4) },
  {
    of: '3.3 If-Match',
    says: 'names the parent, with or without quotes',
    given: [CHAIN],
    steps: [
      [put('x', {}, { headers: { 'if-match': '"3-c"' }, keep: { rev: 'rev' } }), saved(4)],
      [put('x', {}, { headers: { 'if-match': '{rev}' } }), saved(5)],
    ],
  },
  {
    of: '3.3 body, query and header agree',
    says: 'or are refused',
    given: [CHAIN],
    steps: [
      [
        put('x?rev=3-c', { _rev: '2-b' }),
        malformed('Document rev from request body and query string have different values'),
      ],
      [
        put('x?rev=3-c', {}, { headers: { 'if-match': '"2-b"' } }),
        malformed('Document rev and etag have different values'),
      ],
      [
        put('x', { _rev: '3-c' }, { headers: { 'if-match': '"2-b"' } }),
        malformed('Document rev and etag have different values'),
      ],
      [put('x?rev=3-c', { _rev: '3-c' }, { headers: { 'if-match': '"3-c"' } }), saved(4)],
    ],
  },
  {
    of: '3.3 new_edits=false',
    says: 'the revision is kept as it is, with its path if it has one',
    steps: [
      [put('x?new_edits=false', { _rev: '2-b', v: 1 }), { status: 201, like: { rev: '2-b' } }],
      [put('x?new_edits=false', { _rev: '2-b', v: 1 }), { status: 201, like: { rev: '2-b' } }],
      [
        put('x?new_edits=false', { _revisions: { start: 2, ids: ['c', 'a'] } }),
        { status: 201, like: { rev: '2-c' }, headers: { etag: '"2-c"' } },
      ],
      [
        'GET /{db}/x?revs=true&conflicts=true',
        { json: { _id: 'x', _rev: '2-c', _revisions: { start: 2, ids: ['c', 'a'] }, _conflicts: ['2-b'] } },
      ],
    ],
  },
  {
    of: '3.3 new_edits=false rev',
    says: 'in the query or If-Match: a path of one',
    steps: [
      [put('x?new_edits=false&rev=2-b'), { status: 201, like: { rev: '2-b' } }],
      [
        put('x?new_edits=false', {}, { headers: { 'if-match': '"2-c"' } }),
        { status: 201, like: { rev: '2-c' } },
      ],
      ['GET /{db}/x?revs=true', { like: { _revisions: { start: 2, ids: ['c'] } } }],
      [
        put('x?new_edits=false'),
        malformed('When `new_edits: false`, the document needs `_rev` or `_revisions` specified'),
      ],
    ],
  },
  {
    of: '3.3 batch=ok',
    says: '202 without a revision; it is written at once (docs/compatibility.md)',
    steps: [
      [put('x?batch=ok', { v: 1 }), { status: 202, text: '{"ok":true,"id":"x"}\n' }],
      ['GET /{db}/x', { json: { _id: 'x', _rev: /^1-/, v: 1 } }],
      [['PUT /{db}/y?batch=ok', { body: '{' }], malformed('invalid UTF-8 JSON')],
      [put('y?batch=ok', { _bad: 1 }), { status: 400 }],
    ],
  },
  {
    of: '3.3 batch=ok',
    says: '202 also for a conflict, which stores nothing: CouchDB answers before it looks for one; DELETE ignores it',
    given: [put('x', { v: 1 })],
    steps: [
      [put('x?batch=ok', { v: 2 }), { status: 202, json: { ok: true, id: 'x' } }],
      ['DELETE /{db}/x?batch=ok', { status: 409 }],
      ['DELETE /{db}/x?batch=ok&rev=1-a', { status: 409 }],
      ['DELETE /{db}/none?batch=ok', { status: 404 }],
      ['GET /{db}/x', { json: { _id: 'x', _rev: /^1-/, v: 1 } }],
      [put('y?new_edits=false', { _rev: '1-a' }), { status: 201 }],
      ['DELETE /{db}/y?batch=ok&rev=1-a', { status: 200, like: { ok: true, id: 'y', rev: /^2-/ } }],
    ],
  },
  {
    of: ['3.3 X-Couch-Full-Commit', '3.9 X-Couch-Full-Commit'],
    says: 'is accepted and has no effect',
    given: [
      put('x', {}, { headers: { 'x-couch-full-commit': 'true' } }),
      put('y', {}, { headers: { 'x-couch-full-commit': 'false' } }),
    ],
    ask: 'GET /{db}',
    answer: { like: { doc_count: 2 } },
  },
  {
    of: '3.3 200 for _deleted',
    says: 'a tombstone, which keeps what was sent: 200, not 201',
    given: [CHAIN],
    steps: [
      [put('x', { _rev: '3-c', _deleted: true, why: 'old' }, { keep: { rev: 'rev' } }), saved(4, 200)],
      ['GET /{db}/x', { status: 404 }],
      ['GET /{db}/x?rev={rev}', { json: { _id: 'x', _rev: '{rev}', _deleted: true, why: 'old' } }],
    ],
  },
  {
    of: '3.3 200 for _deleted',
    says: 'also as the first revision of a document',
    steps: [
      [put('x', DELETED, { keep: { rev: 'rev' } }), saved(1, 200)],
      ['GET /{db}/x', failed(404, 'not_found', 'deleted')],
      ['GET /{db}/x?deleted=true', { json: { _id: 'x', _rev: '{rev}', _deleted: true } }],
    ],
  },
  {
    of: '3.3 never existed, a rev',
    says: 'a conflict, also where nothing is there to be checked',
    steps: [
      [put('x', { _rev: '1-a' }), CONFLICTING],
      [put('x?rev=1-a'), CONFLICTING],
      ['GET /{db}/x', { status: 404 }],
    ],
  },
  { of: '3.3 live, no rev', says: 'a conflict', given: [CHAIN], ask: put('x'), answer: CONFLICTING },
  {
    of: '3.3 live, a live leaf',
    says: 'the winner, or one that lost',
    given: [CONFLICT],
    steps: [
      [put('x', { _rev: '2-b' }, { keep: { rev: 'rev' } }), saved(3)],
      ['GET /{db}/x?conflicts=true', { json: { _id: 'x', _rev: '{rev}', _conflicts: ['2-c'] } }],
      [put('x', { _rev: '2-c' }), saved(3)],
    ],
  },
  {
    of: '3.3 live, no leaf',
    says: 'a conflict',
    given: [CHAIN],
    steps: [
      [put('x', { _rev: '2-b' }), CONFLICTING],
      [put('x', { _rev: '3-z' }), CONFLICTING],
      [put('x', { _rev: '9-c' }), CONFLICTING],
    ],
  },
  {
    of: '3.3 live, a deleted leaf',
    says: 'extends the tombstone: the branch lives again',
    given: [CONFLICT],
    steps: [
      [put('x', { _rev: '2-d' }, { keep: { rev: 'rev' } }), saved(3)],
      ['GET /{db}/x?conflicts=true', { json: { _id: 'x', _rev: '{rev}', _conflicts: ['2-c', '2-b'] } }],
    ],
  },
  {
    of: '3.3 deleted, no rev',
    says: 'creates the document again after the tombstone',
    given: [GONE],
    steps: [
      [put('x', { v: 2 }, { keep: { rev: 'rev' } }), saved(3)],
      [
        'GET /{db}/x?revs=true',
        { json: { _id: 'x', _rev: '{rev}', _revisions: { start: 3, ids: [/./, 'b', 'a'] }, v: 2 } },
      ],
    ],
  },
  {
    of: '3.3 deleted, no rev, _deleted',
    says: 'a conflict',
    given: [GONE],
    ask: put('x', DELETED),
    answer: CONFLICTING,
  },
  {
    of: '3.3 deleted, a rev',
    says: "a conflict, also with the tombstone's own",
    given: [GONE],
    steps: [
      [put('x', { _rev: '2-b' }), CONFLICTING],
      [put('x', { _rev: '1-a' }), CONFLICTING],
    ],
  },
  {
    of: '3.3 refusals',
    says: 'refuses bodies that are not documents',
    steps: [
      [['PUT /{db}/x', { body: '{' }], malformed('invalid UTF-8 JSON')],
      [['PUT /{db}/x', { body: '{"a":' }], malformed('invalid UTF-8 JSON')],
      [
        ['PUT /{db}/x', { body: '--x--', headers: { 'content-type': 'multipart/related; boundary=x' } }],
        { status: 415 },
      ],
      [['PUT /{db}/x', { body: Buffer.from('{"a":"\xff"}', 'latin1') }], malformed('invalid UTF-8 JSON')],
      [['PUT /{db}/x', { body: '' }], malformed('invalid UTF-8 JSON')],
      [put('x', 1), malformed('Document must be a JSON object')],
      [put('x', { _foo: 1 }), failed(400, 'doc_validation', 'Bad special document member: _foo')],
      [put('x', { _deleted: 1 }), failed(400, 'doc_validation', 'Bad special document member: _deleted')],
      [put('x', { _rev: 'junk' }), malformed('Invalid rev format')],
      [put('x?rev=junk'), malformed('Invalid rev format')],
      ['GET /{db}/x', { status: 404 }],
      ['GET /{db}', { like: { doc_count: 0, update_seq: /^0-/ } }],
    ],
  },
  {
    of: '3.3 refusals',
    says: 'refuses invalid paths',
    steps: [
      [put('x', { _revisions: 1 }), { status: 400, like: { error: 'doc_validation' } }],
      [
        put('x', { _revisions: { start: '1', ids: [] } }),
        failed(400, 'doc_validation', "_revisions.start isn't an integer."),
      ],
      [
        put('x', { _revisions: { start: 1, ids: 'a' } }),
        failed(400, 'doc_validation', "_revisions.ids isn't a array."),
      ],
      [
        put('x', { _revisions: { start: 1, ids: [1] } }),
        failed(400, 'doc_validation', "RevId isn't a string"),
      ],
      [
        put('x', { _revisions: { start: 1, ids: ['z'.repeat(32)] } }),
        failed(400, 'doc_validation', "RevId isn't a valid hexadecimal"),
      ],
    ],
  },
  {
    of: '3.3 refusals',
    says: 'attachments, ids, databases, and a length that is too great',
    isDirect: true,
    given: [put('y', { _attachments: { t: INLINE } })],
    steps: [
      [put('x', { _attachments: { t: { stub: true } } }), { status: 412, like: { error: 'missing_stub' } }],
      [put('_x'), failed(400, 'illegal_docid', 'Only reserved document ids may start with underscore.')],
      [put('_design'), failed(400, 'illegal_docid', 'Only reserved document ids may start with underscore.')],
      [put('_design%2F'), failed(400, 'illegal_docid', 'Illegal document id `_design/`')],
      [put('x'.repeat(10_000)), failed(400, 'illegal_docid', 'Document id is too long')],
      [['PUT /nothere/x', { body: '{}' }], failed(404, 'not_found', 'Database does not exist.')],
      [['PUT /_node/_local/_config/couchdb/max_document_size', { json: '20' }], {}],
      [put('x', { v: 'more than twenty bytes' }), failed(413, 'document_too_large', 'x')],
      ['DELETE /_node/_local/_config/couchdb/max_document_size', {}],
    ],
  },
  {
    of: '3.3 refusals',
    says: 'a parent that was given twice cannot be extended twice',
    given: [stored(x('1-a'))],
    steps: [
      [put('x', { _rev: '1-a', v: 1 }), saved(2)],
      [put('x', { _rev: '1-a', v: 2 }), CONFLICTING],
    ],
  },
]
