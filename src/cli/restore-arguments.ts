/** The grammar of `settee restore` and `settee adopt`. */
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT, type Values } from './grammar.ts'
import { UsageError } from './usage-error.ts'

/** Going back to what databases were, on the folder given with --data. */
export type RestoreCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'restore'
      readonly backup: string
      /** null: all that the backup has. */
      readonly databases: readonly string[] | null
      readonly as: string | null
      /** Also what belongs to the server itself. */
      readonly server: boolean
      readonly yes: boolean
    }
  | { readonly name: 'adopt'; readonly databases: readonly string[] | null }
)

const ADOPT_OPTIONS = { ...DATA, ...JSON_OUT, all: { type: 'boolean' } } as const
const RESTORE_OPTIONS = {
  ...ADOPT_OPTIONS,
  db: { type: 'string', multiple: true },
  as: { type: 'string' },
  server: { type: 'boolean' },
  yes: { type: 'boolean' },
} as const

export const RESTORE = grammar({
  name: 'restore',
  usage: '<backup> [--all] [--db <name>]... [--as <name>] [--server] [--yes] [--json] [--data <folder>]',
  about: 'put databases back to what a backup has',
  details: `Puts databases back to what they were, whether the server runs or not; devices notice, and bring back
what they have and the backup has not. <backup> is a backup's name or folder, or a single file of a
database. What is replaced is kept in the data folder, below replaced/:
  --all                all databases of the backup
  --db <name>          this one; may be given several times
  --as <name>          as a new database of this name, beside the one that is there
  --server             also accounts' tokens, the server's identity, local.ini; the server must not run
  --yes                do not ask
  --json               print what was done as JSON
${DATA_HELP}`,
  options: RESTORE_OPTIONS,
  read: restoreCommand,
})

export const ADOPT = grammar({
  name: 'adopt',
  usage: '[<database>]... [--all] [--json] [--data <folder>]',
  about: 'make devices notice files that were put back by hand',
  details: `Makes devices notice that files of databases were put back by hand, whether the server runs or not:
  --all                every database
  --json               print what was done as JSON
${DATA_HELP}`,
  options: ADOPT_OPTIONS,
  read(databases, { data, all = false, json = false }): RestoreCommand {
    if (all === databases.length > 0) throw new UsageError('settee adopt needs either --all or databases.')
    return { name: 'adopt', data, databases: all ? null : databases, json }
  },
})

function restoreCommand(
  [backup, ...rest]: readonly string[],
  values: Values<typeof RESTORE_OPTIONS>,
): RestoreCommand {
  if (backup === undefined || backup === '') throw new UsageError('settee restore needs a backup.')
  checkNone(rest)
  const { data, all = false, db = null, as = null, server = false, yes = false, json = false } = values
  if (all === (db !== null)) throw new UsageError('settee restore needs either --all or --db.')
  if (as !== null && db?.length !== 1) throw new UsageError('--as goes with one --db.')
  return { name: 'restore', data, backup, databases: db, as, server, yes, json }
}
