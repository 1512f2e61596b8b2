/** Lists of documents; protocol.md 8. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import type { AllDocsKind, AllDocsQuery, Body } from '../../documents/database.ts'
import { requestSizeLimit, withBody } from '../body.ts'
import { COUNT, count, jsonParam, type Query, queryOf, VIEW_BOOLEAN, viewBoolean } from '../query-params.ts'
import { streamJson } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { databaseOf, type Handler } from '../services.ts'
import type { Schema } from '../shapes.ts'

const QUERY: Schema = {
  type: 'object',
  properties: {
    descending: VIEW_BOOLEAN,
    inclusive_end: VIEW_BOOLEAN,
    include_docs: VIEW_BOOLEAN,
    conflicts: VIEW_BOOLEAN,
    attachments: VIEW_BOOLEAN,
    att_encoding_info: VIEW_BOOLEAN,
    update_seq: VIEW_BOOLEAN,
    limit: COUNT,
    skip: COUNT,
    reduce: {
      type: 'string',
      pattern: '^[fF][aA][lL][sS][eE]$',
      refusal: ['query_parse_error', 'Reduce is invalid for map-only views.'],
    },
    group: { type: 'null', refusal: ['query_parse_error', 'Invalid use of grouping on a map view.'] },
    group_level: { type: 'null', refusal: ['query_parse_error', 'Invalid use of grouping on a map view.'] },
  },
}

export const allDocsRoutes: readonly Path[] = [
  listPath('/:db/_all_docs', 'all'),
  listPath('/:db/_design_docs', 'design'),
  listPath('/:db/_local_docs', 'local'),
]

function listPath(url: string, kind: AllDocsKind): Path {
  return {
    url,
    allow: 'GET,HEAD,POST',
    access: 'member',
    methods: {
      GET: { handler: listing(kind), query: QUERY },
      POST: { handler: listingOfBody(kind), query: QUERY, json: true },
    },
  }
}

function listing(kind: AllDocsKind): Handler {
  return (request, reply) => sendList(request, reply, kind, null)
}

function listingOfBody(kind: AllDocsKind): Handler {
  return (request, reply) =>
    withBody(request, requestSizeLimit(request), (body) => sendList(request, reply, kind, body))
}

async function sendList(
  request: FastifyRequest,
  reply: FastifyReply,
  kind: AllDocsKind,
  body: Body | null,
): Promise<void> {
  const query = allDocsQuery(queryOf(request))
  const rows = databaseOf(request).allDocs(request.user, kind, query, body)
  return streamJson(request, reply, 200, rows)
}

/** @throws invalid_json; bad_request for `keys` that are no list, query_parse_error for keys beside a range */
function allDocsQuery(query: Query): AllDocsQuery {
  const keys = jsonParam(query, 'keys')
  const read = {
    key: keyParam(query, 'key'),
    keys: keys === null ? undefined : listed(keys),
    startKey: keyParam(query, 'startkey', 'start_key'),
    endKey: keyParam(query, 'endkey', 'end_key'),
    inclusiveEnd: viewBoolean(query, 'inclusive_end'),
    descending: viewBoolean(query, 'descending'),
    limit: count(query, 'limit'),
    skip: count(query, 'skip'),
    includeDocs: viewBoolean(query, 'include_docs'),
    conflicts: viewBoolean(query, 'conflicts'),
    attachments: viewBoolean(query, 'attachments'),
    updateSeq: viewBoolean(query, 'update_seq'),
  }
  return Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined))
}

function listed(keys: unknown): readonly unknown[] | undefined {
  if (keys === undefined || Array.isArray(keys)) return keys
  throw new CouchError('bad_request', '`keys` parameter must be an array.')
}

/**
 * A key of a range. One that is no string stands before every id, as Erlang's order of terms has it: as a start it
 * bounds nothing, as an end it leaves nothing.
 */
function keyParam(query: Query, ...aliases: readonly string[]): string | undefined {
  const key = jsonParam(query, ...aliases)
  return key === undefined || typeof key === 'string' ? key : ''
}
