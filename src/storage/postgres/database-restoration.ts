/**
 * Marks a database as restored, where its newest changes may be gone: after PostgreSQL was restored or another server has
 * taken over, or as the operator asks. Whoever has it open finds it gone, so that feeds begin anew; docs/decisions/0024.
 */
import { CouchError } from '../../core/errors.ts'
import { isCheckpoint } from '../checkpoints.ts'
import { type Epochs, renewEpochs } from '../sequence.ts'
import type { CatalogWrites } from './catalog-writes.ts'
import type { Run } from './connections.ts'
import type { DatabasePosition } from './database-events.ts'
import { textOf } from './stored-text.ts'
import { renewMovedStore } from './stored-updates.ts'

/** Versions of settings that a lost part of the history may have had. */
const LOST_VERSIONS = 1_000_000
/** `_local` documents that one statement looks at: with their bodies, of up to 8 MB each, and by their versions alone. */
const LOCALS = 100
const LOCAL_VERSIONS = 5000

const LOCK_DATABASE = {
  name: 'lock_restored',
  text: 'SELECT update_seq, epochs, created_at FROM database WHERE db = $1 AND incarnation = $2 FOR UPDATE',
}
const ENTER = {
  name: 'enter_restored',
  text: `UPDATE store SET last_db = last_db + 1, update_seq = update_seq + 1 RETURNING last_db, update_seq, boot`,
}
const SET_ENTRY = {
  name: 'set_restored_entry',
  text: 'UPDATE entry SET incarnation = $2, last_epoch = NULL, last_seq = NULL WHERE db = $1',
}
const NOTE = { name: 'note_restored', text: "SELECT update_noted($1, 'created', $2)" }
const READ_WRITES = { name: 'read_writes', text: 'SELECT writes FROM database WHERE db = $1' }
/** Of the next documents, those that may be checkpoints and have changed since; the last row has the last id that it has looked at. */
const LOCK_STARTED = {
  name: 'lock_started',
  text: 'SELECT update_seq, epochs, boot FROM database WHERE db = $1 AND incarnation = $2 FOR UPDATE',
}
const START = {
  name: 'begin_started_epoch',
  text: 'UPDATE database SET epochs = $2, boot = $3, settings_version = settings_version + 1 WHERE db = $1',
}
const FIND_CHECKPOINTS = {
  name: 'find_checkpoints',
  text: `WITH page AS MATERIALIZED (
      SELECT id, version, body FROM local_doc WHERE db = $1 AND id > $2 ORDER BY id LIMIT $4)
    SELECT id, body FROM page WHERE CASE WHEN version > $3
      THEN strpos(body, '"session_id"') > 0 AND strpos(body, '"history"') > 0 ELSE false END
    UNION ALL (SELECT id, NULL FROM page ORDER BY id OFFSET $4::bigint - 1)`,
}
const DELETE_CHECKPOINTS = {
  name: 'delete_checkpoints',
  text: 'DELETE FROM local_doc WHERE db = $1 AND id = ANY($2::text[])',
}
const FORGET_MET = { name: 'forget_met', text: 'DELETE FROM met WHERE db = $1' }
const MARK = {
  name: 'mark_restored',
  text: `UPDATE database SET incarnation = $2, epochs = $3, created_at = $4, restored_at = $5, boot = $6, timeline = timeline(),
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
  await writes.transaction([], renewMovedStore(now))
  // Most are removed before the database is locked, since there may be very many. That alone makes devices compare more at most.
  const since = await writes.transaction([], async (run) => {
    const [row] = await run<[number]>({ ...READ_WRITES, values: [restored.db] })
    return row?.[0] ?? 0
  })
  for (let after: string | null = ''; after !== null && since !== null; ) {
    const from: string = after
    const removed: { last: string | null } | null = await writes.transaction([], async (run) => ({
      last: await deleteSome(run, restored.db, from, { since: -1, most: LOCALS }),
    }))
    if (removed !== null) after = removed.last
  }
  return writes.transaction([{ type: 'databases', names: [restored.name] }], async (run, note) => {
    const restoration = await markRestored(run, restored, now, since ?? -1)
    await note()
    return restoration
  })
}

/**
 * Begins an epoch of a database before a node that was started gives out its first number: nobody may have seen what happened to the
 * store meanwhile, and no number is given out twice within an epoch.
 * @param opened `since`: the boot of the database as it was opened: another one means that an epoch was begun since; `boot`: that
 * of the store
 * @param now in ms since 1970
 * @throws as `CatalogWrites.transaction`
 */
export async function beginStartedEpoch(
  writes: CatalogWrites,
  opened: Omit<RestoredDatabase, 'name'> & { readonly since: string; readonly boot: string },
  now: number,
): Promise<void> {
  const { db, incarnation, since, boot } = opened
  await writes.transaction([], async (run) => {
    const values = [db, incarnation]
    const [row] = await run<[updateSeq: number, epochs: string, boot: string]>({ ...LOCK_STARTED, values })
    if (row === undefined || row[2] !== since) return
    const [updateSeq, epochs] = row
    const renewed = renewEpochs(JSON.parse(epochs) as Epochs, updateSeq + 1, { now })
    await run({ ...START, values: [db, JSON.stringify(renewed), boot] })
  })
}

async function markRestored(
  run: Run,
  { name, db, incarnation }: RestoredDatabase,
  now: number,
  since: number,
): Promise<Restoration> {
  const [row] = await run<[updateSeq: number, epochs: string, createdAt: number]>({
    ...LOCK_DATABASE,
    values: [db, incarnation],
  })
  if (row === undefined) throw new CouchError('no_database')
  const [updateSeq, epochs, createdAt] = row
  for (let after: string | null = ''; after !== null; )
    after = await deleteSome(run, db, after, { since, most: LOCAL_VERSIONS })
  await run({ ...FORGET_MET, values: [db] })
  const [entered] = await run<[incarnation: number, updateSeq: number, boot: string]>({
    ...ENTER,
    values: [],
  })
  const [next, noted, boot] = entered as [number, number, string]
  await run({ ...SET_ENTRY, values: [db, next] })
  await run({ ...NOTE, values: [name, noted] })
  const later = Math.max(createdAt + 1, Math.floor(now / 1000))
  const renewed = renewEpochs(JSON.parse(epochs) as Epochs, updateSeq + 1, { now, isRestored: true })
  const values = [db, next, JSON.stringify(renewed), later, now, boot]
  const [marked] = await run<[settingsVersion: number]>({ ...MARK, values })
  return { incarnation: next, position: { updateSeq, settingsVersion: marked?.[0] as number } }
}

/**
 * Removes checkpoints among the next `_local` documents, so that no statement takes long. That is not counted: the next compaction counts
 * all rows anew.
 * @param limits.since looks only at those that have changed after this many writes of the database
 * @param limits.most how many documents
 * @returns the id of the last; null if there are no more
 */
async function deleteSome(
  run: Run,
  db: number,
  after: string,
  { since, most }: { readonly since: number; readonly most: number },
): Promise<string | null> {
  const values = [db, after, since, most]
  const found = await run<[id: string, body: string | null]>({ ...FIND_CHECKPOINTS, values })
  const ids = found.flatMap(([id, body]) => (body !== null && isCheckpoint(textOf(body)) ? [id] : []))
  if (ids.length > 0) await run({ ...DELETE_CHECKPOINTS, values: [db, ids] })
  return found.find(([, body]) => body === null)?.[0] ?? null
}
