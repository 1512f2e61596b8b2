/** Putting `server.sqlite` back from a copy, before it is opened. */
import { chmodSync, copyFileSync, existsSync, rmSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import { APPLICATION_ID, Connection, isBusy } from './connection.ts'
import type { Files } from './files.ts'

/**
 * Puts a copy in the place of what belongs to the server, which is kept; databases stay as they are.
 * @param now ms since 1970
 * @throws bad_request when the copy is not good; Error when another settee holds the folder
 */
export function replaceServerFile(dataDir: string, files: Files, copy: string, now: number): void {
  files.makeFolder()
  const draft = `${files.server}.unfinished`
  rmSync(draft, { force: true })
  try {
    copyFileSync(copy, draft)
    chmodSync(draft, 0o600)
    examine(copy, draft)
    const lock = locked(dataDir, files.server)
    try {
      files.replaceServer(draft, now)
    } finally {
      lock?.close()
    }
  } finally {
    rmSync(draft, { force: true })
  }
}

/** @throws bad_request */
function examine(copy: string, draft: string): void {
  let connection: Connection | undefined
  try {
    connection = new Connection(draft, { mustExist: true, isDraft: true })
    const table = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'server'").get()
    const isOurs = connection.pragma('application_id') === APPLICATION_ID && table !== undefined
    if (!isOurs || connection.pragma('integrity_check') !== 'ok') throw new Error('not whole')
  } catch (cause) {
    throw new CouchError('bad_request', `${copy} is damaged, or no server.sqlite.`, { cause })
  } finally {
    connection?.close()
  }
}

/** Keeps other servers out, and brings the log into the file; undefined: there is no file, or it is damaged. */
function locked(dataDir: string, path: string): Connection | undefined {
  if (!existsSync(path)) return undefined
  let connection: Connection | undefined
  try {
    connection = new Connection(path, { exclusive: true })
    connection.exec('BEGIN IMMEDIATE; COMMIT')
    connection.checkpoint()
    return connection
  } catch (error) {
    connection?.close()
    if (isBusy(error)) throw new Error(`the data folder ${dataDir} is in use by another settee`)
    for (const companion of ['-wal', '-shm']) rmSync(path + companion, { force: true })
    return undefined
  }
}
