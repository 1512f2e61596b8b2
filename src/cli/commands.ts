/** The table of all commands: their grammars, and the functions that run them. */
import { parseArgs } from 'node:util'
import { setteeVersion } from '../config/version.ts'
import {
  ACCOUNT_ADD,
  ACCOUNT_DELETE,
  ACCOUNT_LIST,
  type AccountCommand,
  PASSWD,
} from './account-arguments.ts'
import {
  ADOPT,
  BACKUP,
  CHECK,
  EXPORT,
  type ExportAllCommand,
  IMPORT,
  RESTORE,
  type RestoreCommand,
  SIZE,
  type TransferCommand,
} from './backup-arguments.ts'
import { DOCTOR } from './doctor-arguments.ts'
import {
  checkOptions,
  detailsOf,
  type Grammar,
  type Options,
  overview,
  UsageError,
  type Values,
} from './grammar.ts'
import { MOVE } from './move-arguments.ts'
import { POSTGRES_CHECK, POSTGRES_DISTRIBUTE, type PostgresCommand } from './postgres-arguments.ts'
import { SERVE } from './serve-arguments.ts'
import { FOLLOW, PROMOTE, type StandbyCommand } from './standby-arguments.ts'
import { HISTORY, REWIND, type TimeMachineCommand } from './time-machine-arguments.ts'
import { SETUP, VAULT_ADD } from './vault-arguments.ts'

/** A parsed command line. */
export interface ParsedCommand {
  readonly command: object
  /** @returns the exit code; undefined: the command has set it */
  run(env: NodeJS.ProcessEnv): Promise<number | undefined>
}

interface Entry {
  readonly grammar: Grammar
  /** @throws UsageError */
  parse(words: readonly string[], values: object): ParsedCommand
}

/** @param run imports its own module, so that no command loads the modules of another */
function entry<Command extends object, O extends Options>(
  grammar: Grammar<Command, O>,
  run: (command: Command, env: NodeJS.ProcessEnv) => Promise<number | undefined>,
): Entry {
  return {
    grammar,
    parse(words, values) {
      checkOptions(values, grammar)
      const command = grammar.read(words, values as Values<O>)
      return { command, run: (env) => run(command, env) }
    },
  }
}

const account = async (command: AccountCommand, env: NodeJS.ProcessEnv) =>
  (await import('./account-command.ts')).runAccountCommand(command, env)
const postgres = async (command: PostgresCommand, env: NodeJS.ProcessEnv) =>
  (await import('./postgres-command.ts')).runPostgresCommand(command, env)
const restore = async (command: RestoreCommand, env: NodeJS.ProcessEnv) =>
  (await import('./backup-commands.ts')).runRestoreCommand(command, env)
const standby = async (command: StandbyCommand, env: NodeJS.ProcessEnv) =>
  (await import('./standby-command.ts')).runStandbyCommand(command, env)
const timeMachine = async (command: TimeMachineCommand, env: NodeJS.ProcessEnv) =>
  (await import('./time-machine-command.ts')).runTimeMachineCommand(command, env)
const transfer = async (command: TransferCommand | ExportAllCommand, env: NodeJS.ProcessEnv) =>
  command.name === 'export all'
    ? (await import('./export-all-command.ts')).runExportAllCommand(command, env)
    : (await import('./transfer-command.ts')).runTransferCommand(command, env)

