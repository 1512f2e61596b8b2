/**
 * `_find`, `_explain` and `_index` on the thread that owns the database; protocol.md 10. The only index is that of all
 * ids: the conditions of a selector on `_id` become a range of ids, and all documents in this range are examined.
 */
import { CouchError } from '../core/errors.ts'
import { isHeldLong, Yielder } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import { quoted } from '../core/json.ts'
import type { FindRules, UserCtx } from '../core/types.ts'
import { directed, higher, lower } from '../documents/all-docs-query.ts'
import type { Body } from '../documents/database.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import { ChunkBuffer } from '../documents/pieces.ts'
import { renderDocument } from '../documents/render.ts'
import { bodyObject } from '../documents/request-body.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore, IdRange } from '../storage/engine.ts'
import { ALL_DOCS_INDEX, explanation, indexUse } from './explain.ts'
import { bookmarkOf, type FindRequest, readFindRequest } from './find-request.ts'
import { idBounds, type NormalSelector, normalSelector } from './normal-selector.ts'
import { trimFields } from './projection.ts'
import { compileSelector, type Selector } from './selector.ts'

/** The maximum number of concurrent scans of one caller; further scans wait. */
const SCANS_PER_CALLER = 8

/**
 * Decides which scan of a thread works next. In each turn of the event loop a single scan works, for a few milliseconds
 * (core/event-loop.ts), so a save waits for one step of one scan at most. Callers take turns.
 */
class ScanTurns {
  /** Waiting scans by caller. A caller that was served moves to the end of the insertion order. */
  readonly #waiting = new Map<string, (() => void)[]>()
  readonly #callers = new Map<string, { underWay: number; readonly queue: (() => void)[] }>()
  #isScheduled = false

  /**
   * Begins a scan as soon as the caller has fewer than {@link SCANS_PER_CALLER} others under way.
   * @returns a function that ends the scan; call it once
   */
  async begin(caller: string): Promise<() => void> {
    const own = this.#callers.get(caller) ?? { underWay: 0, queue: [] }
    this.#callers.set(caller, own)
    if (own.underWay < SCANS_PER_CALLER) own.underWay += 1
    else await new Promise<void>((resolve) => own.queue.push(resolve))
    return () => {
      const next = own.queue.shift()
      if (next !== undefined) return next()
      own.underWay -= 1
      if (own.underWay === 0) this.#callers.delete(caller)
    }
  }

  /** Waits for the caller's turn. Two scans never work in the same turn of the event loop. */
  next(caller: string): Promise<void> {
    return new Promise((resolve) => {
      const queue = this.#waiting.get(caller) ?? []
      queue.push(resolve)
      this.#waiting.set(caller, queue)
      this.#schedule()
    })
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#serve()
      if (this.#waiting.size > 0) this.#schedule()
    })
  }

  #serve(): void {
    for (const [caller, queue] of this.#waiting) {
      this.#waiting.delete(caller)
      const scan = queue.shift()
      if (queue.length > 0) this.#waiting.set(caller, queue)
      scan?.()
      return
    }
  }
}

/** The query methods of a database thread. */
export interface FindSource {
  /**
   * The answer of `_find` as JSON in chunks. An empty chunk means that the search is still under way.
   * @throws with the first chunk: the errors of `readFindRequest` and `compileSelector`; no_usable_index,
   *   invalid_index; too_large, invalid_json, body_not_object; unauthorized, forbidden
   */
  find(user: UserCtx, body: Body): AsyncIterable<Uint8Array>
  /** The answer of `_explain` as JSON. @throws the errors of {@link FindSource.find} */
  explain(user: UserCtx, body: Body): Promise<Uint8Array>
  /** The answer of `_index` as JSON. */
  indexes(user: UserCtx, skip: number, limit: number | undefined): Promise<Uint8Array>
}

/** The maximum size of a body in bytes. Its selector is compiled in a single turn of the event loop. */
export const MAX_FIND_BYTES = 1024 * 1024

/** The maximum number of documents in one step. Usually the time limit ends a step earlier. */
const PAGE_DOCS = 1000
/** After this many milliseconds of silence a byte is sent, since some proxies cut silent connections after a minute. */
const SILENCE_MS = 20_000

const EMPTY_CHUNK = new Uint8Array(0)

/** There is one instance per thread, since each thread loads its own modules. */
const turns = new ScanTurns()

/** A request and its compiled selector. */
interface Query {
  readonly request: FindRequest
  readonly selector: Selector
  readonly normal: NormalSelector
  readonly scanRatio: number
}

/**
 * The queries of one open database.
 * @param name the name of the database
 * @param rules called for each request
 */
export function storeFind(store: DatabaseStore, name: string, rules: () => FindRules): FindSource {
  return {
    find: async function* (user, body) {
      requireMember(user, (await store.view()).security)
      const end = await turns.begin(user.name ?? '')
      try {
        yield* search(store, user, await readQuery(body, rules()))
      } finally {
        end()
      }
    },
    explain: async (user, body) => {
      requireMember(user, (await store.view()).security)
      const { request, normal } = await readQuery(body, rules())
      return jsonLine(explanation(name, request, normal))
    },
    indexes: async (user, skip, limit) => {
      requireMember(user, (await store.view()).security)
      const all = [ALL_DOCS_INDEX]
      const listed = all.slice(skip, limit === undefined ? undefined : skip + limit)
      return jsonLine({ total_rows: all.length, indexes: listed })
    },
  }
}

function jsonLine(value: unknown): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}

