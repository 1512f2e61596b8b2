import { useEffect, useRef, useState } from 'preact/hooks'
import { freshNote, type Notebook, newId } from '../notes/model.ts'
import { countsOf, notesOn, type Shelf } from '../notes/shelves.ts'
import { Editor } from './editor.tsx'
import { EmptyTrashDialog } from './empty-trash-dialog.tsx'
import { Icon } from './icons.tsx'
import { LabelDialog } from './label-dialog.tsx'
import { NoteRows } from './note-rows.tsx'
import { go, hashOf, NEW_NOTE, replaceRoute } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { useShortcut } from './shortcuts.ts'
import { SyncDot } from './sync-badge.tsx'

interface NotesScreenProps {
  readonly shelf: Shelf
  readonly noteId: string | null
  readonly onMenu: () => void
}

/** A list of notes, and the one that is open. */
export function NotesScreen({ shelf, noteId, onMenu }: NotesScreenProps) {
  const { library } = useServices()
  const notebook = useWatched(library)
  const [search, setSearch] = useState('')
  const field = useRef<HTMLInputElement>(null)
  const [fresh, setFresh] = useState(() => freshOn(shelf))
  const notes = notesOn(notebook, shelf, search)
  const openId = noteId === NEW_NOTE ? fresh.id : noteId
  const stored = notebook.notes.find(({ id }) => id === openId)
  const note = stored ?? (noteId === NEW_NOTE ? fresh : undefined)
  const add = () => {
    setFresh(freshOn(shelf))
    const isKept = shelf.kind === 'book' || shelf.kind === 'tag'
    go({ screen: 'notes', shelf: isKept ? shelf : { kind: 'all' }, note: NEW_NOTE })
  }
  // A new note gets an address of its own once it is stored.
  useEffect(() => {
    if (noteId === NEW_NOTE && stored !== undefined) replaceRoute({ screen: 'notes', shelf, note: stored.id })
  }, [noteId, stored, shelf])
  useFocusInList(noteId)
  useShortcut('n', add)
  useShortcut('/', () => field.current?.focus())
  return (
    <main class="panes">
      <section class="list" aria-label="Notes" id="list">
        <header class="list-head">
          <button type="button" class="bare menu-button" onClick={onMenu} aria-label="Menu">
            <Icon name="menu" />
          </button>
          <h1>{nameOf(shelf, notebook)}</h1>
          <SyncDot />
          <ShelfButton shelf={shelf} notebook={notebook} />
          {shelf.kind !== 'trash' && (
            <button type="button" class="round" onClick={add} aria-label="New note" title="New note (n)">
              <Icon name="add" />
            </button>
          )}
        </header>
        <label class="search">
          <Icon name="search" />
          <input
            type="search"
            aria-label="Search"
            placeholder="Search"
            ref={field}
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') setSearch('')
              if (event.key !== 'ArrowDown' && event.key !== 'Enter') return
              event.preventDefault()
              document.querySelector<HTMLElement>('.rows .row')?.focus()
            }}
          />
        </label>
        <NoteRows
          key={hashOf({ screen: 'notes', shelf, note: null })}
          notes={notes}
          search={search}
          notebook={notebook}
          shelf={shelf}
          openId={openId}
        />
        {notebook.isLoaded && notes.length === 0 && <p class="empty">{emptyWords(shelf, search)}</p>}
      </section>
      <section class="pane" aria-label="Note" id="note">
        {note === undefined ? (
          <Blank isGone={noteId !== null && notebook.isLoaded} isTrash={shelf.kind === 'trash'} onAdd={add} />
        ) : (
          <Editor key={note.id} note={note} shelf={shelf} isFresh={stored === undefined} />
        )}
      </section>
    </main>
  )
}

/** A new note, in the book or with the tag that is shown. */
function freshOn(shelf: Shelf) {
  const bookId = shelf.kind === 'book' ? shelf.id : ''
  const tags = shelf.kind === 'tag' ? [shelf.id] : []
  return freshNote(newId('note'), { bookId, tags })
}

/** A note that closes gives the focus back to the list. */
function useFocusInList(noteId: string | null): void {
  const before = useRef(noteId)
  useEffect(() => {
    const hasClosed = before.current !== null && noteId === null
    before.current = noteId
    if (!hasClosed || document.activeElement !== document.body) return
    focusList()
  }, [noteId])
}

/** The row that Tab stops at; without any notes, the search. */
export function focusList(): void {
  const row = document.querySelector<HTMLElement>('.rows .row[tabindex="0"]')
  const stop = row ?? document.querySelector<HTMLElement>('.search input')
  stop?.focus()
}

/** What can be done with the whole shelf. */
function ShelfButton({ shelf, notebook }: { readonly shelf: Shelf; readonly notebook: Notebook }) {
  const [isOpen, open] = useState(false)
  const close = () => open(false)
  if (shelf.kind === 'trash') {
    const trashed = notesOn(notebook, shelf, '')
    return (
      <>
        {trashed.length > 0 && (
          <button type="button" class="small quiet" onClick={() => open(true)}>
            Empty…
          </button>
        )}
        {isOpen && (
          <EmptyTrashDialog
            notes={trashed}
            onClose={close}
            onDone={() => go({ screen: 'notes', shelf, note: null })}
          />
        )}
      </>
    )
  }
  if (shelf.kind !== 'book' && shelf.kind !== 'tag') return null
  const labels = shelf.kind === 'book' ? notebook.books : notebook.tags
  const label = labels.find(({ id }) => id === shelf.id)
  if (label === undefined) return null
  const words = shelf.kind === 'book' ? 'Rename or delete the book' : 'Rename or delete the tag'
  return (
    <>
      <button type="button" class="bare" aria-label={words} title={words} onClick={() => open(true)}>
        <Icon name="more" />
      </button>
      {isOpen && (
        <LabelDialog
          kind={shelf.kind}
          id={label.id}
          name={label.name}
          count={countsOf(notebook).byId.get(label.id) ?? 0}
          onClose={close}
        />
      )}
    </>
  )
}

interface BlankProps {
  readonly isGone: boolean
  readonly isTrash: boolean
  readonly onAdd: () => void
}

function Blank({ isGone, isTrash, onAdd }: BlankProps) {
  const words = isGone
    ? 'This note is not on this device, or was deleted.'
    : isTrash
      ? 'Choose a note to look at it, or to restore it.'
      : 'Choose a note, or start a new one.'
  return (
    <div class="blank">
      <Icon name={isTrash ? 'bin' : 'notes'} />
      <p>{words}</p>
      {!isTrash && (
        <button type="button" onClick={onAdd}>
          New note
        </button>
      )}
    </div>
  )
}

function nameOf(shelf: Shelf, { books, tags }: Notebook): string {
  if (shelf.kind === 'all') return 'All notes'
  if (shelf.kind === 'conflicts') return 'Conflicts'
  if (shelf.kind === 'trash') return 'Trash'
  const all = shelf.kind === 'book' ? books : tags
  return all.find(({ id }) => id === shelf.id)?.name ?? 'Deleted'
}

function emptyWords({ kind }: Shelf, search: string): string {
  if (search !== '') return 'No note contains these words.'
  return kind === 'trash' ? 'The trash is empty.' : 'No notes here yet.'
}
