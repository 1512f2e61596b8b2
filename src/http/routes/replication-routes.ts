/** Replications by the server, and what its scheduler shows; protocol.md 14. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ReplicationJob } from '../../replication/job.ts'
import type { ReplicationProgress } from '../../replication/replication.ts'
import { sendJson } from '../replies.ts'
import { pathParam, queryOf } from '../request-params.ts'
import { COUNT, nodeName, type Path } from '../route-table.ts'
import { readSmallJson } from '../transport/body-reader.ts'

/** A body may list 10,000 ids. */
const MAX_BODY = 1024 * 1024

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
      GET: { handler: jobs, query: { type: 'object', properties: { limit: COUNT, skip: COUNT } } },
    },
  },
  {
    url: '/_scheduler/jobs/:id',
    allow: 'GET,HEAD',
    access: 'server admin',
    methods: { GET: { handler: job } },
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
    database: null,
    id: job.id,
    pid: pidOf(job),
    source: job.source,
    target: job.target,
    user: job.user.name,
    doc_id: null,
    info: infoOf(job.progress),
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

function timestamp(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`
}

function infoOf(progress: ReplicationProgress | null): object | null {
  if (progress === null) return null
  const { stats } = progress
  return {
    revisions_checked: stats.missing_checked,
    missing_revisions_found: stats.missing_found,
    docs_read: stats.docs_read,
    docs_written: stats.docs_written,
    changes_pending: progress.pending,
    doc_write_failures: stats.doc_write_failures,
    bulk_get_docs: stats.bulk_get_docs,
    bulk_get_attempts: stats.bulk_get_attempts,
    checkpointed_source_seq: progress.checkpointedSeq,
    source_seq: progress.sourceSeq,
    through_seq: progress.throughSeq,
  }
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
      database: null,
      doc_id: null,
      user: job.user.name,
      source: job.source,
      target: job.target,
      continuous: job.request.options.isContinuous,
      checkpoint_interval: job.request.options.checkpointInterval,
      ...infoOf(job.progress),
      started_on: Math.floor((job.history.find(({ type }) => type === 'started')?.at ?? job.addedAt) / 1000),
      updated_on: Math.floor(Date.now() / 1000),
    }))
}
