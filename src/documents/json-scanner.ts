/**
 * Validates the text of one JSON object as RFC 8259 has it and says what to leave out of it, so that what is kept
 * is kept letter by letter (design.md 3, "Bodies"). One pass lists edits in the text's own coordinates and copies
 * nothing: body.ts applies them, each character at most once, however deep duplicates lie within each other.
 */
import { CouchError } from '../core/errors.ts'

/** How many containers may lie inside each other within a document, itself not counted (design.md 3). */
const MAX_DEPTH = 512
/** Up to here an object's names are compared one by one, which is quicker than hashing them. */
const FEW_MEMBERS = 10

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/** A string of characters that stand for themselves; surrogates are looked at in TEXT. */
const PLAIN = '"[^"\\\\\\u0000-\\u001f\\ud800-\\udfff]*"'
const OTHER = '-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][-+]?\\d+)?|true|false|null'
/** An expression takes 40 ns, and 0.7 ns a character, for what takes 2.7 ns a character one by one. */
const PLAIN_STRING = new RegExp(PLAIN, 'y')
const NUMBER_OR_WORD = new RegExp(OTHER, 'y')
/** A whole member, as most are: in a third of the time that its parts would take. */
const PLAIN_MEMBER = new RegExp(`${PLAIN}:(?:${PLAIN}|${OTHER})`, 'y')
/** What may stand in a string, some stretches at a time: without a bound the expression's stack would overflow. */
const TEXT =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 8259 7 forbids these in strings
  /(?:[^"\\\u0000-\u001f\ud800-\udfff]+|\\(?:["\\/bfnrt]|u(?:(?![dD][89a-fA-F])[\da-fA-F]{4}|[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}))|[\ud800-\udbff][\udc00-\udfff]){1,32}/y
const LONE = /\\u[dD][89a-fA-F][\da-fA-F]{2}|[\ud800-\udfff]/y

/** A span of the text, in whose place the span `from` to `to` is written; all are indices of UTF-16 units. */
export interface Edit {
  readonly start: number
  readonly end: number
  from: number
  to: number
}

export interface ScannedDocument {
  /** The raw JSON text of the value of each member that was cut out; of duplicates, the last. */
  readonly cut: ReadonlyMap<string, string>
  /** What else is left out: start, end, start, end... in the order of their starts, as long as `moves` is empty. */
  readonly gaps: readonly number[]
  /** First members of their name whose place a later one takes; the later one is among the gaps. */
  readonly moves: readonly Edit[]
}

/**
 * Finds what to leave out of the text of a JSON object: chosen members, white space between tokens, and duplicates,
 * at every level: the last member of a name takes the first one's place, as JSON.parse and JSON.stringify have it.
 *
 * @param text the text of a JSON object
 * @param isCut tells by its decoded name whether a member of the top level is cut out
 * @throws CouchError `invalid_json` where JSON.parse would throw, and for a lone surrogate; `too_deep`
 */
export function scanDocument(text: string, isCut: (name: string) => boolean): ScannedDocument {
  const scanner = new Scanner(text)
  scanner.document(isCut)
  return scanner
}

/**
 * As {@link scanDocument}, of an object that begins at `start` in a longer text and ends where `end` tells.
 */
export function scanElement(
  text: string,
  start: number,
  isCut: (name: string) => boolean,
): ScannedDocument & { readonly end: number } {
  const scanner = new Scanner(text, start)
  scanner.element(isCut)
  return scanner
}

/** The members of one object that stay, each under its first place. */
class Members {
  readonly #list: (Edit & { readonly name: string })[] = []
  #index: Map<string, Edit> | undefined

  get isEmpty(): boolean {
    return this.#list.length === 0
  }

