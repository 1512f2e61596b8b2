/** What matchers ask of a step and its two answers, and how two values are alike but for something. */
import type { Comparable } from '../comparable.ts'
import type { Difference } from '../pair.ts'
import type { Declared } from './declaration.ts'

export function isFeed(path: string): boolean {
  return path.includes('/_changes')
}

export function isOfFunction(path: string): boolean {
  return /\/_(show|list|update|rewrite)(\/|$)/.test(path)
}

export function isMultipart({ headers }: Comparable): boolean {
  return headers['content-type']?.startsWith('multipart/') === true
}

export function isRefusal({ status }: Comparable): boolean {
  return status >= 400 && status < 500
}

export function isCut({ body }: Comparable): boolean {
  return typeof body === 'object' && body !== null && 'cut' in body
}

/** Whether a write may have extended an ancestry. */
export function hasReplicated(before: string): boolean {
  return /"?new_edits"?[=:]false|\/_replicate/.test(before)
}

export interface Failure {
  readonly error?: string
  readonly reason?: string
}

export function errorOf({ body }: Comparable): Failure {
  return typeof body === 'object' && body !== null ? body : {}
}

export function shown({ path, body = '' }: Difference['step']): string {
  return `${path} ${body.toString()}`
}

/** Whether two values are alike but for what a pattern finds in their text. @param by an empty text: one of them may lack it */
export function isEqualBut(a: unknown, b: unknown, pattern: RegExp, by = '?'): boolean {
  const [one, other] = [a, b].map((value) => ordered(value).replace(pattern, by))
  return one === other
}

/**
 * A row that explains some members of a body.
 * @param members a global pattern of their text
 * @param when whether the row has a say in a difference
 */
export function membersRow(
  row: string,
  members: RegExp,
  when: (difference: Difference) => boolean = () => true,
): Declared {
  return {
    row,
    members: (difference) => (when(difference) ? members : null),
    is: (what, difference) =>
      what === 'body' &&
      when(difference) &&
      isEqualBut(difference.couchdb.body, difference.settee.body, members),
  }
}

/** The text of a value, in which the order of members does not matter. */
export function ordered(value: unknown): string {
  return JSON.stringify(value, (_, each: unknown) => {
    if (typeof each !== 'object' || each === null || Array.isArray(each)) return each
    return Object.fromEntries(Object.entries(each).sort())
  })
}

/** Its lists without an order, and without what a pattern finds. */
export function sorted(value: unknown, pattern = /^$/g): unknown {
  if (Array.isArray(value)) {
    return value.map((each) => ordered(sorted(each, pattern)).replace(pattern, '?')).sort()
  }
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, sorted(each, pattern)]))
}
