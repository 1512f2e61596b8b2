/** Lines of the log, as the page keeps and shows them. */

/** A member of a line beside its time, level and message. */
type Members = Readonly<Record<string, unknown>>

export interface LogLine extends Members {
  readonly level: string
  readonly time: string
  readonly msg?: string
}

/** A row of `GET /_settee/log`. */
export interface LogRow {
  readonly seq?: string
  readonly line?: LogLine
  readonly missed?: number
  readonly last_seq?: string
}

/** What the list shows: a line, or how many are missing. */
export type LogEntry =
  | { readonly key: string; readonly line: LogLine }
  | { readonly key: string; readonly missed: number }

/** Entries that the page keeps at most. */
export const MAX_ENTRIES = 1000

let entries = 0

/** @returns null for a row that shows nothing */
export function entryOf({ line, missed }: LogRow): LogEntry | null {
  entries += 1
  // After a restart of the server, numbers begin again.
  const key = String(entries)
  if (line !== undefined) return { key, line }
  return missed === undefined || missed === 0 ? null : { key, missed }
}

/** @param added in their order @param old newest first @returns newest first, bounded */
export function withNewest(old: readonly LogEntry[], added: readonly LogEntry[]): readonly LogEntry[] {
  return [...added.toReversed(), ...old].slice(0, MAX_ENTRIES)
}

/** Members that follow the request, in the order in which they say most. */
const TOLD = ['status', 'ms', 'database', 'account', 'backup', 'reason', 'address'] as const

/** What a line says beside its message, in one line of text. */
export function factsOf(line: LogLine): string {
  const { method, path, route } = line
  const request = [method, path ?? route].filter((part) => part !== undefined).join(' ')
  const told = TOLD.flatMap((name) => {
    const value = line[name]
    if (value === undefined || value === null || value === '') return []
    if (name === 'ms') return [`${value} ms`]
    return [name === 'status' ? String(value) : `${name}: ${value}`]
  })
  return [...(request === '' ? [] : [request]), ...told, ...errorOf(line)].join(' · ')
}

function errorOf({ err }: LogLine): string[] {
  if (typeof err !== 'object' || err === null) return []
  const { message, code } = err as { readonly message?: unknown; readonly code?: unknown }
  const text = message ?? code
  return text === undefined ? [] : [String(text)]
}
