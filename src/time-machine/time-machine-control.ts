/** The control commands of the time machine. */
import { CouchError, ERRORS, type ErrorName } from '../core/errors.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { RewindCounts, VersionChoice } from '../documents/time-machine/time-machine-calls.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { RewindLine, Rewinds } from './rewinds.ts'

interface HistoryQuery {
  readonly database: string
  /** Absent: the overwritten and deleted documents of the whole database. */
  readonly id?: string
  readonly limit: number
  readonly bookmark?: string
  /** In ms since 1970; only for the whole database. */
  readonly since?: number
  readonly until?: number
}

interface VersionQuery {
  readonly database: string
  readonly id: string
  readonly choice: VersionChoice
}

interface RewindOrder {
  readonly database: string
  /** In ms since 1970. */
  readonly at: number
  /** Absent: all documents. */
  readonly ids?: readonly string[]
  readonly dryRun: boolean
}

export interface RewindResult {
  readonly counts: RewindCounts
  /** The results of the first {@link MAX_ROWS} documents that differed. */
  readonly rows: readonly RewindLine[]
  readonly isWhole: boolean
}

interface RewindProgress {
  readonly documents: number
  readonly looked_at: number
}

export interface TimeMachineControl {
  /**
   * The answer of `GET history`. For a whole database it reads documents until there are enough rows.
   * @throws no_database, not_found, bad_request
   */
  readHistory(query: HistoryQuery): Promise<object>
  /** The JSON text of a version, attachments as stubs. @throws no_database, not_found, bad_request */
  readVersion(query: VersionQuery): Promise<{ readonly text: string }>
  /**
   * @param signal aborts when the caller has disconnected; the rewind then ends after its current documents
   * @throws no_database, bad_request, conflict; and as the rewind
   */
  rewindDatabase(
    order: RewindOrder,
    onProgress?: (progress: RewindProgress) => void,
    signal?: AbortSignal,
  ): Promise<RewindResult>
}

const MAX_ROWS = 1000

/** @param rewinds the rewinds of this process */
export function localTimeMachineControl(
  databases: Pick<Databases, 'get'>,
  rewinds: Rewinds,
): TimeMachineControl {
  return {
    readHistory: async ({ database, id, ...query }) => {
      const handle = await databases.get(database)
      return id === undefined
        ? overwrittenIn(handle, query)
        : objectOf(await handle.history(SYSTEM_USER, id, query))
    },
    readVersion: async ({ database, id, choice }) => {
      const chunks: Uint8Array[] = []
      for await (const chunk of (await databases.get(database)).version(SYSTEM_USER, id, choice, false))
        chunks.push(chunk)
      return { text: Buffer.concat(chunks).toString().trim() }
    },
    rewindDatabase: async ({ database, ...request }, onProgress, signal) => {
      const lines = rewinds.run(SYSTEM_USER, database, request)
      const rows: RewindLine[] = []
      let documents = 0
      let omitted = 0
      for await (const line of linesOf(lines)) {
        if (signal?.aborted) break
        // A line with an id reports only that this document was refused.
        if (line.error !== undefined && line.id === undefined) throw rewindError(line)
        if (line.done && line.counts) return { counts: line.counts, rows, isWhole: omitted === 0 }
        documents = line.documents ?? documents
        if (line.progress) onProgress?.({ documents, looked_at: line.progress.looked_at })
        if (line.id === undefined) continue
        if (rows.length < MAX_ROWS) rows.push(line)
        else omitted += 1
      }
      throw new CouchError('unavailable')
    },
  }
}

interface OverwrittenAnswer {
  readonly rows: readonly object[]
  readonly bookmark: string | null
}

/** One call reads only some of the documents, and may return no rows. */
async function overwrittenIn(
  handle: Pick<DatabaseHandle, 'overwritten'>,
  { limit, ...query }: Omit<HistoryQuery, 'database' | 'id'>,
): Promise<OverwrittenAnswer> {
  const rows: object[] = []
  for (let { bookmark } = query; ; ) {
    const from = bookmark === undefined ? {} : { bookmark }
    const request = { ...query, ...from, limit: limit - rows.length }
    const page = objectOf(await handle.overwritten(SYSTEM_USER, request)) as OverwrittenAnswer
    rows.push(...page.rows)
    if (page.bookmark === null || rows.length >= limit) return { ...page, rows }
    bookmark = page.bookmark
  }
}

function objectOf(bytes: Uint8Array): object {
  return JSON.parse(new TextDecoder().decode(bytes)) as object
}

/** Each chunk has whole lines. */
async function* linesOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<RewindLine> {
  for await (const chunk of chunks) {
    for (const line of new TextDecoder().decode(chunk).split('\n')) {
      if (line !== '') yield JSON.parse(line) as RewindLine
    }
  }
}

function rewindError({ error, reason, counts }: RewindLine): CouchError {
  const names = Object.keys(ERRORS) as ErrorName[]
  const code = names.find((name) => ERRORS[name][1] === error) ?? 'internal_server_error'
  const done = (counts?.restored ?? 0) + (counts?.recreated ?? 0) + (counts?.deleted ?? 0)
  return new CouchError(code, `It stopped after ${done} documents: ${String(reason)}`)
}
