/** Version history of documents, rewinds, and alarms of mass deletions; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import { parseTime, type VersionChoice } from '../../documents/time-machine/time-machine-calls.ts'
import { type Alarm, restoreCommand } from '../../metrics/alarms.ts'
import { formatRev, parseRev } from '../../revisions/rev.ts'
import { databaseOf } from '../plugins/access-rules.ts'
import { sendBytes, sendJson, streamJson } from '../replies.ts'
import { isOn, pageLimit, pathParam, type Query, queryOf, textParam } from '../request-params.ts'
import { COUNT, type Path, type Schema, shape } from '../route-table.ts'
import { LARGE_LIST_BODY, readSmallJson } from '../transport/body-reader.ts'
import { sendStream } from '../transport/json-stream.ts'

const HISTORY_QUERY: Schema = { type: 'object', properties: { limit: COUNT } }
const ID_QUERY: Schema = {
  type: 'object',
  required: ['id'],
  refusal: ['query_parse_error', 'The parameter `id` is missing.'],
}
const PAGE = 100
const MAX_PAGE = 1000

export const timeMachineRoutes: readonly Path[] = [
  {
    url: '/_settee/databases/:db/history',
    allow: 'GET,HEAD',
    access: 'db admin',
    methods: { GET: { handler: history, query: HISTORY_QUERY } },
  },
  {
    url: '/_settee/databases/:db/version',
    allow: 'GET,HEAD',
    access: 'db admin',
    methods: { GET: { handler: version, query: ID_QUERY } },
  },
  {
    url: '/_settee/databases/:db/rewind',
    allow: 'POST',
    access: 'db admin',
    methods: { POST: { handler: rewind, json: true } },
  },
]

interface RewindBody {
  readonly at?: string | number
  readonly rev?: string
  readonly ids?: readonly string[]
  readonly dry_run?: boolean
}

const rewindBody = shape<RewindBody>({
  type: 'object',
  refusal: ['body_not_object', 'Request body must be a JSON object'],
  properties: {
    rev: { type: 'string', refusal: ['bad_request', '`rev` member must be a revision.'] },
    ids: {
      type: 'array',
      items: { type: 'string' },
      refusal: ['bad_request', '`ids` member must be a list of strings.'],
    },
    dry_run: { type: 'boolean', refusal: ['bad_request', '`dry_run` member must be true or false.'] },
  },
})

async function history(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const query = queryOf(request)
  const id = textParam(query, 'id')
  const bookmark = textParam(query, 'bookmark')
  const limit = pageLimit(query, PAGE, MAX_PAGE)
  const page = { limit, ...(bookmark !== undefined && { bookmark }) }
  const database = databaseOf(request)
  if (id !== undefined) return sendBytes(reply, 200, await database.history(request.user, id, page))
  const [since, until] = [timeParam(query, 'since'), timeParam(query, 'until')]
  const range = { ...(since !== undefined && { since }), ...(until !== undefined && { until }) }
  const deleted = isOn(query, 'deleted')
  return sendBytes(reply, 200, await database.overwritten(request.user, { ...page, ...range, deleted }))
}

async function version(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const query = queryOf(request)
  const id = textParam(query, 'id') ?? ''
  const chunks = databaseOf(request).version(request.user, id, choiceOf(query), isOn(query, 'attachments'))
  await streamJson(request, reply, 200, chunks)
}

function choiceOf(query: Query): VersionChoice {
  const rev = textParam(query, 'rev')
  const at = timeParam(query, 'at')
  if (rev !== undefined && at === undefined) return { rev }
  if (at !== undefined && rev === undefined) return { at }
  throw new CouchError('query_parse_error', 'Either `rev` or `at` must name the version.')
}

async function rewind(request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const body = rewindBody(await readSmallJson(request, LARGE_LIST_BODY))
  const dryRun = body.dry_run === true || isOn(queryOf(request), 'dry_run')
  const asked = { ...targetOf(body), dryRun, ...(body.ids !== undefined && { ids: body.ids }) }
  const chunks = request.server.services.rewinds.run(request.user, databaseOf(request).name, asked)
  const headers = { 'X-Accel-Buffering': 'no' }
  await sendStream(request, reply, { status: 200, type: 'application/x-ndjson', headers, chunks })
}

/** @throws bad_request, invalid_rev */
function targetOf({ at, rev, ids }: RewindBody): { readonly at: number; readonly rev?: string } {
  if (rev === undefined) {
    if (at === undefined) throw new CouchError('bad_request', '`at` member must exist.')
    return { at: timeOf(at, 'at') }
  }
  if (at !== undefined || ids?.length !== 1) {
    throw new CouchError('bad_request', '`rev` needs exactly one document in `ids`, and no `at`.')
  }
  const { pos, id } = parseRev(rev)
  return { at: Date.now(), rev: formatRev(pos, id) }
}

function timeParam(query: Query, name: string): number | undefined {
  const text = textParam(query, name)
  return text === undefined ? undefined : timeOf(text, name)
}

/** @throws bad_request */
function timeOf(value: unknown, name: string): number {
  const time = parseTime(String(value), 'utc')
  if (time !== null && (typeof value === 'string' || typeof value === 'number')) return time
  throw new CouchError(
    'bad_request',
    `\`${name}\` must be a time such as 2025-03-01T14:05Z, or milliseconds since 1970.`,
  )
}

export const alarmRoutes: readonly Path[] = [
  {
    url: '/_settee/alarms',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: allAlarms } },
  },
  {
    url: '/_settee/alarms/:alarm',
    allow: 'DELETE',
    access: 'server admin',
    methods: { DELETE: { handler: dismissAny } },
  },
  {
    url: '/_settee/databases/:db/alarms',
    allow: 'GET,HEAD',
    access: 'db admin',
    methods: { GET: { handler: alarmsOfOne } },
  },
  {
    url: '/_settee/databases/:db/alarms/:alarm',
    allow: 'DELETE',
    access: 'db admin',
    methods: { DELETE: { handler: dismissOfOne } },
  },
]

async function allAlarms(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, { alarms: (await request.server.services.alarms.list()).map(shown) })
}

async function alarmsOfOne(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { name } = databaseOf(request)
  return sendJson(reply, 200, { alarms: (await request.server.services.alarms.list(name)).map(shown) })
}

async function dismissAny(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return dismiss(request, reply)
}

async function dismissOfOne(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return dismiss(request, reply, databaseOf(request).name)
}

async function dismiss(
  request: FastifyRequest,
  reply: FastifyReply,
  database?: string,
): Promise<FastifyReply> {
  const alarm = pathParam(request, 'alarm')
  if (await request.server.services.alarms.dismiss(alarm, database)) return sendJson(reply, 200, { ok: true })
  throw new CouchError('not_found', 'There is no such alarm.')
}

function shown(alarm: Alarm): object {
  const { id, database, deleted, of, since, until, account, device } = alarm
  return {
    id,
    database,
    deleted,
    of,
    since: new Date(since).toISOString(),
    until: new Date(until).toISOString(),
    account,
    device,
    undo: restoreCommand(alarm),
  }
}
