/** Databases, row by row: protocol.md 4.4 to 4.9. */
import t from 'tap'
import { DATABASE } from './database.rows.ts'
import { DB_UPDATES } from './db-updates.rows.ts'
import { UPKEEP } from './maintenance.rows.ts'
import { SECURITY_AND_RIGHTS } from './security.rows.ts'
import { runTable } from './table.ts'
import { startServerWithUsers } from './users.ts'

t.test('databases', async (t) => runTable(t, DATABASE))
t.test('maintenance', async (t) => runTable(t, UPKEEP))
t.test('_db_updates', async (t) => runTable(t, DB_UPDATES))
t.test('rights', async (t) => runTable(t, SECURITY_AND_RIGHTS, startServerWithUsers))
