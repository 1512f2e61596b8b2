/**
 * Parses a long JSON text in slices. Values, depth and strings are bounded, and a value of the wrong kind is refused
 * where it begins. JSON.parse would block the thread for seconds and fill the memory before any check. The result
 * equals that of JSON.parse.
 */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isJsonObject, MAX_JSON_DEPTH } from '../core/json.ts'

/** The values that a place in a body accepts. Absent members allow anything. */
export interface Schema {
  /** Called when the kind of the value is known; a container is still empty. @throws CouchError to refuse it */
  readonly check?: (value: unknown) => void
  /** Maximum number of characters in a container, at least 32,768: a body of up to that size is not measured. */
  readonly maxLength?: number
  /** The error for a longer container; `too_large` by default. */
  readonly tooLong?: () => CouchError
  /** Maximum number of elements or members. */
  readonly maxCount?: number
  /** The error for more of them; `too_large` by default. */
  readonly tooMany?: () => CouchError
  /** The schema of the elements of an array. */
  readonly elements?: Schema
  /** The schemas of the members of an object, by name. */
  readonly members?: Readonly<Record<string, Schema>>
  /** The schema of all other members. */
  readonly others?: Schema
}

/** Maximum number of characters in a string or number. */
const MAX_TOKEN = 2 * 1024 * 1024
/** Steps between two checks of the clock, and characters of white space in one step. */
const STEPS = 64
const SPACE_STEP = 1024

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

// biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 8259 7 forbids these in strings
const PLAIN_STRING = /"[^"\\\u0000-\u001f]*"/y
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/y
const WORDS: readonly (readonly [string, unknown])[] = [
  ['true', true],
  ['false', false],
  ['null', null],
]

/** The next token; `first` is an element or a member, or the end of an empty container. */
type Expected = 'value' | 'first' | 'name' | 'colon' | 'next' | 'end'

interface Frame {
  readonly value: unknown[] | Record<string, unknown>
  readonly schema: Schema | undefined
  readonly start: number
  count: number
  /** The name of the member that is being read. */
  name: string
}

/** A parser of one text; it cannot be used after an error. */
export class JsonParser {
  readonly #text: string
  readonly #schema: Schema
  readonly #maxValues: number
  readonly #maxToken: number
  readonly #frames: Frame[] = []
  #at = 0
  #expected: Expected = 'value'
  #values = 0
  /** The value, once {@link advance} has returned true. */
  value: unknown

  /**
   * @param maxValues maximum of values, containers and their contents counted alike
   * @param maxToken maximum of characters in a string or a number
   */
  constructor(text: string, schema: Schema, maxValues: number, maxToken: number = MAX_TOKEN) {
    this.#text = text
    this.#schema = schema
    this.#maxValues = maxValues
    this.#maxToken = maxToken
  }

  /**
   * Reads until the text ends, or until `isDue` returns true.
   * @returns whether the text has ended
   * @throws CouchError invalid_json, too_deep, too_large; and the errors of the schema
   */
  advance(isDue: () => boolean): boolean {
    for (let steps = 1; ; steps += 1) {
      if (steps % STEPS === 0 && isDue()) return false
      if (this.#skipSpace()) continue
      if (this.#at === this.#text.length) {
        if (this.#expected !== 'end') throw new CouchError('invalid_json')
        return true
      }
      this.#step(this.#text.charCodeAt(this.#at))
    }
  }

  /** @returns whether more white space may follow */
  #skipSpace(): boolean {
    const end = this.#at + SPACE_STEP
    let c = this.#text.charCodeAt(this.#at)
    while (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) {
      this.#at += 1
      if (this.#at === end) return true
      c = this.#text.charCodeAt(this.#at)
    }
    return false
  }

  #step(c: number): void {
    const frame = this.#frames.at(-1)
    const isInArray = Array.isArray(frame?.value)
    const expected = this.#expected
    if (expected === 'first' && (c === CLOSE_BRACKET || c === CLOSE_BRACE)) this.#close(c, frame)
    else if (expected === 'value' || (expected === 'first' && isInArray)) this.#begin(c, frame)
    else if (expected === 'name' || expected === 'first') this.#name(c, frame)
    else if (expected === 'colon' && c === COLON) this.#pass('value')
    else if (expected === 'next' && c === COMMA) this.#pass(isInArray ? 'value' : 'name')
    else if (expected === 'next') this.#close(c, frame)
    else throw new CouchError('invalid_json')
  }

  /** Moves past one character. */
  #pass(expected: Expected): void {
    this.#at += 1
    this.#expected = expected
  }

  #begin(c: number, parent: Frame | undefined): void {
    this.#values += 1
    if (this.#values > this.#maxValues) throw tooMany(`${this.#maxValues} JSON values`)
    const schema = parent === undefined ? this.#schema : schemaIn(parent.schema, parent.value, parent.name)
    if (parent !== undefined) checkCount(parent.schema, ++parent.count)
    if (c === OPEN_BRACE || c === OPEN_BRACKET) {
      this.#open(c === OPEN_BRACE ? {} : [], schema)
      return
    }
    const value = c === QUOTE ? this.#string() : this.#scalar()
    schema?.check?.(value)
    this.#complete(value, parent)
  }

