/** The grammar of one command: what may follow its name, and what it comes to. */
import type { ParseArgsConfig, parseArgs } from 'node:util'
import { UsageError } from './usage-error.ts'

/** As node's `parseArgs` has them. An option has one type, whichever commands understand it. */
export type Options = NonNullable<ParseArgsConfig['options']>

/** What was given of some options. */
export type Values<O extends Options> = ReturnType<
  typeof parseArgs<{ readonly args: string[]; readonly options: O; readonly allowPositionals: true }>
>['values']

export interface Grammar<Command extends object = object, O extends Options = Options> {
  /** One word, or two: `vault add`. */
  readonly name: string
  /** What may be behind the name, in a line or several. */
  readonly usage: string
  /** What it is for, in a few words of the list of all commands. */
  readonly about: string
  /** What it does and what its options are, below the usage. */
  readonly details: string
  readonly options: O
  /**
   * @param words those behind the command's name
   * @param values of the command's own options, none of them empty
   * @throws UsageError
   */
  read(words: readonly string[], values: Values<O>): Command
}

/** A {@link Grammar}, whose types are found in it. */
export function grammar<Command extends object, const O extends Options>(
  written: Grammar<Command, O>,
): Grammar<Command, O> {
  return written
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
 * What another command understands is a mistake here, and not passed over.
 * @throws UsageError for an option that the command does not have, and for one without its value
 */
export function checkOptions(values: object, { name: command, options }: Grammar): void {
  for (const [name, value] of Object.entries(values)) {
    if (!Object.hasOwn(options, name)) throw new UsageError(`settee ${command} has no option --${name}.`)
    const isEmpty = [value].flat().some((each) => typeof each === 'string' && each.trim() === '')
    // What is wrong with a port has a sentence of its own.
    if (isEmpty && !name.endsWith('port')) throw new UsageError(`--${name} needs a value.`)
  }
}
