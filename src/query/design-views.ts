/** The views that a design document defines, and what identifies their index. */
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { renderDocument } from '../documents/render.ts'
import type { DatabaseStore, StoreView } from '../storage/engine.ts'
import { signatureOf } from './design-indexes.ts'
import type { KeyOrder } from './sort-keys.ts'
import type { ViewDefinition } from './view-map.ts'

export const JAVASCRIPT = 'javascript'

/** The parts of a design document that views need. */
export interface DesignDoc {
  readonly id: string
  readonly rev: string
  readonly source: string
  readonly language: unknown
  readonly options: Readonly<Record<string, unknown>>
  /** Whether its views have their rows by partitions: by default all of a partitioned database. */
  readonly partitioned: boolean
  readonly views: Readonly<Record<string, View>>
}

/** A member of `views`; only the types of `map` and `reduce` were checked when it was stored. */
export interface View {
  readonly map: unknown
  readonly reduce?: unknown
  readonly options?: unknown
}

/**
 * @param requireRight throws for callers who may not read it
 * @throws not_found, deleted; what `requireRight` throws
 */
export async function readDesignDoc(
  store: DatabaseStore,
  id: string,
  requireRight: (security: StoreView['security']) => void,
): Promise<DesignDoc> {
  const [found] = await store.readDocs(
    [id],
    (doc, _id, { security }) => {
      requireRight(security)
      if (doc === null) throw new CouchError('not_found')
      if (doc.deleted) throw new CouchError('deleted')
      return { rev: doc.rev, source: renderDocument(doc, doc.rev) }
    },
    { body: true },
  )
  return designDocOf(store, { id, ...(found as { rev: string; source: string }) })
}

/** @param source its JSON */
export function designDocOf(
  store: DatabaseStore,
  { id, rev, source }: Pick<DesignDoc, 'id' | 'rev' | 'source'>,
  members = JSON.parse(source) as Readonly<Record<string, unknown>>,
): DesignDoc {
  const options = isJsonObject(members.options) ? members.options : {}
  return {
    id,
    rev,
    source,
    language: members.language ?? JAVASCRIPT,
    options,
    partitioned: store.partitioned && options.partitioned !== false,
    views: (isJsonObject(members.views) ? members.views : {}) as DesignDoc['views'],
  }
}

/** The first id after those of all design documents. */
const AFTER_DESIGN_DOCS = '_design0'
const DESIGN_DOCS_AT_ONCE = 10

/** The member of `views` that holds CommonJS modules, not a view. */
export const LIBRARY = 'lib'

/** As in CouchDB, `collation` is an option of a view; among the options of the design document it has no effect. */
export function orderOf({ options }: View): KeyOrder {
  return isJsonObject(options) && options.collation === 'raw' ? 'raw' : 'json'
}

/** The views that have rows, in the order of their indexes. */
export function definitionsOf({ views }: Pick<DesignDoc, 'views'>): readonly ViewDefinition[] {
  return Object.entries(views)
    .filter(([name, view]) => name !== LIBRARY && typeof view?.map === 'string')
    .map(([name, view]) => ({ name, order: orderOf(view) }))
}

/** Identifies the index of the views of a design document. */
export function signatureOfViews({ language, options, partitioned, views }: DesignDoc): string {
  return signatureOf([language, options, partitioned, views])
}

/** The signatures of the indexes of all views. */
export async function viewSignatures(store: DatabaseStore): Promise<Set<string>> {
  const used = new Set<string>()
  let start = { id: DESIGN_PREFIX, inclusive: true }
  const end = { id: AFTER_DESIGN_DOCS, inclusive: false }
  for (let more = true; more; ) {
    const page = await store.readRange(
      { start, end },
      { limit: DESIGN_DOCS_AT_ONCE, readSet: { body: true } },
      (doc) => ({ id: doc.id, rev: doc.rev, source: renderDocument(doc, doc.rev) }),
    )
    for (const doc of page.rows) {
      used.add(signatureOfViews(designDocOf(store, doc)))
      start = { id: doc.id, inclusive: false }
    }
    more = page.more
  }
  return used
}
