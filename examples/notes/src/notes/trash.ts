/** The trash: notes with the time at which they were moved there, which syncs like any other edit. */
import type { Doc, Pouch } from '../pouch.ts'
import { changeAll, type Progress } from './batches.ts'
import type { Note } from './model.ts'

type TrashDb = Pick<Pouch, 'allDocs' | 'bulkDocs'>

/** Moves notes to the trash. They keep their books and tags. */
export function moveToTrash(db: TrashDb, ids: readonly string[], now = Date.now()): Promise<void> {
  return changeAll(db, ids, (doc) => ({ ...doc, trashedAt: now }))
}

/** Takes notes out of the trash. */
export function restore(db: TrashDb, ids: readonly string[]): Promise<void> {
  return changeAll(db, ids, ({ trashedAt, ...doc }) => (trashedAt === undefined ? null : doc))
}

/**
 * Deletes notes for good, on all devices. A note that was changed since stays, and so does a note with a conflict, because
 * the other version may be an edit that nobody has seen.
 */
export async function emptyTrash(
  db: TrashDb,
  notes: readonly Pick<Note, 'id' | 'rev' | 'conflicts'>[],
  progress?: Progress,
): Promise<void> {
  const revs = new Map(notes.filter(isDeletable).map(({ id, rev }) => [id, rev]))
  const tombstone = ({ _id, _rev }: Doc): Doc | null =>
    _rev !== undefined && revs.get(_id) === _rev ? { _id, _rev, _deleted: true } : null
  await changeAll(db, [...revs.keys()], tombstone, progress)
}

/** Whether {@link emptyTrash} deletes a note. */
export function isDeletable({ conflicts }: Pick<Note, 'conflicts'>): boolean {
  return conflicts.length === 0
}
