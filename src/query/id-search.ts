/** Searches by the index of all ids: the conditions of a selector on `_id` become a range of ids, which is read. */
import { BatchSize, isHeldLong } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { directed, higher, lower, partitionRange } from '../documents/all-docs-query.ts'
import { renderDocument, unlessDamaged } from '../documents/render.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore, IdRange, Page } from '../storage/engine.ts'
import { type FindRequest, invalidBookmark, isDescending } from './find-request.ts'
import type { Matches } from './matches.ts'
import { idBounds, type NormalSelector } from './normal-selector.ts'

/** The initial and maximum number of documents in one page, and of their characters. Usually the time limit ends it. */
const FIRST_DOCS = 50
const PAGE_DOCS = 1000
const PAGE_CHARS = 256 * 1024

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
  const size = new BatchSize(FIRST_DOCS, PAGE_DOCS)
  while (range !== null && !matches.isComplete) {
    const began = performance.now()
    const { rows, more, damaged = 0 } = await readPage(store, user, request, range, size.size)
    size.adapt(began)
    matches.damaged += damaged
    let since = began
    for (const { id, text } of rows) {
      if (matches.isComplete) return
      if (matches.chunk.isLarge || isHeldLong(since)) {
        yield
        since = performance.now()
      }
      matches.keysExamined += 1
      matches.docsExamined += 1
      if (text === undefined) matches.damaged += 1
      if (text === undefined || text === null) continue
      const position = { id, key: null }
      if (!matches.test(position, text)) await matches.testLong(position, text)
    }
    yield
    if (!more) return
    range = { ...range, start: { id: rows.at(-1)?.id ?? '', inclusive: false } }
  }
}

/** The documents of the range with their texts; null for one that is not tested, undefined for a damaged one. */
function readPage(
  store: DatabaseStore,
  user: UserCtx,
  { conflicts }: FindRequest,
  range: IdRange,
  limit: number,
): Promise<Page<{ readonly id: string; readonly text: string | null | undefined }>> {
  const paging = { limit, chars: PAGE_CHARS, readSet: { body: true, branches: conflicts } }
  return store.readRange(range, paging, (doc, view) => {
    requireMember(user, view.security)
    if (isDesignId(doc.id)) return { id: doc.id, text: null }
    const render = () => renderDocument(doc, doc.rev, { conflicts })
    return { id: doc.id, text: unlessDamaged(render, () => undefined) }
  })
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
