/** Replications by the server, and what its scheduler shows; protocol.md 14. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { CouchError } from '../../core/errors.ts'
import {
  readStates,
  schedulerDocument,
  schedulerDocuments,
} from '../../replication/documents/scheduler-documents.ts'
import type { ReplicationJob } from '../../replication/jobs/job.ts'
import { progressInfo, timestamp } from '../../replication/jobs/job-info.ts'
import { sendJson } from '../replies.ts'
import { pathParam, queryOf } from '../request-params.ts'
import { COUNT, nodeName, type Path } from '../route-table.ts'
import { readSmallJson } from '../transport/body-reader.ts'

/** A body may list 10,000 ids. */
const MAX_BODY = 1024 * 1024

const PAGE = { limit: COUNT, skip: COUNT }
const DOCS_QUERY = { type: 'object', properties: { ...PAGE, states: { type: 'string' } } } as const

export const replicationRoutes: readonly Path[] = [
  {
    url: '/_replicate',
    allow: 'POST',
    access: 'user',
    methods: { POST: { handler: replicate, json: true } },
  },
  {
    url: '/_scheduler/jobs',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: {
      GET: { handler: jobs, query: { type: 'object', properties: PAGE } },
    },
  },
  {
    url: '/_scheduler/jobs/:id',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: job } },
  },
  {
    url: '/_scheduler/docs',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: docs, query: DOCS_QUERY } },
  },
  {
    // A database's name may have slashes, escaped or not.
    url: '/_scheduler/docs/*',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: docsBelow, query: DOCS_QUERY } },
  },
]

async function replicate(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const body = await readSmallJson(request, MAX_BODY)
  const outcome = await request.server.services.replicator.replicate(body, {
    user: request.user,
    ...request.identity,
  })
  if (outcome.type === 'done') return sendJson(reply, 200, { ok: true, ...outcome.result })
  return sendJson(reply, outcome.type === 'started' ? 202 : 200, { ok: true, _local_id: outcome.id })
}

const DEFAULT_LIMIT = 100

async function jobs(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { limit = String(DEFAULT_LIMIT), skip = '0' } = queryOf(request)
  const all = request.server.services.replicator.jobs()
  const offset = Math.min(Number(skip), all.length)
  const shown = all.slice(offset, offset + Number(limit))
  return sendJson(reply, 200, {
    total_rows: all.length,
    offset,
    jobs: shown.map((each) => shownJob(request, each)),
  })
}

async function job(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const found = request.server.services.replicator.job(pathParam(request, 'id'))
  return sendJson(reply, 200, shownJob(request, found))
}

function shownJob(request: FastifyRequest, job: ReplicationJob): object {
  return {
    database: job.document?.database ?? null,
    id: job.id,
    pid: pidOf(job),
    source: job.source,
    target: job.target,
    user: job.user.name,
    doc_id: job.document?.id ?? null,
    info: progressInfo(job.progress),
    history: job.history.map(({ type, at, reason }) => ({
      timestamp: timestamp(at),
      type,
      ...(reason !== undefined && { reason }),
    })),
    node: nodeName(request.server.services.config),
    start_time: timestamp(job.addedAt),
  }
}

/** A pid of Erlang's form while the job runs, as in CouchDB. */
function pidOf({ state, addedAt }: ReplicationJob): string | null {
  return state === 'running' ? `<0.${addedAt % 1_000_000}.0>` : null
}

async function docs(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  return sendDocs(request, reply, await request.server.services.replicator.documents.databases())
}

const PLACE = /^((?:.+?\/)?_replicator)(?:\/(.+))?$/s

async function docsBelow(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { '*': path } = request.params as { '*': string }
  const [, database, id] = PLACE.exec(path) ?? []
  if (database === undefined) throw new CouchError('bad_request', 'Invalid path')
  const { databases, replicator, config } = request.server.services
  if (id === undefined) return sendDocs(request, reply, [(await databases.get(database)).name])
  const found = await schedulerDocument(replicator.documents, databases, { database, id })
  return sendJson(reply, 200, { ...found, node: nodeName(config) })
}

async function sendDocs(
  request: FastifyRequest,
  reply: FastifyReply,
  names: readonly string[],
): Promise<FastifyReply> {
  const { limit = String(DEFAULT_LIMIT), skip = '0', states = '' } = queryOf(request)
  const { databases, replicator, config } = request.server.services
  const wanted = { limit: Number(limit), skip: Number(skip), states: readStates(states) }
  const { total, docs } = await schedulerDocuments(replicator.documents, databases, names, wanted)
  const node = nodeName(config)
  return sendJson(reply, 200, {
    total_rows: total,
    offset: Math.min(wanted.skip, total),
    docs: docs.map((doc) => ({ ...doc, node })),
  })
}

/** The running replications, with the members of CouchDB's `_active_tasks`. */
export function replicationTasks(node: string, jobs: readonly ReplicationJob[]): object[] {
  return jobs
    .filter(({ state }) => state === 'running')
    .map((job) => ({
      node,
      pid: pidOf(job),
      process_status: 'waiting',
      type: 'replication',
      replication_id: job.id,
      database: job.document?.database ?? null,
      doc_id: job.document?.id ?? null,
      user: job.user.name,
      source: job.source,
      target: job.target,
      continuous: job.request.options.isContinuous,
      checkpoint_interval: job.request.options.checkpointInterval,
      ...progressInfo(job.progress),
      started_on: Math.floor((job.history.find(({ type }) => type === 'started')?.at ?? job.addedAt) / 1000),
      updated_on: Math.floor(Date.now() / 1000),
    }))
}
