/** Writes the settings of a database. */

import { rowChecksum } from '../checksum.ts'
import type { SettingsChange, StoreProgress, StoreView } from '../engine.ts'
import type { Query } from './connections.ts'
import { VIEW_COLUMNS, type ViewRow } from './database-view.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Attempt, Decided, PlannedWrite, WriteCommits } from './write-commits.ts'
import { firstValues } from './write-functions.ts'
import type { WriteContext } from './write-note.ts'

const READ_VIEW = {
  name: 'read_view',
  text: `SELECT ${VIEW_COLUMNS} FROM database AS d WHERE d.db = $1`,
}

/**
 * The view as it is now.
 * @param read by default a read on its own
 * @throws no_database
 */
export function readView(database: OpenDatabase, read?: Attempt['run']): Promise<StoreView> {
  const { db, views, connections } = database
  const query: Query = { ...READ_VIEW, values: [db] }
  return views.reading(
    async () => {
      const [row] = await (read === undefined ? connections.read<ViewRow>(query) : read<ViewRow>(query))
      return { view: row ?? null, rows: null }
    },
    (_, view) => view,
  )
}

const READ_PROGRESS = {
  name: 'read_progress',
  text: `SELECT ${VIEW_COLUMNS}, d.purge_seq FROM database AS d WHERE d.db = $1`,
}

/** @throws no_database */
export function readProgress({ db, views, connections }: OpenDatabase): Promise<StoreProgress> {
  return views.reading(
    async () => {
      type ProgressRow = [...ViewRow, purgeSeq: number]
      const [row] = await connections.read<ProgressRow>({ ...READ_PROGRESS, values: [db] })
      if (row === undefined) return { view: null, rows: 0 }
      const [updateSeq, docCount, deletedCount, settingsVersion, purgeSeq] = row
      return { view: [updateSeq, docCount, deletedCount, settingsVersion], rows: purgeSeq }
    },
    (purgeSeq, view) => ({ ...view, purgeSeq }),
  )
}

/** As {@link DatabaseStore.updateSettings}. */
export async function updateSettings<R>(
  database: OpenDatabase,
  commits: WriteCommits,
  decide: (view: StoreView) => { result: R; write?: SettingsChange },
): Promise<R> {
  let outcome: { readonly result: R } | { readonly error: unknown } | undefined
  const decideNow = async ({ run }: Attempt): Promise<Decided> => {
    const view = await readView(database, run)
    const { settingsVersion } = view
    try {
      const { result, write = {} } = decide(view)
      outcome = { result }
      return { settingsVersion, write: Object.keys(write).length > 0 ? new SettingsWrite(write) : null }
    } catch (error) {
      outcome = { error }
      return { settingsVersion, write: null }
    }
  }
  await commits.commit(decideNow, { isLocked: true })
  if (outcome === undefined || 'error' in outcome) throw outcome?.error
  return outcome.result
}

/** The statement that changes settings. */
class SettingsWrite implements PlannedWrite {
  readonly writes = 1
  readonly updates = 0
  readonly settingsChanges = 1
  readonly #change: SettingsChange

  constructor(change: SettingsChange) {
    this.#change = change
  }

  query({ db, settingsVersion, opener, token, now }: WriteContext): Query {
    const { security, revsLimit = null, purgedInfosLimit = null, wasRestored } = this.#change
    const body = security === undefined ? null : JSON.stringify(security)
    return {
      name: 'store_settings',
      text: `SELECT store_settings(${firstValues(10)})`,
      values: [
        db,
        settingsVersion,
        opener,
        token,
        now,
        body,
        revsLimit,
        purgedInfosLimit,
        wasRestored ? now : null,
        body === null ? null : rowChecksum(body),
      ],
    }
  }
}
