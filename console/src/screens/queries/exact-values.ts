/** Values of JSON for tables, with their numbers as the server has sent them. Pure. */

/** What browsers tell a reviver of `JSON.parse` about a value (ECMAScript's "JSON.parse source text access"). */
interface Context {
  readonly source?: string
}

/** A number that a double cannot hold, or that JavaScript would write in another way. */
export class ExactNumber {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

type Reviver = (this: unknown, key: string, value: unknown, context?: Context) => unknown

const keepNumbers: Reviver = (_key, value, context) =>
  typeof value === 'number' && context?.source !== undefined && String(value) !== context.source
    ? new ExactNumber(context.source)
    : value

/** Parses JSON. Browsers without source text access round its numbers. @throws SyntaxError */
export function parseExactly(text: string): unknown {
  return JSON.parse(text, keepNumbers)
}

/** @returns a value as JSON on one line, at most `most` characters of it */
export function shortText(value: unknown, most: number): string {
  const text = typeof value === 'string' ? value : jsonText(value, most)
  return text.length > most ? `${text.slice(0, most - 1)}…` : text
}

/** Stops early: a cell shows only the beginning. */
function jsonText(value: unknown, most: number): string {
  if (value instanceof ExactNumber) return value.text
  if (Array.isArray(value)) return joined(value, '[', ']', most, (each, left) => jsonText(each, left))
  if (typeof value === 'object' && value !== null) {
    const text = ([name, each]: [string, unknown], left: number) =>
      `${JSON.stringify(name)}: ${jsonText(each, left)}`
    return joined(Object.entries(value), '{', '}', most, text)
  }
  return JSON.stringify(value) ?? ''
}

function joined<Each>(
  list: readonly Each[],
  open: string,
  close: string,
  most: number,
  textOf: (each: Each, left: number) => string,
): string {
  let text = open
  for (const [at, each] of list.entries()) {
    if (text.length > most) return text
    text += `${at === 0 ? '' : ', '}${textOf(each, most - text.length)}`
  }
  return text + close
}

/** Columns of a table of documents, beside the id. */
const MAX_COLUMNS = 7

/**
 * The columns for documents: those that most of them have, in the order in which they come.
 * @param wanted the fields of the query; empty: all
 */
export function columnsFor(
  docs: readonly Readonly<Record<string, unknown>>[],
  wanted: readonly string[],
): readonly string[] {
  if (wanted.length > 0) return wanted.filter((name) => name !== '_id').slice(0, MAX_COLUMNS)
  const counts = new Map<string, number>()
  for (const doc of docs) {
    for (const name of Object.keys(doc)) {
      if (!name.startsWith('_')) counts.set(name, (counts.get(name) ?? 0) + 1)
    }
  }
  const names = [...counts.keys()]
  const kept = new Set(
    [...names].sort((a, b) => (counts.get(b) ?? 0) - (counts.get(a) ?? 0)).slice(0, MAX_COLUMNS),
  )
  return names.filter((name) => kept.has(name))
}

/** @returns the value of a field such as `author.name` of a document */
export function fieldOf(doc: Readonly<Record<string, unknown>>, field: string): unknown {
  if (Object.hasOwn(doc, field)) return doc[field]
  let value: unknown = doc
  for (const name of field.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined
    value = (value as Record<string, unknown>)[name]
  }
  return value
}
