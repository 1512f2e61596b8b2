/**
 * Validates the text of one JSON object (RFC 8259) and lists the parts to omit, so that the rest is kept character by
 * character (architecture.md, "Bodies"). One pass lists edits in the text's own coordinates and copies nothing. body.ts
 * applies them and copies each character at most once, however deeply duplicates are nested. The pass can stop after
 * every few members and continue later, so that a long document does not block its thread.
 */
import { CouchError } from '../core/errors.ts'

/** Maximum depth of containers in a document, not counting the document (architecture.md, "Bodies"). */
const MAX_DEPTH = 512
/**
 * Maximum number of values in a document. A document of 8 MB, the default limit, has fewer unless they are as short as
 * `1`.
 */
export const MAX_VALUES = 2_000_000
/**
 * Maximum number of members in all objects that are open at one position of a document. Their names take about 60 MB of
 * memory.
 */
const MAX_OPEN_MEMBERS = 400_000
/** Maximum number of names in a document that occur more than once in their object. */
const MAX_DUPLICATES = 10_000
/** Up to this number an object's names are compared one by one, which is faster than hashing them. */
const FEW_MEMBERS = 10
/** Characters of white space that are skipped one by one; an expression is faster after them. */
const SHORT_SPACE = 16
/** Members, elements or parts of a string between two checks of the clock. */
const STEPS = 32

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/** A span of the text that the span `from` to `to` replaces; all are indices of UTF-16 units. */
interface Edit {
  readonly start: number
  end: number
  from: number
  to: number
}

export interface ScannedDocument {
  /** The JSON text of the value of each member that was cut out; of duplicates, the last. */
  readonly cut: ReadonlyMap<string, string>
  /** Other spans to leave out: start, end, start, end... in the order of their starts; spans may be nested. */
  readonly gaps: readonly number[]
  /** The first members of a name, which later members replace; the later members are among the gaps. */
  readonly moves: readonly Edit[]
}

/** Whether a member of the top level is cut out, by its decoded name. */
export type IsCut = (name: string) => boolean

/** The members of one object that are kept, each at its first position. */
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

  add(name: string, start: number): Edit {
    const member = { name, start, end: start, from: start, to: start }
    this.#index?.set(name, member)
    if (this.#list.push(member) === FEW_MEMBERS)
      this.#index = new Map(this.#list.map((one) => [one.name, one]))
    return member
  }
}

/** An object or an array that is being read, and the member whose value is being read. */
interface Frame {
  /** undefined: an array. */
  readonly members: Members | undefined
  readonly isCut: IsCut | undefined
  /** Members so far. */
  count: number
  isFirst: boolean
  name: string
  /** Where the member begins; `value` is where its value begins. */
  start: number
  value: number
  /** The start of the separator from the member before. */
  separator: number
  /** The index of the first gap at or after that position. */
  gap: number
  /** The position of the member; undefined if it is cut out. */
  edit: Edit | undefined
}

/**
 * Finds the parts to leave out of the text of a JSON object: chosen members, white space between tokens, and
 * duplicates, at every level. The last member of a name takes the position of the first, as with JSON.parse and
 * JSON.stringify. The scanner cannot be used after an error.
 */
export class DocumentScanner implements ScannedDocument {
  readonly cut = new Map<string, string>()
  readonly gaps: number[] = []
  readonly moves: Edit[] = []
  readonly #text: string
  readonly #expressions: StringExpressions
  readonly #frames: Frame[] = []
  #at: number
  #values = 0
  #openMembers = 0
  #isInString = false

