/** Attachments, row by row: protocol.md 7 and 19.6. */
import t from 'tap'
import { rows as calls } from './attachment-calls.rows.ts'
import { rows as ranges } from './attachment-ranges.rows.ts'
import { rows as vectors } from './attachment-vectors.rows.ts'
import { rows as forms } from './attachments.rows.ts'
import { rows as multipart } from './multipart.rows.ts'
import { runTable } from './table.ts'

t.test('documents show their attachments in each form', async (t) => runTable(t, forms))
t.test('multipart requests carry attachments after their document', async (t) => runTable(t, multipart))
t.test('attachments have addresses of their own', async (t) => runTable(t, calls))
t.test('ranges of attachments can be read', async (t) => runTable(t, ranges))
t.test('attachments match the vectors of the protocol', async (t) => runTable(t, vectors))
