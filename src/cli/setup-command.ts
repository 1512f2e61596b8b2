/** `settee setup`: creates a server admin and the first vault, and asks for missing answers on a terminal. */
import { prepareDataFolder } from '../config/data-folder.ts'
import type { ControlCommands } from '../control/control-commands.ts'
import { oneLine, shown } from '../core/errors.ts'
import { newPassphrase } from '../vaults/livesync-setup.ts'
import { makeVault, type VaultReport } from '../vaults/vault-answer.ts'
import type { VaultState } from '../vaults/vault-control.ts'
import {
  type App,
  hostFault,
  planVault,
  reachable,
  type VaultPlan,
  vaultFault,
  vaultOf,
} from '../vaults/vault-plan.ts'
import { dataFolder, withControl } from './operate.ts'
import { type Prompts, readPassword, terminalPrompts } from './prompts.ts'
import { adminFault, type SetupCommand, type VaultCommand } from './vault-arguments.ts'
import { columnsFor, passphrasesOf } from './vault-command.ts'
import { vaultJson, vaultText } from './vault-report.ts'

/** The admin and vault to create. */
interface Answers {
  /** null: there already is one. */
  readonly admin: NewAdmin | null
  /** null: none. */
  readonly vault: VaultCommand | null
}

interface NewAdmin {
  readonly name: string
  readonly password: string
  /** Whether the password was generated, and must be shown. */
  readonly isGenerated: boolean
}

interface SetupReport {
  /** The existing admins. */
  readonly existing: readonly string[]
  readonly admin: NewAdmin | null
  readonly vault: VaultReport | null
  /** Why the vault could not be created, after the admin was. */
  readonly fault: Error | null
  /** The data folder, if no server is running on it; null: a server is running. */
  readonly stoppedFolder: string | null
  /** Whether a password was given for an existing admin. */
  readonly isPasswordUnused: boolean
}

/** Access to the server and to the user. */
interface SetupAccess {
  operate<T>(use: (controls: ControlCommands) => Promise<T>): Promise<T>
  /** null: not interactive. */
  readonly prompts: Prompts | null
  /** The password from standard input; null: none. */
  readonly password: string | null
}

