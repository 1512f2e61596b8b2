/** The tokens, values and operators of plain filter functions; plain-filter.ts has the grammar. */

interface Token {
  readonly type: 'number' | 'text' | 'pattern' | 'name' | 'sign' | 'end'
  /** The value of a string; the source text of any other token. */
  readonly text: string
  /** Whether there is a line break before the token. */
  readonly isOnNewLine: boolean
}

/** One piece of white space or one comment. Matched one by one, so the match never backtracks out of a comment. */
const SPACE = /\s+|\/\/.*|\/\*[\s\S]*?\*\//y
const NEW_LINE = /[\r\n\u2028\u2029]/

/**
 * Numbers are short decimal integers. Strings have no escapes except for quotes and backslashes. There is no division,
 * so a `/` that does not begin a comment begins a pattern. A pattern consists of literal characters, with optional
 * anchors and without flags, so it has no state between matches.
 */
const TOKEN =
  /(0|[1-9]\d{0,8})(?![\w.$])|('(?:[^'\\\p{Cc}\u2028\u2029]|\\['"\\])*'|"(?:[^"\\\p{Cc}\u2028\u2029]|\\['"\\])*")|(\/\^?(?:[\w:@#%&=~,;<>!"' -]|\\[-\\/.:^$*+?()[\]{}|])+\$?\/)(?![\w$\\])|([A-Za-z_]\w*)|(===|!==|==|!=|<=|>=|=>|&&|\|\||[(){};,.!<>?:-])/uy
const TYPES = ['number', 'text', 'pattern', 'name', 'sign'] as const

/** @returns null if the text contains anything but tokens of the grammar */
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

/** The index after the white space and comments that begin at `start`. */
function spaceEnd(text: string, start: number): number {
  let end = start
  for (SPACE.lastIndex = start; SPACE.test(text); ) end = SPACE.lastIndex
  return end
}

/** Reads tokens one by one. */
export class TokenReader {
  readonly #tokens: readonly Token[]
  #at = 0

  /** @param tokens the last one has the type `end` */
  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens
  }

  get next(): Token {
    return this.#tokens[this.#at] ?? (this.#tokens.at(-1) as Token)
  }

  isNext(type: Token['type'], text: string): boolean {
    return this.next.type === type && this.next.text === text
  }

  /** @throws NotPlain if the next token has another type */
  take(type: Token['type']): Token {
    const { next } = this
    if (next.type !== type) throw new NotPlain()
    this.#at += 1
    return next
  }

  /** Takes the next token if it is this one. @returns whether it is */
  takeIf(type: Token['type'], text: string): boolean {
    const isNext = this.isNext(type, text)
    if (isNext) this.#at += 1
    return isNext
  }

  takeSign(sign: string): boolean {
    return this.takeIf('sign', sign)
  }

  /** @throws NotPlain if the next token is not this sign */
  expect(sign: string): void {
    if (!this.takeSign(sign)) throw new NotPlain()
  }
}

/** The function does not match the grammar. */
export class NotPlain extends Error {}

/**
 * Compiles a pattern to a test of whether a string matches.
 * @param pattern the text of a pattern token
 */
export function searcher(pattern: string): (text: string) => boolean {
  const isStart = pattern.startsWith('/^')
  // A dollar is an anchor if an even number of backslashes precedes it, since these escape each other.
  const isEnd = /[^\\](?:\\\\)*\$\/$/.test(pattern)
  const wanted = unescaped(pattern.slice(isStart ? 2 : 1, isEnd ? -2 : -1))
  if (isStart && isEnd) return (text) => text === wanted
  if (isStart) return (text) => text.startsWith(wanted)
  return isEnd ? (text) => text.endsWith(wanted) : (text) => text.includes(wanted)
}

function unescaped(text: string): string {
  return text.replace(/\\(.)/g, '$1')
}

/** The members of a document that a plain filter can read. */
export interface PlainDoc {
  readonly _id: string
  readonly _rev: string
  readonly _deleted: true | undefined
}

/** An array represents the match of a pattern. */
export type Value = string | number | boolean | undefined | null | readonly never[]
export type Run = (doc: PlainDoc) => Value

export interface Expression {
  readonly run: Run
  /** `bare`: a number, a boolean or undefined; `nothing`: null or undefined; `mixed`: any value. */
  readonly kind: 'text' | 'bare' | 'nothing' | 'mixed'
}

type Method = (this: string, ...args: Value[]) => string | number | boolean

interface TextMethod {
  readonly result: 'text' | 'bare'
  /** The type of the first argument. An optional second argument is a number. */
  readonly argument: 'text' | 'number'
  readonly call: Method
}

function search(call: unknown): TextMethod {
  return { result: 'bare', argument: 'text', call: call as Method }
}

function cut(call: unknown): TextMethod {
  return { result: 'text', argument: 'number', call: call as Method }
}

/** Methods that behave the same in every JavaScript engine. None depends on a version of Unicode. */
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

/** Whether an operator compares two kinds of values without converting them. */
export function isComparable(operator: string, a: Expression['kind'], b: Expression['kind']): boolean {
  if (operator === '===' || operator === '!==') return true
  const isAlike = a === b && (a === 'text' || a === 'bare')
  // Only null and undefined are equal to null and undefined.
  return isAlike || (EQUALITIES.includes(operator) && (a === 'nothing' || b === 'nothing'))
}
