/** Declared differences of lists, views and queries by selector. */
import type { Difference } from '../pair.ts'
import type { Declared } from './declaration.ts'
import { errorOf, type Failure, isEqualBut, membersRow, ordered, shown } from './likeness.ts'

const SAME_ERROR = /^(invalid_|bad_arg|missing_|error_|query_parse_error)/
/** That of a selector in `_changes` and `_replicate`. */
const SELECTOR_ERROR = /^(Bad argument for|Invalid) operator|^Invalid selector/

/** Whether two errors differ in the value that they show alone. */
function isSameBut(a: Failure, b: Failure): boolean {
  const before = ({ reason = '' }: Failure) => reason.split(/:|<<|"|\{| (?:is not|-?\d)/)[0]
  const isKnown = SAME_ERROR.test(a.error ?? '') || SELECTOR_ERROR.test(a.reason ?? '')
  const isShown = isKnown && a.error === b.error
  return (
    isShown &&
    (before(a) === before(b) || a.error === 'invalid_bulk_docs' || /^(<<|\{|\[|-?\d|")/.test(a.reason ?? ''))
  )
}

export const QUERY_ROWS: readonly Declared[] = [
  membersRow('update_seq of a view', /"update_seq":"\d+-<token>"/g, ({ step }) =>
    /_view\/.*update_seq/.test(shown(step)),
  ),
  {
    row: 'bookmarks |',
    is: (_, { couchdb, settee }) =>
      [couchdb, settee].some((answer) => errorOf(answer).error === 'invalid_bookmark'),
  },
  {
    row: 'values in errors of _find, _index, lists and views',
    is: (what, { couchdb, settee }) => what === 'body' && isSameBut(errorOf(couchdb), errorOf(settee)),
  },
  {
    row: 'the operator that the error of a negated condition names',
    is: (what, { step, couchdb, settee }) => {
      const failure = errorOf(settee)
      if (what !== 'body' || !shown(step).includes('"$not"') || failure.reason === undefined) return false
      const [theirs, ours] = [errorOf(couchdb), failure].map((each) => ({
        ...each,
        reason: each.reason?.replace('operator $nin', 'operator $in') ?? '',
      })) as [Failure, Failure]
      return isSameBut(theirs, ours)
    },
  },
  {
    row: 'an empty name in fields',
    is: (_, { couchdb, settee }) =>
      couchdb.status === 200 && /^Invalid field name/.test(errorOf(settee).reason ?? ''),
  },
  membersRow('total_keys_examined of _find', /"total_(keys|docs)_examined":\d+/g),
  {
    row: 'a bookmark of _find from another partition',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /_partition\/.*_find$/.test(step.path) &&
      shown(step).includes('"bookmark":"{bookmark}"') &&
      docsOf(couchdb.body).every((doc) => docsOf(settee.body).includes(doc)),
  },
  {
    row: 'key beside keys or another end of a range in a partition',
    is: (_, { step }) =>
      step.path.includes('/_partition/') &&
      /[?&]key=.*(start_?key|end_?key|keys)=|(start_?key|end_?key|keys)=.*[?&]key=/.test(step.path),
  },
  {
    row: 'keys of one key beside an end of a range in a partition',
    is: (_, { step, couchdb, settee }) =>
      /\/_partition\/.*keys=/.test(step.path) &&
      /(start|end)_?key=/.test(step.path) &&
      [couchdb, settee].every((answer) => /^$|^`keys` is incompatible/.test(errorOf(answer).reason ?? '')),
  },
  membersRow('offset of _design_docs', /"offset":\d+/g, ({ step }) => step.path.includes('/_design_docs')),
  {
    row: 'sorted=false of a view in a database of one shard',
    is: (what, difference) => what === 'body' && areUnsorted(difference, [0]),
  },
  {
    row: 'skip beside sorted=false of a view',
    is: (what, difference) => {
      const { path } = difference.step
      if (what !== 'body' || !/_view\//.test(path) || path.includes('/_partition/')) return false
      const skips = [...shown(difference.step).matchAll(/skip"?[=:](\d+)/g)].map(([, skip]) => Number(skip))
      return areUnsorted(difference, [0, ...skips])
    },
  },
  membersRow('offset of a view whose keys have no rows', /"offset":\d+/g, ({ step }) =>
    shown(step).includes('keys'),
  ),
  {
    row: 'update_seq of _local_docs',
    is: (what, { step }) =>
      what === 'body' && /_local_docs/.test(step.path) && /update_seq/.test(shown(step)),
  },
  {
    row: 'the mrargs of _explain',
    is: (what, { couchdb, settee }) =>
      what === 'body' &&
      isEqualBut(couchdb.body, settee.body, /"(start|end)_key":(null|\[[^\]]*\]|\{\}|\d+|true|"[^"]*")/g),
  },
  {
    row: 'an empty answer of _find to a selector that nothing can match',
    is: (what, { step, couchdb }) =>
      what === 'body' && step.path.endsWith('/_find') && JSON.stringify(couchdb.body) === '{"docs":[]}',
  },
  {
    row: 'limit of 0 in _find',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.path.endsWith('/_find') &&
      /"limit":0\b/.test(shown(step)) &&
      isEqualBut(couchdb.body, settee.body, /"total_\w+_examined":\d+|,?"warning":"[^"]*"/g, ''),
  },
  {
    row: 'background building of views',
    is: (what, { step }) =>
      what === 'body' &&
      /"?(stale|update)"?[=:]/.test(shown(step)) &&
      /_view\/|_list\/|_find$/.test(step.path),
  },
  {
    row: 'background building of views',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.path.endsWith('/_info') &&
      isEqualBut(
        couchdb.body,
        settee.body,
        /"(update_seq|purge_seq|updater_running)":("?[^",}]*"?)|"updates_pending":\{[^}]*\}/g,
      ),
  },
  {
    row: 'POST of a view without a body',
    is: (_, { step, couchdb }) => couchdb.status === 400 && /_view\//.test(step.path) && step.body === '',
  },
]

/** The documents of an answer of `_find`, each as a text. */
function docsOf(body: unknown): string[] {
  const { docs = [] } = body as { docs?: readonly unknown[] }
  return docs.map(ordered)
}

interface List {
  readonly rows?: readonly unknown[]
  readonly total_rows?: number
}

/**
 * Whether each list of an answer is the same, or one of an unsorted view: without the numbers that settee leaves out, and
 * with rows that CouchDB has not skipped.
 * @param skips how many rows may have been skipped
 */
function areUnsorted({ step, couchdb, settee }: Difference, skips: readonly number[]): boolean {
  if (!/sorted"?[=:]false/.test(shown(step)) || [couchdb, settee].some(({ status }) => status !== 200))
    return false
  const [theirs, ours] = [listsOf(couchdb.body), listsOf(settee.body)]
  return (
    theirs.length === ours.length &&
    theirs.every((list, at) => skips.some((skip) => isUnsorted(list, ours[at] as List, skip)))
  )
}

function isUnsorted(theirs: List, ours: List, skip: number): boolean {
  const { rows = [], ...rest } = theirs
  const { rows: left = [], ...others } = ours
  const kept = rows.slice(skip)
  const numbers = ours.total_rows === undefined ? /"(total_rows|offset)":(\d+|null),?/g : /^$/g
  const plain = (value: unknown) =>
    ordered(value)
      .replace(/"update_seq":"\d+-<token>"/g, '"update_seq":"?"')
      .replace(numbers, '')
  return (
    left.length <= rows.length &&
    isEqualBut(kept, left.slice(0, kept.length), /^$/g) &&
    (skip > 0 || kept.length === left.length) &&
    plain({ ...rest, z: 0 }) === plain({ ...others, z: 0 })
  )
}

function listsOf(body: unknown): readonly List[] {
  const { results = [body] } = body as { results?: readonly unknown[] }
  return results as readonly List[]
}
