/** The grammar of a command: its arguments, its options and its help. */
import type { ParseArgsConfig, parseArgs } from 'node:util'

/** As in Node's `parseArgs`. An option has the same type in all commands. */
export type Options = NonNullable<ParseArgsConfig['options']>

/** The given values of options. */
export type Values<O extends Options> = ReturnType<
  typeof parseArgs<{ readonly args: string[]; readonly options: O; readonly allowPositionals: true }>
>['values']

export interface Grammar<Command extends object = object, O extends Options = Options> {
  /** One word, or two: `vault add`. */
  readonly name: string
  /** The words and options after the name, in one line or several. */
  readonly usage: string
  /** Its purpose, in a few words for the list of all commands. */
  readonly about: string
  /** The help below the usage: what it does, and its options. */
  readonly details: string
  readonly options: O
  /**
   * @param words the arguments after the command's name
   * @param values of the command's options, none of them empty
   * @throws UsageError
   */
  read(words: readonly string[], values: Values<O>): Command
}

/** @returns the same {@link Grammar}, with inferred types */
export function grammar<Command extends object, const O extends Options>(
  definition: Grammar<Command, O>,
): Grammar<Command, O> {
  return definition
}

export const DATA = { data: { type: 'string' } } as const
export const JSON_OUT = { json: { type: 'boolean' } } as const

export const DATA_HELP = `  --data <folder>      the server's data folder (default ./data)
`

/** @throws UsageError when a word is left over */
export function checkNone([extra]: readonly string[]): void {
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
}

/**
 * Refuses options of other commands.
 * @throws UsageError for an option that the command does not have, and for an option with an empty value
 */
export function checkOptions(values: object, { name: command, options }: Grammar): void {
  for (const [name, value] of Object.entries(values)) {
    if (!Object.hasOwn(options, name)) throw new UsageError(`settee ${command} has no option --${name}.`)
    const isEmpty = [value].flat().some((each) => typeof each === 'string' && each.trim() === '')
    // Ports have their own error message.
    if (isEmpty && !name.endsWith('port')) throw new UsageError(`--${name} needs a value.`)
  }
}

/** A mistake on the command line; the message is one line. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
}

/** Of the names of commands in the list. */
const NAME_WIDTH = 21

/** The help of settee: all commands, and the purpose of each. */
export function overview(grammars: readonly Grammar[]): string {
  const rows = grammars.map(({ name, about }) => `  ${name.padEnd(NAME_WIDTH)}${about}\n`)
  return `settee - a small CouchDB-compatible sync server

Usage: settee [<command>] [options]

${rows.join('')}
Run settee help <command> to see the options of a command.
  --help, -h        show this text
  --version, -v     show the version
`
}

/** The help of one command, or of the commands that share a first word. */
export function detailsOf(grammars: readonly Grammar[]): string {
  return grammars.map((grammar) => `${usageOf(grammar)}\n\n${grammar.details}`).join('\n')
}

/** A line that begins with `<` is another form of the command; other lines continue the previous line. */
function usageOf({ name, usage }: Grammar): string {
  const lines = usage.split('\n').map((line, at) => {
    if (at === 0) return `Usage: settee ${name} ${line}`
    return line.startsWith('<') ? `       settee ${name} ${line}` : `              ${line}`
  })
  return lines.join('\n')
}
