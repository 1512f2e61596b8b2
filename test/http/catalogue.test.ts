/**
 * The errors of protocol.md 1.2 that settee's calls can meet, each with its status, word and reason. Those of
 * `_changes`, of rights and of contents stand in test/surface/, of views in test/query/views.test.ts.
 */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { type Ask, connect } from './client.ts'

type Case = readonly [line: string, ask: Ask, reason: string]

const TOO_LONG = 'y'.repeat(300)
const NO_HEX = 'z'.repeat(32)
const docs = (...all: unknown[]): Ask => ({ json: { docs: all } })
/** A document whose one attachment follows it, and says that it is so long. */
const following = (length: number): Ask => ({
  headers: { 'content-type': 'multipart/related;boundary="b"' },
  body:
    `--b\r\ncontent-type: application/json\r\n\r\n{"_attachments":{"a":{"follows":true,"length":${length},` +
    '"content_type":"text/plain"}}}\r\n--b\r\n\r\nabcd\r\n--b--',
})

const BAD_REQUEST: readonly Case[] = [
  ...['_bulk_docs', '_bulk_get', '_revs_diff', '_missing_revs', '_purge'].flatMap((call): Case[] => [
    [`POST /db/${call}`, { json: [] }, 'Request body must be a JSON object'],
    [
      `POST /db/${call}`,
      { body: '{', headers: { 'content-type': 'application/json' } },
      'invalid UTF-8 JSON',
    ],
    [
      `POST /db/${call}`,
      { headers: { 'content-type': 'application/json', 'content-length': '0' } },
      'invalid UTF-8 JSON',
    ],
  ]),
  ['POST /db/_all_docs', { json: [] }, 'Request body must be a JSON object'],
  ['POST /_dbs_info', { json: [] }, 'Request body must be a JSON object'],
  ['POST /_dbs_info', { json: {} }, '`keys` member must exist.'],
  ['PUT /db/x', { json: [] }, 'Document must be a JSON object'],
  ['POST /db', { json: 1 }, 'Document must be a JSON object'],
  ['POST /db/_bulk_docs', docs(1), 'Document must be a JSON object'],
  ['GET /db/doc?rev=abc', {}, 'Invalid rev format'],
  ['GET /db/doc?rev=a-b', {}, 'Invalid rev format'],
  [`GET /db/doc?rev=1-${NO_HEX}`, {}, 'Invalid rev format'],
  ['GET /db/doc?open_revs=%5B%22x%22%5D', {}, 'Invalid rev format'],
  ['GET /db/doc?atts_since=%5B%22x%22%5D', {}, 'Invalid rev format'],
  ['PUT /db/doc', { json: { _rev: 1 } }, 'Invalid rev format'],
  ['PUT /db/doc', { json: {}, headers: { 'if-match': '"x"' } }, 'Invalid rev format'],
  ['POST /db/_revs_diff', { json: { doc: ['x'] } }, 'Invalid rev format'],
  ['GET /db/doc?open_revs=%7B%7D', {}, 'Invalid list of revisions'],
  ['POST /db/_purge', { json: { doc: '1-x' } }, 'Invalid list of revisions'],
  ['GET /db/doc?open_revs=x', {}, 'invalid UTF-8 JSON'],
  [
    'PUT /db/doc?rev=1-a',
    { json: { _rev: '1-b' } },
    'Document rev from request body and query string have different values',
  ],
  [
    'DELETE /db/doc?rev=1-a',
    { headers: { 'if-match': '"1-b"' } },
    'Document rev and etag have different values',
  ],
  [
    'DELETE /db?rev=1-a',
    {},
    'You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?',
  ],
  ['POST /db/_bulk_docs', { json: {} }, 'POST body must include `docs` parameter.'],
  ['POST /db/_bulk_docs', { json: { docs: {} } }, '`docs` parameter must be an array.'],
  ['POST /db/_bulk_docs', { json: { docs: [], new_edits: 1 } }, '`new_edits` parameter must be a boolean.'],
  [
    'PUT /db/doc?new_edits=false',
    { json: {} },
    'When `new_edits: false`, the document needs `_rev` or `_revisions` specified',
  ],
  ['POST /db/_bulk_get', { json: {} }, "Missing JSON list of 'docs'."],
  ['POST /db/_bulk_get?rev=1-a', docs(), '"rev" query parameter is not acceptable'],
  [
    'PUT /db/x',
    { json: { _attachments: { _x: { data: '' } } } },
    "Attachment name '_x' starts with prohibited character '_'",
  ],
  ['PUT /db/x', { json: { _attachments: { a: { data: '!' } } } }, 'Invalid attachment data for a'],
  ['PUT /db/x', following(2), 'attachment longer than expected'],
  ['PUT /db/x', following(9), 'attachment shorter than expected'],
  ['GET /db/_local', {}, 'Invalid _local document id.'],
  ['PUT /db/_local/', { json: {} }, 'Invalid _local document id.'],
  ['PUT /db/_local/a/b', { json: {} }, '_local documents do not accept attachments.'],
  ['COPY /db/doc', {}, 'Destination header is mandatory for COPY.'],
  ['COPY /db/doc', { headers: { destination: 'http://x/y' } }, 'Destination URL must be relative.'],
  ['GET /db/_all_docs?keys=1', {}, '`keys` parameter must be an array.'],
  ['POST /db/_all_docs', { json: { keys: 1 } }, '`keys` body member must be an array.'],
  ['POST /db/_all_docs/queries', { json: {} }, 'POST body must include `queries` parameter.'],
  ['POST /db/_all_docs/queries', { json: { queries: {} } }, '`queries` member must be an array.'],
  [
    'POST /db/_all_docs',
    { json: { queries: [] } },
    'The `queries` parameter is no longer supported at this endpoint',
  ],
  ['PUT /other?q=0', {}, 'The `q` value should be a positive integer.'],
  ['PUT /other?n=x', {}, 'The `n` value should be a positive integer.'],
  ['GET /db/%zz', {}, 'invalid_url_encoding'],
  ['GET /db/doc?x=%f', {}, 'invalid_url_encoding'],
  ['PUT /_node/_local/_config/a/b', { json: 1 }, 'a JSON string expected'],
  ['POST /db/doc', { json: {} }, 'Referer header required.'],
  [
    'POST /db/_bulk_docs',
    { json: {}, headers: { 'content-encoding': 'gzip' } },
    'Request body is not properly gzipped.',
  ],
]

