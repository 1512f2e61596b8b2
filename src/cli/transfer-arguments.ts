/** The grammar of `settee export` and `settee import`. */
import { checkNone, DATA, DATA_HELP, grammar } from './grammar.ts'
import { UsageError } from './usage-error.ts'

/** A database as a file of couchbackup's, on the folder given with --data. */
export type TransferCommand = { readonly data: string | undefined; readonly database: string } & (
  | { readonly name: 'export'; readonly to: string }
  | { readonly name: 'import'; readonly from: string; readonly merge: boolean }
)

/** The standard output or input, in the place of a file. */
export const STANDARD = '-'

export const EXPORT = grammar({
  name: 'export',
  usage: '<database> [--to <file>] [--data <folder>]',
  about: "write a database into a file in couchbackup's format",
  details: `Writes a file of couchbackup's, with every leaf, its ancestry and its attachments, whether the server
runs or not:
  --to <file>          a new file, compressed if its name ends in .gz; - is standard output (default)
${DATA_HELP}`,
  options: { ...DATA, to: { type: 'string' } },
  read(words, { data, to = STANDARD }): TransferCommand {
    return { name: 'export', data, database: databaseOf(words, 'export'), to }
  },
})

export const IMPORT = grammar({
  name: 'import',
  usage: '<database> [--from <file>] [--merge] [--data <folder>]',
  about: 'read such a file into a database',
  details: `Reads a file of couchbackup's into a new or empty database, whether the server runs or not:
  --from <file>        the file; - is the standard input (default)
  --merge              into a database that holds documents: it is given what it lacks
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
