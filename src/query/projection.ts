/**
 * `fields` of a query or of a selector feed: the parts of a document that are sent. They are cut out of the document's
 * text, so values are sent exactly as they are stored; protocol.md 5.5 and 10.1, CouchDB's mango_fields. Also the names
 * of fields, such as `a.b`, `a.0` and `a\.b`, and the lookup of the values that they name; protocol.md 10.2. Pure.
 */
import { CouchError } from '../core/errors.ts'

/** The maximum number of names in a list of fields, since each document is searched for each of them. */
export const MAX_FIELDS = 1000

/** The position of a value in a text. */
interface Span {
  readonly start: number
  readonly end: number
}

/** A node of the tree of requested fields, with its children by the next step of their paths. */
interface FieldNode {
  readonly children: Map<string, FieldNode>
  /** null until the value is found. */
  span: Span | null
}

/** The members of an object that is being built: each is the text of a value, or a nested object. */
type Parts = Map<string, string | Parts>

/**
 * Keeps the named fields of a document, in the order of the names. Fields that the document lacks are omitted. As in
 * CouchDB, a field of an array element is sent within an object, under the index of the element. The text is scanned
 * once, however many fields there are.
 * @param text JSON of an object, without white space between tokens and without duplicate names
 * @param fields names that `parseFieldPath` accepts
 * @throws invalid_field_name
 */
export function trimFields(text: string, fields: readonly string[]): string {
  const root: FieldNode = { children: new Map(), span: null }
  const nodes = fields.map(parseFieldPath).map((path) => ({ path, node: nodeAt(root, path) }))
  locate(text, root, { start: 0, end: text.length })
  const parts: Parts = new Map()
  for (const { path, node } of nodes) {
    if (node.span !== null) put(parts, path, text.slice(node.span.start, node.span.end))
  }
  return objectText(parts)
}

/**
 * The JSON texts of the values that paths lead to, in the order of the paths.
 * @param text as for {@link trimFields}
 * @returns null if the document lacks one of them
 */
export function fieldTexts(text: string, paths: readonly (readonly string[])[]): string[] | null {
  const root: FieldNode = { children: new Map(), span: null }
  const nodes = paths.map((path) => nodeAt(root, path))
  locate(text, root, { start: 0, end: text.length })
  const texts: string[] = []
  for (const { span } of nodes) {
    if (span === null) return null
    texts.push(text.slice(span.start, span.end))
  }
  return texts
}

/**
 * A document with the given values at the given paths, as JSON.
 * @param fields paths, each with the JSON text of its value; of a path and one below it, the shorter counts
 */
export function documentOf(fields: readonly (readonly [path: readonly string[], text: string])[]): string {
  const parts: Parts = new Map()
  for (const [path, text] of fields) put(parts, path, text)
  return objectText(parts)
}

/** The elements of an array, as JSON texts. @param text as for {@link trimFields} */
export function elementTexts(text: string): string[] {
  const texts: string[] = []
  for (let at = 1; at < text.length - 1; ) {
    const end = valueEnd(text, at)
    texts.push(text.slice(at, end))
    at = end + 1
  }
  return texts
}

/** The node at a path. Missing nodes are created. */
function nodeAt(root: FieldNode, path: readonly string[]): FieldNode {
  let node = root
  for (const step of path) {
    const next = node.children.get(step) ?? { children: new Map(), span: null }
    node.children.set(step, next)
    node = next
  }
  return node
}

function put(parts: Parts, [name = '', ...rest]: readonly string[], value: string): void {
  const existing = parts.get(name)
  // A complete value already contains its parts.
  if (typeof existing === 'string') return
  if (rest.length === 0) {
    parts.set(name, value)
    return
  }
  const nested: Parts = existing ?? new Map()
  parts.set(name, nested)
  put(nested, rest, value)
}

function objectText(parts: Parts): string {
  const members = [...parts].map(([name, value]) => {
    return `${JSON.stringify(name)}:${typeof value === 'string' ? value : objectText(value)}`
  })
  return `{${members.join(',')}}`
}

/** Records where the value of a node is, and the values of its children within it. */
function locate(text: string, node: FieldNode, span: Span): void {
  node.span = span
  if (node.children.size === 0) return
  if (text[span.start] === '{') locateMembers(text, span.start, node.children)
  else if (text[span.start] === '[') locateElements(text, span.start, node.children)
}

