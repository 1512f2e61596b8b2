/**
 * The json indexes of Mango (protocol.md 10.4): members of `views` of design documents with the language `query`, and the
 * key that an index has for a document. Pure.
 */
import { isDesignId } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { fieldTexts, MAX_FIELDS, parseFieldPath } from './projection.ts'
import { compileSelector, type Selector } from './selector.ts'

export interface MangoIndex {
  /** The id of its design document. */
  readonly ddoc: string
  /** Its name in `views`. */
  readonly name: string
  /** The names of its fields with `asc` or `desc`, in the order of its keys. The direction has no effect. */
  readonly fields: readonly (readonly [field: string, direction: unknown])[]
  /**
   * The index has only the documents that match this selector; null for all documents. It may not be valid, since
   * design documents are stored without a check of it, as in CouchDB.
   */
  readonly partialFilter: Readonly<Record<string, unknown>> | null
  /** Whether it serves the queries of single partitions, and no others: its rows are in the order of their partitions. */
  readonly partitioned: boolean
  /** The member `map` of its view. */
  readonly definition: Readonly<Record<string, unknown>>
}

/** The language of design documents whose views are indexes. */
export const QUERY_LANGUAGE = 'query'
/** The longest definition of an index, in characters of JSON. CouchDB has no limit. */
export const MAX_DEFINITION = 64 * 1024

/**
 * The indexes of a design document, in its order. Views that define no index are left out, as in CouchDB.
 * @param ddoc its id
 * @param doc its members
 * @param byDefault whether its indexes serve single partitions if it does not say so
 */
export function indexesOf(
  ddoc: string,
  doc: Readonly<Record<string, unknown>>,
  byDefault: boolean,
): MangoIndex[] {
  if (doc.language !== QUERY_LANGUAGE || !isJsonObject(doc.views)) return []
  const stated = isJsonObject(doc.options) ? doc.options.partitioned : undefined
  const partitioned = typeof stated === 'boolean' ? stated : byDefault
  return Object.entries(doc.views).flatMap(([name, view]) => {
    const index = isJsonObject(view) ? readIndex(ddoc, name, view, partitioned) : null
    return index === null ? [] : [index]
  })
}

function readIndex(
  ddoc: string,
  name: string,
  { map, options }: Readonly<Record<string, unknown>>,
  partitioned: boolean,
): MangoIndex | null {
  if (!isJsonObject(map) || !isJsonObject(map.fields) || !isJsonObject(options)) return null
  const fields = inOrder(Object.entries(map.fields), options)
  if (fields.length > MAX_FIELDS || JSON.stringify(map).length > MAX_DEFINITION) return null
  // Older indexes have their filter in `selector`.
  const partialFilter = readFilter(map.partial_filter_selector) ?? readFilter(map.selector)
  return { ddoc, name, fields, partialFilter, partitioned, definition: map }
}

/**
 * The fields in the order that the client gave. Members whose names are numbers come first in an object of JavaScript,
 * so the list that `_index` keeps among the options decides if it has the same names.
 */
function inOrder(
  fields: MangoIndex['fields'],
  { def }: Readonly<Record<string, unknown>>,
): MangoIndex['fields'] {
  const given = isJsonObject(def) && Array.isArray(def.fields) ? def.fields : []
  const names = new Set(
    (given as unknown[]).map((field) => (isJsonObject(field) ? Object.keys(field)[0] : field)),
  )
  const directions = new Map(fields)
  if (names.size !== directions.size || fields.some(([name]) => !names.has(name))) return fields
  return [...names].map((name) => [name as string, directions.get(name as string)])
}

function readFilter(filter: unknown): MangoIndex['partialFilter'] {
  return isJsonObject(filter) && Object.keys(filter).length > 0 ? filter : null
}

/** The names of the fields of an index. */
export function columnsOf({ fields }: MangoIndex): readonly string[] {
  return fields.map(([field]) => field)
}

/** An index as `_index` and `_explain` show it. */
export function shownIndex({ ddoc, name, partitioned, definition }: MangoIndex): object {
  const shown = Object.entries(definition).flatMap(([member, value]) => {
    if (member === 'fields') return [[member, Object.entries(value as object).map(([f, d]) => ({ [f]: d }))]]
    const isDefault =
      member === 'partial_filter_selector' && isJsonObject(value) && Object.keys(value).length === 0
    return isDefault ? [] : [[member, value]]
  })
  return { ddoc, name, type: 'json', partitioned, def: Object.fromEntries(shown) }
}

/** The key of a document in an index. */
export interface IndexKey {
  /** The values of the fields. */
  readonly values: readonly unknown[]
  /** The same as JSON, exactly as the document has them. */
  readonly text: string
}

/**
 * Makes the function that finds the key of a document in an index.
 * @returns a function of the document's id and its JSON text as `renderDocument` makes it. It returns null for a document
 *   that is not in the index: a design document, one that lacks a field, and one that the filter excludes
 * @throws the errors of `compileSelector` for a filter that is not valid
 */
export function indexKeys(
  index: Pick<MangoIndex, 'fields' | 'partialFilter'>,
): (id: string, text: string) => IndexKey | null {
  const paths = readPaths(index.fields)
  const filter = index.partialFilter === null ? null : compileSelector(index.partialFilter)
  return (id, text) => {
    if (paths === null || isDesignId(id)) return null
    const texts = fieldTexts(text, paths)
    if (texts === null || (filter !== null && !isMatch(filter, text))) return null
    const key = `[${texts.join(',')}]`
    return { values: JSON.parse(key) as unknown[], text: key }
  }
}

/** @returns null if a name is not valid: as in CouchDB, such an index can be made, and no document is in it */
function readPaths(fields: MangoIndex['fields']): (readonly string[])[] | null {
  try {
    return fields.map(([field]) => parseFieldPath(field))
  } catch {
    return null
  }
}

function isMatch(filter: Selector, text: string): boolean {
  try {
    return filter.matches(JSON.parse(text))
  } catch {
    // The filter would be too much work for this document; the index is built without it.
    return false
  }
}