const ENTRIES: readonly Entry[] = [
  entry(SERVE, async (command, env) => (await import('./serve-command.ts')).runServeCommand(command, env)),
  entry(SETUP, async (command, env) => (await import('./setup-command.ts')).runSetupCommand(command, env)),
  entry(VAULT_ADD, async (command, env) =>
    (await import('./vault-command.ts')).runVaultCommand(command, env),
  ),
  entry(DOCTOR, async (command) => (await import('./doctor-command.ts')).runDoctorCommand(command)),
  entry(FOLLOW, standby),
  entry(PROMOTE, standby),
  entry(PASSWD, account),
  entry(ACCOUNT_ADD, account),
  entry(ACCOUNT_LIST, account),
  entry(ACCOUNT_DELETE, account),
  entry(BACKUP, async (command, env) =>
    (await import('./backup-commands.ts')).runBackupCommand(command, env),
  ),
  entry(RESTORE, restore),
  entry(ADOPT, restore),
  entry(HISTORY, timeMachine),
  entry(REWIND, timeMachine),
  entry(EXPORT, transfer),
  entry(IMPORT, transfer),
  entry(MOVE, async (command, env) => (await import('./move-command.ts')).runMoveCommand(command, env)),
  entry(POSTGRES_CHECK, postgres),
  entry(POSTGRES_DISTRIBUTE, postgres),
  entry(CHECK, async (command, env) => (await import('./check-command.ts')).runCheckCommand(command, env)),
  entry(SIZE, async (command, env) =>
    command.name === 'free'
      ? (await import('./free-command.ts')).runFreeCommand(command, env)
      : (await import('./size-command.ts')).runSizeCommand(command, env),
  ),
]

/** The grammars of all commands, in the order of the help. */
export const GRAMMARS: readonly Grammar[] = ENTRIES.map(({ grammar }) => grammar)

/** The options of all commands. A later check refuses those that the command does not have. */
const OPTIONS = {
  ...(Object.assign({}, ...GRAMMARS.map(({ options }) => options)) as Options),
  help: { type: 'boolean', short: 'h' },
  version: { type: 'boolean', short: 'v' },
} satisfies Options

/**
 * Parses the command line.
 * @param args without the paths of Node and of the script
 * @throws UsageError
 */
export function parseCommand(args: readonly string[]): ParsedCommand {
  const { values, positionals } = parse(args)
  const { help, version, ...given } = values
  const [first, ...words] = positionals
  if (help) return printCommand('help', helpOf(positionals))
  if (version) return printCommand('version', `settee ${setteeVersion()}\n`)
  if (first === 'help') return printCommand('help', helpOf(words))
  const { entry, rest } = find(positionals)
  return entry.parse(rest, given)
}

/** @throws UsageError for an unknown command */
function find(words: readonly string[]): { readonly entry: Entry; readonly rest: readonly string[] } {
  const [first = 'serve', second = ''] = words
  for (const [name, length] of [
    [`${first} ${second}`, 2],
    [first, 1],
  ] as const) {
    const entry = ENTRIES.find(({ grammar }) => grammar.name === name)
    if (entry !== undefined) return { entry, rest: words.slice(length) }
  }
  const seconds = grammarsOf(first).map(({ name }) => name.slice(first.length + 1))
  if (seconds.length === 0) throw new UsageError(`Unknown command "${first}".`)
  throw new UsageError(`settee ${first} needs a subcommand: ${oneOf(seconds)}.`)
}

/** @returns the grammars of one command, or of all commands that begin with these words */
function grammarsOf(words: string): Grammar[] {
  return GRAMMARS.filter(({ name }) => name === words || name.startsWith(`${words} `))
}

function oneOf(words: readonly string[]): string {
  return words.length < 2 ? words.join() : `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`
}

/** @throws UsageError for an unknown command */
function helpOf([first, second]: readonly string[]): string {
  if (first === undefined) return overview(GRAMMARS)
  const exact = second === undefined ? [] : grammarsOf(`${first} ${second}`)
  const grammars = exact.length > 0 ? exact : grammarsOf(first)
  if (grammars.length === 0) throw new UsageError(`Unknown command "${first}".`)
  return detailsOf(grammars)
}

function printCommand(name: 'help' | 'version', text: string): ParsedCommand {
  return {
    command: { name, text },
    run: async () => {
      process.stdout.write(text)
      return 0
    },
  }
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true })
  } catch (error) {
    // The first sentence of Node's message is enough.
    throw new UsageError((error as Error).message.split(/\n|(?<=['"])\. /)[0]!.replace(/\.?$/, '.'))
  }
}
