/** Putting `server.sqlite` back from a copy, before it is opened. */
import { chmodSync, copyFileSync, existsSync, rmSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import { longCall } from '../../core/heartbeat.ts'
import { APPLICATION_ID, Connection, isBusy } from './connection.ts'
import type { Files } from './files.ts'
import { inUse } from './folder-lock.ts'

/**
 * Puts a copy in the place of what belongs to the server, which is kept; databases stay as they are. The folder's lock
 * is held by the caller.
 * @param now ms since 1970
 * @throws bad_request when the copy is not good; Error when an older settee holds it
 */
export function replaceServerFile(dataDir: string, files: Files, copy: string, now: number): void {
  files.makeFolder()
  const draft = `${files.server}.unfinished`
  rmSync(draft, { force: true })
  try {
    copyFileSync(copy, draft)
    chmodSync(draft, 0o600)
    examine(copy, draft)
    settle(dataDir, files.server)
    files.replaceServer(draft, now)
  } finally {
    rmSync(draft, { force: true })
  }
}

/** @throws bad_request */
function examine(copy: string, draft: string): void {
  let connection: Connection | undefined
  try {
    const opened = new Connection(draft, { mustExist: true, isDraft: true })
    connection = opened
    const table = opened.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'server'").get()
    const isOurs = opened.pragma('application_id') === APPLICATION_ID && table !== undefined
    if (!isOurs || longCall(() => opened.pragma('integrity_check')) !== 'ok') throw new Error('not whole')
  } catch (cause) {
    throw new CouchError('bad_request', `${copy} is damaged, or no server.sqlite.`, { cause })
  } finally {
    connection?.close()
  }
}

/** Brings the log into the file; of one that is damaged the log goes. */
function settle(dataDir: string, path: string): void {
  if (!existsSync(path)) return
  let connection: Connection | undefined
  try {
    connection = new Connection(path)
    connection.checkpoint()
  } catch (error) {
    if (isBusy(error)) throw inUse(dataDir, error)
    for (const companion of ['-wal', '-shm']) rmSync(path + companion, { force: true })
  } finally {
    connection?.close()
  }
}
