/** The grammar of `settee setup` and `settee vault`. */
import { checkNames } from '../config/values.ts'
import { APPS, type App, hostFault, type VaultWish, vaultFault } from '../vaults/vault-plan.ts'
import { DATA, DATA_HELP, grammar, JSON_OUT, UsageError, type Values } from './grammar.ts'

interface Shared extends Pick<VaultWish, 'host' | 'account' | 'device' | 'mobileFilter'> {
  /** The folder given with --data. */
  readonly data: string | undefined
  readonly passphraseFile: string | undefined
  readonly json: boolean
  /** Whether to print a QR code even if the output is not a terminal. */
  readonly qr: boolean
}

export interface VaultCommand extends Shared, VaultWish {
  readonly name: 'vault add'
  /** Whether to read the account's password from standard input, and use it instead of a token. */
  readonly stdin: boolean
}

/** The command asks for members that are undefined. */
export interface SetupCommand extends Shared {
  readonly name: 'setup'
  readonly admin: string | undefined
  /** Whether to read the admin's password from standard input. */
  readonly stdin: boolean
  /** null: create none. */
  readonly vault: string | null | undefined
  readonly app: App | undefined
}

const SHARED = {
  ...DATA,
  ...JSON_OUT,
  for: { type: 'string' },
  host: { type: 'string' },
  account: { type: 'string' },
  device: { type: 'string' },
  stdin: { type: 'boolean' },
  'passphrase-file': { type: 'string' },
  'mobile-filter': { type: 'boolean' },
  qr: { type: 'boolean' },
} as const
const VAULT_OPTIONS = { ...SHARED, renew: { type: 'boolean' } } as const
const SETUP_OPTIONS = {
  ...SHARED,
  admin: { type: 'string' },
  vault: { type: 'string' },
  'no-vault': { type: 'boolean' },
} as const

const SHARED_HELP = `  --for <app>          inkdrop (and similar apps), livesync (Obsidian) or pouchdb (your own app)
  --host <address>     how devices reach the server, such as https://notes.example.com:443 (default:
                       its own address, with TLS under a name of its certificate)
  --device <name>      the device that gets the address, and a token of its own (default: the app's
                       name)
  --account <name>     the account (default: the vault's name)
  --mobile-filter      also create _design/mobile, with which phones leave out pictures
  --passphrase-file <file>
                       with livesync: the passphrase of a vault that other devices use already; for a
                       new vault one is generated and printed
  --qr                 print a QR code even if the output is not a terminal
  --json               print the result as JSON
${DATA_HELP}`

export const SETUP = grammar({
  name: 'setup',
  usage: `[--admin <name>] [--stdin] [--vault <name> --for <app> | --no-vault]
[--host <address>] [--json] [--data <folder>]`,
  about: 'create a server admin and the first vault; start here',
  details: `Creates a server admin and the first vault. Asks for what no option gives, and skips what is done
already. Works whether or not the server is running:
  --admin <name>       name of the server admin
  --stdin              read the admin's password from standard input
  --vault <name>       name of the first vault; --no-vault creates none
${SHARED_HELP}`,
  options: SETUP_OPTIONS,
  read: setupCommand,
})

export const VAULT_ADD = grammar({
  name: 'vault add',
  usage: `<name> --for inkdrop|livesync|pouchdb [--host <address>]
[--device <name>] [--mobile-filter] [--json] [--data <folder>]`,
  about: 'create a database for a note app, and print its address',
  details: `Creates a database for a note app and an account that can use only this database, and prints the
address for the app. Skips what is done already. Works whether or not the server is running:
${SHARED_HELP}  --renew              replace the device's token with a new one
  --stdin              read the account's password from standard input, and use it instead of a token
`,
  options: VAULT_OPTIONS,
  read: vaultCommand,
})

/** @throws UsageError */
export function vaultCommand(
  [vault, extra]: readonly string[],
  values: Values<typeof VAULT_OPTIONS>,
): VaultCommand {
  if (vault === undefined) throw new UsageError('settee vault add needs the name of the vault.')
  // An extra word is not printed, because it may be a password.
  if (extra !== undefined) throw new UsageError('settee vault add takes one name and nothing else.')
  const app = appOf(values.for)
  if (app === undefined) throw new UsageError(`settee vault add needs --for ${APPS.join('|')}.`)
  const { stdin = false, renew = false } = values
  refuse(passphraseFault(app, values))
  if (stdin && (values.device !== undefined || renew)) {
    throw new UsageError('--stdin uses no token, so it cannot be combined with --device or --renew.')
  }
  refuse(vaultFault(vault, app))
  return { name: 'vault add', ...sharedOf(values), vault, app, stdin, renew }
}

/** Options that contradict --no-vault. */
const VAULT_ONLY_OPTIONS = [
  'vault',
  'for',
  'host',
  'account',
  'device',
  'passphrase-file',
  'mobile-filter',
] as const

/** @throws UsageError */
export function setupCommand([extra]: readonly string[], values: Values<typeof SETUP_OPTIONS>): SetupCommand {
  if (extra !== undefined) throw new UsageError('settee setup takes only options.')
  const { admin, stdin = false, vault } = values
  const idle = values['no-vault'] ? VAULT_ONLY_OPTIONS.find((name) => values[name] !== undefined) : undefined
  if (idle !== undefined) throw new UsageError(`--${idle} cannot be combined with --no-vault.`)
  const app = appOf(values.for)
  refuse(passphraseFault(app, values))
  if (vault !== undefined) refuse(vaultFault(vault, app))
  if (admin !== undefined) refuse(adminFault(admin))
  const none = values['no-vault'] ? null : undefined
  return { name: 'setup', ...sharedOf(values), admin, stdin, vault: vault ?? none, app }
}

function passphraseFault(app: App | undefined, values: Values<typeof SHARED>): string | undefined {
  if (app === undefined || app === 'livesync' || values['passphrase-file'] === undefined) return undefined
  return '--passphrase-file needs --for livesync.'
}

function sharedOf(values: Values<typeof SHARED>): Shared {
  const { data, host, account, device, json = false, qr = false } = values
  if (host !== undefined) refuse(hostFault(host))
  if (account?.includes(':')) throw new UsageError('An account name must not contain a colon.')
  if (json && qr) throw new UsageError('--json cannot be combined with --qr.')
  const mobileFilter = values['mobile-filter'] ?? false
  return { data, host, account, device, passphraseFile: values['passphrase-file'], mobileFilter, json, qr }
}

function appOf(text: string | undefined): App | undefined {
  if (text === undefined) return undefined
  const app = APPS.find((app) => app === text.toLowerCase())
  if (app === undefined) throw new UsageError(`--for must be one of: ${APPS.join(', ')}.`)
  return app
}

/** @returns the fault of a server admin's name, as a sentence; undefined: none */
export function adminFault(name: string): string | undefined {
  if (name.trim() === '') return 'An admin name must not be empty.'
  if (name.includes(':')) return 'An admin name must not contain a colon.'
  try {
    checkNames('admins', name)
    return undefined
  } catch {
    return 'An admin name is a key in local.ini: it must not contain [ ] = or control characters, start with ; or #, or start or end with a space.'
  }
}

function refuse(fault: string | undefined): void {
  if (fault !== undefined) throw new UsageError(fault)
}