async function readQuery(body: Body, rules: FindRules): Promise<Query> {
  const members = await bodyObject(body, {}, MAX_FIND_BYTES)
  const request = readFindRequest(members, rules.defaultLimit)
  const yielder = new Yielder()
  // Compilation comes first, since it limits the depth and the size of the selector.
  const selector = compileSelector(request.selector)
  await yielder.yieldIfDue()
  const normal = normalSelector(request.selector)
  await yielder.yieldIfDue()
  return { request, selector, normal, scanRatio: rules.scanRatio }
}

/** The state of a search. */
interface Search {
  readonly chunk: ChunkBuffer
  examined: number
  returned: number
  skip: number
  left: number
  /** The id of the document that was read last. */
  last: string
  /** The document that ended the step because it is too long to be parsed in one step. */
  long: { readonly id: string; readonly text: string } | null
  /** The id of the last match, whether it was added or skipped. */
  bookmark: string | null
}

async function* search(store: DatabaseStore, user: UserCtx, query: Query): AsyncGenerator<Uint8Array> {
  const { request } = query
  const { isUsable, warnings } = indexUse(request, query.normal)
  if (!isUsable) throw new CouchError('no_usable_index')
  const started = performance.now()
  const { skip, limit: left } = request
  const state: Search = {
    chunk: new ChunkBuffer(),
    examined: 0,
    returned: 0,
    skip,
    left,
    last: '',
    long: null,
    bookmark: null,
  }
  state.chunk.add('{"docs":[')
  for await (const isFull of pages(store, user, query, state)) {
    yield isFull ? state.chunk.take() : EMPTY_CHUNK
  }
  state.chunk.add(ending(query, state, performance.now() - started, warnings))
  yield state.chunk.take()
}

/** Examines the documents page by page. Yields after each page whether a chunk is ready to be sent. */
async function* pages(
  store: DatabaseStore,
  user: UserCtx,
  query: Query,
  search: Search,
): AsyncGenerator<boolean> {
  let range = rangeOf(query)
  let silentSince = performance.now()
  while (range !== null && search.left > 0) {
    await turns.next(user.name ?? '')
    const more = await readPage(store, user, query, range, search)
    const isSilent = performance.now() - silentSince > SILENCE_MS
    if (isSilent) search.chunk.add('\n')
    const isFull = search.chunk.isLarge || isSilent
    yield isFull
    if (isFull) silentSince = performance.now()
    if (!more) return
    range = { ...range, start: { id: search.last, inclusive: false } }
  }
}

/** @returns whether more of the range remains */
async function readPage(
  store: DatabaseStore,
  user: UserCtx,
  query: Query,
  range: IdRange,
  search: Search,
): Promise<boolean> {
  const { selector, request } = query
  const { conflicts } = request
  const since = performance.now()
  const { more } = await store.readRange(
    range,
    {
      limit: PAGE_DOCS,
      touches: { body: true, branches: conflicts },
      enough: () => search.long !== null || search.left === 0 || search.chunk.isLarge || isHeldLong(since),
    },
    (doc, view) => {
      requireMember(user, view.security)
      search.last = doc.id
      search.examined += 1
      if (isDesignId(doc.id)) return
      const text = renderDocument(doc, doc.rev, { conflicts })
      if (text.length > MAX_PARSED_AT_ONCE) search.long = { id: doc.id, text }
      else if (selector.matches(JSON.parse(text))) add(search, doc.id, text, request.fields)
    },
  )
  if (search.long !== null) {
    const { id, text } = search.long
    search.long = null
    if (selector.matches(await parseInSteps(text))) add(search, id, text, request.fields)
  }
  return more
}

function add(search: Search, id: string, text: string, fields: readonly string[]): void {
  search.bookmark = id
  if (search.skip > 0) {
    search.skip -= 1
    return
  }
  search.chunk.add(search.returned === 0 ? '\r\n' : ',\r\n')
  search.chunk.add(fields.length === 0 ? text : trimFields(text, fields))
  search.returned += 1
  search.left -= 1
}

/** The ids to examine, which begin after the bookmark; null if no id can match. */
function rangeOf({ request, normal }: Query): IdRange | null {
  const bounds = matchesNothing(normal) ? null : idBounds(normal)
  if (bounds === null) return null
  const { after } = request
  const position = after === null ? undefined : { id: after, inclusive: false }
  return isDescending(request)
    ? directed(bounds.low, lower(bounds.high, position), true)
    : directed(higher(bounds.low, position), bounds.high, false)
}

function isDescending({ sort }: FindRequest): boolean {
  return sort[0]?.[1] === 'desc'
}

/**
 * In CouchDB an empty `$or` matches nothing if it is the whole selector. As a part of a selector, it matches
 * everything.
 */
function matchesNothing({ $or: selectors }: NormalSelector): boolean {
  return Array.isArray(selectors) && selectors.length === 0
}

function ending(
  { request, scanRatio }: Query,
  search: Search,
  ms: number,
  warnings: readonly string[],
): string {
  const { examined, returned, bookmark } = search
  const members = [`"bookmark": ${quoted(bookmark === null ? request.bookmark : bookmarkOf(bookmark))}`]
  if (request.executionStats) {
    const stats = {
      total_keys_examined: examined,
      total_docs_examined: examined,
      total_quorum_docs_examined: 0,
      results_returned: returned,
      execution_time_ms: Math.round(ms * 1000) / 1000,
    }
    members.push(`"execution_stats": ${JSON.stringify(stats)}`)
  }
  const isHigh = scanRatio > 0 && examined / Math.max(returned, 1) > scanRatio
  const all = isHigh ? [...warnings, HIGH_SCAN] : warnings
  if (all.length > 0) members.push(`"warning": ${JSON.stringify(all.join('\n'))}`)
  return `\r\n],\r\n${members.join(',\r\n')}}\r\n`
}

const HIGH_SCAN =
  'The number of documents examined is high in proportion to the number of results returned. ' +
  'Consider adding a more specific index to improve this.'
