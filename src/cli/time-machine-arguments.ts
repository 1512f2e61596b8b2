/** The grammar of `settee history` and `settee rewind`. */
import { parseTime, type VersionChoice } from '../documents/time-machine/time-machine-calls.ts'
import { parseRev } from '../revisions/rev.ts'
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT, UsageError, type Values } from './grammar.ts'

/** A command about earlier versions of documents, on the folder given with --data. */
export type TimeMachineCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'history'
      readonly database: string
      /** null: the overwritten and deleted documents of the whole database. */
      readonly id: string | null
      readonly limit: number
      /** In ms since 1970, only without a document; null: the whole known history. */
      readonly since: number | null
      /** The version to read instead; null: the list of versions. */
      readonly choice: VersionChoice | null
    }
  | {
      readonly name: 'rewind'
      readonly database: string
      /** In ms since 1970. */
      readonly at: number
      /** Empty: all documents. */
      readonly ids: readonly string[]
      readonly dryRun: boolean
      readonly yes: boolean
    }
)

const HISTORY_OPTIONS = {
  ...DATA,
  ...JSON_OUT,
  limit: { type: 'string' },
  since: { type: 'string' },
  at: { type: 'string' },
  rev: { type: 'string' },
} as const
const REWIND_OPTIONS = {
  ...DATA,
  ...JSON_OUT,
  to: { type: 'string' },
  id: { type: 'string', multiple: true },
  'dry-run': { type: 'boolean' },
  yes: { type: 'boolean' },
} as const

const TIME_HELP = `
A <time> is "2025-03-01 14:05", in this machine's time zone unless it names one (Z, +01:00), or how
long ago: 30m, 2h, 7d.
`

export const HISTORY = grammar({
  name: 'history',
  usage: `<database> [--since <time>] [--limit <number>] [--json] [--data <folder>]
<database> <id> [--at <time>] [--rev <revision>] [--limit <number>] [--json] [--data <folder>]`,
  about: 'show changes, deletions and old versions of documents',
  details: `Shows what was overwritten or deleted in a database, or the versions of one document. Works whether
or not the server is running:
  --limit <number>     number of rows (default 50)
  --since <time>       with a database: only what was overwritten or deleted since then
  --at <time>          with a document: print it as it was at this time
  --rev <revision>     with a document: print this version
  --json               print JSON
${DATA_HELP}${TIME_HELP}`,
  options: HISTORY_OPTIONS,
  read: historyCommand,
})

export const REWIND = grammar({
  name: 'rewind',
  usage: '<database> --to <time> [--id <id>]... [--dry-run] [--yes] [--json] [--data <folder>]',
  about: 'restore documents to an earlier time, on every device',
  details: `Restores the documents of a database to an earlier time, as new revisions that reach every device.
Documents that did not exist at that time are deleted. Works whether or not the server is running:
  --to <time>          the time to go back to
  --id <id>            restore only this document (may be repeated)
  --dry-run            show what would be done, and change nothing
  --yes                do not ask for confirmation
  --json               print JSON
${DATA_HELP}${TIME_HELP}`,
  options: REWIND_OPTIONS,
  read: rewindCommand,
})

const LIMIT = 50
const MAX_LIMIT = 1000

/** @param now the time, in ms since 1970 @throws UsageError */
function historyCommand(
  [database, id, ...extra]: readonly string[],
  values: Values<typeof HISTORY_OPTIONS>,
  now = Date.now(),
): TimeMachineCommand {
  if (database === undefined) throw new UsageError('settee history needs the name of a database.')
  checkNone(extra)
  const choice = choiceOf(values, now)
  const since = values.since === undefined ? null : timeOf('since', values.since, now)
  if (id === undefined && choice !== null) throw new UsageError('--at and --rev need a document id.')
  if (id !== undefined && since !== null)
    throw new UsageError('--since cannot be combined with a document id.')
  const limit = limitOf(values.limit)
  return { name: 'history', ...shared(values), database, id: id ?? null, limit, since, choice }
}

/** @param now the time, in ms since 1970 @throws UsageError */
export function rewindCommand(
  [database, ...extra]: readonly string[],
  values: Values<typeof REWIND_OPTIONS>,
  now = Date.now(),
): TimeMachineCommand {
  if (database === undefined) throw new UsageError('settee rewind needs the name of a database.')
  checkNone(extra)
  if (values.to === undefined) throw new UsageError('settee rewind needs --to, the time to go back to.')
  const at = timeOf('to', values.to, now)
  const { id: ids = [], yes = false } = values
  return { name: 'rewind', ...shared(values), database, at, ids, dryRun: values['dry-run'] ?? false, yes }
}

function choiceOf({ at, rev }: Values<typeof HISTORY_OPTIONS>, now: number): VersionChoice | null {
  if (at !== undefined && rev !== undefined) throw new UsageError('--at cannot be combined with --rev.')
  if (at !== undefined) return { at: timeOf('at', at, now) }
  if (rev === undefined) return null
  try {
    parseRev(rev)
    return { rev }
  } catch {
    throw new UsageError(`--rev must be a revision like 2-b1c0, not "${rev}".`)
  }
}

const DURATION = /^(\d{1,6})(m|h|d|w)$/
const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

function timeOf(option: string, text: string, now: number): number {
  const [, count, unit = ''] = DURATION.exec(text.trim()) ?? []
  const time = count === undefined ? parseTime(text, 'local') : now - Number(count) * (UNIT_MS[unit] ?? 0)
  if (time !== null) return time
  throw new UsageError(`--${option} must be a time like "2025-03-01 14:05" or 2h, not "${text}".`)
}

function shared({ data, json = false }: Values<typeof DATA & typeof JSON_OUT>) {
  return { data, json }
}

function limitOf(text: string | undefined): number {
  if (text === undefined) return LIMIT
  if (/^\d{1,4}$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_LIMIT) return Number(text)
  throw new UsageError(`--limit must be a whole number from 1 to ${MAX_LIMIT}, not "${text}".`)
}
