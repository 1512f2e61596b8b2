/** Prepares a copy of a file to replace a database (StorageEngine.prepare). */
import { randomBytes } from 'node:crypto'
import { chmod, constants, copyFile, lstat, realpath } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncPath } from '../../core/durable-files.ts'
import { CouchError } from '../../core/errors.ts'
import { diskSize } from '../free-space.ts'
import type { Prepared } from '../storage-engine.ts'
import { APPLICATION_ID, Connection, type ConnectionOptions } from './connection.ts'
import { storageError } from './database-access.ts'
import type { Files } from './files.ts'
import { repairMeta } from './meta-repair.ts'
import { markRestored, metaOf } from './restored-mark.ts'
import { MIGRATIONS, migrate, RefusedFile, schemaOf } from './schema.ts'

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
    const counts = prepareDraft(copy, path, onOperation, now())
    await syncPath(path)
    return { draft, ...counts }
  } catch (error) {
    files.discard(name, draft)
    throw storageError(error)
  }
}

/** Refuses a file that is being served: reading it other than through SQLite would release SQLite's locks on it. */
async function refuseLive(files: Files, copy: string): Promise<void> {
  const [served, given] = await Promise.all([
    realpath(dirname(files.path('any'))),
    realpath(dirname(copy)).catch(() => null),
  ])
  if (given !== served) return
  throw new CouchError(
    'bad_request',
    `${copy} is the file of a database that is being served, not a copy of it. Make a backup and use that.`,
  )
}

/** A file that was copied by hand may have a log beside it; a backup has none. */
async function copyWithLog(from: string, to: string): Promise<void> {
  const found = await regularSize(from)
  if (found === null) throw new CouchError('bad_request', `The file ${from} does not exist.`)
  const log = await regularSize(`${from}-wal`)
  const { free } = await diskSize(dirname(to))
  // A sparse file may name more bytes than any disk has.
  if (found + (log ?? 0) > free) throw new CouchError('insufficient_storage')
  for (const suffix of log === null ? [''] : ['', '-wal']) {
    await copyFile(from + suffix, to + suffix, constants.COPYFILE_FICLONE)
    await chmod(to + suffix, 0o600)
  }
}

/** @returns its bytes; null if it does not exist @throws bad_request for a link, a pipe or a device */
async function regularSize(path: string): Promise<number | null> {
  const found = await lstat(path).catch(() => null)
  if (found === null) return null
  if (found.isFile()) return found.size
  throw new CouchError('bad_request', `${path} is not a regular file.`)
}

function prepareDraft(
  copy: string,
  path: string,
  onOperation: ConnectionOptions['onOperation'],
  now: number,
): Omit<Prepared, 'draft'> {
  const connection = openIntact(copy, path, onOperation)
  try {
    migrate(connection, copy)
    repairMeta(connection, { now })
    markRestored(connection, now, [], { isCopy: true })
    const count = (key: string) => Number(metaOf(connection, key) ?? 0)
    return { updateSeq: count('update_seq'), docCount: count('doc_count') }
  } finally {
    connection.close()
  }
}

/** @throws bad_request when SQLite cannot read the file, finds it damaged, or it is none of a settee database */
function openIntact(copy: string, path: string, onOperation: ConnectionOptions['onOperation']): Connection {
  let connection: Connection | undefined
  try {
    connection = new Connection(path, { onOperation, mustExist: true, isDraft: true })
    // Before anything is read through it: the schema of a file from elsewhere may hold what must not run.
    checkKind(connection, copy)
    const found = connection.pragma('integrity_check')
    if (found === 'ok') return connection
    throw new Error(String(found))
  } catch (cause) {
    connection?.close()
    const error = storageError(cause)
    if (error instanceof CouchError && error.code === 'insufficient_storage') throw error
    if (cause instanceof RefusedFile) throw new CouchError('bad_request', cause.message, { cause })
    if (cause instanceof CouchError) throw cause
    throw new CouchError('bad_request', `${copy} is damaged, or is not a settee database.`, { cause })
  }
}

/** @throws bad_request, RefusedFile */
function checkKind(connection: Connection, copy: string): void {
  const version = connection.pragma('user_version') as number
  const tables = connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'revision'").get()
  if (connection.pragma('application_id') !== APPLICATION_ID || version === 0 || tables === undefined) {
    throw new CouchError('bad_request', `${copy} is not a settee database.`)
  }
  if (version > MIGRATIONS.length) {
    const reason = `${copy} was written by a newer settee (schema ${version}); this one knows ${MIGRATIONS.length}.`
    throw new CouchError('bad_request', reason)
  }
  schemaOf(connection, copy)
}
