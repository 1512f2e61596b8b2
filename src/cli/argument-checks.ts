/** What every command looks for on its line. */
import { UsageError } from './usage-error.ts'

/** @throws UsageError when a word is left over */
export function checkNone([extra]: readonly string[]): void {
  if (extra !== undefined) throw new UsageError(`Unexpected argument "${extra}".`)
}

/**
 * What another command understands is a mistake here, and not passed over.
 * @throws UsageError for an option that the command does not have, and for one without its value
 */
export function checkOptions(values: object, command: string, known: readonly string[]): void {
  for (const [name, value] of Object.entries(values)) {
    if (!known.includes(name)) throw new UsageError(`settee ${command} has no option --${name}.`)
    const isEmpty = [value].flat().some((each) => typeof each === 'string' && each.trim() === '')
    // What is wrong with a port has a sentence of its own.
    if (isEmpty && !name.endsWith('port')) {
      throw new UsageError(`--${name} needs a value.`)
    }
  }
}
