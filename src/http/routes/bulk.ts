/** Many documents in one call; protocol.md 4.1 to 4.3. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Body, Database } from '../../documents/database.ts'
import { requestSizeLimit, withBody } from '../body.ts'
import { isOn, queryOf } from '../query-params.ts'
import { sendBytes, streamJson } from '../replies.ts'
import type { Path } from '../route-table.ts'
import { databaseOf } from '../services.ts'
import type { Schema } from '../shapes.ts'

/** Parameters that `_bulk_get` reads from each entry of its body, not from the address. */
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

async function bulkDocs(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  return streamRows(request, reply, 201, (database, body) => database.bulkDocs(request.user, body))
}

async function bulkGet(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const query = queryOf(request)
  const options = {
    revs: isOn(query, 'revs'),
    attachments: isOn(query, 'attachments'),
    latest: isOn(query, 'latest'),
  }
  return streamRows(request, reply, 200, (database, body) => database.bulkGet(request.user, body, options))
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
  ask: (database: Database, body: Body) => Promise<Uint8Array>,
): Promise<FastifyReply> {
  const limit = requestSizeLimit(request)
  return sendBytes(reply, 200, await withBody(request, limit, (body) => ask(databaseOf(request), body)))
}

function streamRows(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  ask: (database: Database, body: Body) => AsyncIterable<Uint8Array>,
): Promise<void> {
  return withBody(request, requestSizeLimit(request), async (body) => {
    const rows = ask(databaseOf(request), body)[Symbol.asyncIterator]()
    try {
      await streamJson(request, reply, status, { [Symbol.asyncIterator]: () => rows })
    } finally {
      // A client that went away ends the sending at once; the body's file must stay open until its reader has
      // stopped, or the reader would read whatever gets the file's number next.
      await rows.return?.()
    }
  })
}
