/** Documents, single and in bulk, and lists of them, row by row: protocol.md 3, 4.1 to 4.3, 8, 19.1 to 19.8. */
import t from 'tap'
import { BULK_DOCS } from './bulk-docs.rows.ts'
import { BULK_GET_AND_DIFF } from './bulk-get-and-diff.rows.ts'
import { ETAG } from './etag.rows.ts'
import { GET } from './get.rows.ts'
import { HISTORY_VECTORS } from './history-vectors.rows.ts'
import { LIST_ANSWERS } from './list-answers.rows.ts'
import { LISTS } from './lists.rows.ts'
import { LOCAL_AND_HEADERS } from './local-and-headers.rows.ts'
import { OPEN_REVS } from './open-revs.rows.ts'
import { PUT } from './put.rows.ts'
import { REMOVE_POST_COPY } from './remove-post-copy.rows.ts'
import { runTable } from './table.ts'
import { WRITE_VECTORS } from './write-vectors.rows.ts'

t.test('reading', async (t) => runTable(t, [...GET, ...ETAG, ...OPEN_REVS]))
t.test('writing', async (t) => runTable(t, [...PUT, ...REMOVE_POST_COPY]))
t.test('_local documents and headers', async (t) => runTable(t, LOCAL_AND_HEADERS))
t.test('_bulk_docs', async (t) => runTable(t, BULK_DOCS))
t.test('_bulk_get, _revs_diff, _missing_revs', async (t) => runTable(t, BULK_GET_AND_DIFF))
t.test('lists', async (t) => runTable(t, [...LISTS, ...LIST_ANSWERS]))
t.test('the vectors of histories', async (t) => runTable(t, HISTORY_VECTORS))
t.test('the vectors of writes', async (t) => runTable(t, WRITE_VECTORS))
