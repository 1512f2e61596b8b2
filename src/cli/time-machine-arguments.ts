/** The grammar of `settee history` and `settee rewind`. */
import { parseTime } from '../core/time.ts'
import type { VersionChoice } from '../documents/time-machine-calls.ts'
import { parseRev } from '../revisions/rev.ts'
import { UsageError } from './usage-error.ts'

/** A command about what documents were, on the folder given with --data. */
export type TimeMachineCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'history'
      readonly database: string
      /** null: what was overwritten or deleted in the whole database. */
      readonly id: string | null
      readonly limit: number
      /** In ms since 1970, of the whole database; null: as far back as is known. */
      readonly since: number | null
      /** One version is to be read instead. */
      readonly choice: VersionChoice | null
    }
  | {
      readonly name: 'rewind'
      readonly database: string
      /** In ms since 1970. */
      readonly at: number
      /** None: all documents. */
      readonly ids: readonly string[]
      readonly dryRun: boolean
      readonly yes: boolean
    }
)

/** What of the command line is read here. */
export interface TimeMachineValues {
  readonly data?: string | undefined
  readonly json?: boolean | undefined
  readonly limit?: string | undefined
  readonly to?: string | undefined
  readonly at?: string | undefined
  readonly rev?: string | undefined
  readonly since?: string | undefined
  readonly id?: readonly string[] | undefined
  readonly 'dry-run'?: boolean | undefined
  readonly yes?: boolean | undefined
}

export const HISTORY_OPTIONS = ['data', 'json', 'limit', 'since', 'at', 'rev'] as const
export const REWIND_OPTIONS = ['data', 'json', 'to', 'id', 'dry-run', 'yes'] as const

export const TIME_MACHINE_HELP = `history and rewind tell what documents were, and make them so again, whether the server runs or not.
history shows what was overwritten or deleted in a database, or the versions of one document:
  --limit <number>     how many rows to show (default 50)
  --since <time>       of a database: what was overwritten or deleted from then on
  --at <time>          of a document: print it as it was then
  --rev <revision>     of a document: print this version
rewind makes the documents of a database what they were, as new revisions that every device takes
over; those that were not there then are deleted:
  --to <time>          the time to go back to
  --id <id>            this document alone; may be given several times
  --dry-run            say what would be done, and do nothing
  --yes                do not ask before it is done
  --json               print JSON
A <time> is "2025-03-01 14:05", in this machine's time zone unless it names one (Z, +01:00), or how
long ago: 30m, 2h, 7d.
`

const LIMIT = 50
const MAX_LIMIT = 1000

/** @param now the time, in ms since 1970 @throws UsageError */
export function historyCommand(
  rest: readonly string[],
  values: TimeMachineValues,
  now = Date.now(),
): TimeMachineCommand {
  const [database, id = null, extra] = rest
  if (database === undefined) throw new UsageError('settee history needs the name of a database.')
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
  const choice = choiceOf(values, now)
  const since = values.since === undefined ? null : timeOf('since', values.since, now)
  if (id === null && choice !== null) throw new UsageError('--at and --rev go with a document.')
  if (id !== null && since !== null) throw new UsageError('--since goes with a whole database.')
  const limit = limitOf(values.limit)
  return { name: 'history', ...shared(values), database, id, limit, since, choice }
}

/** @param now the time, in ms since 1970 @throws UsageError */
export function rewindCommand(
  rest: readonly string[],
  values: TimeMachineValues,
  now = Date.now(),
): TimeMachineCommand {
  const [database, extra] = rest
  if (database === undefined) throw new UsageError('settee rewind needs the name of a database.')
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
  if (values.to === undefined) throw new UsageError('settee rewind needs --to, the time to go back to.')
  const at = timeOf('to', values.to, now)
  const { id: ids = [], yes = false } = values
  return { name: 'rewind', ...shared(values), database, at, ids, dryRun: values['dry-run'] ?? false, yes }
}

function choiceOf({ at, rev }: TimeMachineValues, now: number): VersionChoice | null {
  if (at !== undefined && rev !== undefined) throw new UsageError('Either --at or --rev says which version.')
  if (at !== undefined) return { at: timeOf('at', at, now) }
  if (rev === undefined) return null
  try {
    parseRev(rev)
    return { rev }
  } catch {
    throw new UsageError(`--rev must be a revision like 2-b1c0, not "${rev}".`)
  }
}

const AGO = /^(\d{1,6})(m|h|d|w)$/
const AGO_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

function timeOf(option: string, text: string, now: number): number {
  const [, count, unit = ''] = AGO.exec(text.trim()) ?? []
  const time = count === undefined ? parseTime(text, 'local') : now - Number(count) * (AGO_MS[unit] ?? 0)
  if (time !== null) return time
  throw new UsageError(`--${option} must be a time like "2025-03-01 14:05" or 2h, not "${text}".`)
}

function shared({ data, json = false }: TimeMachineValues) {
  return { data, json }
}

function limitOf(text: string | undefined): number {
  if (text === undefined) return LIMIT
  if (/^\d{1,4}$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_LIMIT) return Number(text)
  throw new UsageError(`--limit must be a whole number from 1 to ${MAX_LIMIT}, not "${text}".`)
}
