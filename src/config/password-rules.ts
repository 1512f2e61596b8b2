/**
 * `chttpd_auth/password_regexp`: patterns that new passwords must match, as CouchDB writes them, an Erlang list such as
 * `["[a-z]", {"[0-9]", "A digit is missing."}]` (docs.couchdb.org, "config/auth").
 */
import type { PasswordRule } from '../core/types.ts'

const SPACE = /\s*/y
const STRING = /"((?:[^"\\]|\\.)*)"/sy
/** Erlang's escapes of one letter; any other character stands for itself. */
const ESCAPES: Readonly<Record<string, string>> = {
  b: '\b',
  d: '\u007f',
  e: '\u001b',
  f: '\f',
  n: '\n',
  r: '\r',
  s: ' ',
  t: '\t',
  v: '\v',
}

/**
 * Reads the list; the patterns are not checked.
 * @returns an empty list for an empty text; null if the text is not such a list
 */
export function passwordRules(text: string): readonly PasswordRule[] | null {
  if (text.trim() === '') return []
  try {
    return new Terms(text).rules()
  } catch {
    return null
  }
}

/** A parser for the list; throws a SyntaxError. */
class Terms {
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  rules(): PasswordRule[] {
    const rules: PasswordRule[] = []
    this.#expect('[')
    if (!this.#takes(']')) {
      do rules.push(this.#rule())
      while (this.#takes(','))
      this.#expect(']')
    }
    this.#takes('.')
    this.#match(SPACE)
    if (this.#at < this.#text.length) throw new SyntaxError('more than one list')
    return rules
  }

  #rule(): PasswordRule {
    if (!this.#takes('{')) return { pattern: this.#string(), reason: '' }
    const pattern = this.#string()
    const reason = this.#takes(',') ? this.#string() : ''
    this.#expect('}')
    return { pattern, reason }
  }

  #string(): string {
    this.#match(SPACE)
    const [, inner] = this.#match(STRING) ?? []
    if (inner === undefined) throw new SyntaxError('no string')
    return inner.replace(/\\(x\{[\da-f]+\}|x[\da-f]{2}|[0-7]{1,3}|.)/gis, (_, code: string) =>
      unescaped(code),
    )
  }

  #expect(mark: string): void {
    if (!this.#takes(mark)) throw new SyntaxError(`no ${mark}`)
  }

  #takes(mark: string): boolean {
    this.#match(SPACE)
    if (this.#text[this.#at] !== mark) return false
    this.#at += 1
    return true
  }

  #match(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at
    const found = expression.exec(this.#text)
    if (found !== null) this.#at = expression.lastIndex
    return found
  }
}

function unescaped(code: string): string {
  if (/^x./i.test(code)) return String.fromCodePoint(Number.parseInt(code.replace(/[x{}]/gi, ''), 16))
  if (/^[0-7]/.test(code)) return String.fromCodePoint(Number.parseInt(code, 8))
  return ESCAPES[code] ?? code
}
