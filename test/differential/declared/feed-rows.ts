/** Declared differences of feeds of changes. */
import type { Declared } from './declaration.ts'
import { errorOf, isEqualBut, isFeed, membersRow, sorted } from './likeness.ts'

const SEQUENCE = /"\d+-<token>"/g

export const FEED_ROWS: readonly Declared[] = [
  {
    row: 'feeds',
    is: (what, { step, couchdb, settee }) =>
      what === 'header cache-control' &&
      isFeed(step.path) &&
      settee.headers['cache-control'] === `${couchdb.headers['cache-control']}, no-transform`,
  },
  {
    row: 'the ETag of _changes',
    lasts: true,
    is: (_, { step, couchdb }) => couchdb.status === 304 && isFeed(step.path),
  },
  {
    row: '_changes with a filter function or _view',
    is: (what, { step }) => what === 'header etag' && isFeed(step.path) && /filter=/.test(step.path),
  },
  {
    row: 'since as a bare number',
    lasts: true,
    is: (_, { step, couchdb, settee }) =>
      /since=(%22|\d+(-x)?(&|$))/.test(step.path) && couchdb.status === 400 && settee.status === 200,
  },
  {
    row: 'last_seq and pending of _changes with a filter and a limit',
    lasts: true,
    is: (what, { step, couchdb, settee }) => {
      const limit = /[?&]limit=(\d+)/.exec(step.path)?.[1]
      if (what !== 'body' || limit === undefined || !isFeed(step.path) || !/[?&]filter=/.test(step.path))
        return false
      const [theirs, ours] = [endOf(couchdb.body), endOf(settee.body)]
      const isFurther = /descending=true/.test(step.path) ? theirs.seq <= ours.seq : theirs.seq > ours.seq
      return (
        isFurther &&
        ours.rows === Number(limit) &&
        ours.pending - theirs.pending === (ours.rows === 0 ? 1 : 0) &&
        isEqualBut(couchdb.body, settee.body, /"last_seq":"\d+-<token>"|"pending":\d+/g)
      )
    },
  },
  membersRow('pending of _changes with filter=_design or _doc_ids', /"pending":\d+/g, ({ step }) =>
    /filter=_(design|doc_ids)/.test(step.path),
  ),
  membersRow(
    'last_seq of _changes with filter=_design and descending=true',
    /"last_seq":"\d+-<token>"/g,
    ({ step }) => /filter=_design/.test(step.path) && /descending=true/.test(step.path),
  ),
  {
    row: 'the order of the documents of one _bulk_docs in _changes',
    lasts: true,
    is: (what, { step, before, couchdb, settee }) =>
      what === 'body' &&
      isFeed(step.path) &&
      before.includes('/_bulk_docs') &&
      isEqualBut(sorted(couchdb.body, SEQUENCE), sorted(settee.body, SEQUENCE), SEQUENCE),
  },
  {
    row: 'an unknown style',
    is: (_, { step, settee }) =>
      /style=(x|&|$)/.test(step.path) && /`style` values/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'limit=-1 and timeout=-1 of _changes',
    lasts: true,
    is: (_, { step, settee }) =>
      isFeed(step.path) && /(limit|timeout)=-/.test(step.path) && settee.status === 400,
  },
  { row: '_db_updates |', is: (_, { step }) => step.path.startsWith('/_db_updates') },
]

interface FeedEnd {
  readonly rows: number
  readonly seq: number
  readonly pending: number
}

/** Where a feed has ended, with the number of its rows: one value, or the lines of a continuous feed. */
function endOf(body: unknown): FeedEnd {
  const lines = (Array.isArray(body) ? body : [body]) as Record<string, unknown>[]
  const { results, last_seq, pending } = lines.at(-1) ?? {}
  return {
    rows: Array.isArray(results) ? results.length : lines.length - 1,
    seq: Number.parseInt(String(last_seq), 10),
    pending: Number(pending),
  }
}
