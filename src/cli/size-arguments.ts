/** The grammar of `settee size`. */
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT } from './grammar.ts'

/** Where the bytes of databases are. */
export interface SizeCommand {
  readonly name: 'size'
  readonly data: string | undefined
  /** null: all of them. */
  readonly database: string | null
  readonly json: boolean
}

export const SIZE = grammar({
  name: 'size',
  usage: '[<database>] [--json] [--data <folder>]',
  about: 'show what the bytes of databases are',
  details: `Shows what the bytes of databases are, whether the server runs or not:
  --json               a line of JSON for each, with counts, instead of a table
${DATA_HELP}`,
  options: { ...DATA, ...JSON_OUT },
  read([database = null, ...extra], { data, json = false }): SizeCommand {
    checkNone(extra)
    return { name: 'size', data, database, json }
  },
})
