/** Declared differences of replications. */
import type { Declared } from './declaration.ts'
import { isRefusal, membersRow, shown } from './likeness.ts'

export const REPLICATION_ROWS: readonly Declared[] = [
  {
    row: 'POST /_replicate |',
    is: (_, { step, couchdb, settee }) =>
      step.path === '/_replicate' &&
      /"cancel":true/.test(shown(step)) &&
      /"continuous":true/.test(shown(step)) &&
      couchdb.status === 404 &&
      settee.status === 200,
  },
  {
    row: 'errors of _replicate',
    is: (what, { step, couchdb, settee }) =>
      step.path.startsWith('/_replicate') &&
      (what === 'body' ? [couchdb, settee].every(({ status }) => status >= 400) : isRefusal(settee)),
  },
  {
    row: 'errors of _replicate',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.path.startsWith('/{repl}/') &&
      [couchdb, settee].every(({ status }) => status === 403),
  },
  {
    row: 'use_checkpoints=false of _replicate',
    is: (what, { step }) => what === 'body' && shown(step).includes('use_checkpoints'),
  },
  {
    row: 'checkpoints of a replication',
    is: (what, { step }) => what === 'body' && step.path.endsWith('/_local_docs'),
  },
  {
    row: 'a filtered replication that finds no document',
    is: (what, { step, couchdb }) =>
      what === 'body' &&
      step.path === '/_replicate' &&
      /"(selector|filter|doc_ids)"/.test(shown(step)) &&
      /"no_changes":true/.test(JSON.stringify(couchdb.body)),
  },
  membersRow(
    'a replication that brings a validate function',
    /"(docs_written|doc_write_failures)":\d+/g,
    ({ step, before }) => step.path === '/_replicate' && before.includes('validate_doc_update'),
  ),
  {
    row: 'doc_ids of a replication',
    is: (what, { step }) =>
      what === 'body' && step.path === '/_replicate' && /"doc_ids":\[[^\]]*[+%]/.test(shown(step)),
  },
  membersRow('bulk_get_docs', /"bulk_get_\w+":\d+/g),
  { row: '_active_tasks |', is: (what, { step }) => what === 'body' && step.path === '/_active_tasks' },
]
