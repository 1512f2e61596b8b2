/** Declared differences of documents. */
import type { Declared, SilentWrite } from './declaration.ts'
import { errorOf, isEqualBut, membersRow, shown } from './likeness.ts'

export const DOCUMENT_ROWS: readonly Declared[] = [
  {
    row: '_purge of revisions that are not stored',
    is: (what, { step, before, couchdb, settee }) =>
      what === 'body' &&
      (/_purged_infos$/.test(step.path) ||
        (/_purge\b/.test(before + step.path) && isEqualBut(couchdb.body, settee.body, /"\d+-<token>"/g))),
  },
  membersRow('counts after a purge', /"(doc_count|doc_del_count|total_rows|offset)":\d+/g, ({ before }) =>
    before.includes('/_purge'),
  ),
  membersRow('_security and the limits of a database', /"\d+-<token>"/g, ({ before }) =>
    /PUT \/\{db\}\/_(security|revs_limit|purged_infos_limit)/.test(before),
  ),
  {
    row: 'a _rev for a document that never existed',
    is: (_, { couchdb, settee, step }) => {
      const isRefused = settee.status === 409 || /"error":"conflict"/.test(JSON.stringify(settee.body))
      return (
        [200, 201].includes(couchdb.status) &&
        isRefused &&
        /_?rev\b/.test(shown(step) + (step.headers?.Destination ?? ''))
      )
    },
  },
  {
    row: 'an id that cannot exist',
    is: (_, { step, couchdb, settee }) =>
      couchdb.status === 404 &&
      (errorOf(settee).error === 'illegal_docid' ||
        (step.method === 'DELETE' && errorOf(settee).error === 'illegal_partition')),
  },
  {
    row: 'a _local document with a revision that is not 0-N',
    is: (_, { step, settee }) =>
      /_local/.test(shown(step) + (step.headers?.Destination ?? '')) &&
      errorOf(settee).reason === 'Invalid rev format',
  },
  {
    row: 'new_edits=false with a _local document',
    is: (_, { step, couchdb }) =>
      /\/_local\/.*new_edits=/.test(step.path) ||
      (/_bulk_docs.*"_local\//.test(shown(step)) && /`new_edits: false`/.test(errorOf(couchdb).reason ?? '')),
  },
  {
    row: 'a Destination that is not percent-encoded',
    is: (_, { step, settee }) =>
      step.method === 'COPY' &&
      (errorOf(settee).reason === 'invalid_url_encoding' || /[^ -~]/.test(step.headers?.Destination ?? '')),
  },
  {
    row: 'rows of 417',
    is: (_, { settee }) => settee.status === 417,
  },
  {
    row: 'POST /{db}?batch=ok of a conflict',
    is: (_, { step, couchdb, settee }) =>
      step.path.includes('batch=ok') && couchdb.status === 202 && settee.status === 409,
  },
  {
    row: 'r and w: more copies',
    is: (what, { couchdb, settee }) =>
      what === 'status' && couchdb.status === 202 && [200, 201].includes(settee.status),
  },
]

export const SILENT_WRITES: readonly SilentWrite[] = [
  {
    row: 'PUT of a document with batch=ok and new_edits=false',
    is: ({ method, path }, status) =>
      method === 'PUT' && status === 202 && path.includes('batch=ok') && path.includes('new_edits=false'),
  },
  {
    row: 'a _rev for a document that never existed',
    is: (step, status) => status === 202 && /batch=ok/.test(step.path) && /\b_?rev\b/.test(shown(step)),
  },
]
