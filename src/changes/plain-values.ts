/** What expressions of plain filter functions have for values, and what may be done with them; plain-filter.ts. */

/** What a plain filter looks at. */
export interface PlainDoc {
  readonly _id: string
  readonly _rev: string
  readonly _deleted: true | undefined
}

/** Lists stand for what a pattern has found. */
export type Value = string | number | boolean | undefined | null | readonly never[]
export type Run = (doc: PlainDoc) => Value

export interface Expression {
  readonly run: Run
  /** `bare`: a number, a truth value or undefined; `nothing`: null or undefined; `mixed`: any value. */
  readonly kind: 'text' | 'bare' | 'nothing' | 'mixed'
}

type Method = (this: string, ...args: Value[]) => string | number | boolean

interface TextMethod {
  readonly gives: 'text' | 'bare'
  /** Of its first argument; a second one, which may be left out, is a number. */
  readonly takes: 'text' | 'number'
  readonly call: Method
}

function search(call: unknown): TextMethod {
  return { gives: 'bare', takes: 'text', call: call as Method }
}

function cut(call: unknown): TextMethod {
  return { gives: 'text', takes: 'number', call: call as Method }
}

/** Methods that are the same wherever the language is; none depends on a version of Unicode. */
export const METHODS: Readonly<Record<string, TextMethod>> = {
  indexOf: search(String.prototype.indexOf),
  lastIndexOf: search(String.prototype.lastIndexOf),
  includes: search(String.prototype.includes),
  startsWith: search(String.prototype.startsWith),
  endsWith: search(String.prototype.endsWith),
  charAt: cut(String.prototype.charAt),
  slice: cut(String.prototype.slice),
  substring: cut(String.prototype.substring),
  substr: cut(String.prototype.substr),
}

export const COMPARISONS: Readonly<Record<string, (a: Value, b: Value) => boolean>> = {
  '===': (a, b) => a === b,
  '!==': (a, b) => a !== b,
  // biome-ignore lint/suspicious/noDoubleEquals: the function's own operator
  '==': (a, b) => a == b,
  // biome-ignore lint/suspicious/noDoubleEquals: the function's own operator
  '!=': (a, b) => a != b,
  '<': (a, b) => (a as number) < (b as number),
  '>': (a, b) => (a as number) > (b as number),
  '<=': (a, b) => (a as number) <= (b as number),
  '>=': (a, b) => (a as number) >= (b as number),
}

export const EQUALITIES: readonly string[] = ['===', '!==', '==', '!=']
export const RELATIONS: readonly string[] = ['<', '>', '<=', '>=']

/** Whether an operator is wanted of values which it compares as they are. */
export function isComparable(operator: string, a: Expression['kind'], b: Expression['kind']): boolean {
  if (operator === '===' || operator === '!==') return true
  const isAlike = a === b && (a === 'text' || a === 'bare')
  // Nothing but null and undefined is equal to these.
  return isAlike || (EQUALITIES.includes(operator) && (a === 'nothing' || b === 'nothing'))
}
