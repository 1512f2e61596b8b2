/** Moves of another server to this one; docs/settee-api.md, docs/moving.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import type { MovePlan } from '../../move/move-plan.ts'
import {
  type DatabaseResult,
  isUnderWay,
  type MoveRow,
  type MoveRun,
  type MoveRuns,
  moveRows,
} from '../../move/move-runs.ts'
import type { MoveProgress } from '../../move/moves.ts'
import { sendJson } from '../replies.ts'
import { count, pageLimit, pathParam, queryOf } from '../request-params.ts'
import { COUNT, type Path, shape } from '../route-table.ts'
import { LARGE_LIST_BODY, readSmallJson } from '../transport/body-reader.ts'

const PAGE = 100
const MAX_PAGE = 500
/** Settings that are shown. A server has some dozens, and an admin for each of its admins. */
const MAX_SETTINGS = 500

export const moveRoutes: readonly Path[] = [
  {
    url: '/_settee/moves',
    allow: 'GET,HEAD,POST',
    access: 'server admin',
    methods: { GET: { handler: listMoves }, POST: { handler: startMove, json: true } },
  },
  {
    url: '/_settee/moves/:id',
    allow: 'GET,HEAD,DELETE',
    access: 'server admin',
    methods: { GET: { handler: readMove }, DELETE: { handler: stopMove } },
  },
  {
    url: '/_settee/moves/:id/databases',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: {
      GET: { handler: listDatabases, query: { type: 'object', properties: { limit: COUNT, skip: COUNT } } },
    },
  },
]

/** @throws not_found if this server cannot be moved to */
function movesOf({ server }: FastifyRequest): MoveRuns {
  const { moveRuns } = server.services
  if (moveRuns === undefined) throw new CouchError('not_found', 'No server can be moved to this one.')
  return moveRuns
}

/** The one under way, or the last one. */
async function listMoves(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { last } = movesOf(request)
  return sendJson(reply, 200, { moves: last === null ? [] : [shown(last)] })
}

interface MoveBody {
  readonly source: string
  readonly databases?: readonly string[]
  readonly merge?: boolean
  readonly keep_uuid?: boolean
  readonly dry_run?: boolean
}

const flag = (name: string) =>
  ({ type: 'boolean', refusal: ['bad_request', `\`${name}\` member must be true or false.`] }) as const

const moveBody = shape<MoveBody>({
  allOf: [
    { type: 'object', refusal: ['body_not_object', 'Request body must be a JSON object'] },
    { required: ['source'], refusal: ['bad_request', '`source` member must exist.'] },
  ],
  properties: {
    // A refusal must not repeat it: it may hold a password.
    source: { type: 'string', refusal: ['bad_request', '`source` member must be the address of a server.'] },
    databases: {
      type: 'array',
      items: { type: 'string', refusal: ['bad_request', '`databases` member must be an array of names.'] },
      refusal: ['bad_request', '`databases` member must be an array of names.'],
    },
    merge: flag('merge'),
    keep_uuid: flag('keep_uuid'),
    dry_run: flag('dry_run'),
  },
})

/** Answers as soon as the move has begun. */
async function startMove(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  requirePassword(request)
  const moves = movesOf(request)
  const body = moveBody(await readSmallJson(request, LARGE_LIST_BODY))
  const { source, databases = null, merge = false, keep_uuid = false, dry_run = false } = body
  if (databases?.length === 0) throw new CouchError('bad_request', '`databases` member must not be empty.')
  const { id, from } = moves.start({ url: source, databases, isMerged: merge, keepsUuid: keep_uuid }, dry_run)
  const { logger } = request.server.services
  logger.info({ move: id, from, dry_run, user: request.user.name }, 'a move has begun')
  return sendJson(reply, 202, { ok: true, id })
}

async function readMove(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendJson(reply, 200, shown(movesOf(request).find(pathParam(request, 'id'))))
}

