import type { IdRange } from '../engine.ts'

/** A range of ids as a condition on a column and its values. */
export function idRange(range: IdRange, column: string): { where: string; values: string[] } {
  const conditions: string[] = []
  const values: string[] = []
  const add = (bound: IdRange['start'], above: boolean) => {
    if (bound === undefined) return
    conditions.push(`${column} ${above ? '>' : '<'}${bound.inclusive ? '=' : ''} ?`)
    values.push(bound.id)
  }
  add(range.start, !range.descending)
  add(range.end, range.descending === true)
  return { where: conditions.length === 0 ? 'true' : conditions.join(' AND '), values }
}
