/** The tokens of plain filter functions, as the language has them; plain-filter.ts says which functions are plain. */

export interface Token {
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
