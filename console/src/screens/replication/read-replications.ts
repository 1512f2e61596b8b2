/** Asks the server for its replications. */
import { ask } from '../../api/client.ts'
import {
  mergedRows,
  plainAddress,
  type ReplicationPage,
  type SchedulerDocument,
  type SchedulerJob,
  type Task,
} from './job-rows.ts'

/** Rows that are shown at most; the newest events of others are in the log. */
const MAX_ROWS = 300

/** Reads all replications. @throws Failure */
export async function readReplications(signal: AbortSignal): Promise<ReplicationPage> {
  const query = { limit: String(MAX_ROWS) }
  const [port, jobs, docs, tasks] = await Promise.all([
    ask<string>('_node/_local/_config/chttpd/port', { signal }),
    ask<{ total_rows: number; jobs: readonly SchedulerJob[] }>('_scheduler/jobs', { query, signal }),
    ask<{ total_rows: number; docs: readonly SchedulerDocument[] }>('_scheduler/docs', { query, signal }),
    ask<readonly Task[]>('_active_tasks', { signal }),
  ])
  const rows = mergedRows(jobs.jobs, docs.docs, tasks).map((row) => ({
    ...row,
    source: plainAddress(row.source, port),
    target: plainAddress(row.target, port),
  }))
  const others = jobs.jobs.filter(({ doc_id: id }) => id === null).length
  return { rows, total: Math.max(rows.length, docs.total_rows + others) }
}
