/** `settee passwd` and `settee account`, for users who can open the data folder. */
import type { AccountRow, Operator, PasswordOutcome } from '../auth/operator.ts'
import { CouchError, oneLine, shown } from '../core/errors.ts'
import type { AccountCommand } from './account-arguments.ts'
import { dataFolder, withControl } from './operate.ts'
import { askNewPassword, confirmOrStop, type Prompts, readPassword, terminalPrompts } from './prompts.ts'

type Named<Name> = Extract<AccountCommand, { readonly name: Name }>

/** @returns the exit code: 1 after a failure, which one line on standard error explains */
export async function runAccountCommand(command: AccountCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const dataDir = dataFolder(command.data, env)
  const operate: Operate = (use) => withControl(dataDir, env, use)
  try {
    await run(command, operate)
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

type Operate = <T>(use: (operator: Operator) => Promise<T>) => Promise<T>

async function run(command: AccountCommand, operate: Operate): Promise<void> {
  switch (command.name) {
    case 'passwd':
      return passwd(command, operate)
    case 'account add':
      return add(command, operate)
    case 'account list':
      return operate(list)
    case 'account delete':
      return remove(command.account, operate)
  }
}

async function passwd({ account, stdin, create }: Named<'passwd'>, operate: Operate): Promise<void> {
  const prompts = stdin ? null : await passwordPrompts()
  const password =
    prompts === null ? await readPassword(process.stdin) : await askNewPassword(prompts, account)
  const set = (mayCreate: boolean) =>
    operate((operator) => operator.setPassword({ name: account, password, create: mayCreate }))
  const outcome = await set(create).catch(async (error: unknown) => {
    if (!isNotFound(error)) throw error
    if (prompts === null)
      throw new Error(`${(error as Error).message} To create a server admin, add --create.`)
    const question = `No account or server admin is named ${shown(account)}. Create a server admin?`
    await confirmOrStop(prompts, question)
    return set(true)
  })
  print(passwordLine(account, outcome), outcome.warning)
}

function passwordLine(account: string, { kind, isNew }: PasswordOutcome): string {
  if (isNew) return `${account} is now a server admin.`
  return `Changed the password of the ${kind === 'admin' ? 'server admin' : 'account'} ${account}.`
}

async function add({ account, stdin, roles }: Named<'account add'>, operate: Operate): Promise<void> {
  const password = stdin
    ? await readPassword(process.stdin)
    : await askNewPassword(await passwordPrompts(), account)
  await operate((operator) => operator.addAccount({ name: account, password, roles }))
  print(`Created the account ${account}.`, null)
}

async function list(operator: Operator): Promise<void> {
  let after: string | null = null
  do {
    const { rows, next } = await operator.listAccounts({ after })
    for (const row of rows) process.stdout.write(rowLine(row))
    after = next
  } while (after !== null)
}

function rowLine({ name, kind, roles }: AccountRow): string {
  return `${[name, kind, roles.join(',')].map(shown).join('\t')}\n`
}

async function remove(account: string, operate: Operate): Promise<void> {
  const { deleted, warning } = await operate((operator) => operator.deleteAccount({ name: account }))
  const what = deleted.map((kind) => (kind === 'admin' ? 'server admin' : 'account')).join(' and the ')
  print(`Deleted the ${what} ${account}.`, warning)
}

/** @throws Error if standard input is not a terminal */
async function passwordPrompts(): Promise<Prompts> {
  const prompts = await terminalPrompts()
  if (prompts !== null) return prompts
  throw new Error('A password can be typed on a terminal only; to pass it on standard input, add --stdin.')
}

function isNotFound(error: unknown): boolean {
  return error instanceof CouchError && error.code === 'not_found'
}

function print(line: string, warning: string | null): void {
  process.stdout.write(`${oneLine(line)}\n`)
  if (warning !== null) console.error(`settee: ${oneLine(warning)}`)
}
