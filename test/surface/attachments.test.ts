/** Attachments, row by row: protocol.md 7 and 19.6. */
import t from 'tap'
import { rows as calls } from './attachment-calls.rows.ts'
import { rows as ranges } from './attachment-ranges.rows.ts'
import { rows as vectors } from './attachment-vectors.rows.ts'
import { rows as forms } from './attachments.rows.ts'
import { rows as multipart } from './multipart.rows.ts'
import { runTable } from './table.ts'

t.test('their forms', async (t) => runTable(t, forms))
t.test('behind their document', async (t) => runTable(t, multipart))
t.test('on their own addresses', async (t) => runTable(t, calls))
t.test('in part', async (t) => runTable(t, ranges))
t.test('the vectors', async (t) => runTable(t, vectors))