  find(name: string): Edit | undefined {
    if (this.#index !== undefined) return this.#index.get(name)
    for (const member of this.#list) if (member.name === name) return member
    return undefined
  }

  add(name: string, start: number, end: number): void {
    const member = { name, start, end, from: start, to: end }
    this.#index?.set(name, member)
    if (this.#list.push(member) === FEW_MEMBERS)
      this.#index = new Map(this.#list.map((one) => [one.name, one]))
  }
}

class Scanner implements ScannedDocument {
  readonly cut = new Map<string, string>()
  readonly gaps: number[] = []
  readonly moves: Edit[] = []
  readonly #text: string
  #at: number
  #depth = -1

  constructor(text: string, start = 0) {
    this.#text = text
    this.#at = start
  }

  get end(): number {
    return this.#at
  }

  document(isCut: (name: string) => boolean): void {
    this.#skipSpace()
    this.element(isCut)
    this.#skipSpace()
    if (this.#at !== this.#text.length) throw new CouchError('invalid_json')
  }

  element(isCut: (name: string) => boolean): void {
    if (this.#peek() !== OPEN_BRACE) throw new CouchError('invalid_json')
    this.#object(isCut)
  }

  /** The character ahead; NaN at the end of the text, which equals none. */
  #peek(): number {
    return this.#text.charCodeAt(this.#at)
  }

  #skipSpace(): void {
    const start = this.#at
    let at = start
    let c = this.#text.charCodeAt(at)
    while (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) c = this.#text.charCodeAt(++at)
    if (at === start) return
    this.gaps.push(start, at)
    this.#at = at
  }

  #value(): void {
    const c = this.#peek()
    if (c === QUOTE) this.#string()
    else if (c === OPEN_BRACE) this.#object(undefined)
    else if (c === OPEN_BRACKET) this.#array()
    else if (!this.#passes(NUMBER_OR_WORD)) throw new CouchError('invalid_json')
  }

  /** Moves behind what a sticky expression finds here, if it does. */
  #passes(expression: RegExp): boolean {
    expression.lastIndex = this.#at
    if (!expression.test(this.#text)) return false
    this.#at = expression.lastIndex
    return true
  }

  #array(): void {
    this.#enter()
    if (this.#leaves(CLOSE_BRACKET)) return
    this.#value()
    while (!this.#leaves(CLOSE_BRACKET)) {
      this.#comma()
      this.#value()
    }
  }

  #object(isCut: ((name: string) => boolean) | undefined): void {
    const members = new Members()
    this.#enter()
    const start = this.#at
    const mark = this.gaps.length
    if (this.#leaves(CLOSE_BRACE)) return
    this.#member(members, isCut, start, mark)
    while (!this.#leaves(CLOSE_BRACE)) {
      const comma = this.#at
      const mark = this.gaps.length
      this.#comma()
      this.#member(members, isCut, comma, mark)
    }
  }

  #enter(): void {
    this.#depth += 1
    if (this.#depth > MAX_DEPTH) throw new CouchError('too_deep')
    this.#at += 1
  }

  /** Moves behind the container's end if that is next. */
  #leaves(closing: number): boolean {
    this.#skipSpace()
    if (this.#peek() !== closing) return false
    this.#at += 1
    this.#depth -= 1
    return true
  }

  #comma(): void {
    if (this.#peek() !== COMMA) throw new CouchError('invalid_json')
    this.#at += 1
    this.#skipSpace()
  }

  /** @param separator where what divides it from the member before begins; `gaps` was `mark` long there */
  #member(
    members: Members,
    isCut: ((name: string) => boolean) | undefined,
    separator: number,
    mark: number,
  ): void {
    const text = this.#text
    const start = this.#at
    let name: string
    let value: number
    if (this.#passes(PLAIN_MEMBER)) {
      const quote = text.indexOf('"', start + 1)
      name = text.slice(start + 1, quote)
      value = quote + 2
    } else {
      name = this.#name()
      value = this.#at
      this.#value()
    }
    if (isCut?.(name)) this.#leaveOut(name, value, separator, mark)
    else this.#keep(members, name, start, separator, mark)
  }

  #leaveOut(name: string, value: number, separator: number, mark: number): void {
    this.cut.set(name, this.#text.slice(value, this.#at))
    if (this.gaps.length > mark) this.gaps.length = mark
    this.gaps.push(separator, this.#at)
  }

  #keep(members: Members, name: string, start: number, separator: number, mark: number): void {
    // The first member that stays has no comma before it, whatever was cut out in front.
    const isAfterComma = this.#text.charCodeAt(separator) === COMMA
    if (members.isEmpty && isAfterComma) this.gaps.splice(mark, 0, separator, separator + 1)
    const end = this.#at
    const first = members.find(name)
    if (first === undefined) {
      members.add(name, start, end)
      return
    }
    if (first.from === first.start) this.moves.push(first)
    first.from = start
    first.to = end
    // The gaps inside stay listed: they are needed when the member is written in the first one's place.
    this.gaps.push(separator, end)
  }

  /** Moves behind a name and its colon. */
  #name(): string {
    const start = this.#at
    if (this.#peek() !== QUOTE) throw new CouchError('invalid_json')
    const isPlain = this.#passes(PLAIN_STRING)
    if (!isPlain) this.#string()
    const end = this.#at
    this.#skipSpace()
    if (this.#peek() !== COLON) throw new CouchError('invalid_json')
    this.#at += 1
    this.#skipSpace()
    return isPlain ? this.#text.slice(start + 1, end - 1) : JSON.parse(this.#text.slice(start, end))
  }

  /** Moves behind a string. */
  #string(): void {
    this.#at += 1
    while (this.#peek() !== QUOTE) if (!this.#passes(TEXT)) this.#refuse()
    this.#at += 1
  }

  /** @throws invalid_json, as no string goes on like this */
  #refuse(): never {
    throw new CouchError(
      'invalid_json',
      this.#passes(LONE) ? 'invalid UTF-8 JSON: lone surrogate' : undefined,
    )
  }
}