  #open(value: Frame['value'], schema: Schema | undefined): void {
    if (this.#frames.length === MAX_JSON_DEPTH) throw new CouchError('too_deep')
    schema?.check?.(value)
    this.#frames.push({ value, schema, start: this.#at, count: 0, name: '' })
    this.#pass('first')
  }

  #close(c: number, frame: Frame | undefined): void {
    if (frame === undefined || c !== (Array.isArray(frame.value) ? CLOSE_BRACKET : CLOSE_BRACE)) {
      throw new CouchError('invalid_json')
    }
    this.#at += 1
    const max = frame.schema?.maxLength ?? Number.POSITIVE_INFINITY
    if (this.#at - frame.start > max) throw frame.schema?.tooLong?.() ?? tooLong(max)
    this.#frames.pop()
    this.#complete(frame.value, this.#frames.at(-1))
  }

  #complete(value: unknown, parent: Frame | undefined): void {
    this.#expected = parent === undefined ? 'end' : 'next'
    if (parent === undefined) this.value = value
    else if (Array.isArray(parent.value)) parent.value.push(value)
    else if (parent.name !== '__proto__') parent.value[parent.name] = value
    else {
      const own = { value, enumerable: true, configurable: true, writable: true }
      Object.defineProperty(parent.value, parent.name, own)
    }
  }

  #name(c: number, frame: Frame | undefined): void {
    if (c !== QUOTE || frame === undefined) throw new CouchError('invalid_json')
    frame.name = this.#string()
    this.#expected = 'colon'
  }

  #string(): string {
    const start = this.#at
    PLAIN_STRING.lastIndex = start
    const isPlain = PLAIN_STRING.test(this.#text)
    const end = isPlain ? PLAIN_STRING.lastIndex : this.#stringEnd()
    if (end - start > this.#maxToken) throw tooLong(this.#maxToken)
    this.#at = end
    return isPlain ? this.#text.slice(start + 1, end - 1) : parsedString(this.#text.slice(start, end))
  }

  /** The index after a string with escapes. */
  #stringEnd(): number {
    const end = Math.min(this.#text.length, this.#at + this.#maxToken + 1)
    let at = this.#at + 1
    for (let c = this.#text.charCodeAt(at); c !== QUOTE; c = this.#text.charCodeAt(at)) {
      at += c === BACKSLASH ? 2 : 1
      if (at >= this.#text.length) throw new CouchError('invalid_json')
      if (at >= end) throw tooLong(this.#maxToken)
    }
    return at + 1
  }

  #scalar(): unknown {
    const start = this.#at
    for (const [word, value] of WORDS) {
      if (!this.#text.startsWith(word, start)) continue
      this.#at += word.length
      return value
    }
    NUMBER.lastIndex = start
    if (!NUMBER.test(this.#text)) throw new CouchError('invalid_json')
    this.#at = NUMBER.lastIndex
    if (this.#at - start > this.#maxToken) throw tooLong(this.#maxToken)
    return Number(this.#text.slice(start, this.#at))
  }
}

/** Characters of a stored document that JSON.parse reads in one step; the worst case took 4 ms. */
export const MAX_PARSED_AT_ONCE = 128 * 1024

/**
 * JSON.parse in steps of a few milliseconds, without bounds.
 * @param text stored JSON, so known to be valid
 */
export async function parseInSteps(text: string): Promise<unknown> {
  const unbounded = Number.POSITIVE_INFINITY
  const parser = new JsonParser(text, {}, unbounded, unbounded)
  const yielder = new Yielder()
  while (!parser.advance(() => yielder.isDue)) await yielder.yieldNow()
  return parser.value
}

/**
 * Checks a value from JSON.parse against a schema, except for lengths.
 * @throws CouchError as the schema says
 */
export function checkSchema(value: unknown, schema: Schema): void {
  schema.check?.(value)
  if (typeof value !== 'object' || value === null) return
  if (Array.isArray(value)) {
    checkCount(schema, value.length)
    if (schema.elements === undefined) return
    for (const element of value) checkSchema(element, schema.elements)
    return
  }
  const names = Object.keys(value)
  checkCount(schema, names.length)
  for (const name of names) {
    const inner = schemaIn(schema, value, name)
    if (inner !== undefined) checkSchema((value as Record<string, unknown>)[name], inner)
  }
}

function schemaIn(outer: Schema | undefined, container: object, name: string): Schema | undefined {
  if (outer === undefined) return undefined
  if (Array.isArray(container)) return outer.elements
  const { members } = outer
  return members !== undefined && Object.hasOwn(members, name) ? members[name] : outer.others
}

function checkCount(schema: Schema | undefined, count: number): void {
  if (schema?.maxCount === undefined || count <= schema.maxCount) return
  throw schema.tooMany?.() ?? tooMany(`${schema.maxCount} entries in this list`)
}

function parsedString(json: string): string {
  try {
    return JSON.parse(json) as string
  } catch {
    throw new CouchError('invalid_json')
  }
}

function tooMany(what: string): CouchError {
  return new CouchError('too_large', `the request entity is too large: this call takes at most ${what}`)
}

function tooLong(max: number): CouchError {
  const reason = `the request entity is too large: a value in it is longer than ${max} characters`
  return new CouchError('too_large', reason)
}

/** @throws body_not_object */
export function checkObject(value: unknown): void {
  if (!isJsonObject(value)) throw new CouchError('body_not_object')
}
