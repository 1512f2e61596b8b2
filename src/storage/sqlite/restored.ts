/** What a file becomes that was put back to an earlier state: docs/decisions/0024. */
import { randomBytes } from 'node:crypto'
import { isCheckpoint } from '../checkpoints.ts'
import { beginEpoch, type Epochs, epochId, hasGoneBack, type Mark } from '../sequence.ts'
import type { Connection } from './connection.ts'
import { RESTORED_KEY } from './state.ts'

const PAGE = 500

/**
 * Lets a database begin anew, in one transaction: the numbers go on in an epoch of their own, so that tokens of lost
 * updates read as the end of what is here; it counts as made later than it and `others` were; no replication's
 * checkpoint is left, and none is believed at once.
 * @param now ms since 1970
 * @param others seconds since 1970 at which databases were made that it must not be taken for
 */
export function beginAnew(connection: Connection, now: number, others: readonly number[]): void {
  connection.exec('BEGIN IMMEDIATE')
  try {
    const put = connection.prepare(
      'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
    )
    const epochs = JSON.parse(String(metaOf(connection, 'epochs'))) as Epochs
    const firstSeq = Number(metaOf(connection, 'update_seq') ?? 0) + 1
    put.run('epochs', JSON.stringify(beginEpoch(epochs, epochId(randomBytes(9)), firstSeq)))
    const before = Math.max(createdAtOf(connection), ...others)
    put.run('created_at', Math.max(Math.floor(now / 1000), before + 1))
    put.run(RESTORED_KEY, now)
    connection.prepare('DELETE FROM refused_checkpoint').run()
    dropCheckpoints(connection)
    connection.exec('COMMIT')
  } catch (error) {
    connection.rollback(error)
    throw error
  }
}

/**
 * Lets a database begin anew that is not as far as it was when last heard of.
 * @param mark undefined: it never was heard of
 * @param now ms since 1970
 * @returns whether it was put back by hand
 */
export function beginAnewIfPutBack(connection: Connection, mark: Mark | undefined, now: number): boolean {
  if (mark === undefined) return false
  const epochs = JSON.parse(String(metaOf(connection, 'epochs'))) as Epochs
  const updateSeq = Number(metaOf(connection, 'update_seq') ?? 0)
  if (!hasGoneBack({ epochs, updateSeq }, mark)) return false
  beginAnew(connection, now, [])
  return true
}

/** Of those that stayed, PouchDB would believe the client's own where both are of one session. */
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

export function metaOf(connection: Connection, key: string): unknown {
  return connection.prepare<{ value: unknown }>('SELECT value FROM meta WHERE key = ?').get(key)?.value
}
