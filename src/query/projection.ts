/**
 * `fields` of a query or of a selector feed: the parts of a document that are sent. They are cut out of the document's
 * text, so that values come as they were stored; protocol.md 5.5 and 10.1, CouchDB's mango_fields.
 */
import { CouchError } from '../core/errors.ts'

/** Names of fields that are sent: each is looked for in each document. */
export const MAX_FIELDS = 1000

/** A value's place in a text. */
interface Span {
  readonly start: number
  readonly end: number
}

/** Fields that are looked for, by the next step of their ways. */
interface Wanted {
  readonly below: Map<string, Wanted>
  /** null until it is found. */
  span: Span | null
}

/** Values, by name, of an object that is put together: the text of one, or a further object. */
type Parts = Map<string, string | Parts>

/**
 * Keeps the named fields of a document, in the order of the names; those that it lacks are left out. A field of an
 * array's element comes in an object of its own under the element's number, as CouchDB has it. The text is gone
 * through once, however many fields there are.
 * @param text JSON of an object without white space between its tokens and without duplicate names
 * @param fields names as `parseFieldPath` reads them
 * @throws invalid_selector for a malformed name
 */
export function trimFields(text: string, fields: readonly string[]): string {
  const root: Wanted = { below: new Map(), span: null }
  const fieldsWanted = fields.map(parseFieldPath).map((path) => ({ path, wanted: plant(root, path) }))
  found(text, root, { start: 0, end: text.length })
  const parts: Parts = new Map()
  for (const { path, wanted } of fieldsWanted) {
    if (wanted.span !== null) put(parts, path, text.slice(wanted.span.start, wanted.span.end))
  }
  return objectText(parts)
}

/** @returns the end of a way that leads there from now on */
function plant(root: Wanted, path: readonly string[]): Wanted {
  let at = root
  for (const step of path) {
    const next = at.below.get(step) ?? { below: new Map(), span: null }
    at.below.set(step, next)
    at = next
  }
  return at
}

function put(parts: Parts, [name = '', ...rest]: readonly string[], value: string): void {
  const there = parts.get(name)
  // What is there whole holds its parts already.
  if (typeof there === 'string') return
  if (rest.length === 0) {
    parts.set(name, value)
    return
  }
  const below: Parts = there ?? new Map()
  parts.set(name, below)
  put(below, rest, value)
}

function objectText(parts: Parts): string {
  const members = [...parts].map(([name, value]) => {
    return `${JSON.stringify(name)}:${typeof value === 'string' ? value : objectText(value)}`
  })
  return `{${members.join(',')}}`
}

function found(text: string, wanted: Wanted, span: Span): void {
  wanted.span = span
  if (wanted.below.size === 0) return
  if (text[span.start] === '{') findMembers(text, span.start, wanted.below)
  else if (text[span.start] === '[') findElements(text, span.start, wanted.below)
}

function findMembers(text: string, start: number, wanted: Wanted['below']): void {
  let left = wanted.size
  for (let at = start + 1; left > 0 && text[at] === '"'; ) {
    const nameEnd = stringEnd(text, at)
    const end = valueEnd(text, nameEnd + 1)
    const one = wanted.get(nameOf(text.slice(at, nameEnd)))
    if (one !== undefined) {
      found(text, one, { start: nameEnd + 1, end })
      left -= 1
    }
    at = end + 1
  }
}

function nameOf(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1)
}

function findElements(text: string, start: number, wanted: Wanted['below']): void {
  const places = [...wanted]
    .filter(([step]) => isPlace(step))
    .map(([step, one]) => ({ index: Number(step), one }))
    .sort((a, b) => a.index - b.index)
  let index = 0
  let at = start + 1
  if (text[at] === ']') return
  for (const place of places) {
    for (; index < place.index; index++) {
      const end = valueEnd(text, at)
      if (text[end] !== ',') return
      at = end + 1
    }
    found(text, place.one, { start: at, end: valueEnd(text, at) })
  }
}

/** Index behind the value that begins at an index. */
function valueEnd(text: string, start: number): number {
  if (text[start] === '"') return stringEnd(text, start)
  let depth = 0
  for (let at = start; ; at++) {
    const c = text[at]
    if (c === '"') at = stringEnd(text, at) - 1
    else if (c === '{' || c === '[') depth += 1
    else if (c === '}' || c === ']' || c === ',' || c === undefined) {
      // The comma, or the bracket of what is around it, behind a value without brackets.
      if (depth === 0) return at
      if (c === ',') continue
      depth -= 1
      if (depth === 0) return at + 1
    }
  }
}

/** Index behind the closing quote of the string that begins at an index. */
function stringEnd(text: string, start: number): number {
  for (let at = start; ; ) {
    at = text.indexOf('"', at + 1)
    if (at === -1) return text.length
    // An even number of backslashes before a quote is of pairs.
    let slashes = 0
    while (text[at - 1 - slashes] === '\\') slashes += 1
    if (slashes % 2 === 0) return at + 1
  }
}

// Names of fields in selectors and lists of fields: `a.b`, `a.0`, `a\.b`; protocol.md 10.2. Pure.

/** No such member on the way. */
export const ABSENT = Symbol('absent')
/** A step that leads into what is no object, or out of an array: for selectors this is not the same. */
export const NO_WAY = Symbol('no way')

const UNESCAPED_DOT = /(?<!\\)\./
/** Characters of a field's name. */
const MAX_FIELD = 1000
/** A place in an array; no array is so long that it has more digits. */
const PLACE = /^\d{1,16}$/

/**
 * The steps of a field's name.
 * @throws invalid_selector when one of them is empty, or the name very long
 */
export function parseFieldPath(field: string): readonly string[] {
  if (field.length > MAX_FIELD) throw invalidName(field)
  const steps = field.includes('\\')
    ? field.split(UNESCAPED_DOT).map((step) => step.replaceAll('\\', ''))
    : field.split('.')
  if (steps.includes('')) throw invalidName(field)
  return steps
}

function invalidName(field: string): CouchError {
  return new CouchError('invalid_selector', `Invalid field name: ${field.slice(0, 200)}`)
}

/** Whether a step may be a place in an array, from 0. */
function isPlace(step: string): boolean {
  return PLACE.test(step)
}

/** The value that a path leads to, or {@link ABSENT} or {@link NO_WAY}. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const step of path) {
    if (typeof found !== 'object' || found === null) return NO_WAY
    if (Array.isArray(found)) {
      if (!isPlace(step) || Number(step) >= found.length) return NO_WAY
      found = found[Number(step)]
    } else {
      if (!Object.hasOwn(found, step)) return ABSENT
      found = (found as Record<string, unknown>)[step]
    }
  }
  return found
}
