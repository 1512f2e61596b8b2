/**
 * Marks a database as restored, where its newest changes may be gone: after PostgreSQL was restored or another server has
 * taken over, or as the operator asks. Whoever has it open finds it gone, so that feeds begin anew; docs/decisions/0024.
 */
import { randomBytes } from 'node:crypto'
import { CouchError } from '../../core/errors.ts'
import { isCheckpoint } from '../checkpoints.ts'
import { beginEpoch, type Epochs, epochId } from '../sequence.ts'
import type { CatalogWrites } from './catalog-writes.ts'
import type { Run } from './connections.ts'
import type { DatabasePosition } from './database-events.ts'
import { textOf } from './stored-text.ts'
import { renewStore } from './stored-updates.ts'

/** Versions of settings that a lost part of the history may have had. */
const LOST_VERSIONS = 1_000_000
/** Checkpoints that are read at once. Removing them is not counted: the next compaction counts all rows anew. */
const CHECKPOINTS = 100

const LOCK_DATABASE = {
  name: 'lock_restored',
  text: 'SELECT update_seq, epochs, created_at FROM database WHERE db = $1 AND incarnation = $2 FOR UPDATE',
}
const ENTER = {
  name: 'enter_restored',
  text: `UPDATE store SET last_db = last_db + 1, update_seq = update_seq + 1 RETURNING last_db, update_seq`,
}
const SET_ENTRY = {
  name: 'set_restored_entry',
  text: 'UPDATE entry SET incarnation = $2, last_epoch = NULL, last_seq = NULL WHERE db = $1',
}
const NOTE = { name: 'note_restored', text: "SELECT update_noted($1, 'created', $2)" }
const FIND_CHECKPOINTS = {
  name: 'find_checkpoints',
  text: `SELECT id, body FROM local_doc WHERE db = $1 AND id > $2
    AND strpos(body, '"session_id"') > 0 AND strpos(body, '"history"') > 0 ORDER BY id LIMIT ${CHECKPOINTS}`,
}
const DELETE_CHECKPOINTS = {
  name: 'delete_checkpoints',
  text: 'DELETE FROM local_doc WHERE db = $1 AND id = ANY($2::text[])',
}
const FORGET_MET = { name: 'forget_met', text: 'DELETE FROM met WHERE db = $1' }
const MARK = {
  name: 'mark_restored',
  text: `UPDATE database SET incarnation = $2, epochs = $3, created_at = $4, restored_at = $5, timeline = timeline(),
    settings_version = settings_version + ${LOST_VERSIONS}, writes = writes + ${LOST_VERSIONS},
    uncounted = writes + 1 WHERE db = $1
    RETURNING settings_version`,
}

export interface RestoredDatabase {
  readonly name: string
  readonly db: number
  /** The present one, which ends. */
  readonly incarnation: number
}

interface Restoration {
  /** The new one. */
  readonly incarnation: number
  readonly position: DatabasePosition
}

/**
 * @param now in ms since 1970
 * @returns null if the answer was lost, but it is stored
 * @throws no_database when it is gone or was restored meanwhile; as `CatalogWrites.transaction`
 */
export async function restoreDatabase(
  writes: CatalogWrites,
  restored: RestoredDatabase,
  now: number,
): Promise<Restoration | null> {
  await writes.transaction([], renewStore)
  return writes.transaction([{ type: 'databases', names: [restored.name] }], async (run, note) => {
    const restoration = await markRestored(run, restored, now)
    await note()
    return restoration
  })
}

async function markRestored(
  run: Run,
  { name, db, incarnation }: RestoredDatabase,
  now: number,
): Promise<Restoration> {
  const [row] = await run<[updateSeq: number, epochs: string, createdAt: number]>({
    ...LOCK_DATABASE,
    values: [db, incarnation],
  })
  if (row === undefined) throw new CouchError('no_database')
  const [updateSeq, epochs, createdAt] = row
  await deleteCheckpoints(run, db)
  await run({ ...FORGET_MET, values: [db] })
  const [entered] = await run<[incarnation: number, updateSeq: number]>({ ...ENTER, values: [] })
  const [next, noted] = entered as [number, number]
  await run({ ...SET_ENTRY, values: [db, next] })
  await run({ ...NOTE, values: [name, noted] })
  const later = Math.max(createdAt + 1, Math.floor(now / 1000))
  const renewed = beginEpoch(JSON.parse(epochs) as Epochs, epochId(randomBytes(9)), updateSeq + 1)
  const values = [db, next, JSON.stringify(renewed), later, now]
  const [marked] = await run<[settingsVersion: number]>({ ...MARK, values })
  return { incarnation: next, position: { updateSeq, settingsVersion: marked?.[0] as number } }
}

async function deleteCheckpoints(run: Run, db: number): Promise<void> {
  for (let after = ''; ; ) {
    const found = await run<[id: string, body: string]>({ ...FIND_CHECKPOINTS, values: [db, after] })
    const ids = found.filter(([, body]) => isCheckpoint(textOf(body))).map(([id]) => id)
    if (ids.length > 0) await run({ ...DELETE_CHECKPOINTS, values: [db, ids] })
    const [last] = found.at(-1) ?? []
    if (found.length < CHECKPOINTS || last === undefined) return
    after = last
  }
}
