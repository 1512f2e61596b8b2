/** The indexes of a database as `/_settee/databases/{db}/indexes` lists them. */
import { ask, pathOf } from '../../api/client.ts'

interface IndexFacts {
  readonly ddoc: string
  readonly partitioned: boolean
  readonly built: boolean
  readonly updating: boolean
  readonly progress: { readonly done: number; readonly total: number } | null
  /** Updates that the next query brings in. */
  readonly pending: number
  readonly bytes: number
  readonly last_use: string | null
  readonly rows: number
}

export interface FieldIndex extends IndexFacts {
  readonly type: 'json'
  readonly name: string
  readonly def: {
    readonly fields: readonly Readonly<Record<string, unknown>>[]
    readonly partial_filter_selector?: unknown
  }
}

/** The views of a design document. */
export interface ViewGroup extends IndexFacts {
  readonly type: 'view'
  readonly language: string
  /** Whether their functions run on this server. */
  readonly runs: boolean
  readonly views: readonly { readonly name: string; readonly reduce: string | null; readonly rows: number }[]
  readonly views_total: number
}

export type IndexRow = FieldIndex | ViewGroup

export interface IndexPage {
  readonly indexes: readonly IndexRow[]
  readonly bytes: number
  readonly next: string | null
}

/** @param after the `next` of the page before; empty: the first page @throws Failure */
export function readIndexPage(database: string, after: string, signal?: AbortSignal): Promise<IndexPage> {
  const query = { limit: '50', after: after === '' ? undefined : after }
  return ask(pathOf('_settee', 'databases', database, 'indexes'), { query, signal })
}
