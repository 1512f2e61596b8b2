/** The tokens of plain filter functions, as the language has them; plain-filter.ts says which functions are plain. */

interface Token {
  readonly type: 'number' | 'text' | 'pattern' | 'name' | 'sign' | 'end'
  /** A text's own characters; of anything else what stands there. */
  readonly text: string
  /** Whether a line ends before it. */
  readonly isOnNewLine: boolean
}

/** Taken one after the other, so that none ever gives back what it took: a comment ends where it ends. */
const SPACE = /\s+|\/\/.*|\/\*[\s\S]*?\*\//y
const NEW_LINE = /[\r\n\u2028\u2029]/

/**
 * Numbers are short decimal integers; texts have no escapes but of quotes and backslashes. A `/` that begins no comment
 * begins a pattern, since there is no division: one that stands for characters as they are, at most anchored, without
 * flags, and so without memory of its last match.
 */
const TOKEN =
  /(0|[1-9]\d{0,8})(?![\w.$])|('(?:[^'\\\p{Cc}\u2028\u2029]|\\['"\\])*'|"(?:[^"\\\p{Cc}\u2028\u2029]|\\['"\\])*")|(\/\^?(?:[\w:@#%&=~,;<>!"' -]|\\[-\\/.:^$*+?()[\]{}|])+\$?\/)(?![\w$\\])|([A-Za-z_]\w*)|(===|!==|==|!=|<=|>=|=>|&&|\|\||[(){};,.!<>?:-])/uy
const TYPES = ['number', 'text', 'pattern', 'name', 'sign'] as const

/** @returns null when something is no token of the grammar */
export function tokenize(text: string): readonly Token[] | null {
  const tokens: Token[] = []
  for (let at = 0; ; ) {
    const begin = spaceEnd(text, at)
    const isOnNewLine = NEW_LINE.test(text.slice(at, begin))
    if (begin === text.length) return [...tokens, { type: 'end', text: '', isOnNewLine }]
    TOKEN.lastIndex = begin
    const found = TOKEN.exec(text)
    if (found === null) return null
    const [whole, ...groups] = found
    const type = TYPES[groups.findIndex((group) => group !== undefined)] ?? 'sign'
    tokens.push({ type, text: type === 'text' ? unescaped(whole.slice(1, -1)) : whole, isOnNewLine })
    at = TOKEN.lastIndex
  }
}

/** Index behind the white space and comments that begin at an index. */
function spaceEnd(text: string, start: number): number {
  let end = start
  for (SPACE.lastIndex = start; SPACE.test(text); ) end = SPACE.lastIndex
  return end
}

/** Tokens, read one after the other. */
export class TokenReader {
  readonly #tokens: readonly Token[]
  #at = 0

  /** @param tokens with an end */
  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens
  }

  get next(): Token {
    return this.#tokens[this.#at] ?? (this.#tokens.at(-1) as Token)
  }

  isNext(type: Token['type'], text: string): boolean {
    return this.next.type === type && this.next.text === text
  }

  /** @throws NotPlain when the next is of another type */
  take(type: Token['type']): Token {
    const { next } = this
    if (next.type !== type) throw new NotPlain()
    this.#at += 1
    return next
  }

  /** @returns whether it was the next */
  takeIf(type: Token['type'], text: string): boolean {
    const isThere = this.isNext(type, text)
    if (isThere) this.#at += 1
    return isThere
  }

  takeSign(sign: string): boolean {
    return this.takeIf('sign', sign)
  }

  /** @throws NotPlain when another sign, or none, is the next */
  expect(sign: string): void {
    if (!this.takeSign(sign)) throw new NotPlain()
  }
}

/** Something is not of the grammar. */
export class NotPlain extends Error {}

/**
 * Whether a text holds what a pattern looks for.
 * @param pattern text of a token of this type
 */
export function searcher(pattern: string): (text: string) => boolean {
  const isStart = pattern.startsWith('/^')
  // A dollar that is looked for has a backslash, and an even number of them is of pairs.
  const isEnd = /[^\\](?:\\\\)*\$\/$/.test(pattern)
  const wanted = unescaped(pattern.slice(isStart ? 2 : 1, isEnd ? -2 : -1))
  if (isStart && isEnd) return (text) => text === wanted
  if (isStart) return (text) => text.startsWith(wanted)
  return isEnd ? (text) => text.endsWith(wanted) : (text) => text.includes(wanted)
}

function unescaped(text: string): string {
  return text.replace(/\\(.)/g, '$1')
}

// What expressions of plain filter functions have for values, and what may be done with them; plain-filter.ts.

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
