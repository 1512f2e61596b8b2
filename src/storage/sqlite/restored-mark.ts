/** Marks databases as restored: devices then compare what they have. */
import { isCheckpoint } from '../checkpoints.ts'
import { type Epochs, isRolledBack, type LastKnownSequence, renewEpochs } from '../sequence.ts'
import type { Connection } from './connection.ts'
import { putMeta, RESTORED_KEY, SETTINGS_VERSION_KEY } from './meta.ts'

const PAGE = 500

/**
 * Marks a database as restored (docs/decisions/0024), in one transaction. The numbers continue in a new epoch, so that
 * tokens of lost updates are read as the end of this database. Its creation time becomes later than before and than
 * `others`. All replication checkpoints are removed, and the first one of each replication will be refused.
 * @param now ms since 1970
 * @param others creation times, in seconds since 1970, of databases that it must not be confused with
 * @param isCopy as for `renewEpochs`
 */
export function markRestored(
  connection: Connection,
  now: number,
  others: readonly number[],
  options: { readonly isCopy?: boolean } = {},
): void {
  connection.exec('BEGIN IMMEDIATE')
  try {
    restoreInTransaction(connection, now, others, options)
    connection.exec('COMMIT')
  } catch (error) {
    connection.rollback(error)
    throw error
  }
}

/** As {@link markRestored}, in the caller's transaction. */
export function restoreInTransaction(
  connection: Connection,
  now: number,
  others: readonly number[],
  { isCopy = false }: { readonly isCopy?: boolean } = {},
): void {
  const epochs = JSON.parse(String(metaOf(connection, 'epochs'))) as Epochs
  const firstSeq = Number(metaOf(connection, 'update_seq') ?? 0) + 1
  putMeta(
    connection,
    'epochs',
    JSON.stringify(renewEpochs(epochs, firstSeq, { now, isRestored: true, isCopy })),
  )
  const before = Math.max(createdAtOf(connection), ...others)
  putMeta(connection, 'created_at', Math.max(Math.floor(now / 1000), before + 1))
  putMeta(connection, RESTORED_KEY, now)
  putMeta(connection, SETTINGS_VERSION_KEY, Number(metaOf(connection, SETTINGS_VERSION_KEY) ?? 0) + 1)
  connection.prepare('DELETE FROM refused_checkpoint').run()
  dropCheckpoints(connection)
}

/**
 * Marks a database as restored if it has not reached its last known sequence.
 * @param lastKnown undefined if none was noted
 * @param now ms since 1970
 * @returns whether it was rolled back
 */
export function markRestoredIfRolledBack(
  connection: Connection,
  lastKnown: LastKnownSequence | undefined,
  now: number,
): boolean {
  if (lastKnown === undefined) return false
  const epochs = JSON.parse(String(metaOf(connection, 'epochs'))) as Epochs
  const updateSeq = Number(metaOf(connection, 'update_seq') ?? 0)
  if (!isRolledBack({ epochs, updateSeq }, lastKnown)) return false
  markRestored(connection, now, [])
  return true
}

/** PouchDB would trust its own checkpoint if this database kept one of the same session. */
function dropCheckpoints(connection: Connection): void {
  const page = connection.prepare<{ id: string; body: string }>(
    'SELECT id, body FROM local WHERE id > ? ORDER BY id LIMIT ?',
  )
  const drop = connection.prepare('DELETE FROM local WHERE id = ?')
  let last = ''
  for (let rows = page.all(last, PAGE); rows.length > 0; rows = page.all(last, PAGE)) {
    for (const { id, body } of rows) if (isCheckpoint(body)) drop.run(id)
    last = rows.at(-1)?.id as string
  }
}

/** Seconds since 1970. */
export function createdAtOf(connection: Connection): number {
  return Number(metaOf(connection, 'created_at') ?? 0)
}

/** A value of `meta`, as it is in the file. */
export function metaOf(connection: Connection, key: string): unknown {
  return connection.prepare<{ value: unknown }>('SELECT value FROM meta WHERE key = ?').get(key)?.value
}
