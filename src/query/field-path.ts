/** Names of fields in selectors and lists of fields: `a.b`, `a.0`, `a\.b`; protocol.md 10.2. Pure. */
import { CouchError } from '../core/errors.ts'

/** No such member on the way. */
export const ABSENT = Symbol('absent')
/** A step that leads into what is no object, or out of an array: for selectors this is not the same. */
export const NO_WAY = Symbol('no way')

const UNESCAPED_DOT = /(?<!\\)\./
/** Characters of a field's name. */
const MAX_FIELD = 1000
/** A place in an array; no array is so long that it has more digits. */
const PLACE = /^\d{1,16}$/

/**
 * The steps of a field's name.
 * @throws invalid_selector when one of them is empty, or the name very long
 */
export function parseFieldPath(field: string): readonly string[] {
  if (field.length > MAX_FIELD) throw invalidName(field)
  const steps = field.includes('\\')
    ? field.split(UNESCAPED_DOT).map((step) => step.replaceAll('\\', ''))
    : field.split('.')
  if (steps.includes('')) throw invalidName(field)
  return steps
}

function invalidName(field: string): CouchError {
  return new CouchError('invalid_selector', `Invalid field name: ${field.slice(0, 200)}`)
}

/** Whether a step may be a place in an array, from 0. */
export function isPlace(step: string): boolean {
  return PLACE.test(step)
}

/** The value that a path leads to, or {@link ABSENT} or {@link NO_WAY}. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const step of path) {
    if (typeof found !== 'object' || found === null) return NO_WAY
    if (Array.isArray(found)) {
      if (!isPlace(step) || Number(step) >= found.length) return NO_WAY
      found = found[Number(step)]
    } else {
      if (!Object.hasOwn(found, step)) return ABSENT
      found = (found as Record<string, unknown>)[step]
    }
  }
  return found
}
