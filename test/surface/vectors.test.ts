/** The vectors of protocol.md 19.1 to 19.4 and 19.8, row by row. */
import t from 'tap'
import { HISTORY_VECTORS } from './history-vectors.rows.ts'
import { runTable } from './table.ts'
import { WRITE_VECTORS } from './write-vectors.rows.ts'

t.test('histories', async (t) => runTable(t, HISTORY_VECTORS))
t.test('writes', async (t) => runTable(t, WRITE_VECTORS))
