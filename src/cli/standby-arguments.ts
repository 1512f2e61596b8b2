/** The grammar of `settee follow` and `settee promote`. */
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT, UsageError, type Values } from './grammar.ts'

/** A command about a standby, on the folder given with --data. */
export type StandbyCommand = { readonly data: string | undefined; readonly json: boolean } & (
  | {
      readonly name: 'follow'
      /** The address of the primary; null: show the state, or follow again as before. */
      readonly primary: string | null
      readonly again: boolean
      /** Whether the password is read from standard input. */
      readonly stdin: boolean
    }
  | { readonly name: 'promote'; readonly yes: boolean }
)

const FOLLOW_OPTIONS = {
  ...DATA,
  ...JSON_OUT,
  again: { type: 'boolean' },
  stdin: { type: 'boolean' },
} as const
const PROMOTE_OPTIONS = { ...DATA, ...JSON_OUT, yes: { type: 'boolean' } } as const

export const FOLLOW = grammar({
  name: 'follow',
  usage: '[<address>] [--again] [--stdin] [--json] [--data <folder>]',
  about: 'make this server the standby of another settee',
  details: `Makes this server a standby: a copy of everything on another settee, its primary, which it follows until
it is promoted. Until then it accepts no changes. It must be empty. <address> is
http://admin:password@host:5984; without the password it is asked for, or taken from
SETTEE_FIRST_PASSWORD. Without an address, the command shows how far the standby is behind:
  --again              after the standby has stopped: follow again, and set the copies of databases
                       aside that the primary has restored or made anew
  --stdin              read the password from standard input
  --json               print JSON
${DATA_HELP}`,
  options: FOLLOW_OPTIONS,
  read: followCommand,
})

export const PROMOTE = grammar({
  name: 'promote',
  usage: '[--yes] [--json] [--data <folder>]',
  about: 'let this standby take the place of its primary',
  details: `Ends following: this server accepts changes, with the uuid of its primary, so that devices go on where
they were. Send the devices to it, and do not let the former primary answer them again:
  --yes                do not ask for confirmation
  --json               print JSON
${DATA_HELP}`,
  options: PROMOTE_OPTIONS,
  read: promoteCommand,
})

/** @throws UsageError, which never contains the address: it may hold a password */
function followCommand(
  [primary, ...rest]: readonly string[],
  { data, json = false, again = false, stdin = false }: Values<typeof FOLLOW_OPTIONS>,
): StandbyCommand {
  if (rest.length > 0) throw new UsageError('settee follow takes one address.')
  if (primary !== undefined && !/^https?:\/\/[^/]/i.test(primary)) {
    throw new UsageError('settee follow needs an address like http://admin:password@host:5984.')
  }
  if (primary === undefined && stdin) throw new UsageError('--stdin needs an address.')
  return { name: 'follow', data, json, primary: primary ?? null, again, stdin }
}

/** @throws UsageError */
function promoteCommand(
  words: readonly string[],
  { data, json = false, yes = false }: Values<typeof PROMOTE_OPTIONS>,
): StandbyCommand {
  checkNone(words)
  return { name: 'promote', data, json, yes }
}
