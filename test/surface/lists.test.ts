/** Lists of documents, row by row: protocol.md 8. */
import t from 'tap'
import { LIST_ANSWERS } from './list-answers.rows.ts'
import { LISTS } from './lists.rows.ts'
import { runTable } from './table.ts'

t.test('lists', async (t) => runTable(t, [...LISTS, ...LIST_ANSWERS]))
