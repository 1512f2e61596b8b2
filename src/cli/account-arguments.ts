/** The grammar of `settee passwd` and `settee account`. */
import { checkNone, DATA, DATA_HELP, grammar, UsageError } from './grammar.ts'

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

const STDIN = { stdin: { type: 'boolean' } } as const
const STDIN_HELP = `  --stdin              read the password from standard input instead of asking for it
`

export const PASSWD = grammar({
  name: 'passwd',
  usage: '<name> [--create] [--stdin] [--data <folder>]',
  about: 'set the password of a server admin or an account',
  details: `Sets a password, and asks for it twice. Works whether or not the server is running:
  --create             create a server admin if no admin or account has this name
${STDIN_HELP}${DATA_HELP}`,
  options: { ...DATA, ...STDIN, create: { type: 'boolean' } },
  read(words, { data, stdin = false, create = false }): AccountCommand {
    return { name: 'passwd', data, account: accountOf(words, 'passwd'), stdin, create }
  },
})

export const ACCOUNT_ADD = grammar({
  name: 'account add',
  usage: '<name> [--role <role>]... [--stdin] [--data <folder>]',
  about: 'create an account',
  details: `Creates an account in _users, and asks for its password twice. Works whether or not the server is
running:
  --role <role>        a role of the new account (may be repeated)
${STDIN_HELP}${DATA_HELP}`,
  options: { ...DATA, ...STDIN, role: { type: 'string', multiple: true } },
  read(words, { data, stdin = false, role: roles = [] }): AccountCommand {
    return { name: 'account add', data, account: accountOf(words, 'account add'), stdin, roles }
  },
})

export const ACCOUNT_LIST = grammar({
  name: 'account list',
  usage: '[--data <folder>]',
  about: 'list admins and accounts',
  details: `Prints the name, kind (admin or account) and roles of each, separated by tabs. Works whether or not
the server is running:
${DATA_HELP}`,
  options: DATA,
  read(words, { data }): AccountCommand {
    checkNone(words)
    return { name: 'account list', data }
  },
})

export const ACCOUNT_DELETE = grammar({
  name: 'account delete',
  usage: '<name> [--data <folder>]',
  about: 'delete an account',
  details: `Deletes an account; its devices lose access at once. Works whether or not the server is running:
${DATA_HELP}`,
  options: DATA,
  read(words, { data }): AccountCommand {
    return { name: 'account delete', data, account: accountOf(words, 'account delete') }
  },
})

/** Does not print an extra word, because it may be a password. */
function accountOf([account, extra]: readonly string[], command: string): string {
  if (account === undefined || account.trim() === '') throw new UsageError(`settee ${command} needs a name.`)
  if (extra !== undefined) {
    throw new UsageError(`settee ${command} takes one name and nothing else; it asks for the password.`)
  }
  return account
}
