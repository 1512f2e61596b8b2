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
/** Most names end within so many characters: looking at these one by one is quicker than starting PLAIN. */
const SHORT_NAME = 12

const QUOTE = 0x22
const COMMA = 0x2c
const MINUS = 0x2d
const ZERO = 0x30
const NINE = 0x39
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/** Characters that stand in a string for themselves; surrogates are looked at one by one. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 8259 7 forbids these in strings
const PLAIN = /[^"\\\u0000-\u001f\ud800-\udfff]*/y
/** Escapes and surrogate pairs, a few at a time: without a bound the expression's stack would overflow. */
const ODD =
  /(?:\\(?:["\\/bfnrt]|u(?:(?![dD][89a-fA-F])[\da-fA-F]{4}|[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}))|[\ud800-\udbff][\udc00-\udfff]){1,16}/y
const LONE = /\\u[dD][89a-fA-F][\da-fA-F]{2}|[\ud800-\udfff]/y
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y

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
  #at = 0
  #depth = -1

  constructor(text: string) {
    this.#text = text
  }

  document(isCut: (name: string) => boolean): void {
    this.#skipSpace()
    if (this.#peek() !== OPEN_BRACE) throw new CouchError('invalid_json')
    this.#object(isCut)
    this.#skipSpace()
    if (this.#at !== this.#text.length) throw new CouchError('invalid_json')
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
    if (c === QUOTE) this.#string(0)
    else if (c === OPEN_BRACE) this.#object()
    else if (c === OPEN_BRACKET) this.#container(CLOSE_BRACKET, () => this.#value())
    else if (c === MINUS || (c >= ZERO && c <= NINE)) this.#at = numberEnd(this.#text, this.#at)
    else this.#literal(c === 0x74 ? 'true' : c === 0x66 ? 'false' : 'null')
  }

  #literal(word: string): void {
    if (!this.#text.startsWith(word, this.#at)) throw new CouchError('invalid_json')
    this.#at += word.length
  }

  /** @param item reads one item; it is told where its separator begins and how long `gaps` was there */
  #container(closing: number, item: (separator: number, mark: number) => void): void {
    this.#depth += 1
    if (this.#depth > MAX_DEPTH) throw new CouchError('too_deep')
    let mark = this.gaps.length
    let separator = ++this.#at
    this.#skipSpace()
    let c = this.#peek()
    while (c !== closing) {
      item(separator, mark)
      this.#skipSpace()
      c = this.#peek()
      if (c === closing) break
      if (c !== COMMA) throw new CouchError('invalid_json')
      mark = this.gaps.length
      separator = this.#at++
      this.#skipSpace()
    }
    this.#at += 1
    this.#depth -= 1
  }

  #object(isCut?: (name: string) => boolean): void {
    const members = new Members()
    this.#container(CLOSE_BRACE, (separator, mark) => {
      const start = this.#at
      const name = this.#name()
      if (isCut?.(name)) this.#leaveOut(name, separator, mark)
      else this.#keep(members, name, start, separator, mark)
    })
  }

  #leaveOut(name: string, separator: number, mark: number): void {
    const value = this.#at
    this.#value()
    this.cut.set(name, this.#text.slice(value, this.#at))
    this.gaps.splice(mark, Infinity, separator, this.#at)
  }

  #keep(members: Members, name: string, start: number, separator: number, mark: number): void {
    // The first member that stays has no comma before it, whatever was cut out in front.
    const isAfterComma = this.#text.charCodeAt(separator) === COMMA
    if (members.isEmpty && isAfterComma) this.gaps.splice(mark, 0, separator, separator + 1)
    this.#value()
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
    const isPlain = this.#string(SHORT_NAME)
    const end = this.#at
    this.#skipSpace()
    if (this.#peek() !== COLON) throw new CouchError('invalid_json')
    this.#at += 1
    this.#skipSpace()
    return isPlain ? this.#text.slice(start + 1, end - 1) : JSON.parse(this.#text.slice(start, end))
  }

  /** Moves behind a string; true when every character in it stands for itself. */
  #string(likelyLength: number): boolean {
    let at = plainEnd(this.#text, this.#at + 1, likelyLength)
    let c = this.#text.charCodeAt(at)
    const isPlain = c === QUOTE
    while (c !== QUOTE) {
      at = plainEnd(this.#text, oddEnd(this.#text, at), 0)
      c = this.#text.charCodeAt(at)
    }
    this.#at = at + 1
    return isPlain
  }
}

/** @param near how many characters to look at one by one; the rest goes to PLAIN, five times as fast on long texts */
function plainEnd(text: string, start: number, near: number): number {
  let at = start
  for (; at < start + near; at += 1) {
    const c = text.charCodeAt(at)
    if (c === QUOTE || c === BACKSLASH || !(c >= 0x20)) return at
    if (c >= 0xd800) break
  }
  PLAIN.lastIndex = at
  PLAIN.test(text)
  return PLAIN.lastIndex
}

/** Where the escapes or surrogate pairs that begin at `at` end. */
function oddEnd(text: string, at: number): number {
  ODD.lastIndex = at
  if (ODD.test(text)) return ODD.lastIndex
  LONE.lastIndex = at
  throw new CouchError('invalid_json', LONE.test(text) ? 'invalid UTF-8 JSON: lone surrogate' : undefined)
}

function numberEnd(text: string, at: number): number {
  NUMBER.lastIndex = at
  if (!NUMBER.test(text)) throw new CouchError('invalid_json')
  return NUMBER.lastIndex
}