const OTHERS: readonly (readonly [...Case, status: number, error: string])[] = [
  ...['/db/_all_docs', '/_all_dbs', '/_dbs_info'].flatMap((path) =>
    (
      [
        ['descending=x', 'Invalid boolean parameter: "x"'],
        ['limit=x', 'Invalid value for integer: "x"'],
        ['skip=-1', 'Invalid value for positive integer: "-1"'],
      ] as const
    ).map(([query, reason]) => [`GET ${path}?${query}`, {}, reason, 400, 'query_parse_error'] as const),
  ),
  [
    'PUT /Other',
    {},
    "Name: 'Other'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, " +
      'and / are allowed. Must begin with a letter.',
    400,
    'illegal_database_name',
  ],
  [
    `PUT /${TOO_LONG}`,
    {},
    `At least one path segment of \`${TOO_LONG.slice(0, 256)}\` is too long.`,
    400,
    'database_name_too_long',
  ],
  ['POST /db', { json: { _id: '' } }, 'Document id must not be empty', 400, 'illegal_docid'],
  ['POST /db', { json: { _id: 1 } }, 'Document id must be a string', 400, 'illegal_docid'],
  ['PUT /db/x', { json: { _id: 1 } }, 'Document id must be a string', 400, 'illegal_docid'],
  ['POST /db', { json: { _id: 'x'.repeat(8001) } }, 'Document id is too long', 400, 'illegal_docid'],
  ['POST /db', { json: { _id: '_design/' } }, 'Illegal document id `_design/`', 400, 'illegal_docid'],
  ['POST /db', { json: { _id: '_local/' } }, 'Illegal document id `_local/`', 400, 'illegal_docid'],
  ['PUT /db/_x', { json: {} }, 'Only reserved document ids may start with underscore.', 400, 'illegal_docid'],
  ['PUT /db/x', { json: { _x: 1 } }, 'Bad special document member: _x', 400, 'doc_validation'],
  ['PUT /db/x', { json: { _deleted: 1 } }, 'Bad special document member: _deleted', 400, 'doc_validation'],
  ...(
    [
      [{ start: '1', ids: ['a'] }, "_revisions.start isn't an integer."],
      [{ start: 1, ids: 'a' }, "_revisions.ids isn't a array."],
      [{ start: 1, ids: [1] }, "RevId isn't a string"],
      [{ start: 1, ids: [NO_HEX] }, "RevId isn't a valid hexadecimal"],
    ] as const
  ).map(
    ([_revisions, reason]) => ['PUT /db/x', { json: { _revisions } }, reason, 400, 'doc_validation'] as const,
  ),
  ['GET /db/x', {}, 'missing', 404, 'not_found'],
  ['GET /db/gone', {}, 'deleted', 404, 'not_found'],
  ['GET /db/_x', {}, 'missing', 404, 'not_found'],
  ['GET /other', {}, 'Database does not exist.', 404, 'not_found'],
  ['GET /Never.Legal', {}, 'Database does not exist.', 404, 'not_found'],
  ['GET /_stats', {}, 'Database does not exist.', 404, 'not_found'],
  ['GET /db/doc/a', {}, 'Document is missing attachment', 404, 'not_found'],
  ['GET /db/_changes?filter=x/y', {}, 'missing', 404, 'not_found'],
  ['GET /_node/_local/_config/a/b', {}, 'unknown_config_value', 404, 'not_found'],
  ['GET /_node/other/_config', {}, 'no such node: other', 404, 'not_found'],
  ['PUT /db/doc', { json: {} }, 'Document update conflict.', 409, 'conflict'],
  ['PUT /db/doc/a?rev=9-a', { body: 'x' }, 'missing_rev', 409, 'not_found'],
  ['POST /db/_temp_view', { json: {} }, 'Temporary views are not supported in CouchDB', 410, 'gone'],
  ['PUT /db', {}, 'The database could not be created, the file already exists.', 412, 'file_exists'],
  [
    'PUT /db/x',
    { json: { _attachments: { a: { stub: true } } } },
    'Invalid attachment stub in x for a',
    412,
    'missing_stub',
  ],
  ['POST /db', { body: '{}' }, 'Content-Type must be application/json', 415, 'bad_content_type'],
  [
    'POST /db/_bulk_docs',
    { json: {}, headers: { 'content-encoding': 'br' } },
    'br is not a supported content encoding.',
    415,
    'bad_content_type',
  ],
  [
    'PUT /db/doc/a',
    { body: 'x', headers: { 'content-encoding': 'br' } },
    'Only gzip and identity content-encodings are supported',
    415,
    'bad_content_type',
  ],
  [
    'PUT /_node/_local/_config/query_servers/x',
    { json: 'y' },
    'Config section blacklisted for modification over HTTP API.',
    403,
    'forbidden',
  ],
]

t.test('the words of failures, protocol.md 1.2', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  await call('PUT', '/db/doc', { json: {} })
  await call('PUT', '/db/gone', { json: { _deleted: true } })
  const { update_seq: before } = (await call('GET', '/db')).json as { update_seq: string }
  const all = [...BAD_REQUEST.map((each) => [...each, 400, 'bad_request'] as const), ...OTHERS]
  for (const [line, ask, reason, status, error] of all) {
    const [method = '', path = ''] = line.split(' ')
    const answer = await call(method, path, ask)
    t.strictSame(
      [answer.status, answer.headers['content-type'], answer.text],
      [status, 'application/json', `${JSON.stringify({ error, reason })}\n`],
      line.slice(0, 80),
    )
  }
  t.match((await call('GET', '/db')).json, { update_seq: before }, 'and nothing was stored')
})
