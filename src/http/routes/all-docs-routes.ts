/** Lists of documents; protocol.md 8. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { checkPartition } from '../../core/partitions.ts'
import { rangeKey } from '../../documents/all-docs-query.ts'
import type { AllDocsKind, AllDocsQuery, Body } from '../../documents/database.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { streamJson } from '../replies.ts'
import { count, jsonParam, type Query, queryOf, viewBoolean } from '../request-params.ts'
import { COUNT, type Path, type Schema, VIEW_BOOLEAN } from '../route-table.ts'
import type { Handler } from '../services.ts'
import { requestSizeLimit, withBody } from '../transport/body-reader.ts'

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
    group: { allOf: [VIEW_BOOLEAN, ungrouped('^[fF][aA][lL][sS][eE]$')] },
    group_level: ungrouped('^0+$'),
  },
}

export const allDocsRoutes: readonly Path[] = [
  ...allDocsPaths('/:db'),
  ...listPaths('/:db/_design_docs', 'design'),
  ...listPaths('/:db/_local_docs', 'local'),
]

/** @param base the address of a database or of a partition */
export function allDocsPaths(base: string): readonly Path[] {
  return listPaths(`${base}/_all_docs`, 'all')
}

function ungrouped(pattern: string): Schema {
  return {
    type: 'string',
    pattern,
    refusal: ['query_parse_error', 'Invalid use of grouping on a map view.'],
  }
}

function listPaths(url: string, kind: AllDocsKind): readonly Path[] {
  return [
    {
      url,
      allow: 'GET,HEAD,POST',
      access: 'member',
      methods: {
        GET: { handler: listing(kind), query: QUERY },
        POST: { handler: listingOfBody(kind), query: QUERY, json: true },
      },
    },
    {
      url: `${url}/queries`,
      allow: 'POST',
      access: 'member',
      methods: { POST: { handler: listings(kind), query: QUERY } },
    },
  ]
}

function listing(kind: AllDocsKind): Handler {
  return (request, reply) => sendList(request, reply, kind, null)
}

function listingOfBody(kind: AllDocsKind): Handler {
  return (request, reply) =>
    withBody(request, requestSizeLimit(request), (body) => sendList(request, reply, kind, body))
}

function listings(kind: AllDocsKind): Handler {
  return (request, reply) =>
    withBody(request, requestSizeLimit(request), (body) => {
      const query = allDocsQuery(queryOf(request))
      const lists = databaseOf(request).allDocsQueries(request.user, kind, query, body)
      return streamJson(request, reply, 200, lists)
    })
}

async function sendList(
  request: FastifyRequest,
  reply: FastifyReply,
  kind: AllDocsKind,
  body: Body | null,
): Promise<void> {
  const query = allDocsQuery(queryOf(request))
  return streamJson(request, reply, 200, databaseOf(request).allDocs(request.user, kind, query, body))
}

/** @throws invalid_json; illegal_partition; bad_request for `keys` that are no list, query_parse_error for keys beside a range */
export function allDocsQuery(query: Query): AllDocsQuery {
  const keys = jsonParam(query, 'keys')
  const read = {
    partition: query.partition === undefined ? undefined : checkPartition(query.partition),
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
    attEncodingInfo: viewBoolean(query, 'att_encoding_info'),
    updateSeq: viewBoolean(query, 'update_seq'),
  }
  return Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined))
}

function listed(keys: unknown): readonly unknown[] | undefined {
  if (keys === undefined || Array.isArray(keys)) return keys
  throw new CouchError('bad_request', '`keys` parameter must be an array.')
}

function keyParam(query: Query, ...aliases: readonly string[]): string | undefined {
  const key = jsonParam(query, ...aliases)
  return key === undefined ? undefined : rangeKey(key)
}
