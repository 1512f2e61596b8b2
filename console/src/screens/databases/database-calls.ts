/** The calls of the screens of databases, and what they answer; docs/settee-api.md. */
import { ask, askLines, askText, pathOf } from '../../api/client.ts'

export interface DatabaseRow {
  readonly name: string
  readonly doc_count: number
  readonly doc_del_count: number
  readonly sizes: { readonly file: number; readonly active: number; readonly external: number }
  readonly partitioned: boolean
  readonly compact_running: boolean
  readonly access: 'everyone' | 'members' | 'admins'
  readonly role: 'admin' | 'member' | 'none'
  /** In hosted mode. */
  readonly owner?: string | null
}

/** A database whose file cannot be read. */
export interface FaultyRow {
  readonly name: string
  readonly error: string
  readonly reason: string
}

export type ListedRow = DatabaseRow | FaultyRow

export interface DatabaseList {
  readonly databases: readonly ListedRow[]
  readonly next: string | null
}

export const PAGE_ROWS = 50
/** Pages without rows that are passed over: an account may enter few of many databases. */
const MAX_EMPTY_PAGES = 20

/** A page of databases, with as many rows as it has room for. */
export async function listDatabases(
  { prefix, after }: { readonly prefix: string; readonly after: string },
  signal: AbortSignal,
): Promise<DatabaseList> {
  const databases: ListedRow[] = []
  let next: string | null = after
  for (let round = 0; next !== null && databases.length < PAGE_ROWS && round < MAX_EMPTY_PAGES; round++) {
    const query = {
      limit: String(PAGE_ROWS - databases.length),
      ...(prefix !== '' && { prefix }),
      ...(next !== '' && { after: next }),
    }
    const page: DatabaseList = await ask('_settee/databases', { query, signal })
    databases.push(...page.databases)
    next = page.next
  }
  return { databases, next }
}

export function readDatabase(name: string, signal?: AbortSignal): Promise<DatabaseRow> {
  return ask(placeOf(name), { signal })
}

/** The path of settee's own resources of a database. */
export function placeOf(name: string, ...rest: readonly string[]): string {
  return pathOf('_settee', 'databases', name, ...rest)
}

/** A day on which the database was written to. */
export interface DaySize {
  readonly date: string
  readonly doc_count: number
  readonly file: number
}

export async function readGrowth(name: string, signal: AbortSignal): Promise<readonly DaySize[]> {
  return (await ask<{ readonly days: readonly DaySize[] }>(placeOf(name, 'growth'), { signal })).days
}

export type PartName =
  | 'live'
  | 'tombstones'
  | 'attachments'
  | 'local'
  | 'old'
  | 'kept'
  | 'indexes'
  | 'free'
  | 'log'

export interface Sizes {
  readonly file: number
  readonly parts: Readonly<Record<PartName, { readonly count?: number; readonly bytes: number }>>
  readonly views: { readonly bytes: number }
}

export function readSizes(name: string, signal: AbortSignal): Promise<Sizes> {
  return ask(placeOf(name, 'size'), { signal })
}

export interface ConflictRow {
  readonly id: string
  readonly rev: string
  readonly leaves: number
}

export interface Conflicts {
  readonly rows: readonly ConflictRow[]
  readonly bookmark: string | null
  readonly searched: number
}

export function readConflicts(
  name: string,
  bookmark: string | undefined,
  signal: AbortSignal,
): Promise<Conflicts> {
  return ask(placeOf(name, 'conflicts'), { query: { limit: '20', bookmark }, signal })
}

export interface Alarm {
  readonly id: string
  readonly database: string
  readonly deleted: number
  readonly of: number
  readonly since: string
  readonly until: string
  readonly account: string | null
  readonly device: {
    readonly token: string | null
    readonly client: string
    readonly address: string
  } | null
  readonly undo: string
}

export async function readAlarms(name: string, signal: AbortSignal): Promise<readonly Alarm[]> {
  return (await ask<{ readonly alarms: readonly Alarm[] }>(placeOf(name, 'alarms'), { signal })).alarms
}

export interface Version {
  readonly rev: string
  readonly deleted: boolean
  /** null: stored by an old settee, which did not record times. */
  readonly stored_at: string | null
  /** null: it is a current one. */
  readonly superseded_at: string | null
  readonly size: number
  readonly attachments: number
}

export interface DocumentHistory {
  readonly id: string
  /** The winner. */
  readonly rev: string
  readonly deleted: boolean
  readonly versions: readonly Version[]
  readonly bookmark: string | null
  readonly known_since: string | null
}

export function readHistory(
  name: string,
  id: string,
  bookmark: string | undefined,
  signal?: AbortSignal,
): Promise<DocumentHistory> {
  return ask(placeOf(name, 'history'), { query: { id, limit: '50', bookmark }, signal })
}

export interface OverwrittenRow {
  readonly id: string
  readonly rev: string
  readonly deleted: boolean
  readonly at: string | null
  readonly overwritten: number
  readonly versions: readonly Version[]
}

export interface Overwritten {
  readonly rows: readonly OverwrittenRow[]
  readonly bookmark: string | null
  readonly known_since: string | null
}

export interface OverwrittenQuery {
  readonly since?: string | undefined
  readonly until?: string | undefined
  readonly deleted?: boolean
  readonly bookmark?: string | undefined
}

export function readOverwritten(
  name: string,
  { deleted, ...query }: OverwrittenQuery,
  signal?: AbortSignal,
): Promise<Overwritten> {
  const asked = { ...query, limit: '50', ...(deleted && { deleted: 'true' }) }
  return ask(placeOf(name, 'history'), { query: asked, signal })
}

/** The text of a version, with its numbers as they are stored. */
export function readVersion(name: string, id: string, rev: string, signal: AbortSignal): Promise<string> {
  return askText(placeOf(name, 'version'), { query: { id, rev }, signal })
}

export type RewindOutcome =
  | 'restored'
  | 'recreated'
  | 'deleted'
  | 'unchanged'
  | 'expired'
  | 'newer'
  | 'absent'
  | 'refused'

export type RewindCounts = Readonly<Record<RewindOutcome, number>>

export interface RewindLine {
  readonly at?: string
  readonly documents?: number
  readonly progress?: { readonly looked_at: number; readonly counts: RewindCounts }
  readonly done?: true
  readonly looked_at?: number
  readonly counts?: RewindCounts
  readonly id?: string
  readonly outcome?: RewindOutcome
  readonly from?: string | null
  readonly to?: string | null
  readonly rev?: string
  readonly error?: string
  readonly reason?: string
}

export interface RewindRequest {
  readonly at?: string
  readonly ids?: readonly string[]
  readonly rev?: string
  readonly dry_run?: boolean
}

/** Restores documents, or says what it would do; ends when the caller stops reading. */
export function rewindLines(
  name: string,
  request: RewindRequest,
  signal?: AbortSignal,
): AsyncGenerator<RewindLine> {
  return askLines(placeOf(name, 'rewind'), { json: request, signal })
}

export interface SecurityList {
  readonly names?: readonly string[]
  readonly roles?: readonly string[]
}

export interface Security {
  readonly admins?: SecurityList
  readonly members?: SecurityList
  /** The name of `members` in CouchDB 1.x. */
  readonly readers?: SecurityList
}

export function readSecurity(name: string, signal?: AbortSignal): Promise<Security> {
  return ask(pathOf(name, '_security'), { signal })
}

export async function writeSecurity(name: string, security: Security): Promise<void> {
  await ask(pathOf(name, '_security'), { method: 'PUT', json: security })
}