function locateMembers(text: string, start: number, nodes: FieldNode['children']): void {
  let left = nodes.size
  for (let at = start + 1; left > 0 && text[at] === '"'; ) {
    const nameEnd = stringEnd(text, at)
    const end = valueEnd(text, nameEnd + 1)
    const node = nodes.get(nameOf(text.slice(at, nameEnd)))
    if (node !== undefined) {
      locate(text, node, { start: nameEnd + 1, end })
      left -= 1
    }
    at = end + 1
  }
}

function nameOf(quoted: string): string {
  return quoted.includes('\\') ? (JSON.parse(quoted) as string) : quoted.slice(1, -1)
}

function locateElements(text: string, start: number, nodes: FieldNode['children']): void {
  const elements = [...nodes]
    .filter(([step]) => isIndex(step))
    .map(([step, node]) => ({ index: Number(step), node }))
    .sort((a, b) => a.index - b.index)
  let index = 0
  let at = start + 1
  if (text[at] === ']') return
  for (const element of elements) {
    for (; index < element.index; index++) {
      const end = valueEnd(text, at)
      if (text[end] !== ',') return
      at = end + 1
    }
    locate(text, element.node, { start: at, end: valueEnd(text, at) })
  }
}

/** The index just after the value that begins at `start`. */
function valueEnd(text: string, start: number): number {
  if (text[start] === '"') return stringEnd(text, start)
  let depth = 0
  for (let at = start; ; at++) {
    const c = text[at]
    if (c === '"') at = stringEnd(text, at) - 1
    else if (c === '{' || c === '[') depth += 1
    else if (c === '}' || c === ']' || c === ',' || c === undefined) {
      // A value without brackets ends before a comma or before the bracket that closes its container.
      if (depth === 0) return at
      if (c === ',') continue
      depth -= 1
      if (depth === 0) return at + 1
    }
  }
}

/** The index just after the closing quote of the string that begins at `start`. */
function stringEnd(text: string, start: number): number {
  for (let at = start; ; ) {
    at = text.indexOf('"', at + 1)
    if (at === -1) return text.length
    // An even number of backslashes before a quote consists of escaped backslashes, so the quote is not escaped.
    let slashes = 0
    while (text[at - 1 - slashes] === '\\') slashes += 1
    if (slashes % 2 === 0) return at + 1
  }
}

/** An object on the path lacks the next member. */
export const ABSENT = Symbol('absent')
/**
 * The path enters a value that is not an object, or leaves the bounds of an array. Selectors distinguish this from
 * ABSENT.
 */
export const UNREACHABLE = Symbol('unreachable')

const UNESCAPED_DOT = /(?<!\\)\./
/** The longest name of a field, in characters. */
const MAX_FIELD_LENGTH = 1000
/** An index of an array; no array is so long that an index has more digits. */
const INDEX = /^\d{1,16}$/

/**
 * Splits the name of a field into the steps of its path.
 * @throws invalid_field_name if a step is empty or the name is too long
 */
export function parseFieldPath(field: string): readonly string[] {
  if (field.length > MAX_FIELD_LENGTH) throw invalidName(field)
  const steps = field.includes('\\')
    ? field.split(UNESCAPED_DOT).map((step) => step.replaceAll('\\', ''))
    : field.split('.')
  if (steps.includes('')) throw invalidName(field)
  return steps
}

function invalidName(field: string): CouchError {
  return new CouchError('invalid_field_name', `Invalid field name: ${field.slice(0, 200)}`)
}

/** Whether a step may be an index of an array. */
function isIndex(step: string): boolean {
  return INDEX.test(step)
}

/** The value that a path leads to, or {@link ABSENT} or {@link UNREACHABLE}. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let found = value
  for (const step of path) {
    if (typeof found !== 'object' || found === null) return UNREACHABLE
    if (Array.isArray(found)) {
      if (!isIndex(step) || Number(step) >= found.length) return UNREACHABLE
      found = found[Number(step)]
    } else {
      if (!Object.hasOwn(found, step)) return ABSENT
      found = (found as Record<string, unknown>)[step]
    }
  }
  return found
}
