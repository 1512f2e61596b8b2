/** Names of fields in selectors and lists of fields: `a.b`, `a.0`, `a\.b`; protocol.md 10.2. Pure. */
import { CouchError } from '../core/errors.ts'

/** No such member on the way. */
export const ABSENT = Symbol('absent')
/** A step that leads into what is no object, or out of an array: for selectors this is not the same. */
export const NO_WAY = Symbol('no way')

const UNESCAPED_DOT = /(?<!\\)\./

/**
 * The steps of a field's name.
 * @throws invalid_selector when one of them is empty
 */
export function parseFieldPath(field: string): readonly string[] {
  const steps = field.includes('\\')
    ? field.split(UNESCAPED_DOT).map((step) => step.replaceAll('\\', ''))
    : field.split('.')
  if (steps.includes(''))
    throw new CouchError('invalid_selector', `Invalid field name: ${field.slice(0, 200)}`)
  return steps
}

/** The value that a path leads to, or {@link ABSENT} or {@link NO_WAY}. A number is a place in an array, from 0. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const step of path) {
    if (typeof found !== 'object' || found === null) return NO_WAY
    if (Array.isArray(found)) {
      if (!/^\d+$/.test(step) || Number(step) >= found.length) return NO_WAY
      found = found[Number(step)]
    } else {
      if (!Object.hasOwn(found, step)) return ABSENT
      found = (found as Record<string, unknown>)[step]
    }
  }
  return found
}
