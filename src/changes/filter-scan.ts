/**
 * `filter=_design`, `filter=_selector` and plain filter functions. They decide which revisions pass while the feed is
 * read, without the sandbox.
 */
import { scanBytes } from '../core/bytes.ts'
import { BoundedCache } from '../core/cache.ts'
import { isDesignId } from '../core/ids.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import { nameOnly, renderDocument, unlessDamaged } from '../documents/render.ts'
import { compileSelector, type Selector } from '../query/selector.ts'
import { findLeaf } from '../revisions/branch-index.ts'
import { parseRev } from '../revisions/rev.ts'
import type { DocState } from '../storage/engine.ts'
import type { ReadSet } from '../storage/read-set.ts'
import { type PlainFilter, plainFilter } from './plain-filter.ts'
import {
  bodiesOf,
  type ChangesFilter,
  type ChangesOptions,
  type FeedReader,
  type FeedRows,
  type FeedSearch,
  type FunctionFilter,
  filterError,
  listedRevs,
  PAGE_ROWS,
  PAGE_TEXT,
  type Row,
  readRow,
  readSetOf,
} from './rows.ts'

/** Decides which revisions of a document pass while the feed is read. */
interface RevisionFilter {
  /** The passing revisions; an empty list excludes the document. Pure. */
  readonly passing: (doc: DocState) => readonly string[] | LongRevision
  /** Decides a revision; from then on, `passing` knows the result. */
  readonly decideLong?: (revision: LongRevision) => Promise<void>
  /** The parts of a document that the filter reads. */
  readonly readSet: ReadSet
}

/** A revision that is too long to be decided in one step. */
interface LongRevision {
  readonly key: string
  readonly text: string
}

/** Makes a filter for the options of a feed. */
type FilterFactory = (options: ChangesOptions) => RevisionFilter

/** The maximum number of documents that a page scans, and of their characters. Usually the time limit ends it earlier. */
const MAX_SCANNED = 5000
const MAX_SCANNED_CHARS = 4 * 1024 * 1024
/** A page that needs few rows scans this many documents, or twice as many as it needs. */
const MIN_SCANNED = 100
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
  store: FeedReader,
  search: FeedSearch,
  filterFactory: FilterFactory,
): Promise<FeedRows> {
  const open = filterFactory(search.options)
  for (;;) {
    const found = await scanOnce(store, search, open)
    if ('rows' in found) return found
    await open.decideLong?.(found)
  }
}

/** @returns the first document's revision if it cannot be decided in one step */
async function scanOnce(
  store: FeedReader,
  { options, limit, range }: FeedSearch,
  { passing, readSet }: RevisionFilter,
): Promise<FeedRows | LongRevision> {
  const maxRows = Math.min(limit, PAGE_ROWS)
  const paging = {
    limit: Math.min(MAX_SCANNED, Math.max(MIN_SCANNED, 2 * maxRows)),
    chars: MAX_SCANNED_CHARS,
    readSet,
  }
  const page = await store.readChanges(range, paging, (doc): Scanned => {
    const revs = passing(doc)
    if ('text' in revs) return { seq: doc.seq, row: null, long: revs }
    return { seq: doc.seq, row: revs.length === 0 ? null : readRow(doc, options, revs), long: null }
  })
  const { rows, used, long } = selectRows(page.rows, maxRows, scanBytes(PAGE_TEXT))
  if (used === 0 && long !== null) return long
  const end = page.rows[used - 1]?.seq
  const more = page.more || used < page.rows.length
  return { rows, view: page.view, more, ...(end !== undefined && { end }) }
}

interface Scanned {
  readonly seq: number
  /** null if the document does not pass. */
  readonly row: Row | null
  /** The revisions that must be decided before the row is known. */
  readonly long: LongRevision | null
}

/**
 * The rows of a page, up to its bounds or to a document that is not decided.
 * @returns also how many of the scanned documents these are
 */
function selectRows(
  scanned: readonly Scanned[],
  maxRows: number,
  maxText: number,
): { readonly rows: Row[]; readonly used: number; readonly long: LongRevision | null } {
  const rows: Row[] = []
  let text = 0
  for (const [used, { row, long }] of scanned.entries()) {
    if (long !== null || rows.length >= maxRows || text > maxText) return { rows, used, long }
    if (row === null) continue
    rows.push(row)
    text += row.members.length
  }
  return { rows, used: scanned.length, long: null }
}

function designFilter(options: ChangesOptions): RevisionFilter {
  const passing = (doc: DocState) => (isDesignId(doc.id) ? listedRevs(doc, options) : [])
  return { passing, readSet: readSetOf(options) }
}

function nativeFilter(filter: PlainFilter, options: ChangesOptions): RevisionFilter {
  const passing = (doc: DocState) =>
    listedRevs(doc, options).filter((rev) =>
      filter({ _id: doc.id, _rev: rev, _deleted: isDeleted(doc, rev) || undefined }),
    )
  return { passing, readSet: readSetOf(options) }
}

/** Reads the branches only if necessary, since that loads them. */
function isDeleted(doc: DocState, rev: string): boolean {
  if (rev === doc.rev) return doc.deleted
  return findLeaf(doc.branches, parseRev(rev))?.deleted ?? false
}

/** A selector sees a revision as GET returns it. As in CouchDB, with `main_only` it also sees the conflicts. */
function selectorFilter(selector: Selector, options: ChangesOptions): RevisionFilter {
  const conflicts = options.style === 'main_only' && selector.mentions('_conflicts')
  const readSet = readSetOf(options)
  /** Verdicts on long revisions, by revision and document id. */
  const verdicts = new Map<string, boolean>()
  const predicate = (value: unknown): boolean => {
    try {
      return selector.matches(value)
    } catch (thrown) {
      throw filterError(thrown)
    }
  }
  const verdictOf = (doc: DocState, rev: string): boolean | LongRevision => {
    const text = unlessDamaged(
      () => (doc.body(rev) === null ? null : renderDocument(doc, rev, { conflicts })),
      () => nameOnly(doc, rev),
    )
    if (text === null) return false
    if (text.length <= MAX_PARSED_AT_ONCE) return predicate(JSON.parse(text))
    const key = `${rev} ${doc.id}`
    return verdicts.get(key) ?? { key, text }
  }
  return {
    passing: (doc) => {
      const revs: string[] = []
      for (const rev of listedRevs(doc, options)) {
        const verdict = verdictOf(doc, rev)
        if (typeof verdict === 'object') return verdict
        if (verdict) revs.push(rev)
      }
      return revs
    },
    decideLong: async ({ key, text }) => {
      verdicts.set(key, predicate(await parseInSteps(text)))
    },
    readSet: { ...readSet, ...bodiesOf(options), branches: readSet.branches || conflicts },
  }
}
