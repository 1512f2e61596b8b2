/** How much work a selector may be for one document, so that none holds a thread for long. */
import { CouchError } from '../core/errors.ts'

/** Steps of about ten nanoseconds, so about 80 ms: two patterns on a text of 1 MB need so many. */
const MAX_STEPS = 8_000_000
/** Steps in which a condition is asked, or an element of an array looked at. */
export const LOOK = 10
/** Steps in which a member is taken out of a large object. */
const MEMBER = 100

/** Counts steps. */
export type Spend = (steps: number) => void

export class Budget {
  #left = MAX_STEPS

  /** To be called before each document. */
  restart(): void {
    this.#left = MAX_STEPS
  }

  /** @throws invalid_selector when a document is too much work */
  readonly spend: Spend = (steps) => {
    this.#left -= steps
    if (this.#left < 0)
      throw new CouchError(
        'invalid_selector',
        'Selector error: it is too much work, or a document holds too much for it',
      )
  }
}

/** Steps in which two values are compared: both are gone through where both are long. */
export function stepsToCompare(value: unknown, other: unknown): number {
  if (typeof value === 'string' && typeof other === 'string') {
    // The collation copies both, and looks at them up to where they differ.
    return LOOK + (value.length >> 6) + (Math.min(value.length, other.length) >> 2)
  }
  const areNested = typeof value === 'object' && typeof other === 'object' && value !== null && other !== null
  return areNested ? stepsThrough(value) : LOOK
}

/** Steps in which a value is gone through from end to end. */
export function stepsThrough(value: unknown): number {
  if (typeof value === 'string') return LOOK + (value.length >> 2)
  if (typeof value !== 'object' || value === null) return LOOK
  let steps = LOOK
  if (Array.isArray(value)) for (const element of value) steps += stepsThrough(element)
  else
    for (const name of Object.keys(value)) {
      steps += MEMBER + (name.length >> 2) + stepsThrough((value as Record<string, unknown>)[name])
    }
  return steps
}
