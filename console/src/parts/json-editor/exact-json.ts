/**
 * JSON as text. Nothing is parsed into values, so numbers such as 9007199254740993, 1e400, 1.0 and -0, the order of members
 * and repeated names stay as they are.
 */

/** What is wrong with a text; the words are in strings/en.ts. */
export type JsonProblem =
  | 'value'
  | 'name'
  | 'name or end'
  | 'colon'
  | 'comma or brace'
  | 'comma or bracket'
  | 'nothing more'
  | 'unclosed string'
  | 'escape'
  | 'control character'
  | 'number'
  | 'word'
  | 'trailing comma'
  | 'too deep'
  | 'no object'

export interface JsonFault {
  readonly problem: JsonProblem
  /** Where it is, in UTF-16 units. */
  readonly at: number
  /** The character or word found there; empty at the end of the text. */
  readonly found: string
}

/** Up to this length, in UTF-16 units, an editor checks a text with each change. */
export const SHORT = 50_000

type TokenKind = '{' | '}' | '[' | ']' | ':' | ',' | 'name' | 'string' | 'number' | 'word'

/** @param depth of the containers around the token; 0 at the top level */
type Visit = (kind: TokenKind, from: number, to: number, depth: number) => void

type State = 'value' | 'value or end' | 'name' | 'name or end' | 'colon' | 'comma' | 'done'

/** As deep as the server allows a document to be, which itself is not counted. */
const MAX_DEPTH = 513
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y
const LOOKS_LIKE_NUMBER = /[-+.\w]*/y
const WORD = /[\p{L}_$][\p{L}\p{N}_$]*/uy
const SPACE = /[ \t\r\n]*/y

/** Walks through the tokens of a text. @returns the first fault; null when the text is JSON */
function walk(text: string, visit: Visit): JsonFault | null {
  const open: ('{' | '[')[] = []
  let state: State = 'value'
  let at = 0
  let comma = -1
  const fault = (problem: JsonProblem, where = at): JsonFault => ({
    problem,
    at: where,
    found: foundAt(text, where),
  })
  for (;;) {
    at = endOf(SPACE, text, at)
    const char = text[at]
    if (char === undefined) return state === 'done' ? null : fault(expected(state, open.at(-1)))
    if (state === 'done') return fault('nothing more')
    if (char === '}' || char === ']') {
      const isEnd = state === 'comma' || state === 'value or end' || state === 'name or end'
      const isTrailing = comma !== -1 && (state === 'value' || state === 'name')
      if (isTrailing && open.at(-1) === (char === '}' ? '{' : '[')) return fault('trailing comma', comma)
      if (!isEnd || open.at(-1) !== (char === '}' ? '{' : '[')) return fault(expected(state, open.at(-1)))
      open.pop()
      visit(char, at, at + 1, open.length)
      at += 1
      state = open.length === 0 ? 'done' : 'comma'
      continue
    }
    if (state === 'comma') {
      if (char !== ',') return fault(expected(state, open.at(-1)))
      visit(',', at, at + 1, open.length)
      comma = at
      at += 1
      state = open.at(-1) === '{' ? 'name' : 'value'
      continue
    }
    if (state === 'colon') {
      if (char !== ':') return fault('colon')
      visit(':', at, at + 1, open.length)
      comma = -1
      at += 1
      state = 'value'
      continue
    }
    if (state === 'name' || state === 'name or end') {
      if (char !== '"') return fault(expected(state, '{'))
      const end = stringEnd(text, at)
      if (typeof end !== 'number') return fault(end.problem, end.at)
      visit('name', at, end, open.length)
      at = end
      state = 'colon'
      continue
    }
    comma = -1
    if (char === '{' || char === '[') {
      if (open.length >= MAX_DEPTH) return fault('too deep')
      visit(char, at, at + 1, open.length)
      open.push(char)
      at += 1
      state = char === '{' ? 'name or end' : 'value or end'
      continue
    }
    const value = valueAt(text, at, char)
    if (!('end' in value)) return fault(value.problem, value.at)
    visit(value.kind, at, value.end, open.length)
    at = value.end
    state = open.length === 0 ? 'done' : 'comma'
  }
}

type Value =
  | { readonly kind: 'string' | 'number' | 'word'; readonly end: number }
  | { readonly problem: JsonProblem; readonly at: number }

function valueAt(text: string, at: number, char: string): Value {
  if (char === '"') {
    const end = stringEnd(text, at)
    return typeof end === 'number' ? { kind: 'string', end } : end
  }
  if (/[-+.\d]/.test(char)) {
    const end = endOf(NUMBER, text, at)
    if (end === at || endOf(LOOKS_LIKE_NUMBER, text, at) > end) return { problem: 'number', at }
    return { kind: 'number', end }
  }
  const end = endOf(WORD, text, at)
  if (end === at) return { problem: 'value', at }
  const isWord = ['true', 'false', 'null'].includes(text.slice(at, end))
  return isWord ? { kind: 'word', end } : { problem: 'word', at }
}

