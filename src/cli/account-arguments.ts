/** The grammar of `settee passwd` and `settee account`. */
import { checkNone, checkOptions } from './argument-checks.ts'
import { UsageError } from './usage-error.ts'

/** A command about accounts, on the folder given with --data. */
export type AccountCommand = { readonly data: string | undefined } & (
  | { readonly name: 'passwd'; readonly account: string; readonly stdin: boolean; readonly create: boolean }
  | {
      readonly name: 'account add'
      readonly account: string
      readonly stdin: boolean
      readonly roles: readonly string[]
    }
  | { readonly name: 'account list' }
  | { readonly name: 'account delete'; readonly account: string }
)

/** What of the command line is read here. */
export interface AccountValues {
  readonly data?: string | undefined
  readonly stdin?: boolean | undefined
  readonly create?: boolean | undefined
  readonly role?: readonly string[] | undefined
}

/** @throws UsageError */
export function accountCommand(
  [command = '', ...rest]: readonly string[],
  values: AccountValues,
): AccountCommand {
  const name = command === 'passwd' ? command : `${command} ${rest.shift() ?? ''}`.trim()
  const { data, stdin = false, create = false, role: roles = [] } = values
  switch (name) {
    case 'passwd':
      checkOptions(values, name, ['data', 'stdin', 'create'])
      return { name, data, account: accountOf(rest, name), stdin, create }
    case 'account add':
      checkOptions(values, name, ['data', 'stdin', 'role'])
      return { name, data, account: accountOf(rest, name), stdin, roles }
    case 'account list':
      checkOptions(values, name, ['data'])
      checkNone(rest)
      return { name, data }
    case 'account delete':
      checkOptions(values, name, ['data'])
      return { name, data, account: accountOf(rest, name) }
    default:
      throw new UsageError('settee account needs add, list or delete.')
  }
}

/** A word too many may be a password: it is not repeated where others can read it. */
function accountOf([account, extra]: readonly string[], command: string): string {
  if (account === undefined || account.trim() === '') throw new UsageError(`settee ${command} needs a name.`)
  if (extra !== undefined) {
    throw new UsageError(`settee ${command} takes one name and no other word; a password is asked for.`)
  }
  return account
}
