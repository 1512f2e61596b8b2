/** A copy of a database's file on its way to a name: StorageEngine.prepare. */

import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { chmod, constants, copyFile, realpath } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncPath } from '../../core/durable.ts'
import { CouchError } from '../../core/errors.ts'
import type { Prepared } from '../storage-engine.ts'
import { APPLICATION_ID, Connection, type ConnectionOptions, storageError } from './connection.ts'
import type { Files } from './files.ts'
import { beginAnew, metaOf } from './restored.ts'
import { MIGRATIONS, migrate } from './schema.ts'

/** @throws as StorageEngine.prepare; the file system's error */
export async function prepareCopy(
  files: Files,
  name: string,
  copy: string,
  { onOperation, now }: { readonly onOperation: ConnectionOptions['onOperation']; now(): number },
): Promise<Prepared> {
  await refuseLive(files, copy)
  const draft = randomBytes(8).toString('hex')
  const path = files.draft(name, draft)
  try {
    await copyWithLog(copy, path)
    const counts = examined(copy, path, onOperation, now())
    await syncPath(path)
    return { draft, ...counts }
  } catch (error) {
    files.discard(name, draft)
    throw storageError(error)
  }
}

/** A file that is served is no copy: read by other means than SQLite's, it loses the locks that are on it. */
async function refuseLive(files: Files, copy: string): Promise<void> {
  const [served, given] = await Promise.all([
    realpath(dirname(files.path('any'))),
    realpath(dirname(copy)).catch(() => null),
  ])
  if (given !== served) return
  throw new CouchError(
    'bad_request',
    `${copy} is what a database is kept in, and no copy of it; make a backup.`,
  )
}

/** A file that was copied by hand may have its log beside it; one of a backup has none. */
async function copyWithLog(from: string, to: string): Promise<void> {
  if (!existsSync(from)) throw new CouchError('bad_request', `There is no file ${from}.`)
  for (const log of ['', '-wal']) {
    if (log !== '' && !existsSync(from + log)) continue
    await copyFile(from + log, to + log, constants.COPYFILE_FICLONE)
    await chmod(to + log, 0o600)
  }
}

function examined(
  copy: string,
  path: string,
  onOperation: ConnectionOptions['onOperation'],
  now: number,
): Omit<Prepared, 'draft'> {
  const connection = opened(copy, path, onOperation)
  try {
    checkKind(connection, copy)
    migrate(connection, copy)
    beginAnew(connection, now, [])
    const count = (key: string) => Number(metaOf(connection, key) ?? 0)
    return { updateSeq: count('update_seq'), docCount: count('doc_count') }
  } finally {
    connection.close()
  }
}

/** @throws bad_request when SQLite finds that the file is none of its own, or damaged */
function opened(copy: string, path: string, onOperation: ConnectionOptions['onOperation']): Connection {
  try {
    const connection = new Connection(path, { onOperation, mustExist: true, isDraft: true })
    const found = connection.pragma('integrity_check')
    if (found === 'ok') return connection
    connection.close()
    throw new Error(String(found))
  } catch (cause) {
    const error = storageError(cause)
    if (error instanceof CouchError && error.code === 'insufficient_storage') throw error
    throw new CouchError('bad_request', `${copy} is damaged, or no database of settee's.`, { cause })
  }
}

/** @throws bad_request */
function checkKind(connection: Connection, copy: string): void {
  const version = connection.pragma('user_version') as number
  const tables = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'revision'").get()
  if (connection.pragma('application_id') !== APPLICATION_ID || version === 0 || tables === undefined) {
    throw new CouchError('bad_request', `${copy} is no database of settee's.`)
  }
  if (version > MIGRATIONS.length) {
    const reason = `${copy} was written by a newer settee (schema ${version}); this one knows ${MIGRATIONS.length}.`
    throw new CouchError('bad_request', reason)
  }
}
