/** Documents, row by row: protocol.md 3. */
import t from 'tap'
import { GET } from './get.rows.ts'
import { LOCAL_AND_HEADERS } from './local-and-headers.rows.ts'
import { OPEN_REVS } from './open-revs.rows.ts'
import { PUT } from './put.rows.ts'
import { REMOVE_POST_COPY } from './remove-post-copy.rows.ts'
import { runTable } from './table.ts'

t.test('reading', async (t) => runTable(t, [...GET, ...OPEN_REVS]))
t.test('writing', async (t) => runTable(t, [...PUT, ...REMOVE_POST_COPY]))
t.test('_local documents and headers', async (t) => runTable(t, LOCAL_AND_HEADERS))
