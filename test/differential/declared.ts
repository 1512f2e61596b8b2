/** All differences that docs/compatibility.md declares. A matcher is beside the row that it stands for, in declared/. */
import type { Comparable } from './comparable.ts'
import { ATTACHMENT_ROWS } from './declared/attachment-rows.ts'
import type { Declared } from './declared/declaration.ts'
import { DOCUMENT_ROWS, SILENT_WRITES } from './declared/document-rows.ts'
import { FEED_ROWS } from './declared/feed-rows.ts'
import { FUNCTION_ROWS } from './declared/function-rows.ts'
import { errorOf, isCut, isEqualBut, isOfFunction, isRefusal } from './declared/likeness.ts'
import { QUERY_ROWS } from './declared/query-rows.ts'
import { REPLICATION_ROWS } from './declared/replication-rows.ts'
import { REVISION_ROWS } from './declared/revision-rows.ts'
import { SERVER_ROWS } from './declared/server-rows.ts'
import type { Difference } from './pair.ts'
import type { Step } from './step.ts'

/** Those that say least come last, so that a row of its own explains what it can. */
const GENERAL: readonly Declared[] = [
  {
    row: 'a request that makes CouchDB fail',
    is: (_, { step, couchdb, settee }) =>
      ([0, 500].includes(couchdb.status) || isCut(couchdb)) &&
      settee.status > 0 &&
      (settee.status < 500 || isOfFunction(step.path)),
  },
  {
    row: 'a request with several mistakes',
    is: (what, { step, couchdb, settee }) =>
      ['body', 'status', 'header allow'].includes(what) &&
      [couchdb, settee].every(isRefusal) &&
      errorOf(couchdb).reason !== errorOf(settee).reason &&
      ([couchdb, settee].some(isEarly) || haveOtherMembers(step.path, couchdb, settee)),
  },
]

const DECLARED: readonly Declared[] = [
  ...DOCUMENT_ROWS,
  ...REVISION_ROWS,
  ...ATTACHMENT_ROWS,
  ...QUERY_ROWS,
  ...FUNCTION_ROWS,
  ...FEED_ROWS,
  ...REPLICATION_ROWS,
  ...SERVER_ROWS,
  ...GENERAL,
]

/** What the rows of docs/compatibility.md begin with. */
export const DECLARED_ROWS: readonly string[] = [...DECLARED, ...SILENT_WRITES].map(({ row }) => row)

/** @returns what declares a part of a difference */
export function declarationOf(what: string, difference: Difference): Declared | undefined {
  return DECLARED.find((each) => each.is(what, difference)) ?? together(what, difference)
}

/** @returns one of the rows that explain a body together */
function together(what: string, difference: Difference): Declared | undefined {
  if (what !== 'body') return undefined
  const rows = DECLARED.map((row) => ({ row, members: row.members?.(difference) ?? null }))
  const able = rows.filter(({ members }) => members !== null)
  const all = new RegExp(able.map(({ members }) => `(?:${members?.source})`).join('|'), 'g')
  const { couchdb, settee } = difference
  return able.length > 0 && isEqualBut(couchdb.body, settee.body, all) ? able[0]?.row : undefined
}

/** @returns the row of a write that both have answered with a status, and not carried out alike */
export function silentRow(step: Step, status: number): string | undefined {
  return SILENT_WRITES.find((each) => each.is(step, status))?.row
}

/** What one of them may look at before the other mistake. */
function isEarly(answer: Comparable): boolean {
  const { error = '', reason } = errorOf(answer)
  return (
    ['conflict', 'illegal_docid', 'method_not_allowed'].includes(error) ||
    /Invalid rev format|different values|`new_edits`|`doc_ids`|invalid UTF-8 JSON|Multi-key|incompatible|invalid_seq_interval|missing_named_view|Invalid path|Destination header is mandatory|missing json key|No rows can match|must be an array of strings|`feed` types/.test(
      reason ?? '',
    )
  )
}

/** Whether each names another member of a body of Mango as the wrong one. */
function haveOtherMembers(path: string, couchdb: Comparable, settee: Comparable): boolean {
  return /_(find|explain|index)$/.test(path) && errorOf(couchdb).error !== errorOf(settee).error
}
