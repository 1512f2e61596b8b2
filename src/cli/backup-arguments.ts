/** The grammars of `settee backup`, `restore`, `adopt`, `export`, `import`, `check` and `size`. */
import { CURES, type CureName } from '../core/cure-names.ts'
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT, UsageError, type Values } from './grammar.ts'

export interface BackupCommand {
  readonly name: 'backup'
  readonly data: string | undefined
  /** The folder of the backups; undefined: the configured one. */
  readonly to: string | undefined
  /** Empty: all databases. */
  readonly databases: readonly string[]
  readonly json: boolean
}

export const BACKUP = grammar({
  name: 'backup',
  usage: '[--to <folder>] [--db <name>]... [--json] [--data <folder>]',
  about: 'make a verified copy of everything',
  details: `Copies the databases and the server's own data, and verifies each copy. Works whether or not the
server is running. The exit code is 0 when the backup is complete:
  --to <folder>        folder of the backups (default: settee/backup_folder, or backups in the data
                       folder)
  --db <name>          back up only this database (may be repeated)
  --json               print the result as JSON
${DATA_HELP}`,
  options: { ...DATA, ...JSON_OUT, to: { type: 'string' }, db: { type: 'string', multiple: true } },
  read(words, { data, to, db: databases = [], json = false }): BackupCommand {
    checkNone(words)
    return { name: 'backup', data, to, databases, json }
  },
})

export type RestoreCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'restore'
      readonly backup: string
      /** null: all databases of the backup. */
      readonly databases: readonly string[] | null
      readonly as: string | null
      /** Whether to restore the server's own data as well. */
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
  about: 'restore databases from a backup',
  details: `Restores databases from a backup. Devices notice, and send again what they have and the backup lacks.
Works whether or not the server is running. <backup> is the name or folder of a backup, or a single
database file. The replaced files are kept in the data folder, in replaced/:
  --all                restore all databases of the backup
  --db <name>          restore this database (may be repeated)
  --as <name>          restore it as a new database of this name
  --server             also restore device tokens, the server's identity and local.ini; the server must
                       not be running
  --yes                do not ask for confirmation
  --json               print the result as JSON
${DATA_HELP}`,
  options: RESTORE_OPTIONS,
  read: restoreCommand,
})

