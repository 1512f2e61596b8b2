/** Queries that were run, and the one that is being written, in this browser alone, and of each user for itself. */
import { user } from '../../api/session.ts'

export interface RecentQuery {
  readonly text: string
  /** ms since 1970. */
  readonly at: number
}

const MAX_QUERIES = 10
/** In UTF-16 units. Longer queries are not remembered. */
const MAX_LENGTH = 20_000
/** Databases whose queries are remembered. */
const MAX_DATABASES = 20

const RECENT = 'settee.recent-queries'
const DRAFT = 'settee.query-draft.'

/** By user and database ({@link keyOf}), the last used last. */
type Stored = readonly (readonly [key: string, queries: readonly RecentQuery[]])[]

/** Another user of this browser must not see what was asked. */
function keyOf(database: string): string {
  return JSON.stringify([user.value?.name ?? null, database])
}

/** @returns the queries of a database, newest first */
export function recentQueries(database: string): readonly RecentQuery[] {
  return read().find(([key]) => key === keyOf(database))?.[1] ?? []
}

export function rememberQuery(database: string, text: string, at = Date.now()): void {
  if (text.length > MAX_LENGTH) return
  const all = read()
  const others = recentQueries(database).filter((each) => each.text !== text)
  const queries = [{ text, at }, ...others].slice(0, MAX_QUERIES)
  const own = keyOf(database)
  const rest = all.filter(([key]) => key !== own)
  write([...rest, [own, queries] as const].slice(-MAX_DATABASES))
}

export function forgetQueries(database: string): void {
  write(read().filter(([key]) => key !== keyOf(database)))
}

/** @returns the query that was being written in this tab; null: none */
export function readDraft(database: string): string | null {
  return guarded(() => sessionStorage.getItem(DRAFT + keyOf(database))) ?? null
}

export function keepDraft(database: string, text: string): void {
  if (text.length <= MAX_LENGTH) guarded(() => sessionStorage.setItem(DRAFT + keyOf(database), text))
}

function read(): Stored {
  const stored = guarded(() => JSON.parse(localStorage.getItem(RECENT) ?? '[]') as unknown)
  return Array.isArray(stored) ? (stored as unknown[]).filter(isEntry) : []
}

function isEntry(entry: unknown): entry is Stored[number] {
  if (!Array.isArray(entry)) return false
  const [name, queries] = entry as unknown[]
  return typeof name === 'string' && Array.isArray(queries) && queries.every(isQuery)
}

function isQuery(query: unknown): query is RecentQuery {
  const { text, at } = (query ?? {}) as Partial<RecentQuery>
  return typeof text === 'string' && typeof at === 'number'
}

function write(stored: Stored): void {
  guarded(() => localStorage.setItem(RECENT, JSON.stringify(stored)))
}

/** Storage may be full, or the browser may refuse it: then nothing is remembered. */
function guarded<T>(use: () => T): T | undefined {
  try {
    return use()
  } catch {
    return undefined
  }
}
