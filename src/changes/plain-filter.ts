/**
 * Filter functions so plain that they need no sandbox, like the one by which phones leave files out: they look at
 * nothing but `_id`, `_rev` and `_deleted`, compare, and search texts. Whatever is not wholly of the grammar below is
 * none, and is run as the program that it is. What is of it says the same here as there, since each of its operations
 * is the language's own, on texts, numbers and truth values that are there in any case.
 *
 *     function = "function" [name] "(" doc ["," req] ")" "{" statements "}" [";"]
 *              | doc "=>" body [";"]  |  "(" doc ["," req] ")" "=>" body [";"]
 *     body     = "{" statements "}"  |  expression
 *     statement = "return" expression  |  "if" "(" expression ")" (statement | "{" statements "}")
 *     expression: || && === !== == != < > <= >= ! ( ), literals, doc._id, doc._rev, doc._deleted, .length and the
 *     methods of texts listed in METHODS, called with literals. No comments.
 */

/** What a plain filter looks at. */
export interface PlainDoc {
  readonly _id: string
  readonly _rev: string
  readonly _deleted: true | undefined
}

export type PlainFilter = (doc: PlainDoc) => boolean

/** Characters of a function that is looked at. */
const MAX_TEXT = 2000

/**
 * @param text a function as its design document has it
 * @returns null unless it is plain
 */
export function plainFilter(text: string): PlainFilter | null {
  const tokens = text.length > MAX_TEXT ? null : tokenize(text)
  if (tokens === null) return null
  try {
    const run = new Parser(tokens).parse()
    return (doc) => Boolean(run(doc))
  } catch (thrown) {
    if (thrown instanceof NotPlain) return null
    throw thrown
  }
}

class NotPlain extends Error {}

type Primitive = string | number | boolean | undefined
type Run = (doc: PlainDoc) => Primitive

interface Expression {
  readonly run: Run
  readonly isText: boolean
}

/** Says what a function returns; `GOES_ON` when it has not returned yet. */
type Statement = (doc: PlainDoc) => Primitive | typeof GOES_ON

const GOES_ON = Symbol('goes on')

interface Token {
  readonly type: 'number' | 'text' | 'name' | 'sign' | 'end'
  readonly text: string
  /** Whether a line ends before it. */
  readonly isOnNewLine: boolean
}

