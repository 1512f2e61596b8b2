import { UsageError } from './usage-error.ts'

/** A database as a file of couchbackup's, on the folder given with --data. */
export type TransferCommand = { readonly data: string | undefined; readonly database: string } & (
  | { readonly name: 'export'; readonly to: string }
  | { readonly name: 'import'; readonly from: string; readonly merge: boolean }
)

/** The standard output or input, in the place of a file. */
export const STANDARD = '-'

export const TRANSFER_HELP = `export and import write and read couchbackup's files, whether the server runs or not:
  --to <file>          a new file, compressed if its name ends in .gz; - is the standard output (default)
  --from <file>        the file; - is the standard input (default)
  --merge              import into a database that holds documents: it is given what it lacks
`

interface TransferValues {
  readonly data?: string | undefined
  readonly to?: string | undefined
  readonly from?: string | undefined
  readonly merge?: boolean | undefined
}

/** @param words those behind the command's name @throws UsageError */
export function transferCommand(
  name: 'export' | 'import',
  [database, extra]: readonly string[],
  { data, to = STANDARD, from = STANDARD, merge = false }: TransferValues,
): TransferCommand {
  if (database === undefined || database.trim() === '') {
    throw new UsageError(`settee ${name} needs the name of a database.`)
  }
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
  return name === 'export' ? { name, data, database, to } : { name, data, database, from, merge }
}
