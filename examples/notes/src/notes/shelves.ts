/** Which notes a list shows: a shelf, and the words that are searched. Pure. */
import type { Note, Notebook } from './model.ts'

export type Shelf =
  | { readonly kind: 'all' }
  | { readonly kind: 'conflicts' }
  | { readonly kind: 'trash' }
  | { readonly kind: 'book' | 'tag'; readonly id: string }

/** @param search words that must all be in a note's title or body */
export function notesOn({ notes }: Notebook, shelf: Shelf, search: string): readonly Note[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  const found = notes.filter((note) => isOn(note, shelf) && holdsAll(note, words))
  return shelf.kind === 'trash' ? found.sort((a, b) => b.trashedAt - a.trashedAt) : found
}

/** A note in the trash is on no other shelf, except that a conflict is shown wherever its winner is. */
function isOn(note: Note, shelf: Shelf): boolean {
  if (shelf.kind === 'conflicts') return note.conflicts.length > 0
  if (shelf.kind === 'trash') return note.trashedAt > 0
  if (note.trashedAt > 0) return false
  if (shelf.kind === 'book') return note.bookId === shelf.id
  return shelf.kind === 'all' || note.tags.includes(shelf.id)
}

/** The lower-case text of each note, so that a search among thousands makes it only once. */
const lowerCase = new WeakMap<Note, string>()

function holdsAll(note: Note, words: readonly string[]): boolean {
  if (words.length === 0) return true
  const text = lowerCase.get(note) ?? `${note.title}\n${note.body}`.toLowerCase()
  lowerCase.set(note, text)
  return words.every((word) => text.includes(word))
}

/** How many notes each shelf has. */
export interface ShelfCounts {
  readonly all: number
  readonly conflicts: number
  readonly trash: number
  /** By the id of a book or a tag. */
  readonly byId: ReadonlyMap<string, number>
}

/** Counts all shelves in one pass over the notes. */
export function countsOf({ notes }: Notebook): ShelfCounts {
  const byId = new Map<string, number>()
  let [conflicts, trash] = [0, 0]
  for (const note of notes) {
    if (note.conflicts.length > 0) conflicts += 1
    if (note.trashedAt > 0) {
      trash += 1
      continue
    }
    for (const id of new Set([note.bookId, ...note.tags])) byId.set(id, (byId.get(id) ?? 0) + 1)
  }
  return { all: notes.length - trash, conflicts, trash, byId }
}