/** @returns the exit code: 1 after a failure, which one line on standard error explains */
export async function runSetupCommand(command: SetupCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    const dataDir = dataFolder(command.data, env)
    await prepareDataFolder(dataDir)
    const password = command.stdin ? await readPassword(process.stdin) : null
    const report = await setUp(command, {
      operate: (use) => withControl(dataDir, env, use),
      prompts: password === null ? await terminalPrompts() : null,
      password,
    })
    process.stdout.write(command.json ? setupJson(report) : setupText(report, columnsFor(command)))
    if (report.fault !== null) throw report.fault
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

/**
 * Asks for everything that the command line does not give, before it creates anything.
 * @throws Error with a one-line message: cancelled; a missing answer without a terminal; an error of a step
 */
export async function setUp(command: SetupCommand, access: SetupAccess): Promise<SetupReport> {
  const state = await access.operate((controls) => readState(controls, command))
  const answers = await collectAnswers(command, access, state)
  const plan = answers.vault === null ? null : await planOf(answers.vault, access)
  return access.operate(async (controls) => {
    const admin = await makeAdmin(controls, answers.admin, state.admins.length === 0)
    const made = await tryMakeVault(plan, controls)
    // A new password can be shown only once, so the report must not be lost.
    if (made.fault !== null && admin === null) throw made.fault
    const isPasswordUnused = access.password !== null && admin === null
    return {
      existing: state.admins,
      admin,
      ...made,
      stoppedFolder: state.listening === null ? state.folder : null,
      isPasswordUnused,
    }
  })
}

async function planOf(command: VaultCommand, { operate, prompts }: SetupAccess): Promise<VaultPlan> {
  const state = await operate((controls) => controls.readVault(vaultOf(command)))
  return planVault(command, null, state, passphrasesOf(command, prompts, null))
}

async function tryMakeVault(
  plan: VaultPlan | null,
  controls: ControlCommands,
): Promise<Pick<SetupReport, 'vault' | 'fault'>> {
  try {
    return { vault: plan === null ? null : await makeVault(plan, controls), fault: null }
  } catch (error) {
    return { vault: null, fault: error as Error }
  }
}

function readState(
  controls: ControlCommands,
  { admin = '', vault }: Pick<SetupCommand, 'admin' | 'vault'>,
): Promise<VaultState> {
  return controls.readVault({ database: vault ?? '', account: admin })
}

async function collectAnswers(
  command: SetupCommand,
  access: SetupAccess,
  state: VaultState,
): Promise<Answers> {
  const admin = await adminOf(command, access, state)
  const vault = await vaultNameOf(command, access.prompts)
  if (vault === null) return { admin, vault: null }
  const app = command.app ?? (await appOf(access.prompts))
  const fault = vaultFault(vault, app)
  if (fault !== undefined) throw new Error(`${fault} Nothing has changed.`)
  const mobileFilter =
    command.mobileFilter || (app === 'inkdrop' && !state.isHosted && (await wantsFilter(access.prompts)))
  const host = command.host ?? (await hostOf(access.prompts, state.url))
  const { data, account, device, passphraseFile, json, qr } = command
  const shared = { data, account, device, passphraseFile, json, qr, host, mobileFilter }
  return { admin, vault: { ...shared, name: 'vault add', vault, app, stdin: false, renew: false } }
}

async function adminOf(
  { admin: given }: SetupCommand,
  { prompts, password }: SetupAccess,
  { admins, hasAccount }: VaultState,
): Promise<NewAdmin | null> {
  if (given === undefined ? admins.length > 0 : admins.includes(given)) return null
  const name =
    given ??
    (await requirePrompts(prompts, '--admin').text('Name of the server admin', {
      initial: 'admin',
      check: adminFault,
    }))
  if (hasAccount) throw new Error(`${name} is an account and not a server admin: choose another --admin.`)
  if (password !== null) return { name, password, isGenerated: false }
  const typed = await requirePrompts(prompts, '--stdin').password('Password (leave empty to generate one)')
  if (typed.trim() === '') return { name, password: newPassphrase(), isGenerated: true }
  const again = await requirePrompts(prompts, '--stdin').password('Repeat the password', (second) =>
    second === typed ? undefined : 'The passwords do not match.',
  )
  return { name, password: again, isGenerated: false }
}

async function vaultNameOf({ vault, app }: SetupCommand, prompts: Prompts | null): Promise<string | null> {
  if (vault !== undefined) return vault
  const question = 'Name of the first vault, a database for your notes (- for none)'
  const check = (name: string) => (name === '-' ? undefined : vaultFault(name, app))
  const name = await requirePrompts(prompts, '--vault or --no-vault').text(question, {
    initial: 'notes',
    check,
  })
  return name === '-' ? null : name
}

function appOf(prompts: Prompts | null): Promise<App> {
  return requirePrompts(prompts, '--for').choose('Which app is it for?', [
    { value: 'inkdrop', label: 'Inkdrop or a similar app' },
    { value: 'livesync', label: 'Obsidian, with Self-hosted LiveSync' },
    { value: 'pouchdb', label: 'your own app, with PouchDB' },
  ])
}

/** Without a terminal, only the option --mobile-filter counts. */
async function wantsFilter(prompts: Prompts | null): Promise<boolean> {
  return prompts?.confirm('Let phones leave out pictures? (_design/mobile)') ?? false
}

/** Without a terminal, the server's own address is used, as with `vault add`. */
async function hostOf(prompts: Prompts | null, url: string): Promise<string | undefined> {
  if (prompts === null) return undefined
  const question = 'How do devices reach this server? (for example https://notes.example.com:443)'
  return prompts.text(question, { initial: reachable(url), check: hostFault })
}

function requirePrompts(prompts: Prompts | null, flag: string): Prompts {
  if (prompts !== null) return prompts
  throw new Error(`Cannot ask, because this is not a terminal: add ${flag}. Nothing has changed.`)
}

/**
 * Creates the admin. Checks again, because another user may have created it after the question.
 * @param isFirst whether there was no admin: while a server is open, a stranger may have become the first one
 */
async function makeAdmin(
  controls: ControlCommands,
  admin: NewAdmin | null,
  isFirst: boolean,
): Promise<NewAdmin | null> {
  if (admin === null) return null
  const { name, password } = admin
  const { admins, hasAccount } = await readState(controls, { admin: name, vault: undefined })
  if (admins.includes(name)) return null
  if (hasAccount) throw new Error(`${name} is an account and not a server admin: choose another --admin.`)
  await controls.setPassword({ name, password, create: true, isFirst })
  return admin
}

const UNUSED =
  'The given password was not used, because the server admin exists already. To change it: settee passwd'

function setupJson({ existing, admin, vault, stoppedFolder, isPasswordUnused }: SetupReport): string {
  return `${JSON.stringify({
    admin:
      admin === null ? null : { name: admin.name, ...(admin.isGenerated && { password: admin.password }) },
    admins_before: existing,
    running: stoppedFolder === null,
    vault: vault === null ? null : JSON.parse(vaultJson(vault)),
    notes: isPasswordUnused ? [UNUSED] : [],
  })}\n`
}

function setupText(report: SetupReport, columns: number): string {
  const { existing, admin, vault, fault, stoppedFolder } = report
  const lines: string[] = []
  if (admin === null) lines.push(`Existing server admins: ${existing.map(shown).join(', ')}.`)
  else lines.push(`${shown(admin.name)} is now a server admin.`)
  if (admin?.isGenerated) lines.push(`Its password, shown only this once: ${admin.password}`)
  if (report.isPasswordUnused) lines.push(UNUSED)
  if (vault !== null) lines.push('', vaultText(vault, { columns }))
  else if (fault === null) {
    if (stoppedFolder !== null)
      lines.push(`No server is running on ${shown(stoppedFolder)}. To start it: settee serve`)
    lines.push('Next: settee vault add NAME --for APP')
  }
  return lines.join('\n').replace(/\n*$/, '\n')
}
