import { useMemo, useState } from 'preact/hooks'
import { excerptOf, type Note, type Notebook, notesOn, type Shelf } from '../notes/model.ts'
import { Editor } from './editor.tsx'
import { Icon } from './icons.tsx'
import { go, hashOf } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { dayOf } from './times.ts'

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
  const notes = notesOn(notebook, shelf, search)
  const note = notebook.notes.find(({ id }) => id === noteId)
  const add = async () => {
    const bookId = shelf.kind === 'book' ? shelf.id : ''
    const tags = shelf.kind === 'tag' ? [shelf.id] : []
    const id = await library.addNote({ bookId, tags })
    go({ screen: 'notes', shelf: shelf.kind === 'conflicts' ? { kind: 'all' } : shelf, note: id })
  }
  return (
    <main class="panes">
      <section class="list" aria-label="Notes">
        <header class="list-head">
          <button type="button" class="bare menu-button" onClick={onMenu} aria-label="Menu">
            <Icon name="menu" />
          </button>
          <h1>{nameOf(shelf, notebook)}</h1>
          <button type="button" class="round" onClick={() => void add()} aria-label="New note">
            <Icon name="add" />
          </button>
        </header>
        <label class="search">
          <Icon name="search" />
          <input
            type="search"
            aria-label="Search"
            placeholder="Search"
            value={search}
            onInput={(event) => setSearch(event.currentTarget.value)}
          />
        </label>
        <ul class="rows">
          {notes.map((each) => (
            <Row
              key={each.id}
              note={each}
              href={hashOf({ screen: 'notes', shelf, note: each.id })}
              tagNames={tagNamesOf(each, notebook).join('\n')}
              isOpen={each.id === noteId}
            />
          ))}
        </ul>
        {notebook.isLoaded && notes.length === 0 && (
          <p class="empty">{search === '' ? 'No notes here yet.' : 'No note has these words.'}</p>
        )}
      </section>
      <section class="pane" aria-label="Note">
        {note === undefined ? (
          <Blank isGone={noteId !== null && notebook.isLoaded} onAdd={() => void add()} />
        ) : (
          <Editor key={note.id} note={note} shelf={shelf} />
        )}
      </section>
    </main>
  )
}

function tagNamesOf({ tags }: Note, notebook: Notebook): readonly string[] {
  return tags.flatMap((id) => notebook.tags.find((tag) => tag.id === id)?.name ?? [])
}

interface RowProps {
  readonly note: Note
  readonly href: string
  /** One line per tag. */
  readonly tagNames: string
  readonly isOpen: boolean
}

/** Rendered again only when its content changes, because there may be thousands of rows. */
function Row({ note, href, tagNames, isOpen }: RowProps) {
  return useMemo(
    () => (
      <li>
        <a class={`row${isOpen ? ' is-on' : ''}`} href={href} aria-current={isOpen ? 'true' : undefined}>
          <strong>{note.title === '' ? 'Untitled' : note.title}</strong>
          <span class="excerpt">{excerptOf(note.body) || 'No text yet'}</span>
          <span class="row-foot">
            <time dateTime={new Date(note.updatedAt).toISOString()}>{dayOf(note.updatedAt)}</time>
            {tagNames.split('\n').map((name) => name !== '' && <Chip key={name} name={name} />)}
            {note.conflicts.length > 0 && <span class="chip is-warning">Conflict</span>}
          </span>
        </a>
      </li>
    ),
    [note, href, tagNames, isOpen],
  )
}

function Chip({ name }: { readonly name: string }) {
  return <span class="chip">{name}</span>
}

function Blank({ isGone, onAdd }: { readonly isGone: boolean; readonly onAdd: () => void }) {
  return (
    <div class="blank">
      <Icon name="notes" />
      <p>
        {isGone ? 'This note is not on this device, or was deleted.' : 'Choose a note, or start a new one.'}
      </p>
      <button type="button" onClick={onAdd}>
        New note
      </button>
    </div>
  )
}

function nameOf(shelf: Shelf, { books, tags }: Notebook): string {
  if (shelf.kind === 'all') return 'All notes'
  if (shelf.kind === 'conflicts') return 'Conflicts'
  const all = shelf.kind === 'book' ? books : tags
  return all.find(({ id }) => id === shelf.id)?.name ?? 'Deleted'
}
