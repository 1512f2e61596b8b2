/**
 * Who scans next on a database thread: however many scans are under way, one of them works for a few milliseconds
 * (core/event-loop.ts) in each turn of the event loop, so that a save waits for one piece of one scan. Callers take turns,
 * and each may have some scans under way; the others wait behind them.
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

/** Scans of one caller that are under way at once. */
const MOST_OF_CALLER = 8

class ScanTurns {
  /** Scans that wait for a turn, by caller. Insertion order is the order of service: who was served goes to the end. */
  readonly #waiting = new Map<string, (() => void)[]>()
  readonly #callers = new Map<string, { underWay: number; readonly queue: (() => void)[] }>()
  #isScheduled = false

  /**
   * Begins a scan once the caller has fewer than {@link MOST_OF_CALLER} others under way.
   * @returns what ends it; to be called once
   */
  async begin(caller: string): Promise<() => void> {
    const own = this.#callers.get(caller) ?? { underWay: 0, queue: [] }
    this.#callers.set(caller, own)
    if (own.underWay < MOST_OF_CALLER) own.underWay += 1
    else await new Promise<void>((resolve) => own.queue.push(resolve))
    return () => {
      const next = own.queue.shift()
      if (next !== undefined) return next()
      own.underWay -= 1
      if (own.underWay === 0) this.#callers.delete(caller)
    }
  }

  /** Waits for the caller's turn: never in the turn of the event loop in which another had its own. */
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

// `_find`, `_explain` and `_index`, protocol.md 10, on the thread that owns the database. There is one index, that of
// all ids: what a selector says of `_id` is read as a range of it, and the documents in the range are looked at.

/** What a database thread does for queries. */
export interface FindSource {
  /**
   * The answer of `_find` as JSON in chunks. An empty chunk means that it is still looking.
   * @throws at its first chunk, as `readFindRequest` and `compileSelector`; no_usable_index, invalid_index; too_large,
   *   invalid_json, body_not_object; unauthorized, forbidden
   */
  find(user: UserCtx, body: Body): AsyncIterable<Uint8Array>
  /** The answer of `_explain` as JSON. @throws as {@link FindSource.find} */
  explain(user: UserCtx, body: Body): Promise<Uint8Array>
  /** The answer of `_index` as JSON. */
  indexes(user: UserCtx, skip: number, limit: number | undefined): Promise<Uint8Array>
}

/** Bytes of a body: its selector is compiled in one turn. */
export const MAX_FIND_BYTES = 1024 * 1024

/** Documents that are read at a time; their time ends a page sooner. */
const PAGE_DOCS = 1000
/** After so long without a byte, in ms, something is sent: proxies cut what is silent, some after a minute. */
const SILENCE_MS = 20_000

const NOTHING_YET = new Uint8Array(0)

/** Of this thread: each has modules of its own. */
const turns = new ScanTurns()

/** A request with what is made of its selector. */
interface Query {
  readonly request: FindRequest
  readonly selector: Selector
  readonly normal: NormalSelector
  readonly scanRatio: number
}

/**
 * The queries of one open database.
 * @param name the database's
 * @param rules asked anew for each request
 */
export function storeFind(store: DatabaseStore, name: string, rules: () => FindRules): FindSource {
  return {
    find: async function* (user, body) {
      requireMember(user, (await store.view()).security)
      const end = await turns.begin(user.name ?? '')
      try {
        yield* found(store, user, await readQuery(body, rules()))
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
  // Compiled first: that bounds how deep and how large it is.
  const selector = compileSelector(request.selector)
  await yielder.yieldIfDue()
  const normal = normalSelector(request.selector)
  await yielder.yieldIfDue()
  return { request, selector, normal, scanRatio: rules.scanRatio }
}

/** What a search has come to so far. */
interface Search {
  readonly chunk: ChunkBuffer
  examined: number
  returned: number
  skip: number
  left: number
  /** The document that was read last. */
  last: string
  /** The document at which the page ended because it is too long to be parsed at once. */
  long: { readonly id: string; readonly text: string } | null
  /** The document whose row was added last, or was left out as the request's `skip` says. */
  bookmark: string | null
}

async function* found(store: DatabaseStore, user: UserCtx, query: Query): AsyncGenerator<Uint8Array> {
  const { request } = query
  const { isUsable, warnings } = indexUse(request, query.normal)
  if (!isUsable) throw new CouchError('no_usable_index')
  const started = performance.now()
  const { skip, limit: left } = request
  const search: Search = {
    chunk: new ChunkBuffer(),
    examined: 0,
    returned: 0,
    skip,
    left,
    last: '',
    long: null,
    bookmark: null,
  }
  search.chunk.add('{"docs":[')
  for await (const isFull of pages(store, user, query, search)) {
    yield isFull ? search.chunk.take() : NOTHING_YET
  }
  search.chunk.add(ending(query, search, performance.now() - started, warnings))
  yield search.chunk.take()
}

/** Reads page by page. Yields after each of them: whether there is something to be sent. */
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

/** The ids to look at, from behind the bookmark on; null: there are none. */
function rangeOf({ request, normal }: Query): IdRange | null {
  const bounds = isNothing(normal) ? null : idBounds(normal)
  if (bounds === null) return null
  const { after } = request
  const mark = after === null ? undefined : { id: after, inclusive: false }
  return isDescending(request)
    ? directed(bounds.low, lower(bounds.high, mark), true)
    : directed(higher(bounds.low, mark), bounds.high, false)
}

function isDescending({ sort }: FindRequest): boolean {
  return sort[0]?.[1] === 'desc'
}

/** None of no selectors can pass: CouchDB says so of a whole selector, and of no part of one. */
function isNothing({ $or: selectors }: NormalSelector): boolean {
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
