/** `_find` and `_explain` on the thread that owns the database; protocol.md 10. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { FindRules, UserCtx } from '../core/types.ts'
import type { Body } from '../documents/database.ts'
import { bodyObject } from '../documents/request-body.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { explanation } from './explain.ts'
import { type FindRequest, readFindRequest } from './find-request.ts'
import { searchIds } from './id-search.ts'
import { chooseIndex, type Plan } from './index-choice.ts'
import type { IndexList } from './index-list.ts'
import type { OpenIndex } from './index-scan.ts'
import { searchIndex } from './index-search.ts'
import { Matches } from './matches.ts'
import { type NormalSelector, normalSelector } from './normal-selector.ts'
import { scanTurns } from './scan-turns.ts'
import { compileSelector, type Selector } from './selector.ts'

/** The query methods of a database thread. */
export interface FindSource {
  /**
   * The answer of `_find` as JSON in chunks. An empty chunk means that the search is still under way.
   * @param partition in the address; the body may repeat it
   * @throws with the first chunk: the errors of `readFindRequest`, `compileSelector`, `chooseIndex` and of the index
   *   store; invalid_bookmark; too_large, invalid_json, body_not_object; unauthorized, forbidden
   */
  find(user: UserCtx, body: Body, partition?: string): AsyncIterable<Uint8Array>
  /** The answer of `_explain` as JSON. @throws the errors of {@link FindSource.find} */
  explain(user: UserCtx, body: Body, partition?: string): Promise<Uint8Array>
}

/** The maximum size of a body in bytes. Its selector is compiled in a single turn of the event loop. */
export const MAX_FIND_BYTES = 1024 * 1024

/** After this many milliseconds of silence a byte is sent, since some proxies cut silent connections after a minute. */
const SILENCE_MS = 20_000

const EMPTY_CHUNK = new Uint8Array(0)

/** Queries of this thread that only the index of all ids could answer. */
let unindexed = 0

/** @returns how many queries of this thread no json index could answer, since it started */
export function unindexedQueries(): number {
  return unindexed
}

/** A request and its compiled selector. */
interface Query {
  readonly request: FindRequest
  readonly selector: Selector
  readonly normal: NormalSelector
}

interface FindContext {
  readonly store: DatabaseStore
  /** The name of the database. */
  readonly name: string
  /** Called for each request. */
  rules(): FindRules
  readonly indexes: Pick<IndexList, 'read'>
  readonly openIndex: OpenIndex
}

/** The queries of one open database. */
export function storeFind(context: FindContext): FindSource {
  const { store, name, rules, indexes } = context
  return {
    find: async function* (user, body, partition) {
      requireMember(user, (await store.view()).security)
      const end = await scanTurns.begin(user.name ?? '')
      try {
        yield* search(context, user, await readQuery(store, body, partition, rules()))
      } finally {
        end()
      }
    },
    explain: async (user, body, partition) => {
      requireMember(user, (await store.view()).security)
      const { request, normal } = await readQuery(store, body, partition, rules())
      const explained = explanation(name, request, normal, await indexes.read())
      return Buffer.from(`${JSON.stringify(explained)}\n`)
    },
  }
}

async function readQuery(
  { partitioned }: DatabaseStore,
  body: Body,
  partition: string | undefined,
  rules: FindRules,
): Promise<Query> {
  const members = withPartition(await bodyObject(body, {}, MAX_FIND_BYTES), partition)
  const request = readFindRequest(members, partitioned, rules.defaultLimit)
  const yielder = new Yielder()
  // Compilation comes first, since it limits the depth and the size of the selector.
  const selector = compileSelector(request.selector)
  await yielder.yieldIfDue()
  const normal = normalSelector(request.selector)
  await yielder.yieldIfDue()
  return { request, selector, normal }
}

function withPartition(
  members: Readonly<Record<string, unknown>>,
  partition: string | undefined,
): Readonly<Record<string, unknown>> {
  if (partition === undefined) return members
  if (members.partition === undefined || members.partition === partition) return { ...members, partition }
  throw new CouchError('bad_request', 'Conflicting value for `partition` in query string')
}

async function* search(context: FindContext, user: UserCtx, query: Query): AsyncGenerator<Uint8Array> {
  const { request, normal, selector } = query
  const plan = chooseIndex(request, normal, await context.indexes.read())
  if (plan.index === null) unindexed += 1
  const started = performance.now()
  const matches = new Matches(request, selector)
  if (!plan.isEmpty) yield* inTurns(user, matches, await openSearch(context, user, query, plan, matches))
  matches.end(performance.now() - started, plan.warnings, context.rules().scanRatio)
  yield matches.chunk.take()
}

/** @returns a search that yields after each of its steps */
async function openSearch(
  { store, openIndex }: FindContext,
  user: UserCtx,
  { request, normal }: Query,
  { index, bounds, covering }: Plan,
  matches: Matches,
): Promise<AsyncIterable<void>> {
  if (index == null || bounds === null) return searchIds(store, user, request, normal, matches)
  const scan = await openIndex(index, request.update && request.stale !== 'ok')
  return searchIndex({ store, user, request, index, bounds, covering }, scan, matches)
}

/** Lets a search work in its turns. Yields the chunks that are ready to be sent, and an empty one after other steps. */
async function* inTurns(
  { name }: UserCtx,
  matches: Matches,
  steps: AsyncIterable<void>,
): AsyncGenerator<Uint8Array> {
  const caller = name ?? ''
  let silentSince = performance.now()
  await scanTurns.next(caller)
  for await (const _step of steps) {
    const isSilent = performance.now() - silentSince > SILENCE_MS
    if (isSilent) matches.chunk.add('\n')
    const isFull = matches.chunk.isLarge || isSilent
    yield isFull ? matches.chunk.take() : EMPTY_CHUNK
    if (isFull) silentSince = performance.now()
    await scanTurns.next(caller)
  }
}
