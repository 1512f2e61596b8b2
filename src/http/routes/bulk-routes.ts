/** Many documents in one call; protocol.md 4.1 to 4.3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Sendable } from '../../core/bytes.ts'
import { CouchError } from '../../core/errors.ts'
import type { Body } from '../../documents/database.ts'
import { newBoundary } from '../../documents/pieces.ts'
import type { DatabaseHandle } from '../../threads/databases.ts'
import { bulkMultipart } from '../header-values.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { multipartHead, sendBytes, sendJson } from '../replies.ts'
import { isOn, queryOf } from '../request-params.ts'
import type { Path, Schema } from '../route-table.ts'
import { requestSizeLimit, withBody } from '../transport/body-reader.ts'
import { type StreamHead, sendStream } from '../transport/json-stream.ts'

const JSON_HEAD: StreamHead = {
  status: 200,
  type: 'application/json',
  isOftenShort: true,
}

/** Parameters that `_bulk_get` reads from each entry of its body, not from the query. */
const BULK_GET_QUERY: Schema = {
  type: 'object',
  properties: Object.fromEntries(['open_revs', 'new_edits', 'w', 'rev', 'atts_since'].map(notInQuery)),
}

export const bulkRoutes: readonly Path[] = [
  bulkPath('/:db/_bulk_docs', { handler: bulkDocs }),
  bulkPath('/:db/_bulk_get', { handler: bulkGet, query: BULK_GET_QUERY }),
  bulkPath('/:db/_revs_diff', { handler: revsDiff }),
  bulkPath('/:db/_missing_revs', { handler: missingRevs }),
]

function bulkPath(
  url: string,
  method: Pick<NonNullable<Path['methods']['POST']>, 'handler' | 'query'>,
): Path {
  return { url, allow: 'POST', access: 'member', methods: { POST: { ...method, json: true } } }
}

function notInQuery(name: string): [string, Schema] {
  return [name, { type: 'null', refusal: ['bad_request', `"${name}" query parameter is not acceptable`] }]
}

async function bulkDocs(request: FastifyRequest, reply: FastifyReply): Promise<unknown> {
  try {
    return await streamRows(request, reply, { ...JSON_HEAD, status: 201 }, (database, body) =>
      database.bulkDocs(request.user, body),
    )
  } catch (thrown) {
    if (!(thrown instanceof CouchError) || thrown.code !== 'all_or_nothing') throw thrown
    // The only error whose body is not an error object: it has a row for each document.
    return sendJson(reply, thrown.status, thrown.reason)
  }
}

async function bulkGet(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const query = queryOf(request)
  const options = {
    revs: isOn(query, 'revs'),
    attachments: isOn(query, 'attachments'),
    attEncodingInfo: isOn(query, 'att_encoding_info'),
    latest: isOn(query, 'latest'),
  }
  const type = bulkMultipart(request.headers.accept)
  if (type === null) {
    return streamRows(request, reply, JSON_HEAD, (database, body) =>
      database.bulkGet(request.user, body, options),
    )
  }
  const boundary = newBoundary()
  return streamRows(request, reply, multipartHead(type, boundary), (database, body) =>
    database.bulkGetMixed(request.user, body, options, boundary),
  )
}

async function revsDiff(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendAnswer(request, reply, (database, body) => database.revsDiff(request.user, body))
}

async function missingRevs(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendAnswer(request, reply, (database, body) => database.missingRevs(request.user, body))
}

async function sendAnswer(
  request: FastifyRequest,
  reply: FastifyReply,
  ask: (database: DatabaseHandle, body: Body) => Promise<Sendable>,
): Promise<FastifyReply> {
  const limit = requestSizeLimit(request)
  return sendBytes(reply, 200, await withBody(request, limit, (body) => ask(databaseOf(request), body)))
}

function streamRows(
  request: FastifyRequest,
  reply: FastifyReply,
  head: StreamHead,
  ask: (database: DatabaseHandle, body: Body) => AsyncIterable<Uint8Array>,
): Promise<void> {
  return withBody(request, requestSizeLimit(request), async (body) => {
    const rows = ask(databaseOf(request), body)[Symbol.asyncIterator]()
    try {
      await sendStream(request, reply, { ...head, chunks: { [Symbol.asyncIterator]: () => rows } })
    } finally {
      // A client that leaves ends the sending at once. The body's file must stay open until its reader has stopped;
      // otherwise the reader would read the next file with the same number.
      await rows.return?.()
    }
  })
}