export const ADOPT = grammar({
  name: 'adopt',
  usage: '[<database>]... [--all] [--json] [--data <folder>]',
  about: 'make devices notice database files restored by hand',
  details: `Makes devices notice that database files were restored by hand. Works whether or not the server is
running:
  --all                all databases
  --json               print the result as JSON
${DATA_HELP}`,
  options: ADOPT_OPTIONS,
  read(databases, { data, all = false, json = false }): RestoreCommand {
    if (all === databases.length > 0)
      throw new UsageError('settee adopt needs either database names or --all.')
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
  if (as !== null && db?.length !== 1) throw new UsageError('--as needs exactly one --db.')
  return { name: 'restore', data, backup, databases: db, as, server, yes, json }
}

export type TransferCommand = { readonly data: string | undefined; readonly database: string } & (
  | { readonly name: 'export'; readonly to: string }
  | { readonly name: 'import'; readonly from: string; readonly merge: boolean }
)

/** Stands for standard output or input instead of a file. */
export const STANDARD = '-'

/** Exports every database into a folder. */
export interface ExportAllCommand {
  readonly name: 'export all'
  readonly data: string | undefined
  readonly to: string
}

export const EXPORT = grammar({
  name: 'export',
  usage: '<database> [--to <file>] | --all --to <folder> [--data <folder>]',
  about: "export a database to a file in couchbackup's format",
  details: `Writes a couchbackup file with every leaf revision, its ancestry and its attachments. Works whether
or not the server is running:
  --to <file>          a new file, compressed if its name ends in .gz; - is standard output (default)
  --all                every database, each in a compressed file of its own in the folder of --to,
                       which must be new or empty
${DATA_HELP}`,
  options: { ...DATA, to: { type: 'string' }, all: { type: 'boolean' } },
  read(words, { data, to = STANDARD, all = false }): TransferCommand | ExportAllCommand {
    if (!all) return { name: 'export', data, database: databaseOf(words, 'export'), to }
    checkNone(words)
    if (to === STANDARD) throw new UsageError('settee export --all needs a folder: --to <folder>.')
    return { name: 'export all', data, to }
  },
})

export const IMPORT = grammar({
  name: 'import',
  usage: '<database> [--from <file>] [--merge] [--data <folder>]',
  about: "import a file in couchbackup's format",
  details: `Imports a couchbackup file into a new or empty database. Works whether or not the server is running:
  --from <file>        the file; - is standard input (default)
  --merge              allow a database with documents, and add the revisions that it lacks
${DATA_HELP}`,
  options: { ...DATA, from: { type: 'string' }, merge: { type: 'boolean' } },
  read(words, { data, from = STANDARD, merge = false }): TransferCommand {
    return { name: 'import', data, database: databaseOf(words, 'import'), from, merge }
  },
})

function databaseOf([database, ...extra]: readonly string[], command: string): string {
  if (database === undefined || database.trim() === '') {
    throw new UsageError(`settee ${command} needs the name of a database.`)
  }
  checkNone(extra)
  return database
}

export interface CheckCommand {
  readonly name: 'check'
  readonly data: string | undefined
  /** Empty: all databases. */
  readonly databases: readonly string[]
  readonly repair: boolean
  /** The id of a document whose damage is given up; null: none. Then one database is named. */
  readonly giveUp: string | null
  readonly yes: boolean
  readonly json: boolean
}

export const CHECK = grammar({
  name: 'check',
  usage: '[--db <name>]... [--repair | --give-up <id> [--yes]] [--json] [--data <folder>]',
  about: 'read everything that is stored, and list what is damaged',
  details: `Reads every document and attachment, and compares them with their checksums. Works whether or not the
server is running. The exit code is 1 if anything is damaged:
  --db <name>          check only this database (may be repeated)
  --repair             store damaged documents and attachments again, as far as a backup has them
  --give-up <id>       let go what is damaged of a document and what no backup has; says what is lost
  --yes                do not ask for confirmation
  --json               print the result as JSON
${DATA_HELP}`,
  options: {
    ...DATA,
    ...JSON_OUT,
    db: { type: 'string', multiple: true },
    repair: { type: 'boolean' },
    'give-up': { type: 'string' },
    yes: { type: 'boolean' },
  },
  read(words, { data, json = false, ...values }): CheckCommand {
    checkNone(words)
    const { db: databases = [], repair = false, 'give-up': giveUp = null, yes = false } = values
    if (giveUp !== null && (databases.length !== 1 || repair))
      throw new UsageError('--give-up needs one database with --db, and no --repair.')
    if (yes && giveUp === null) throw new UsageError('--yes is for --give-up.')
    return { name: 'check', data, databases, repair, giveUp, yes, json }
  },
})

export interface SizeCommand {
  readonly name: 'size'
  readonly data: string | undefined
  /** null: all databases. */
  readonly database: string | null
  readonly json: boolean
}

/** Shows what frees space, and does it. */
export interface FreeCommand {
  readonly name: 'free'
  readonly data: string | undefined
  /** The steps to do without a question; null: ask at a terminal. */
  readonly steps: readonly CureName[] | null
  readonly json: boolean
}

export const SIZE = grammar({
  name: 'size',
  usage: '[<database>] [--json] | --free [--step <name>]... [--data <folder>]',
  about: 'show what takes up space in databases, and free some',
  details: `Shows what takes up space in each database. Works whether or not the server is running:
  --free               show what frees space on the disk of the data folder, with its bytes, and do each
                       step after a question; without a terminal, only show it
  --step <name>        with --free: do this step without a question (may be repeated):
                       ${CURES.join(', ')}
  --json               print one line of JSON per database, with counts; with --free, one object
${DATA_HELP}`,
  options: { ...DATA, ...JSON_OUT, free: { type: 'boolean' }, step: { type: 'string', multiple: true } },
  read(
    [database = null, ...extra],
    { data, json = false, free = false, step = null },
  ): SizeCommand | FreeCommand {
    checkNone(extra)
    if (!free) {
      if (step !== null) throw new UsageError('--step needs --free.')
      return { name: 'size', data, database, json }
    }
    if (database !== null) throw new UsageError('settee size --free is about the whole disk.')
    return { name: 'free', data, steps: step?.map(cureNamed) ?? null, json }
  },
})

/** @throws UsageError */
function cureNamed(name: string): CureName {
  const found = CURES.find((cure) => cure === name)
  if (found === undefined)
    throw new UsageError(`There is no step "${name}"; the steps are ${CURES.join(', ')}.`)
  return found
}
