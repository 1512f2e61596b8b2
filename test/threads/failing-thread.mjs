// A database thread on a broken disk: SQLite cannot read the document `unreadable`, nor commit the document
// `unwritable`.
import Sqlite from 'better-sqlite3'

const fail = (code) => {
  throw new Sqlite.SqliteError('disk I/O error', code)
}
let isDoomed = false
const { prepare } = Sqlite.prototype

Sqlite.prototype.prepare = function (sql) {
  const statement = prepare.call(this, sql)
  for (const name of ['get', 'all', 'run']) {
    const plain = statement[name]
    statement[name] = (...values) => {
      const text = JSON.stringify(values)
      if (text.includes('unreadable')) fail('SQLITE_IOERR_READ')
      if (sql === 'BEGIN IMMEDIATE') isDoomed = false
      if (text.includes('unwritable')) isDoomed = true
      if (sql === 'COMMIT' && isDoomed) fail('SQLITE_IOERR_FSYNC')
      return plain.apply(statement, values)
    }
  }
  return statement
}

await import('../helpers/database-thread.mjs')
