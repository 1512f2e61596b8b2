/** Renames and deletes books and tags. Notes name a book by its id, and a tag by an id made of its name. */
import type { Pouch, StoredDoc } from '../pouch.ts'
import { changeAll, type Progress } from './batches.ts'
import { type Book, type Note, type Tag, tagId } from './model.ts'

type LabelDb = Pick<Pouch, 'allDocs' | 'bulkDocs' | 'get' | 'put'>
/** Reverts a deletion. */
export type Undo = () => Promise<void>

/** The notes name the book by its id, so only the book itself is written. */
export function renameBook(db: LabelDb, book: Book, name: string): Promise<void> {
  return changeAll(db, [book.id], (doc) => ({ ...doc, name: name.trim() }))
}

/** The notes of the book stay. They keep its id, so that undoing this puts them into the book again. */
export function deleteBook(db: LabelDb, book: Book): Promise<Undo> {
  return deleteDoc(db, book.id)
}

/**
 * Renames a tag in all its notes. If there is a tag of the new name already, the two become one.
 * @returns the id of the tag, which follows from its name
 */
export async function renameTag(
  db: LabelDb,
  tag: Tag,
  name: string,
  notes: readonly Note[],
  progress?: Progress,
): Promise<string> {
  const id = tagId(name)
  if (id === tag.id) {
    await changeAll(db, [id], (doc) => ({ ...doc, name: name.trim() }))
    return id
  }
  await ensureDoc(db, { _id: id, name: name.trim(), createdAt: Date.now() })
  const replaced = (tags: readonly string[]) => [
    ...new Set(tags.map((each) => (each === tag.id ? id : each))),
  ]
  await changeTags(db, holdersOf(notes, tag.id), replaced, progress)
  await deleteDoc(db, tag.id)
  return id
}

/** Takes a tag from all its notes, and deletes it. */
export async function deleteTag(
  db: LabelDb,
  tag: Tag,
  notes: readonly Note[],
  progress?: Progress,
): Promise<Undo> {
  const holders = holdersOf(notes, tag.id)
  await changeTags(db, holders, (tags) => tags.filter((id) => id !== tag.id), progress)
  const undo = await deleteDoc(db, tag.id)
  return async () => {
    await undo()
    await changeTags(db, holders, (tags) => [...new Set([...tags, tag.id])])
  }
}

function holdersOf(notes: readonly Note[], tag: string): readonly string[] {
  return notes.filter(({ tags }) => tags.includes(tag)).map(({ id }) => id)
}

function changeTags(
  db: LabelDb,
  notes: readonly string[],
  change: (tags: readonly string[]) => readonly string[],
  progress?: Progress,
): Promise<void> {
  const tagsIn = ({ tags }: StoredDoc): readonly string[] =>
    Array.isArray(tags) ? tags.filter((tag): tag is string => typeof tag === 'string') : []
  return changeAll(db, notes, (doc) => ({ ...doc, tags: change(tagsIn(doc)) }), progress)
}

/** Deletes a document with all conflicting revisions. */
async function deleteDoc(db: LabelDb, id: string): Promise<Undo> {
  const { _rev, _conflicts = [], ...members } = await db.get(id, { conflicts: true })
  const answers = await db.bulkDocs(
    [_rev, ..._conflicts].map((rev) => ({ _id: id, _rev: rev, _deleted: true })),
  )
  for (const answer of answers) if (!('ok' in answer)) throw new Error(answer.reason ?? answer.message)
  return () => ensureDoc(db, members)
}

/** Stores a document unless there is one of its id. */
async function ensureDoc(
  db: LabelDb,
  doc: Omit<StoredDoc, '_rev'> & { readonly _id: string },
): Promise<void> {
  await db.put({ ...doc, _id: doc._id }).catch((error: { readonly status?: number }) => {
    if (error.status !== 409) throw error
  })
}
