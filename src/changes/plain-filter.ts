/**
 * Filter functions so plain that they need no sandbox, like the one by which phones leave files out: they look at
 * nothing but `_id`, `_rev` and `_deleted`, compare, and search texts. Whatever is not wholly of the grammar below is
 * none, and is run as the program that it is. What is of it says the same here as there, since each of its operations
 * is the language's own, on texts, numbers and truth values that are there in any case; nothing that a function could
 * assign to, call or shadow is of it, and no text or object is turned into a value of another type but a truth value.
 *
 *     function = "function" [name] "(" doc ["," req] ")" block [";"]
 *              | (doc | "(" doc ["," req] ")") "=>" (block | expression) [";"]
 *     block     = "{" ["'use strict';"] {statement} "}"
 *     statement = "return" expression [";"]  |  "if" "(" expression ")" branch ["else" branch]
 *     branch    = statement  |  "{" {statement} "}"
 *     expression: ?: || && === !== == != < > <= >= ! ( ), literals, doc._id, doc._rev, doc._deleted; of texts `length`,
 *     the methods listed in METHODS, called with literals, and `match`; of patterns `test` and `exec`.
 */
import {
  COMPARISONS,
  EQUALITIES,
  type Expression,
  isComparable,
  METHODS,
  NotPlain,
  type PlainDoc,
  RELATIONS,
  type Run,
  searcher,
  TokenReader,
  tokenize,
  type Value,
} from './plain-tokens.ts'

export type PlainFilter = (doc: PlainDoc) => boolean

/** Characters of a function that is looked at. */
const MAX_TEXT = 2000
/** Levels of brackets, negations and branches: the sandbox's stack holds more than these. */
const MAX_DEPTH = 40

/**
 * @param text a function as its design document has it
 * @returns null unless it is plain
 */
export function plainFilter(text: string): PlainFilter | null {
  const tokens = text.length > MAX_TEXT ? null : tokenize(text)
  if (tokens === null) return null
  try {
    const run = new Parser(new TokenReader(tokens)).parse()
    return (doc) => Boolean(run(doc))
  } catch (thrown) {
    if (thrown instanceof NotPlain) return null
    throw thrown
  }
}

/** What a statement returns; `GOES_ON` when it does not. */
type Statement = (doc: PlainDoc) => Value | typeof GOES_ON

const GOES_ON: unique symbol = Symbol('goes on')

/** Names that mean nothing else; nor does one with a capital, a digit or an underscore, unlike the language's words. */
const NAME = /^(?:doc|d|document|note|item|record|req|request|r|sync|filter|mobile|fun)$|[A-Z\d_]/

/** By recursive descent; each method reads one rule of the grammar. */
class Parser {
  readonly #tokens: TokenReader
  #depth = 0
  #doc = ''

  constructor(tokens: TokenReader) {
    this.#tokens = tokens
  }

  parse(): Run {
    const run = this.#tokens.isNext('name', 'function') ? this.#function() : this.#arrow()
    this.#tokens.takeSign(';')
    if (this.#tokens.next.type !== 'end') throw new NotPlain()
    return run
  }

  #function(): Run {
    this.#tokens.take('name')
    if (this.#tokens.next.type === 'name') this.#name()
    this.#tokens.expect('(')
    this.#parameters()
    return this.#block()
  }

  #arrow(): Run {
    if (this.#tokens.takeSign('(')) this.#parameters()
    else this.#doc = this.#name()
    if (this.#tokens.next.isOnNewLine) throw new NotPlain()
    this.#tokens.expect('=>')
    return this.#tokens.isNext('sign', '{') ? this.#block() : this.#expression().run
  }

  /** Up to the closing parenthesis. */
  #parameters(): void {
    this.#doc = this.#name()
    if (this.#tokens.takeSign(',') && this.#name() === this.#doc) throw new NotPlain()
    this.#tokens.expect(')')
  }

  #block(): Run {
    this.#tokens.expect('{')
    if (this.#tokens.takeIf('text', 'use strict')) this.#tokens.expect(';')
    const run = this.#statements()
    return (doc) => {
      const result = run(doc)
      return result === GOES_ON ? undefined : result
    }
  }

  /** Up to the closing brace. */
  #statements(): Statement {
    const statements: Statement[] = []
    while (!this.#tokens.takeSign('}')) statements.push(this.#statement())
    return (doc) => {
      for (const statement of statements) {
        const result = statement(doc)
        if (result !== GOES_ON) return result
      }
      return GOES_ON
    }
  }

  #statement(): Statement {
    const { text } = this.#tokens.take('name')
    if (text === 'return') return this.#return()
    if (text !== 'if') throw new NotPlain()
    this.#tokens.expect('(')
    const condition = this.#expression().run
    this.#tokens.expect(')')
    const then = this.#branch()
    const otherwise = this.#tokens.takeIf('name', 'else') ? this.#branch() : goesOn
    return (doc) => (condition(doc) ? then(doc) : otherwise(doc))
  }

  #branch(): Statement {
    return this.#nested(() => (this.#tokens.takeSign('{') ? this.#statements() : this.#statement()))
  }

  #return(): Statement {
    // What begins on another line is not returned.
    if (this.#tokens.next.isOnNewLine) throw new NotPlain()
    const { run } = this.#expression()
    const isEnded = this.#tokens.takeSign(';') || this.#tokens.isNext('sign', '}')
    const { type, isOnNewLine } = this.#tokens.next
    if (!isEnded && !(type === 'name' && isOnNewLine)) throw new NotPlain()
    return run
  }

