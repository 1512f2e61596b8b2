/** Searches by the index of all ids: the conditions of a selector on `_id` become a range of ids, which is read. */
import { isHeldLong } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { directed, higher, lower, partitionRange } from '../documents/all-docs-query.ts'
import { renderDocument } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore, IdRange } from '../storage/engine.ts'
import { type FindRequest, invalidBookmark, isDescending } from './find-request.ts'
import type { Matches } from './matches.ts'
import { idBounds, type NormalSelector } from './normal-selector.ts'

/** The maximum number of documents in one step. Usually the time limit ends a step earlier. */
const PAGE_DOCS = 1000

/**
 * Tests the documents of the range, in the order of their ids. Yields after each step of a few milliseconds.
 * @throws invalid_bookmark; invalid_selector if a document is too much work; unauthorized, forbidden
 */
export async function* searchIds(
  store: DatabaseStore,
  user: UserCtx,
  request: FindRequest,
  normal: NormalSelector,
  matches: Matches,
): AsyncGenerator<void> {
  let range = rangeOf(request, normal)
  while (range !== null && !matches.isComplete) {
    const page = await readPage(store, user, request, range, matches)
    yield
    if (!page.more) return
    range = { ...range, start: { id: page.last, inclusive: false } }
  }
}

interface IdPage {
  /** The id of the document that was read last. */
  readonly last: string
  /** Whether more of the range remains. */
  readonly more: boolean
}

async function readPage(
  store: DatabaseStore,
  user: UserCtx,
  { conflicts }: FindRequest,
  range: IdRange,
  matches: Matches,
): Promise<IdPage> {
  const since = performance.now()
  let last = ''
  const read: { long: string | null } = { long: null }
  const { more } = await store.readRange(
    range,
    {
      limit: PAGE_DOCS,
      touches: { body: true, branches: conflicts },
      enough: () => read.long !== null || matches.isComplete || matches.chunk.isLarge || isHeldLong(since),
    },
    (doc, view) => {
      requireMember(user, view.security)
      last = doc.id
      matches.keysExamined += 1
      matches.docsExamined += 1
      if (isDesignId(doc.id)) return
      const text = renderDocument(doc, doc.rev, { conflicts })
      if (!matches.test({ id: doc.id, key: null }, text)) read.long = text
    },
  )
  if (read.long !== null) await matches.testLong({ id: last, key: null }, read.long)
  return { last, more }
}

/** The ids to examine, which begin after the bookmark; null if no id can match. */
function rangeOf(request: FindRequest, normal: NormalSelector): IdRange | null {
  const { after, bookmark, partition } = request
  if (after !== null && after.key !== null) throw invalidBookmark(bookmark)
  const bounds = idBounds(normal)
  if (bounds === null) return null
  const position = after === null ? undefined : { id: after.id, inclusive: false }
  const of = partition === '' ? undefined : partitionRange(partition)
  const low = higher(bounds.low, of?.start)
  const high = lower(bounds.high, of?.end)
  return isDescending(request)
    ? directed(low, lower(high, position), true)
    : directed(higher(low, position), high, false)
}
