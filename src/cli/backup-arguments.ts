/** The grammar of `settee backup`. */
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT } from './grammar.ts'

/** Verified copies, on the folder given with --data. */
export interface BackupCommand {
  readonly name: 'backup'
  readonly data: string | undefined
  /** Where to make it; undefined: where the server keeps its backups. */
  readonly to: string | undefined
  /** Empty: all databases. */
  readonly databases: readonly string[]
  readonly json: boolean
}

export const BACKUP = grammar({
  name: 'backup',
  usage: '[--to <folder>] [--db <name>]... [--json] [--data <folder>]',
  about: 'make a verified copy of everything',
  details: `Copies the databases and what else belongs to the server, whether it runs or not, and verifies each
copy; exit code 0 when all of it is in the backup:
  --to <folder>        the folder that keeps backups (default: settee/backup_folder, or backups in
                       the data folder)
  --db <name>          this database alone; may be given several times
  --json               print what was made as JSON
${DATA_HELP}`,
  options: { ...DATA, ...JSON_OUT, to: { type: 'string' }, db: { type: 'string', multiple: true } },
  read(words, { data, to, db: databases = [], json = false }): BackupCommand {
    checkNone(words)
    return { name: 'backup', data, to, databases, json }
  },
})