  #expression(): Expression {
    return this.#nested(() => {
      const test = this.#or()
      if (!this.#tokens.takeSign('?')) return test
      const yes = this.#expression()
      this.#tokens.expect(':')
      const no = this.#expression()
      return { kind: common(yes, no), run: (doc) => (test.run(doc) ? yes.run(doc) : no.run(doc)) }
    })
  }

  #nested<T>(read: () => T): T {
    this.#depth += 1
    if (this.#depth > MAX_DEPTH) throw new NotPlain()
    const result = read()
    this.#depth -= 1
    return result
  }

  #or(): Expression {
    let left = this.#and()
    while (this.#tokens.takeSign('||')) {
      const [a, b] = [left, this.#and()]
      left = { kind: common(a, b), run: (doc) => a.run(doc) || b.run(doc) }
    }
    return left
  }

  #and(): Expression {
    let left = this.#comparison(EQUALITIES)
    while (this.#tokens.takeSign('&&')) {
      const [a, b] = [left, this.#comparison(EQUALITIES)]
      left = { kind: common(a, b), run: (doc) => a.run(doc) && b.run(doc) }
    }
    return left
  }

  #comparison(operators: readonly string[]): Expression {
    const operand = () => (operators === EQUALITIES ? this.#comparison(RELATIONS) : this.#unary())
    let left = operand()
    for (;;) {
      const operator = operators.find((sign) => this.#tokens.takeSign(sign))
      const compare = operator === undefined ? undefined : COMPARISONS[operator]
      if (operator === undefined || compare === undefined) return left
      const [a, b] = [left, operand()]
      if (!isComparable(operator, a.kind, b.kind)) throw new NotPlain()
      left = { kind: 'bare', run: (doc) => compare(a.run(doc), b.run(doc)) }
    }
  }

  #unary(): Expression {
    if (!this.#tokens.takeSign('!')) return this.#postfix()
    const { run } = this.#nested(() => this.#unary())
    return { kind: 'bare', run: (doc) => !run(doc) }
  }

  #postfix(): Expression {
    let value = this.#primary()
    while (this.#tokens.takeSign('.')) {
      if (value.kind !== 'text') throw new NotPlain()
      value = this.#ofText(value.run as (doc: PlainDoc) => string, this.#tokens.take('name').text)
    }
    return value
  }

  #ofText(text: (doc: PlainDoc) => string, name: string): Expression {
    if (name === 'length') return { kind: 'bare', run: (doc) => text(doc).length }
    if (name === 'match') return this.#match(text)
    const method = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined
    if (method === undefined) throw new NotPlain()
    const { gives, takes, call } = method
    this.#tokens.expect('(')
    const args = [this.#literal(takes)]
    if (this.#tokens.takeSign(',')) args.push(this.#literal('number'))
    this.#tokens.expect(')')
    return { kind: gives, run: (doc) => call.apply(text(doc), args) }
  }

  #match(text: (doc: PlainDoc) => string): Expression {
    this.#tokens.expect('(')
    const finds = searcher(this.#tokens.take('pattern').text)
    this.#tokens.expect(')')
    return found((doc) => finds(text(doc)))
  }

  #primary(): Expression {
    if (this.#tokens.takeSign('(')) {
      const inner = this.#expression()
      this.#tokens.expect(')')
      return inner
    }
    if (this.#tokens.next.type === 'pattern') return this.#pattern()
    if (this.#tokens.takeIf('name', this.#doc)) return this.#member()
    if (this.#tokens.takeIf('name', 'null')) return { kind: 'nothing', run: () => null }
    if (this.#tokens.takeIf('name', 'undefined')) return { kind: 'nothing', run: () => undefined }
    const value = this.#literal()
    return { kind: typeof value === 'string' ? 'text' : 'bare', run: () => value }
  }

  #pattern(): Expression {
    const finds = searcher(this.#tokens.take('pattern').text)
    this.#tokens.expect('.')
    const method = this.#tokens.take('name').text
    this.#tokens.expect('(')
    const { kind, run } = this.#expression()
    this.#tokens.expect(')')
    if (kind !== 'text') throw new NotPlain()
    const isFound = (doc: PlainDoc) => finds(run(doc) as string)
    if (method === 'exec') return found(isFound)
    if (method !== 'test') throw new NotPlain()
    return { kind: 'bare', run: isFound }
  }

  #member(): Expression {
    this.#tokens.expect('.')
    switch (this.#tokens.take('name').text) {
      case '_id':
        return { kind: 'text', run: ({ _id }) => _id }
      case '_rev':
        return { kind: 'text', run: ({ _rev }) => _rev }
      case '_deleted':
        return { kind: 'bare', run: ({ _deleted }) => _deleted }
      default:
        throw new NotPlain()
    }
  }

  /** @param wanted any type, where it is left out */
  #literal(wanted?: 'text' | 'number'): string | number | boolean {
    const isNegative = this.#tokens.takeSign('-')
    const { type } = this.#tokens.next
    const { text } = this.#tokens.take(isNegative ? 'number' : (wanted ?? type))
    if (type === 'number' && wanted !== 'text') return isNegative ? -Number(text) : Number(text)
    if (type === 'text') return text
    if (type === 'name' && (text === 'true' || text === 'false')) return text === 'true'
    throw new NotPlain()
  }

  #name(): string {
    const { text } = this.#tokens.take('name')
    if (!NAME.test(text)) throw new NotPlain()
    return text
  }
}

function goesOn(): typeof GOES_ON {
  return GOES_ON
}

/** Gives a new list where the document matches, else null, as `String.prototype.match` does. */
function found(isFound: (doc: PlainDoc) => boolean): Expression {
  return { kind: 'mixed', run: (doc) => (isFound(doc) ? [] : null) }
}

function common(a: Expression, b: Expression): Expression['kind'] {
  return a.kind === b.kind ? a.kind : 'mixed'
}
