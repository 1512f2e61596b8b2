/**
 * The size of a database's pages. An empty database takes 50 kB with small pages, and 188 kB with large ones; feeds and
 * lists of many documents are up to a third faster with large ones. So a file starts with small pages, and is rewritten
 * once before it grows (docs/decisions/0043).
 */
import { closeSync, fsyncSync, openSync, rmSync, writeSync } from 'node:fs'
import { dirname } from 'node:path'
import Sqlite from 'better-sqlite3'
import { fileBytes, logOf, syncPathNow } from './page-copy.ts'

/** How long to wait while another process locks the file, in ms. */
export const BUSY_MS = 1000

/** Sizes of pages, in bytes. */
export const PAGE = { small: 2048, large: 8192 }

/**
 * A file with small pages is rewritten before it exceeds `least` bytes, which takes about 7 ms. Above `most` bytes it keeps
 * its small pages, since rewriting it would take too long for one turn.
 */
export const REWRITE = { least: 256 * 1024, most: 2 * 1024 * 1024 }

interface Pragmas {
  pragma(text: string): unknown
  exec(sql: string): void
}

/**
 * SQLite changes the size of pages only without a log. So the log is emptied and removed, the file is rewritten with a
 * rollback journal, and a log is used again.
 *
 * SQLite ignores the errors of folders' syncs. So nothing here depends on them: the log is durably empty before its name
 * goes, the journal has a durable name before it is written, and it ends durably empty, since SQLite syncs a journal that
 * it truncates.
 * @param connection one with small pages, outside a transaction; after an error, call {@link endRewrite}
 * @param path of the file
 * @throws SqliteError or the operating system's error; at once while another connection has the file open. The content
 *   is then unchanged
 */
export function rewriteWithLargePages(connection: Pragmas, path: string): void {
  connection.pragma('busy_timeout = 0')
  connection.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  if (fileBytes(logOf(path)) > 0) throw new Sqlite.SqliteError('the log is in use', 'SQLITE_BUSY')
  syncPathNow(logOf(path))
  closeSync(openSync(journalOf(path), 'a', 0o600))
  syncPathNow(dirname(path))
  connection.exec('PRAGMA journal_mode = TRUNCATE')
  connection.exec(`PRAGMA page_size = ${PAGE.large}`)
  connection.exec('VACUUM')
  useLog(connection)
  rmSync(journalOf(path), { force: true })
}

/**
 * Rolls back a rewrite that has failed, and uses a log again.
 * @throws SqliteError or the operating system's error; nothing may be committed then
 */
export function endRewrite(connection: Pragmas, path: string): void {
  connection.pragma('user_version')
  useLog(connection)
  discardJournal(path)
}

/**
 * Removes a journal that SQLite no longer needs, but whose end may not be durable: at a power cut it would undo later
 * commits. So an invalid one durably takes its place first.
 */
function discardJournal(path: string): void {
  const journal = openSync(journalOf(path), 'w', 0o600)
  try {
    writeSync(journal, '\0')
    fsyncSync(journal)
  } finally {
    closeSync(journal)
  }
  syncPathNow(dirname(path))
  rmSync(journalOf(path))
}

function useLog(connection: Pragmas): void {
  connection.exec('PRAGMA journal_mode = WAL')
  // When the size of pages changes, SQLite keeps the number of pages that it may cache: four times the memory.
  connection.pragma(`cache_size = ${connection.pragma('cache_size')}`)
  connection.pragma(`busy_timeout = ${BUSY_MS}`)
}

/** The path of a file's rollback journal. */
function journalOf(path: string): string {
  return `${path}-journal`
}

/**
 * Rolls back a rewrite that a crash has interrupted, since a connection that only reads could not. Never throws: the next
 * opening reports a file that cannot be read.
 */
export function rollBackRewrite(path: string): void {
  try {
    const db = new Sqlite(path, { fileMustExist: true })
    try {
      db.pragma('user_version')
    } finally {
      db.close()
    }
    discardJournal(path)
  } catch {}
}