async function stopMove(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  await movesOf(request).stop(pathParam(request, 'id'))
  return sendJson(reply, 200, { ok: true })
}

async function listDatabases(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const run = movesOf(request).find(pathParam(request, 'id'))
  const query = queryOf(request)
  const limit = pageLimit(query, PAGE, MAX_PAGE)
  const skip = count(query, 'skip') ?? 0
  const { databases = [], left = [] } = run.plan ?? {}
  return sendJson(reply, 200, {
    total: databases.length + left.length,
    skip,
    databases: moveRows(run, skip, limit).map(shownRow),
  })
}

function shown(run: MoveRun): object {
  const { id, from, isDryRun, request, state, begunAt, endedAt, plan, progress, results, outcome, error } =
    run
  const all = [...results.values()]
  return {
    id,
    from,
    dry_run: isDryRun,
    databases: request.databases,
    merge: request.isMerged,
    keep_uuid: request.keepsUuid,
    state,
    begun_at: timeText(begunAt),
    ended_at: endedAt === null ? null : timeText(endedAt),
    error,
    progress: progress === null || !isUnderWay(run) ? null : shownProgress(progress),
    results: {
      complete: all.filter((each) => 'isComplete' in each && each.isComplete).length,
      incomplete: all.filter((each) => 'isComplete' in each && !each.isComplete).length,
      failed: all.filter((each) => 'reason' in each).length,
    },
    plan: plan === null ? null : shownPlan(plan),
    settings: shownSettings(run),
    has_uuid: outcome?.hasUuid ?? null,
  }
}

function shownPlan(plan: MovePlan): object {
  const { server, uuid, takesUuid, databases, left, freeBytes } = plan
  return {
    server,
    uuid,
    takes_uuid: takesUuid,
    databases: databases.length,
    left: left.length,
    documents: databases.reduce((sum, each) => sum + each.documents, 0),
    deleted: databases.reduce((sum, each) => sum + each.deleted, 0),
    bytes: databases.reduce((sum, each) => sum + (each.bytes ?? 0), 0),
    free_bytes: freeBytes,
  }
}

/** null: the configuration of the old server cannot be read, or not yet. */
function shownSettings({ plan, outcome }: MoveRun): object | null {
  if (plan === null || plan.settings === null) return null
  const outcomes = new Map(outcome?.settings.map((each) => [`${each.section}/${each.key}`, each]))
  return plan.settings.slice(0, MAX_SETTINGS).map(({ section, key, value, isKept }) => {
    const became = outcomes.get(`${section}/${key}`)
    return {
      section,
      key,
      value,
      outcome: became?.outcome ?? (isKept ? 'kept' : 'set'),
      reason: became?.reason ?? null,
    }
  })
}

function shownProgress({ database, done, of, phase, documents, total }: MoveProgress): object {
  return { database, databases_done: done, databases_total: of, phase, documents, total }
}

function shownRow(row: MoveRow): object {
  if ('left' in row) return { ...row.left, state: 'left' }
  const { planned, state, result } = row
  const { name, target, documents, deleted, bytes, notes, state: found } = planned
  return {
    name,
    target,
    state,
    found,
    documents,
    deleted,
    bytes,
    notes,
    result: result === null ? null : shownResult(result),
  }
}

function shownResult(result: DatabaseResult): object {
  if ('reason' in result) return { reason: result.reason }
  const { documents, deleted, leaves, isComplete, notes, oldDigest, newDigest, sampled, localDocs } = result
  return {
    complete: isComplete,
    documents,
    deleted,
    leaves,
    there: oldDigest,
    here: newDigest,
    sampled,
    local: localDocs,
    notes,
  }
}

function timeText(time: number): string {
  return new Date(time).toISOString()
}

/** Whoever names another server lets this one take over its accounts and secrets. @throws forbidden */
function requirePassword({ identity }: FastifyRequest): void {
  if (identity.token !== null) throw new CouchError('forbidden', 'A device token may not begin a move.')
}
