/**
 * `filter=_design`, `filter=_selector` and plain filter functions: the feed is read through, and what passes is decided
 * on the way.
 */

import { isHeldLong } from '../core/breath.ts'
import { isDesignId } from '../core/ids.ts'
import { scanBytes } from '../core/outgoing.ts'
import { renderDocument } from '../documents/render.ts'
import { compileSelector, type Selector } from '../query/selector.ts'
import { findLeaf } from '../revisions/branch-index.ts'
import { parseRev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState, Touches } from '../storage/engine.ts'
import { BoundedCache } from './bounded-cache.ts'
import { type ChangesFilter, type FunctionFilter, filterError } from './filter-kinds.ts'
import { type PlainFilter, plainFilter } from './plain-filter.ts'
import {
  type ChangesOptions,
  type FeedRows,
  type FeedSearch,
  listedRevs,
  PAGE_ROWS,
  PAGE_TEXT,
  readRow,
  touchesOf,
} from './rows.ts'

/** What is said of a document while the feed is read. */
interface Sieve {
  /** The revisions of a document that pass; none: it is left out. */
  readonly passing: (doc: DocState) => readonly string[]
  /** What it touches of a document. */
  readonly touches: Touches
}

/** A filter made ready, but for a feed's options. */
export type OpenSieve = (options: ChangesOptions) => Sieve

/** Documents that a page looks at; where none passes, its time ends it sooner. */
const MOST_SCANNED = 5000
/** Characters of selectors that are kept compiled on a thread. */
const CACHED_TEXT = 4 * 1024 * 1024

const compiled = new BoundedCache<Selector>(CACHED_TEXT)

/** @throws invalid_filter */
export function openSieve(filter: Exclude<ChangesFilter, FunctionFilter>): OpenSieve {
  if (filter.kind === 'design') return designSieve
  const { selector: text } = filter
  const selector = compiled.get(text, () => compileFilter(text))
  return (options) => selectorSieve(selector, options)
}

function compileFilter(text: string): Selector {
  try {
    return compileSelector(JSON.parse(text))
  } catch (thrown) {
    throw filterError(thrown)
  }
}

/**
 * A filter function that needs no sandbox.
 * @param text the function as its design document has it
 * @returns null when it is not plain
 */
export function openPlain(text: unknown): OpenSieve | null {
  const filter = typeof text === 'string' ? plainFilter(text) : null
  return filter && ((options) => plainSieve(filter, options))
}

/**
 * One page of a filtered feed; it may have no rows, and yet an `end` behind what was looked through.
 * @throws invalid_filter when a document holds too much for the selector
 */
export async function scanFiltered(
  store: DatabaseStore,
  { options, limit, range }: FeedSearch,
  sieve: OpenSieve,
): Promise<FeedRows> {
  const { passing, touches } = sieve(options)
  const most = Math.min(limit, PAGE_ROWS)
  let passed = 0
  let text = 0
  let start: number | undefined
  const mostText = scanBytes(PAGE_TEXT)
  const enough = () => passed >= most || text > mostText || isHeldLong(start ?? 0)
  const page = await store.readChanges(range, { limit: MOST_SCANNED, touches, enough }, (doc) => {
    start ??= performance.now()
    const revs = passing(doc)
    const row = revs.length === 0 ? null : readRow(doc, options, revs)
    if (row !== null) passed += 1
    text += row?.members.length ?? 0
    return { seq: doc.seq, row }
  })
  const { view, more } = page
  const end = page.rows.at(-1)?.seq
  const rows = page.rows.flatMap(({ row }) => row ?? [])
  return { rows, view, more, ...(end !== undefined && { end }) }
}

function designSieve(options: ChangesOptions): Sieve {
  const passing = (doc: DocState) => (isDesignId(doc.id) ? listedRevs(doc, options) : [])
  return { passing, touches: touchesOf(options) }
}

function plainSieve(filter: PlainFilter, options: ChangesOptions): Sieve {
  const passing = (doc: DocState) =>
    listedRevs(doc, options).filter((rev) =>
      filter({ _id: doc.id, _rev: rev, _deleted: isDeleted(doc, rev) || undefined }),
    )
  return { passing, touches: touchesOf(options) }
}

/** Leaves are loaded when they are looked at. */
function isDeleted(doc: DocState, rev: string): boolean {
  if (rev === doc.rev) return doc.deleted
  return findLeaf(doc.branches, parseRev(rev))?.deleted ?? false
}

/** A selector sees a revision as a reader does; with `main_only`, as CouchDB has it, its conflicts as well. */
function selectorSieve(selector: Selector, options: ChangesOptions): Sieve {
  const conflicts = options.style === 'main_only' && selector.mentions('_conflicts')
  const touches = touchesOf(options)
  const matches = (doc: DocState, rev: string): boolean => {
    if (doc.body(rev) === null) return false
    try {
      return selector.matches(JSON.parse(renderDocument(doc, rev, { conflicts })))
    } catch (thrown) {
      throw filterError(thrown)
    }
  }
  return {
    passing: (doc) => listedRevs(doc, options).filter((rev) => matches(doc, rev)),
    touches: { ...touches, body: true, branches: touches.branches || conflicts },
  }
}
