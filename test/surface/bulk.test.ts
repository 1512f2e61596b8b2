/** Calls about many documents, row by row: protocol.md 4.1 to 4.3. */
import t from 'tap'
import { BULK_DOCS } from './bulk-docs.rows.ts'
import { BULK_GET_AND_DIFF } from './bulk-get-and-diff.rows.ts'
import { runTable } from './table.ts'

t.test('_bulk_docs', async (t) => runTable(t, BULK_DOCS))
t.test('_bulk_get, _revs_diff, _missing_revs', async (t) => runTable(t, BULK_GET_AND_DIFF))
