/**
 * Runs simple filter functions without the sandbox, such as the one that keeps attachments off phones. A plain function
 * reads only `_id`, `_rev` and `_deleted`, compares values and searches strings. A function that does not match the
 * grammar below runs in the sandbox instead.
 *
 * A plain function gives the same result here as in the sandbox. Each operation is JavaScript's own, and its operands
 * are strings, numbers and booleans that always exist. The grammar contains nothing that a function could assign, call
 * or shadow. No string or object is converted to another type, except to a boolean.
 *
 * The function is the whole program, and its keyword and parenthesis are on one line: a named function is a declaration,
 * which has no value (sandbox/program-environment.ts).
 *
 *     function   = "function" "(" doc ["," req] ")" block [";"]
 *                | (doc | "(" doc ["," req] ")") "=>" (block | expression) [";"]
 *     block      = "{" ["'use strict';"] {statement} "}"
 *     statement  = "return" expression [";"] | "if" "(" expression ")" branch ["else" branch]
 *     branch     = statement | "{" {statement} "}"
 *     expression: ?: || && === !== == != < > <= >= ! ( ), literals, doc._id, doc._rev, doc._deleted; for strings `length`,
 *     `match`, and the methods in METHODS with literals as arguments; for patterns `test` and `exec`.
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

/** The longest function that is parsed, in characters. */
const MAX_TEXT = 2000
/** The maximum depth of parentheses, negations and branches. The stack of the sandbox allows more. */
const MAX_DEPTH = 40

/**
 * Compiles a plain filter function.
 * @param text the function from its design document
 * @returns null if the function is not plain
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

/** A statement results in the value that it returns, or in `CONTINUE` if it does not return. */
type Statement = (doc: PlainDoc) => Value | typeof CONTINUE

const CONTINUE: unique symbol = Symbol('continue')

/**
 * Names of parameters that cannot be keywords. No keyword has a capital letter, a digit or an underscore.
 */
const NAME = /^(?:doc|d|document|note|item|record|req|request|r|sync|filter|mobile|fun)$|[A-Z\d_]/

/** A recursive descent parser: each method reads one rule of the grammar. */
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
    if (this.#tokens.next.isOnNewLine) throw new NotPlain()
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

  /** Reads up to the closing parenthesis. */
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
      return result === CONTINUE ? undefined : result
    }
  }

  /** Reads up to the closing brace. */
  #statements(): Statement {
    const statements: Statement[] = []
    while (!this.#tokens.takeSign('}')) statements.push(this.#statement())
    return (doc) => {
      for (const statement of statements) {
        const result = statement(doc)
        if (result !== CONTINUE) return result
      }
      return CONTINUE
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
    const otherwise = this.#tokens.takeIf('name', 'else') ? this.#branch() : doNothing
    return (doc) => (condition(doc) ? then(doc) : otherwise(doc))
  }

  #branch(): Statement {
    return this.#nested(() => (this.#tokens.takeSign('{') ? this.#statements() : this.#statement()))
  }

  #return(): Statement {
    // JavaScript does not return a value that begins on the next line.
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
      return { kind: commonKind(yes, no), run: (doc) => (test.run(doc) ? yes.run(doc) : no.run(doc)) }
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
      left = { kind: commonKind(a, b), run: (doc) => a.run(doc) || b.run(doc) }
    }
    return left
  }

  #and(): Expression {
    let left = this.#comparison(EQUALITIES)
    while (this.#tokens.takeSign('&&')) {
      const [a, b] = [left, this.#comparison(EQUALITIES)]
      left = { kind: commonKind(a, b), run: (doc) => a.run(doc) && b.run(doc) }
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
      value = this.#stringMember(value.run as (doc: PlainDoc) => string, this.#tokens.take('name').text)
    }
    return value
  }

  #stringMember(text: (doc: PlainDoc) => string, name: string): Expression {
    if (name === 'length') return { kind: 'bare', run: (doc) => text(doc).length }
    if (name === 'match') return this.#match(text)
    const method = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined
    if (method === undefined) throw new NotPlain()
    const { result, argument, call } = method
    this.#tokens.expect('(')
    const args = [this.#literal(argument)]
    if (this.#tokens.takeSign(',')) args.push(this.#literal('number'))
    this.#tokens.expect(')')
    return { kind: result, run: (doc) => call.apply(text(doc), args) }
  }

  #match(text: (doc: PlainDoc) => string): Expression {
    this.#tokens.expect('(')
    const finds = searcher(this.#tokens.take('pattern').text)
    this.#tokens.expect(')')
    return matchResult((doc) => finds(text(doc)))
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
    if (method === 'exec') return matchResult(isFound)
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

  /** @param expected the type of the literal; undefined for any type */
  #literal(expected?: 'text' | 'number'): string | number | boolean {
    const isNegative = this.#tokens.takeSign('-')
    const { type } = this.#tokens.next
    const { text } = this.#tokens.take(isNegative ? 'number' : (expected ?? type))
    if (type === 'number' && expected !== 'text') return isNegative ? -Number(text) : Number(text)
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

function doNothing(): typeof CONTINUE {
  return CONTINUE
}

/** Returns a new array if the document matches and otherwise null, like `String.prototype.match`. */
function matchResult(isFound: (doc: PlainDoc) => boolean): Expression {
  return { kind: 'mixed', run: (doc) => (isFound(doc) ? [] : null) }
}

function commonKind(a: Expression, b: Expression): Expression['kind'] {
  return a.kind === b.kind ? a.kind : 'mixed'
}
