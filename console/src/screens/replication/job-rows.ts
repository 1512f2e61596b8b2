/** The replications of a server: jobs of `_replicate` and documents of `_replicator` in one list. Pure. */

interface Info {
  readonly error?: string
  readonly docs_read?: number
  readonly docs_written?: number
  readonly doc_write_failures?: number
  readonly changes_pending?: number | null
  readonly missing_revisions_found?: number
}

export interface HistoryEntry {
  readonly timestamp: string
  readonly type: string
  readonly reason?: string
}

/** A row of `_scheduler/jobs`. */
export interface SchedulerJob {
  readonly id: string
  readonly database: string | null
  readonly doc_id: string | null
  readonly source: string
  readonly target: string
  readonly user: string | null
  readonly info: Info | null
  readonly history: readonly HistoryEntry[]
  readonly start_time: string
  readonly pid: string | null
}

/** A row of `_scheduler/docs`. */
export interface SchedulerDocument {
  readonly database: string
  readonly doc_id: string
  readonly id: string | null
  readonly source: string | null
  readonly target: string | null
  readonly state: string
  readonly info: Info | null
  readonly error_count: number
  readonly last_updated: string | null
  readonly start_time: string | null
}

/** A task of `_active_tasks`. */
export interface Task {
  readonly type: string
  readonly replication_id?: string
  readonly continuous?: boolean
}

export interface ReplicationRow {
  readonly key: string
  readonly source: string
  readonly target: string
  readonly state: string
  /** The document that asks for it; null: it lasts until the server stops. */
  readonly document: { readonly database: string; readonly id: string } | null
  /** null: there is no job at present. */
  readonly jobId: string | null
  readonly user: string | null
  /** null: unknown. */
  readonly isContinuous: boolean | null
  readonly info: Info | null
  /** Runs that have failed in a row. */
  readonly failures: number
  /** Newest first. */
  readonly history: readonly HistoryEntry[]
  readonly since: string | null
}

export interface ReplicationPage {
  readonly rows: readonly ReplicationRow[]
  readonly total: number
}

/**
 * The name of a database of this server, or an address without the last slash.
 * @param port of this server: with another one, another server may have the address
 */
export function plainAddress(address: string, port: string): string {
  const plain = address.replace(/\/$/, '')
  // How the scheduler shows databases of this server.
  const here = `http://127.0.0.1:${port}/`
  return plain.startsWith(here) ? decoded(plain.slice(here.length)) : plain
}

/** Whoever asks for a replication may write any address, and one bad escape must not hide the others. */
function decoded(name: string): string {
  try {
    return decodeURIComponent(name)
  } catch {
    return name
  }
}

const ORDER = ['failed', 'error', 'crashing', 'running', 'initializing', 'pending', 'completed']

/** @returns those that need attention first */
export function mergedRows(
  jobs: readonly SchedulerJob[],
  docs: readonly SchedulerDocument[],
  tasks: readonly Task[],
): readonly ReplicationRow[] {
  const continuous = new Map(tasks.map((task) => [task.replication_id, task.continuous ?? null]))
  const byDocument = new Map(jobs.map((job) => [`${job.database} ${job.doc_id}`, job]))
  const ofDocuments = docs.map((doc): ReplicationRow => {
    const job = byDocument.get(`${doc.database} ${doc.doc_id}`)
    return {
      key: `${doc.database} ${doc.doc_id}`,
      source: doc.source ?? '',
      target: doc.target ?? '',
      state: doc.state,
      document: { database: doc.database, id: doc.doc_id },
      jobId: job?.id ?? null,
      user: job?.user ?? null,
      isContinuous: continuous.get(job?.id) ?? null,
      info: { ...job?.info, ...doc.info },
      failures: doc.error_count,
      history: job?.history ?? [],
      since: doc.last_updated ?? doc.start_time,
    }
  })
  const ofCalls = jobs
    .filter(({ doc_id: id }) => id === null)
    .map(
      (job): ReplicationRow => ({
        key: job.id,
        source: job.source,
        target: job.target,
        state: stateOfJob(job),
        document: null,
        jobId: job.id,
        user: job.user,
        isContinuous: continuous.get(job.id) ?? null,
        info: { ...job.info, ...crashReason(job) },
        failures: failuresOf(job),
        history: job.history,
        since: job.history[0]?.timestamp ?? job.start_time,
      }),
    )
  return [...ofCalls, ...ofDocuments].sort(
    (a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || (a.key < b.key ? -1 : 1),
  )
}

/** `_scheduler/jobs` does not name states; the newest event does. */
function stateOfJob({ history, pid }: SchedulerJob): string {
  if (pid !== null) return 'running'
  return history[0]?.type === 'crashed' ? 'crashing' : 'pending'
}

function crashReason({ history }: SchedulerJob): Info {
  const [newest] = history
  return newest?.type === 'crashed' && newest.reason !== undefined ? { error: newest.reason } : {}
}

/** The failures at the beginning of the history; each is preceded by a start. */
function failuresOf({ history, pid }: SchedulerJob): number {
  if (pid !== null) return 0
  let failures = 0
  for (const { type } of history) {
    if (type === 'crashed') failures += 1
    else if (type !== 'started') break
  }
  return failures
}
