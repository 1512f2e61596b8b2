/** The calls of the screens of databases; docs/settee-api.md. */
import { ask, askLines, askText, pathOf } from '../../api/client.ts'
import type {
  Conflicts,
  DatabaseList,
  DatabaseRow,
  DaySize,
  DocumentHistory,
  ListedRow,
  Overwritten,
  OverwrittenQuery,
  RewindLine,
  RewindRequest,
  Security,
  Sizes,
} from './database-answers.ts'

const PAGE_ROWS = 50
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

export async function readGrowth(name: string, signal: AbortSignal): Promise<readonly DaySize[]> {
  return (await ask<{ readonly days: readonly DaySize[] }>(placeOf(name, 'growth'), { signal })).days
}

export function readSizes(name: string, signal: AbortSignal): Promise<Sizes> {
  return ask(placeOf(name, 'size'), { signal })
}

export function readConflicts(
  name: string,
  bookmark: string | undefined,
  signal: AbortSignal,
): Promise<Conflicts> {
  return ask(placeOf(name, 'conflicts'), { query: { limit: '20', bookmark }, signal })
}

export function readHistory(
  name: string,
  id: string,
  bookmark: string | undefined,
  signal?: AbortSignal,
): Promise<DocumentHistory> {
  return ask(placeOf(name, 'history'), { query: { id, limit: '50', bookmark }, signal })
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

/** Restores documents, or says what it would do; ends when the caller stops reading. */
export function rewindLines(
  name: string,
  request: RewindRequest,
  signal?: AbortSignal,
): AsyncGenerator<RewindLine> {
  return askLines(placeOf(name, 'rewind'), { json: request, signal })
}

export function readSecurity(name: string, signal?: AbortSignal): Promise<Security> {
  return ask(pathOf(name, '_security'), { signal })
}

export async function writeSecurity(name: string, security: Security): Promise<void> {
  await ask(pathOf(name, '_security'), { method: 'PUT', json: security })
}
