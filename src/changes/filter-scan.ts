/**
 * `filter=_design`, `filter=_selector` and plain filter functions. They decide which revisions pass while the feed is
 * read, without the sandbox.
 */
import { scanBytes } from '../core/bytes.ts'
import { BoundedCache } from '../core/cache.ts'
import { isHeldLong } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import { renderDocument } from '../documents/render.ts'
import { compileSelector, type Selector } from '../query/selector.ts'
import { findLeaf } from '../revisions/branch-index.ts'
import { parseRev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState } from '../storage/engine.ts'
import type { Touches } from '../storage/touches.ts'
import { type PlainFilter, plainFilter } from './plain-filter.ts'
import {
  type ChangesFilter,
  type ChangesOptions,
  type FeedRows,
  type FeedSearch,
  type FunctionFilter,
  filterError,
  listedRevs,
  PAGE_ROWS,
  PAGE_TEXT,
  readRow,
  touchesOf,
} from './rows.ts'

/** Decides which revisions of a document pass while the feed is read. */
interface RevisionFilter {
  /**
   * The passing revisions; an empty list excludes the document. null if a revision is too long to be decided in one
   * step.
   */
  readonly passing: (doc: DocState) => readonly string[] | null
  /** Decides the revision for which `passing` returned null. */
  readonly decideLong?: () => Promise<void>
  /** The parts of a document that the filter reads. */
  readonly touches: Touches
}

/** Makes a filter for the options of a feed. */
type FilterFactory = (options: ChangesOptions) => RevisionFilter

/** The maximum number of documents that a page scans. Usually the time limit ends a page earlier. */
const MAX_SCANNED = 5000
/** A thread caches compiled selectors with this many characters in total. */
const CACHED_TEXT = 4 * 1024 * 1024

const compiled = new BoundedCache<Selector>(CACHED_TEXT)

/** @throws invalid_filter */
export function openFilter(filter: Exclude<ChangesFilter, FunctionFilter>): FilterFactory {
  if (filter.kind === 'design') return designFilter
  const { selector: text } = filter
  const selector = compiled.get(text, () => compileFilter(text))
  return (options) => selectorFilter(selector, options)
}

function compileFilter(text: string): Selector {
  try {
    return compileSelector(JSON.parse(text))
  } catch (thrown) {
    throw filterError(thrown)
  }
}

/**
 * Opens a filter function that can run without the sandbox.
 * @param text the value of the filter in its design document
 * @returns null when the function needs the sandbox
 */
export function openPlain(text: unknown): FilterFactory | null {
  const filter = typeof text === 'string' ? plainFilter(text) : null
  return filter && ((options) => nativeFilter(filter, options))
}

/**
 * Reads one page of a filtered feed. A page without rows still has an `end`: the position that the scan reached.
 * @throws invalid_filter if the selector takes too much work for a document
 */
export async function scanFiltered(
  store: DatabaseStore,
  search: FeedSearch,
  filterFactory: FilterFactory,
): Promise<FeedRows> {
  const open = filterFactory(search.options)
  for (;;) {
    const rows = await scanOnce(store, search, open)
    if (rows !== null) return rows
    await open.decideLong?.()
  }
}

/** @returns null if the first document cannot be decided in one step */
async function scanOnce(
  store: DatabaseStore,
  { options, limit, range }: FeedSearch,
  { passing, touches }: RevisionFilter,
): Promise<FeedRows | null> {
  const maxRows = Math.min(limit, PAGE_ROWS)
  let passed = 0
  let text = 0
  let start: number | undefined
  let isBlocked = false
  const maxText = scanBytes(PAGE_TEXT)
  const enough = () => isBlocked || passed >= maxRows || text > maxText || isHeldLong(start ?? 0)
  const page = await store.readChanges(range, { limit: MAX_SCANNED, touches, enough }, (doc) => {
    start ??= performance.now()
    const revs = passing(doc)
    if (revs === null) {
      isBlocked = true
      return null
    }
    const row = revs.length === 0 ? null : readRow(doc, options, revs)
    if (row !== null) passed += 1
    text += row?.members.length ?? 0
    return { seq: doc.seq, row }
  })
  const read = page.rows.filter((row) => row !== null)
  if (isBlocked && read.length === 0) return null
  const end = read.at(-1)?.seq
  const rows = read.flatMap(({ row }) => row ?? [])
  return { rows, view: page.view, more: page.more || isBlocked, ...(end !== undefined && { end }) }
}

function designFilter(options: ChangesOptions): RevisionFilter {
  const passing = (doc: DocState) => (isDesignId(doc.id) ? listedRevs(doc, options) : [])
  return { passing, touches: touchesOf(options) }
}

function nativeFilter(filter: PlainFilter, options: ChangesOptions): RevisionFilter {
  const passing = (doc: DocState) =>
    listedRevs(doc, options).filter((rev) =>
      filter({ _id: doc.id, _rev: rev, _deleted: isDeleted(doc, rev) || undefined }),
    )
  return { passing, touches: touchesOf(options) }
}

/** Reads the branches only if necessary, since that loads them. */
function isDeleted(doc: DocState, rev: string): boolean {
  if (rev === doc.rev) return doc.deleted
  return findLeaf(doc.branches, parseRev(rev))?.deleted ?? false
}

/** A selector sees a revision as GET returns it. As in CouchDB, with `main_only` it also sees the conflicts. */
function selectorFilter(selector: Selector, options: ChangesOptions): RevisionFilter {
  const conflicts = options.style === 'main_only' && selector.mentions('_conflicts')
  const touches = touchesOf(options)
  /** Verdicts on long revisions, by revision and document id. */
  const verdicts = new Map<string, boolean>()
  let long: { readonly key: string; readonly text: string } | null = null
  const predicate = (value: unknown): boolean => {
    try {
      return selector.matches(value)
    } catch (thrown) {
      throw filterError(thrown)
    }
  }
  /** @returns null if the revision is too long to be decided in one step */
  const verdictOf = (doc: DocState, rev: string): boolean | null => {
    if (doc.body(rev) === null) return false
    const text = renderDocument(doc, rev, { conflicts })
    if (text.length <= MAX_PARSED_AT_ONCE) return predicate(JSON.parse(text))
    const key = `${rev} ${doc.id}`
    const known = verdicts.get(key)
    if (known === undefined) long = { key, text }
    return known ?? null
  }
  return {
    passing: (doc) => {
      const revs: string[] = []
      for (const rev of listedRevs(doc, options)) {
        const verdict = verdictOf(doc, rev)
        if (verdict === null) return null
        if (verdict) revs.push(rev)
      }
      return revs
    },
    decideLong: async () => {
      if (long === null) return
      const { key, text } = long
      long = null
      verdicts.set(key, predicate(await parseInSteps(text)))
    },
    touches: { ...touches, body: true, branches: touches.branches || conflicts },
  }
}
