/** Who may do what, row by row: protocol.md 19.7. */
import t from 'tap'
import { rows } from './rights.rows.ts'
import { runTable } from './table.ts'
import { startServerWithUsers } from './users.ts'

runTable(t, rows, startServerWithUsers)
