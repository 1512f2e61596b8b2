/** What a feed lets through, as plain data that travels between threads; protocol.md 5.5. */
import { CouchError, type ErrorName } from '../core/errors.ts'

export type ChangesFilter =
  /** `_design`: design documents. */
  | { readonly kind: 'design' }
  /** `_selector`: revisions that a Mango selector matches. */
  | {
      readonly kind: 'selector'
      /** JSON text. */
      readonly selector: string
      /** Names of the fields that `include_docs` sends; absent: all. */
      readonly fields?: readonly string[]
    }
  | FunctionFilter

/** A filter that runs a function of a design document. */
export type FunctionFilter =
  /** `_view`: revisions for which the map function emits at least once. */
  | { readonly kind: 'view'; readonly ddoc: string; readonly name: string }
  /** `ddoc/name`: revisions for which `filters.name` returns something truthy. */
  | {
      readonly kind: 'function'
      /** `_design/name`. */
      readonly ddoc: string
      readonly name: string
      /** JSON text of the request as far as the HTTP thread knows it; filter-request.ts adds the rest. */
      readonly request: string
    }

/** Whether a filter runs a function of a design document. */
export function runsFunction(filter: ChangesFilter | undefined): filter is FunctionFilter {
  return filter?.kind === 'view' || filter?.kind === 'function'
}

const SELECTOR_ERRORS: ReadonlySet<ErrorName> = new Set([
  'invalid_selector',
  'invalid_operator',
  'not_supported',
  'bad_arg',
])

/** What a feed says of a selector's error: a feed has one word for all of them, protocol.md 5.6. Others stay as they are. */
export function filterError(thrown: unknown): unknown {
  const isOfSelector = thrown instanceof CouchError && SELECTOR_ERRORS.has(thrown.code)
  return isOfSelector ? new CouchError('invalid_filter', thrown.reason, { cause: thrown.cause }) : thrown
}
