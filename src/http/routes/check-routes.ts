/** Checks of everything that is stored, and what they have found damaged; docs/settee-api.md. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import type { RememberedDamage } from '../../scrub/damage-records.ts'
import type { Scrub, ScrubTask } from '../../scrub/scrub.ts'
import { giveUp } from '../../scrub/scrub-control.ts'
import { sendJson } from '../replies.ts'
import { type Path, shape } from '../route-table.ts'
import { LARGE_LIST_BODY, readSmallJson } from '../transport/body-reader.ts'

export const checkRoutes: readonly Path[] = [
  {
    url: '/_settee/check',
    allow: 'GET,HEAD,POST',
    access: 'server admin',
    methods: { GET: { handler: readCheck }, POST: { handler: startCheck, json: true } },
  },
  {
    url: '/_settee/check/give-up',
    allow: 'POST',
    access: 'server admin',
    methods: { POST: { handler: giveUpDamage, json: true } },
  },
]

/** @throws not_found if the server makes no checks */
function scrubOf(request: FastifyRequest): Scrub {
  const { scrub } = request.server.services
  if (scrub === undefined) throw new CouchError('not_found', 'This server makes no checks.')
  return scrub
}

async function readCheck(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { last, interval, task, failure, damaged, server } = await scrubOf(request).state()
  return sendJson(reply, 200, {
    interval: interval / 1000,
    last: last === null ? null : { begun_at: timeText(last.begunAt), ended_at: timeText(last.endedAt) },
    running: task === null ? null : shownTask(task),
    last_failure: failure,
    damaged: damaged.map(shownDamage),
    server,
  })
}

function shownTask({ database, databases_done, databases_total, percent, startedAt }: ScrubTask): object {
  return { database, databases_done, databases_total, percent, begun_at: timeText(startedAt) }
}

function shownDamage({ database, checkedAt, count, parts }: RememberedDamage): object {
  const shown = parts.map(({ since, ...part }) => ({ ...part, since: timeText(since) }))
  return { database, checked_at: timeText(checkedAt), count, parts: shown }
}

function timeText(time: number): string {
  return new Date(time).toISOString()
}

const NOT_NAMES = ['bad_request', '`databases` member must be an array of names.'] as const
const NOT_REPAIR = ['bad_request', '`repair` member must be true or false.'] as const
const checkBody = shape<{ readonly databases?: readonly string[]; readonly repair?: boolean }>({
  type: 'object',
  properties: {
    databases: { type: 'array', items: { type: 'string', refusal: NOT_NAMES }, refusal: NOT_NAMES },
    repair: { type: 'boolean', refusal: NOT_REPAIR },
  },
  refusal: ['body_not_object', 'Request body must be a JSON object'],
})

/** Answers as soon as the check has begun. `GET /_settee/check` shows the progress and then what is damaged. */
async function startCheck(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const scrub = scrubOf(request)
  const { databases = null, repair = false } = checkBody(await readSmallJson(request, LARGE_LIST_BODY))
  if (databases?.length === 0) throw new CouchError('bad_request', '`databases` member must not be empty.')
  await scrub.begin({ names: databases, repairs: repair })
  return sendJson(reply, 202, { ok: true })
}

const NOT_GIVEN_UP = ['bad_request', '`database` and `id` members must be strings.'] as const
const giveUpBody = shape<{ readonly database: string; readonly id: string; readonly dry_run?: boolean }>({
  allOf: [
    { type: 'object', refusal: ['body_not_object', 'Request body must be a JSON object'] },
    { required: ['database', 'id'], refusal: NOT_GIVEN_UP },
  ],
  properties: {
    database: { type: 'string', refusal: NOT_GIVEN_UP },
    id: { type: 'string', refusal: NOT_GIVEN_UP },
    dry_run: { type: 'boolean', refusal: ['bad_request', '`dry_run` member must be true or false.'] },
  },
})

/** Without `dry_run` it is done, and nothing asks. */
async function giveUpDamage(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const scrub = scrubOf(request)
  const { databases, repairs } = request.server.services
  if (repairs === undefined) throw new CouchError('not_found', 'This server makes no checks.')
  const { database, id, dry_run: dryRun = false } = giveUpBody(await readSmallJson(request, LARGE_LIST_BODY))
  const services = { databases, scrub, repairs }
  const { leaves, superseded, rev, deleted } = await giveUp(services, { database, id, dryRun })
  return sendJson(reply, 200, { ok: true, lost: leaves, superseded, rev, deleted })
}
