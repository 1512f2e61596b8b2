/**
 * Reads requests about indexes, and changes the design documents that hold them; protocol.md 10.4. Source: CouchDB's
 * mango_opts, mango_idx and mango_idx_view. Pure.
 */
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import {
  positiveOf,
  readIndexName,
  readSelector,
  readSort,
  refusal,
  refuseUnknown,
  required,
} from './find-request.ts'
import { generatedName } from './index-name.ts'
import { MAX_DEFINITION, QUERY_LANGUAGE } from './mango-index.ts'
import { checkedSelector } from './normal-selector.ts'

type Members = Readonly<Record<string, unknown>>

/** An index that a request asks for. */
export interface NewIndex {
  /** The id of its design document. */
  readonly ddoc: string
  readonly name: string
  /** undefined if the request leaves it to the database. */
  readonly partitioned: boolean | undefined
  /** The member of `views` that defines it. */
  readonly view: { readonly map: object; readonly reduce: string; readonly options: object }
}

const CREATE: ReadonlySet<string> = new Set(['index', 'type', 'name', 'ddoc', 'w', 'partitioned'])
const DEFINITION: ReadonlySet<string> = new Set(['fields', 'partial_filter_selector'])
const BULK_DELETE: ReadonlySet<string> = new Set(['docids', 'w'])

/** The types of indexes that need a search engine. */
const SEARCH_TYPES: ReadonlySet<string> = new Set(['text', 'nouveau'])

/**
 * Reads the body of `POST _index`.
 * @throws the first error that applies, in CouchDB's order: missing_required_key, invalid_string, invalid_empty_string,
 *   invalid_pos_integer, invalid_value, invalid_key, invalid_index, index_service_unavailable; the errors of `readSort` and
 *   of selectors; too_large for a definition that is longer than settee stores
 */
export function readNewIndex(members: Members): NewIndex {
  const def = required(members, 'index')
  const type = members.type === undefined ? 'json' : stringOf(members.type)
  const name = nameOf(members.name)
  const ddoc = nameOf(members.ddoc)
  const w = members.w === undefined ? 2 : positiveOf(members.w)
  const partitioned = partitionedOf(members.partitioned)
  refuseUnknown(members, CREATE)
  checkType(type)
  const map = readDefinition(def)
  const generated = generatedName(def, { ddoc, name, partitioned, type, w })
  return {
    ddoc: designId(ddoc ?? generated),
    name: name ?? generated,
    partitioned,
    view: { map, reduce: '_count', options: { def } },
  }
}

function checkType(type: string): void {
  if (SEARCH_TYPES.has(type)) throw new CouchError('index_service_unavailable')
  if (type !== 'json') throw new CouchError('invalid_index', `Invalid type for index: ${type.slice(0, 200)}`)
}

/** The member `map` of the index's view. */
function readDefinition(def: unknown): object {
  if (!isJsonObject(def)) throw refusal('invalid_index', 'JSON indexes must be an object, not: ', def)
  const fields = readSort(required(def, 'fields'))
  const filter = def.partial_filter_selector === undefined ? {} : readSelector(def.partial_filter_selector)
  const normal = checkedSelector(filter)
  refuseUnknown(def, DEFINITION)
  const map = { fields: Object.fromEntries(fields), partial_filter_selector: normal }
  if (JSON.stringify(map).length > MAX_DEFINITION) {
    throw new CouchError('too_large', `The definition of an index may have ${MAX_DEFINITION} characters.`)
  }
  return map
}

function stringOf(value: unknown): string {
  if (typeof value === 'string') return value
  throw refusal('invalid_string', 'Invalid string: ', value)
}

function nameOf(value: unknown): string | undefined {
  if (value === '') throw new CouchError('invalid_empty_string')
  return value === undefined ? undefined : stringOf(value)
}

function partitionedOf(value: unknown): boolean | undefined {
  if (value === undefined || typeof value === 'boolean') return value
  throw refusal('invalid_value', 'Invalid value for partitioned: ', value)
}

/** The id of a design document that is named with or without its prefix. */
export function designId(name: string): string {
  return name.startsWith(DESIGN_PREFIX) ? name : DESIGN_PREFIX + name
}

/** The most design documents in one bulk deletion; CouchDB has no limit. */
const MAX_DELETED = 1000

/**
 * Reads the body of `_bulk_delete`.
 * @returns ids of design documents
 * @throws missing_required_key, invalid_bulk_docs, invalid_index_name, invalid_pos_integer, invalid_key
 */
export function readBulkDelete(members: Members): string[] {
  const names = required(members, 'docids')
  if (!Array.isArray(names) || names.length > MAX_DELETED) {
    throw refusal(
      'invalid_bulk_docs',
      `Bulk Delete requires an array of at most ${MAX_DELETED} docids: `,
      names,
    )
  }
  for (const name of names as unknown[]) {
    if (typeof name !== 'string') throw refusal('invalid_index_name', 'Invalid index name: ', name)
    readIndexName(name)
  }
  if (members.w !== undefined) positiveOf(members.w)
  refuseUnknown(members, BULK_DELETE)
  return (names as string[]).map(designId)
}

/**
 * Adds an index to its design document.
 * @param stored its members; null if it does not exist
 * @returns its new members; null if it has this index already
 * @throws invalid_ddoc_lang, invalid_partitioned_option
 */
export function withIndex(
  stored: Members | null,
  { ddoc, name, partitioned, view }: NewIndex,
): Members | null {
  const doc = stored ?? { language: QUERY_LANGUAGE }
  if (doc.language !== QUERY_LANGUAGE) {
    throw refusal('invalid_ddoc_lang', 'Existing design doc has an invalid language: ', doc.language ?? null)
  }
  const views = isJsonObject(doc.views) ? doc.views : {}
  const options = isJsonObject(doc.options) ? doc.options : {}
  const isNew = stored === null
  if (!isNew && partitioned !== options.partitioned) {
    throw new CouchError(
      'invalid_partitioned_option',
      `Requested partitioned option does not match existing value on design document ${ddoc}`,
    )
  }
  if (Object.hasOwn(views, name) && JSON.stringify(views[name]) === JSON.stringify(view)) return null
  return {
    ...doc,
    views: { ...views, [name]: view },
    ...(isNew && partitioned !== undefined && { options: { partitioned } }),
  }
}

/**
 * Removes indexes from their design document.
 * @returns its new members; null if nothing but the language is left, so that the document is deleted
 */
export function withoutIndexes(doc: Members, names: readonly string[]): Members | null {
  const views = isJsonObject(doc.views) ? doc.views : {}
  const left = Object.entries(views).filter(([name]) => !names.includes(name))
  const { views: _views, ...others } = doc
  const rest = left.length === 0 ? others : { ...doc, views: Object.fromEntries(left) }
  const members = Object.keys(rest).filter((name) => !name.startsWith('_'))
  return members.length === 1 && rest.language === QUERY_LANGUAGE ? null : rest
}
