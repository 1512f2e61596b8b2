/** The grammar of `settee move`. */
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT, UsageError, type Values } from './grammar.ts'

export interface MoveCommand {
  readonly name: 'move'
  readonly data: string | undefined
  /** The address of the old server, or a folder of couchbackup files. */
  readonly from: string
  readonly dryRun: boolean
  /** null: all databases. */
  readonly databases: readonly string[] | null
  readonly merge: boolean
  readonly keepUuid: boolean
  /** Whether the password of the old server is read from standard input. */
  readonly stdin: boolean
  readonly json: boolean
}

const OPTIONS = {
  ...DATA,
  ...JSON_OUT,
  'dry-run': { type: 'boolean' },
  db: { type: 'string', multiple: true },
  merge: { type: 'boolean' },
  'keep-uuid': { type: 'boolean' },
  stdin: { type: 'boolean' },
} as const

export const MOVE = grammar({
  name: 'move',
  usage: `<address> [--dry-run] [--db <name>]... [--merge] [--keep-uuid] [--stdin]
[--json] [--data <folder>]
<folder> [--dry-run] [--db <name>]... [--merge] [--data <folder>]`,
  about: 'move everything from CouchDB in',
  details: `Copies the databases, accounts, admins and settings of another server, such as CouchDB. Devices go on
where they were. The old server is only read. Works whether or not the server is running. Repeat it
after an interruption, or to fetch what is new. <address> is http://admin:password@host:5984; without
the password it is asked for, or taken from SETTEE_MOVE_PASSWORD. <folder> has files that couchbackup
wrote, NAME.backup or NAME.backup.gz. The exit code is 0 when everything is here:
  --dry-run            show what would come along, and what cannot
  --db <name>          move only this database (may be repeated)
  --merge              add to databases that exist here already
  --keep-uuid          keep this server's uuid: devices then compare the ids of all documents once
  --stdin              read the password of the old server from standard input
  --json               print the result as JSON
${DATA_HELP}`,
  options: OPTIONS,
  read: moveCommand,
})

/** @throws UsageError, which never contains the address: it may hold a password */
function moveCommand([from, ...rest]: readonly string[], values: Values<typeof OPTIONS>): MoveCommand {
  if (from === undefined || from.trim() === '') {
    throw new UsageError('settee move needs the address of the old server, or a folder of couchbackup files.')
  }
  checkNone(rest)
  const { data, db: databases = null, merge = false, stdin = false, json = false } = values
  const { 'dry-run': dryRun = false, 'keep-uuid': keepUuid = false } = values
  if (!isAddress(from) && (keepUuid || stdin || json)) {
    throw new UsageError('--keep-uuid, --stdin and --json need the address of a server.')
  }
  return { name: 'move', data, from, dryRun, databases, merge, keepUuid, stdin, json }
}

export function isAddress(from: string): boolean {
  return /^https?:\/\//i.test(from)
}