  /**
   * @param text JSON text
   * @param start the start of the object, or of white space before it
   * @throws CouchError `invalid_json` where no object begins
   */
  constructor(text: string, start: number, isCut: IsCut) {
    this.#text = text
    this.#at = start
    this.#expressions = expressionsFor(text.length - start)
    this.#skipSpace()
    if (this.#peek() !== OPEN_BRACE) throw new CouchError('invalid_json')
    this.#open(new Members(), isCut)
  }

  /** Values so far, members and elements counted. */
  get values(): number {
    return this.#values
  }

  /** The index after the text that has been read. */
  get position(): number {
    return this.#at
  }

  /**
   * Reads until the object ends, or until `isDue` returns true.
   * @returns whether the object has ended
   * @throws CouchError `invalid_json` where JSON.parse would throw, and for a lone surrogate; `too_deep`;
   * `document_too_large` for too many values, members or duplicates
   */
  advance(isDue?: () => boolean): boolean {
    for (let steps = 1; ; steps += 1) {
      const frame = this.#frames[this.#frames.length - 1]
      if (frame === undefined) return true
      if (steps % STEPS === 0 && isDue?.()) return false
      if (this.#isInString) this.#readString(frame)
      else this.#next(frame)
    }
  }

  /** @throws CouchError `invalid_json` unless only white space follows the object */
  end(): void {
    this.#skipSpace()
    if (this.#at !== this.#text.length) throw new CouchError('invalid_json')
  }

  /** The next character; NaN at the end of the text, which equals no character. */
  #peek(): number {
    return this.#text.charCodeAt(this.#at)
  }

  #skipSpace(): void {
    const start = this.#at
    let c = this.#peek()
    while (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) {
      this.#at += 1
      if (this.#at - start === SHORT_SPACE) this.#passes(SPACE)
      c = this.#peek()
    }
    if (this.#at > start) this.gaps.push(start, this.#at)
  }

  /** Moves past the match of a sticky expression here, if it matches. */
  #passes(expression: RegExp): boolean {
    expression.lastIndex = this.#at
    if (!expression.test(this.#text)) return false
    this.#at = expression.lastIndex
    return true
  }

  #open(members: Members | undefined, isCut: IsCut | undefined): void {
    if (this.#frames.length > MAX_DEPTH) throw new CouchError('too_deep')
    this.#at += 1
    const member = { name: '', start: 0, value: 0, separator: 0, gap: 0, edit: undefined }
    this.#frames.push({ members, isCut, count: 0, isFirst: true, ...member })
  }

  /** Reads the next member or element up to the end or the start of its value, or the end of the container. */
  #next(frame: Frame): void {
    frame.separator = this.#at
    frame.gap = this.gaps.length
    if (this.#leaves(frame)) return
    if (frame.isFirst) frame.isFirst = false
    else {
      frame.separator = this.#at
      frame.gap = this.gaps.length
      if (this.#peek() !== COMMA) throw new CouchError('invalid_json')
      this.#at += 1
      this.#skipSpace()
    }
    this.#values += 1
    if (this.#values > MAX_VALUES) throw tooManyValues()
    if (frame.members === undefined) this.#value(frame)
    else this.#member(frame, frame.members)
  }

  /** Moves past the container's end if it is next. */
  #leaves({ members, count }: Frame): boolean {
    this.#skipSpace()
    if (this.#peek() !== (members === undefined ? CLOSE_BRACKET : CLOSE_BRACE)) return false
    this.#at += 1
    this.#openMembers -= count
    this.#frames.pop()
    const parent = this.#frames[this.#frames.length - 1]
    if (parent !== undefined) this.#ended(parent)
    return true
  }

  #member(frame: Frame, members: Members): void {
    frame.count += 1
    this.#openMembers += 1
    if (this.#openMembers > MAX_OPEN_MEMBERS) throw tooManyMembers()
    frame.start = this.#at
    if (this.#passes(this.#expressions.member)) {
      const quote = this.#text.indexOf('"', frame.start + 1)
      frame.name = this.#text.slice(frame.start + 1, quote)
      frame.value = quote + 2
      this.#place(frame, members)
      this.#ended(frame)
    } else {
      frame.name = this.#name()
      frame.value = this.#at
      this.#place(frame, members)
      this.#value(frame)
    }
  }

  /** Finds the position of a member before its end is known. */
  #place(frame: Frame, members: Members): void {
    const { name, start, separator, gap } = frame
    frame.edit = undefined
    if (frame.isCut?.(name)) return
    // The first member that is kept has no comma before it, even if members before it were cut out.
    if (members.isEmpty && this.#text.charCodeAt(separator) === COMMA) {
      this.gaps.splice(gap, 0, separator, separator + 1)
    }
    const first = members.find(name)
    frame.edit = first ?? members.add(name, start)
    if (first === undefined) return
    // The gaps inside remain listed: they are needed when the member is written at the position of the first.
    this.gaps.splice(gap, 0, separator, separator)
    if (first.from !== first.start) return
    if (this.moves.push(first) > MAX_DUPLICATES) throw tooManyDuplicates()
  }

  /** A value of the container has ended. */
  #ended(frame: Frame): void {
    if (frame.members === undefined) return
    const { edit, start, separator, gap } = frame
    const end = this.#at
    if (edit === undefined) {
      this.cut.set(frame.name, this.#text.slice(frame.value, end))
      if (this.gaps.length > gap) this.gaps.length = gap
      this.gaps.push(separator, end)
    } else if (edit.start === start) {
      edit.end = end
      edit.to = end
    } else {
      edit.from = start
      edit.to = end
      this.gaps[gap + 1] = end
    }
  }

  #value(frame: Frame): void {
    const c = this.#peek()
    if (c === QUOTE) {
      this.#at += 1
      this.#isInString = true
      this.#readString(frame)
    } else if (c === OPEN_BRACE) this.#open(new Members(), undefined)
    else if (c === OPEN_BRACKET) this.#open(undefined, undefined)
    else if (this.#passes(NUMBER_OR_WORD)) this.#ended(frame)
    else throw new CouchError('invalid_json')
  }

  /** Moves past a name and its colon. */
  #name(): string {
    const start = this.#at
    if (this.#peek() !== QUOTE) throw new CouchError('invalid_json')
    const isPlain = this.#passes(this.#expressions.string)
    if (!isPlain) {
      this.#at += 1
      while (this.#peek() !== QUOTE) this.#readParts()
      this.#at += 1
    }
    const end = this.#at
    this.#skipSpace()
    if (this.#peek() !== COLON) throw new CouchError('invalid_json')
    this.#at += 1
    this.#skipSpace()
    return isPlain ? this.#text.slice(start + 1, end - 1) : JSON.parse(this.#text.slice(start, end))
  }

  /** Moves forward in a string that is a value of the container, or past it. */
  #readString(frame: Frame): void {
    if (this.#peek() !== QUOTE) this.#readParts()
    if (this.#peek() !== QUOTE) return
    this.#at += 1
    this.#isInString = false
    this.#ended(frame)
  }

  /** @throws CouchError `invalid_json` for characters that a string cannot contain */
  #readParts(): void {
    if (this.#passes(this.#expressions.parts)) return
    const reason = this.#passes(LONE) ? 'invalid UTF-8 JSON: lone surrogate' : undefined
    throw new CouchError('invalid_json', reason)
  }
}

/** The error for a document with more than {@link MAX_VALUES} values. */
export function tooManyValues(): CouchError {
  return new CouchError('document_too_large', `a document holds more than ${MAX_VALUES} JSON values`)
}

function tooManyMembers(): CouchError {
  return new CouchError(
    'document_too_large',
    `a document holds objects of more than ${MAX_OPEN_MEMBERS} members`,
  )
}

function tooManyDuplicates(): CouchError {
  const reason = `a document holds more than ${MAX_DUPLICATES} names that occur more than once in their object`
  return new CouchError('document_too_large', reason)
}

// Sticky expressions for the tokens of a JSON text (RFC 8259).

const OTHER = '-?(?:0|[1-9]\\d*)(?:\\.\\d+)?(?:[eE][-+]?\\d+)?|true|false|null'
const SPACE = /[ \t\n\r]*/y
const NUMBER_OR_WORD = new RegExp(OTHER, 'y')
/** Half of a surrogate pair, escaped or not. */
const LONE = /\\u[dD][89a-fA-F][\da-fA-F]{2}|[\ud800-\udfff]/y

/** Expressions for strings; runs of plain characters have any length, or a bounded one. */
interface StringExpressions {
  /**
   * A string of plain characters. An expression takes 40 ns and 0.7 ns for each character; a loop takes 2.7 ns for
   * each character.
   */
  readonly string: RegExp
  /** A member whose value is not a container, as most are. One match takes a third of the time of its parts. */
  readonly member: RegExp
  /** Some parts of a string. Without a maximum of parts the expression's stack would overflow. */
  readonly parts: RegExp
}

/** No string in a text of up to this length takes long. */
const SHORT_TEXT = 1024 * 1024
const OF_SHORT_TEXT = expressions('*', '+')
const OF_LONG_TEXT = expressions('{0,16384}', '{1,16384}')

function expressions(any: string, some: string): StringExpressions {
  // A surrogate is not plain, since it must be one of a pair.
  const plain = '[^"\\\\\\u0000-\\u001f\\ud800-\\udfff]'
  const escaped =
    '\\\\(?:["\\\\/bfnrt]|u(?:(?![dD][89a-fA-F])[\\da-fA-F]{4}|[dD][89abAB][\\da-fA-F]{2}\\\\u[dD][c-fC-F][\\da-fA-F]{2}))'
  const string = `"${plain}${any}"`
  return {
    string: new RegExp(string, 'y'),
    member: new RegExp(`${string}:(?:${string}|${OTHER})`, 'y'),
    parts: new RegExp(`(?:${plain}${some}|${escaped}|[\\ud800-\\udbff][\\udc00-\\udfff]){1,32}`, 'y'),
  }
}

/** @param length of the text in UTF-16 units */
function expressionsFor(length: number): StringExpressions {
  return length > SHORT_TEXT ? OF_LONG_TEXT : OF_SHORT_TEXT
}