const TOKEN =
  /(\s*)(?:(0|[1-9]\d{0,8})(?![\w.$])|('(?:[^'\\\r\n\u2028\u2029]|\\['"\\])*'|"(?:[^"\\\r\n\u2028\u2029]|\\['"\\])*")|([A-Za-z_]\w*)|(===|!==|==|!=|<=|>=|=>|&&|\|\||[(){};,.!<>-]))/y
const NEW_LINE = /[\r\n\u2028\u2029]/

/** null when something is no token of the grammar. */
function tokenize(text: string): readonly Token[] | null {
  const trimmed = text.trim()
  const tokens: Token[] = []
  for (TOKEN.lastIndex = 0; TOKEN.lastIndex < trimmed.length; ) {
    const found = TOKEN.exec(trimmed)
    if (found === null) return null
    const [, space = '', number, quoted, name, sign] = found
    const isOnNewLine = NEW_LINE.test(space)
    if (number !== undefined) tokens.push({ type: 'number', text: number, isOnNewLine })
    else if (quoted !== undefined) tokens.push({ type: 'text', text: unquoted(quoted), isOnNewLine })
    else if (name !== undefined) tokens.push({ type: 'name', text: name, isOnNewLine })
    else tokens.push({ type: 'sign', text: sign ?? '', isOnNewLine })
  }
  return [...tokens, { type: 'end', text: '', isOnNewLine: true }]
}

function unquoted(quoted: string): string {
  return quoted.slice(1, -1).replace(/\\(.)/g, '$1')
}

/** Methods that are the same wherever the language is; none depends on a version of Unicode. */
const METHODS: Readonly<Record<string, { readonly givesText: boolean; readonly call: Method }>> = {
  indexOf: { givesText: false, call: String.prototype.indexOf as Method },
  lastIndexOf: { givesText: false, call: String.prototype.lastIndexOf as Method },
  includes: { givesText: false, call: String.prototype.includes as Method },
  startsWith: { givesText: false, call: String.prototype.startsWith as Method },
  endsWith: { givesText: false, call: String.prototype.endsWith as Method },
  charAt: { givesText: true, call: String.prototype.charAt as Method },
  slice: { givesText: true, call: String.prototype.slice as Method },
  substring: { givesText: true, call: String.prototype.substring as Method },
}

type Method = (this: string, ...args: Primitive[]) => Primitive

const COMPARISONS: Readonly<Record<string, (a: Primitive, b: Primitive) => boolean>> = {
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

const EQUALITIES: readonly string[] = ['===', '!==', '==', '!=']
const RELATIONS: readonly string[] = ['<', '>', '<=', '>=']

/** Names that parameters may have without meaning anything else. */
const NAME = /^(?:doc|d|document|note|item|record|_doc|req|request|r|_req|_|sync|filter|mobile|fun)$/

/** By recursive descent; each method reads one rule of the grammar. */
class Parser {
  readonly #tokens: readonly Token[]
  #at = 0
  #doc = ''

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens
  }

  parse(): Run {
    const run = this.#peek('name', 'function') ? this.#function() : this.#arrow()
    this.#takeIf(';')
    if (this.#next().type !== 'end') throw new NotPlain()
    return run
  }

  #function(): Run {
    this.#at += 1
    if (this.#next().type === 'name') this.#name()
    this.#expect('(')
    this.#parameters()
    return this.#block()
  }

  #arrow(): Run {
    if (this.#takeIf('(')) this.#parameters()
    else this.#doc = this.#name()
    if (this.#next().isOnNewLine) throw new NotPlain()
    this.#expect('=>')
    return this.#peek('sign', '{') ? this.#block() : this.#or().run
  }

  /** Up to the closing parenthesis. */
  #parameters(): void {
    this.#doc = this.#name()
    if (this.#takeIf(',') && this.#name() === this.#doc) throw new NotPlain()
    this.#expect(')')
  }

  #block(): Run {
    const run = this.#statements()
    return (doc) => {
      const result = run(doc)
      return result === GOES_ON ? undefined : result
    }
  }

  #statements(): Statement {
    this.#expect('{')
    const statements: Statement[] = []
    while (!this.#takeIf('}')) statements.push(this.#statement())
    return (doc) => {
      for (const statement of statements) {
        const result = statement(doc)
        if (result !== GOES_ON) return result
      }
      return GOES_ON
    }
  }

  #statement(): Statement {
    const { text } = this.#take('name')
    if (text === 'return') return this.#return()
    if (text !== 'if') throw new NotPlain()
    this.#expect('(')
    const condition = this.#or().run
    this.#expect(')')
    const then = this.#peek('sign', '{') ? this.#statements() : this.#statement()
    return (doc) => (condition(doc) ? then(doc) : GOES_ON)
  }

  #return(): Statement {
    // What begins on another line is not returned.
    if (this.#next().isOnNewLine) throw new NotPlain()
    const { run } = this.#or()
    const isEnded = this.#takeIf(';') || this.#peek('sign', '}')
    const { type, isOnNewLine } = this.#next()
    if (!isEnded && !(type === 'name' && isOnNewLine)) throw new NotPlain()
    return run
  }

  #or(): Expression {
    let left = this.#and()
    while (this.#takeIf('||')) left = joined(left, this.#and(), (a, b) => (doc) => a(doc) || b(doc))
    return left
  }

  #and(): Expression {
    let left = this.#comparison(EQUALITIES)
    while (this.#takeIf('&&')) {
      left = joined(left, this.#comparison(EQUALITIES), (a, b) => (doc) => a(doc) && b(doc))
    }
    return left
  }

  #comparison(operators: readonly string[]): Expression {
    const operand = () => (operators === EQUALITIES ? this.#comparison(RELATIONS) : this.#unary())
    let left = operand()
    for (let { type, text } = this.#next(); type === 'sign' && operators.includes(text); ) {
      this.#at += 1
      const compare = COMPARISONS[text] as (a: Primitive, b: Primitive) => boolean
      left = joined(left, operand(), (a, b) => (doc) => compare(a(doc), b(doc)))
      ;({ type, text } = this.#next())
    }
    return left
  }

  #unary(): Expression {
    if (!this.#takeIf('!')) return this.#postfix()
    const { run } = this.#unary()
    return { isText: false, run: (doc) => !run(doc) }
  }

  #postfix(): Expression {
    let value = this.#primary()
    while (this.#takeIf('.')) {
      if (!value.isText) throw new NotPlain()
      value = this.#ofText(value.run, this.#take('name').text)
    }
    return value
  }

  #ofText(text: Run, name: string): Expression {
    if (name === 'length') return { isText: false, run: (doc) => (text(doc) as string).length }
    const method = Object.hasOwn(METHODS, name) ? METHODS[name] : undefined
    if (method === undefined) throw new NotPlain()
    const args = this.#arguments()
    const { givesText, call } = method
    return { isText: givesText, run: (doc) => call.apply(text(doc) as string, args) }
  }

  #arguments(): Primitive[] {
    this.#expect('(')
    const args = [this.#literal()]
    if (this.#takeIf(',')) args.push(this.#literal())
    this.#expect(')')
    return args
  }

  #primary(): Expression {
    if (this.#takeIf('(')) {
      const inner = this.#or()
      this.#expect(')')
      return inner
    }
    if (this.#peek('name', this.#doc)) return this.#member()
    const value = this.#literal()
    return { isText: typeof value === 'string', run: () => value }
  }

  #member(): Expression {
    this.#at += 1
    this.#expect('.')
    switch (this.#take('name').text) {
      case '_id':
        return { isText: true, run: ({ _id }) => _id }
      case '_rev':
        return { isText: true, run: ({ _rev }) => _rev }
      case '_deleted':
        return { isText: false, run: ({ _deleted }) => _deleted }
      default:
        throw new NotPlain()
    }
  }

  #literal(): Primitive {
    const isNegative = this.#takeIf('-')
    const { type, text } = this.#next()
    this.#at += 1
    if (type === 'number') return isNegative ? -Number(text) : Number(text)
    if (isNegative) throw new NotPlain()
    if (type === 'text') return text
    if (type === 'name' && (text === 'true' || text === 'false')) return text === 'true'
    throw new NotPlain()
  }

  #name(): string {
    const { text } = this.#take('name')
    if (!NAME.test(text)) throw new NotPlain()
    return text
  }

  #next(): Token {
    return this.#tokens[this.#at] ?? (this.#tokens.at(-1) as Token)
  }

  #peek(type: Token['type'], text: string): boolean {
    const next = this.#next()
    return next.type === type && next.text === text
  }

  #take(type: Token['type']): Token {
    const next = this.#next()
    if (next.type !== type) throw new NotPlain()
    this.#at += 1
    return next
  }

  #takeIf(sign: string): boolean {
    const isThere = this.#peek('sign', sign)
    if (isThere) this.#at += 1
    return isThere
  }

  #expect(sign: string): void {
    if (!this.#takeIf(sign)) throw new NotPlain()
  }
}

/** Of two operands; whether it is a text is not followed further. */
function joined(a: Expression, b: Expression, make: (a: Run, b: Run) => Run): Expression {
  return { isText: false, run: make(a.run, b.run) }
}
