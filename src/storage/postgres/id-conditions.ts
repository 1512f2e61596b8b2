/** Ranges of ids as conditions of statements. */
import type { IdRange } from '../engine.ts'
import { storedText } from './stored-text.ts'

/** A condition on `x.id`, with the names of its values in braces. */
export interface IdCondition {
  /** Differs where the condition differs. */
  readonly name: string
  readonly where: string
  readonly order: string
  readonly values: { readonly start?: string; readonly end?: string }
}

export function idCondition({ start, end, descending = false }: IdRange): IdCondition {
  const operator = (isLower: boolean, inclusive: boolean) => `${isLower ? '>' : '<'}${inclusive ? '=' : ''}`
  const name = (bound: IdRange['start']) => (bound === undefined ? '' : bound.inclusive ? 'i' : 'x')
  const conditions = [
    ...(start ? [` AND x.id ${operator(!descending, start.inclusive)} {start}`] : []),
    ...(end ? [` AND x.id ${operator(descending, end.inclusive)} {end}`] : []),
  ]
  return {
    name: `${descending ? 'down' : 'up'}${name(start)}_${name(end)}`,
    where: `x.db = {db}${conditions.join('')}`,
    order: descending ? 'x.id DESC' : 'x.id',
    values: { ...(start && { start: storedText(start.id) }), ...(end && { end: storedText(end.id) }) },
  }
}

/** The rest of a range after an id. */
export function after(range: IdRange, id: string): IdRange {
  return { ...range, start: { id, inclusive: false } }
}
