/**
 * `fields` of a selector feed: the parts of a document that are sent. They are cut out of the document's text, so that
 * values come as they were stored; protocol.md 5.5, CouchDB's mango_fields.
 */
import { parseFieldPath } from '../query/field-path.ts'

/** A value's place in a text. */
interface Span {
  readonly start: number
  readonly end: number
}

/** Values, by name, of an object that is put together: the text of one, or a further object. */
type Parts = Map<string, string | Parts>

/**
 * Keeps the named fields of a document, in the order of the names; those that it lacks are left out. A field of an
 * array's element comes in an object of its own under the element's number, as CouchDB has it.
 * @param text JSON of an object without white space between its tokens and without duplicate names
 * @param fields names as `parseFieldPath` reads them
 * @throws invalid_selector for a malformed name
 */
export function trimFields(text: string, fields: readonly string[]): string {
  const parts: Parts = new Map()
  for (const path of fields.map(parseFieldPath)) {
    const span = findValue(text, path)
    if (span !== null) put(parts, path, text.slice(span.start, span.end))
  }
  return objectText(parts)
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

function findValue(text: string, path: readonly string[]): Span | null {
  let span: Span | null = { start: 0, end: text.length }
  for (const step of path) {
    if (span === null) return null
    const start: number = span.start
    if (text[start] === '{') span = findMember(text, start, step)
    else span = text[start] === '[' ? findElement(text, start, step) : null
  }
  return span
}

function findMember(text: string, start: number, wanted: string): Span | null {
  for (let at = start + 1; text[at] === '"'; ) {
    const nameEnd = stringEnd(text, at)
    const end = valueEnd(text, nameEnd + 1)
    if (isName(text.slice(at, nameEnd), wanted)) return { start: nameEnd + 1, end }
    at = end + 1
  }
  return null
}

function isName(quoted: string, wanted: string): boolean {
  return quoted.includes('\\') ? JSON.parse(quoted) === wanted : quoted.slice(1, -1) === wanted
}

function findElement(text: string, start: number, wanted: string): Span | null {
  if (!/^\d+$/.test(wanted) || text[start + 1] === ']') return null
  let at = start + 1
  for (let index = 0; ; index++) {
    const end = valueEnd(text, at)
    if (index === Number(wanted)) return { start: at, end }
    if (text[end] !== ',') return null
    at = end + 1
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
  for (let at = start + 1; ; at++) {
    const c = text[at]
    if (c === '\\') at++
    else if (c === '"' || c === undefined) return at + 1
  }
}
