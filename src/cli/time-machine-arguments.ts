/** The grammar of `settee history` and `settee rewind`. */
import { parseTime } from '../core/time.ts'
import { UsageError } from './usage-error.ts'

/** A command about what documents were, on the folder given with --data. */
export type TimeMachineCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'history'
      readonly database: string
      readonly id: string | undefined
      readonly limit: number
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
  readonly id?: readonly string[] | undefined
  readonly 'dry-run'?: boolean | undefined
  readonly yes?: boolean | undefined
}

export const HISTORY_OPTIONS = ['data', 'json', 'limit'] as const
export const REWIND_OPTIONS = ['data', 'json', 'to', 'id', 'dry-run', 'yes'] as const

export const TIME_MACHINE_HELP = `history and rewind tell what documents were, and make them so again, whether the server runs or not:
  --limit <number>     with history: how many rows to show (default 50)
  --to <time>          with rewind: the time to go back to, as "2025-03-01 14:05", in this machine's time
                       zone unless it names one (Z, +01:00)
  --id <id>            with rewind: this document alone; may be given several times
  --dry-run            say what would be done, and do nothing
  --yes                do not ask before it is done
  --json               print JSON
`

const LIMIT = 50
const MAX_LIMIT = 1000

/** @throws UsageError */
export function historyCommand(rest: readonly string[], values: TimeMachineValues): TimeMachineCommand {
  const [database, id, extra] = rest
  if (database === undefined) throw new UsageError('settee history needs the name of a database.')
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
  return { name: 'history', ...shared(values), database, id, limit: limitOf(values.limit) }
}

/** @throws UsageError */
export function rewindCommand(rest: readonly string[], values: TimeMachineValues): TimeMachineCommand {
  const [database, extra] = rest
  if (database === undefined) throw new UsageError('settee rewind needs the name of a database.')
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
  if (values.to === undefined) throw new UsageError('settee rewind needs --to, the time to go back to.')
  const at = parseTime(values.to, 'local')
  if (at === null) {
    throw new UsageError(`--to must be a time like "2025-03-01 14:05", not "${values.to}".`)
  }
  const { id: ids = [], yes = false } = values
  return { name: 'rewind', ...shared(values), database, at, ids, dryRun: values['dry-run'] ?? false, yes }
}

function shared({ data, json = false }: TimeMachineValues) {
  return { data, json }
}

function limitOf(text: string | undefined): number {
  if (text === undefined) return LIMIT
  if (/^\d{1,4}$/.test(text) && Number(text) >= 1 && Number(text) <= MAX_LIMIT) return Number(text)
  throw new UsageError(`--limit must be a whole number from 1 to ${MAX_LIMIT}, not "${text}".`)
}