/** @returns the position after the closing quote, or what is wrong */
function stringEnd(
  text: string,
  from: number,
): number | { readonly problem: JsonProblem; readonly at: number } {
  for (let at = from + 1; ; at += 1) {
    const code = text.charCodeAt(at)
    if (code === 0x22) return at + 1
    if (Number.isNaN(code)) return { problem: 'unclosed string', at: from }
    if (code === 0x0a || code === 0x0d) return { problem: 'unclosed string', at: from }
    if (code < 0x20) return { problem: 'control character', at }
    if (code !== 0x5c) continue
    const escaped = text[at + 1] ?? ''
    if (escaped === 'u') {
      if (!/^[\da-fA-F]{4}$/.test(text.slice(at + 2, at + 6))) return { problem: 'escape', at }
      at += 5
    } else if ('"\\/bfnrt'.includes(escaped) && escaped !== '') at += 1
    else return { problem: 'escape', at }
  }
}

function endOf(expression: RegExp, text: string, at: number): number {
  expression.lastIndex = at
  return expression.test(text) ? expression.lastIndex : at
}

function expected(state: State, container: '{' | '[' | undefined): JsonProblem {
  if (state === 'comma') return container === '{' ? 'comma or brace' : 'comma or bracket'
  if (state === 'value or end') return 'value'
  return state === 'done' ? 'nothing more' : state
}

/** Characters of a word in a message. */
const MAX_FOUND = 20

function foundAt(text: string, at: number): string {
  const end = endOf(WORD, text, at)
  if (end > at) return text.slice(at, Math.min(end, at + MAX_FOUND))
  return String.fromCodePoint(text.codePointAt(at) ?? 0x20).slice(0, at < text.length ? 2 : 0)
}

/** @returns the first fault of a text; null when it is JSON */
export function findFault(text: string): JsonFault | null {
  return walk(text, () => undefined)
}

/** @returns the first fault of a text; null when it is a JSON object */
export function findObjectFault(text: string): JsonFault | null {
  let isObject = false
  const fault = walk(text, (kind, _from, _to, depth) => {
    if (depth === 0 && kind === '{') isObject = true
  })
  if (fault !== null || isObject) return fault
  return { problem: 'no object', at: endOf(SPACE, text, 0), found: '' }
}

const INDENT = '  '

/** @returns the text with a member or element on each line; each token as it was @throws SyntaxError for a text that is not JSON */
export function formatJson(text: string): string {
  const parts: string[] = []
  const newLine = (depth: number) => `\n${INDENT.repeat(depth)}`
  let isFirst = false
  const fault = walk(text, (kind, from, to, depth) => {
    const isOpening = kind === '{' || kind === '['
    if (kind === '}' || kind === ']') {
      if (!isFirst) parts.push(newLine(depth))
    } else if (isFirst) parts.push(newLine(depth))
    parts.push(text.slice(from, to))
    if (kind === ':') parts.push(' ')
    if (kind === ',') parts.push(newLine(depth))
    isFirst = isOpening
  })
  if (fault !== null) throw new SyntaxError(`${fault.problem} at ${fault.at}`)
  return parts.join('')
}

export interface JsonMember {
  readonly name: string
  /** Where its name and its value begin and end, in UTF-16 units. */
  readonly from: number
  readonly valueFrom: number
  readonly to: number
}

/**
 * The members of the object that a text is, in their order and with repeated names.
 * @throws SyntaxError for a text that is not a JSON object
 */
export function membersOf(text: string): JsonMember[] {
  const members: JsonMember[] = []
  let name: { readonly from: number; readonly to: number } | null = null
  let valueFrom = -1
  let isObject = false
  const end = (to: number) => {
    if (name === null) return
    const { from } = name
    members.push({ name: JSON.parse(text.slice(from, name.to)) as string, from, valueFrom, to })
    name = null
  }
  const fault = walk(text, (kind, from, to, depth) => {
    if (depth === 0) isObject ||= kind === '{'
    if (depth !== 1) return
    if (kind === 'name') {
      name = { from, to }
      valueFrom = -1
    } else if (kind !== ':' && kind !== ',') {
      if (valueFrom === -1) valueFrom = from
      if (kind !== '{' && kind !== '[') end(to)
    }
  })
  if (fault !== null || !isObject) throw new SyntaxError(fault?.problem ?? 'no object')
  return members
}

/** Repeated names that are listed. */
const MAX_REPEATED = 20

/** @returns the names that occur more than once in one object, at any depth; none for a text that is not JSON */
export function repeatedNames(text: string): { readonly name: string; readonly at: number }[] {
  const repeated: { name: string; at: number }[] = []
  const open: Set<string>[] = []
  const fault = walk(text, (kind, from, to, depth) => {
    if (kind === '{') open[depth] = new Set()
    if (kind !== 'name') return
    const name = JSON.parse(text.slice(from, to)) as string
    const names = open[depth - 1]
    if (names?.has(name) && repeated.length < MAX_REPEATED) repeated.push({ name, at: from })
    names?.add(name)
  })
  return fault === null ? repeated : []
}

/** @returns line and column of a position, from 1 */
export function placeOf(text: string, at: number): { readonly line: number; readonly column: number } {
  let line = 1
  let start = 0
  for (let end = text.indexOf('\n'); end !== -1 && end < at; end = text.indexOf('\n', start)) {
    line += 1
    start = end + 1
  }
  return { line, column: at - start + 1 }
}
