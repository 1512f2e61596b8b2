import { useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Shelf } from '../notes/model.ts'
import { Icon, type IconName } from './icons.tsx'
import { hashOf } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { SyncBadge } from './sync-badge.tsx'

/** The books, the tags and the link to Preferences. */
export function Sidebar({ shelf }: { readonly shelf: Shelf }) {
  const { library } = useServices()
  const { notes, books, tags } = useWatched(library)
  const conflicts = notes.filter((note) => note.conflicts.length > 0).length
  const isOn = (id: string) => 'id' in shelf && shelf.id === id
  return (
    <nav class="sidebar" aria-label="Notebook">
      <p class="brand">
        <img src={new URL('../style/icon.svg', import.meta.url).href} alt="" width="26" height="26" /> Notes
      </p>
      <ul class="shelves">
        <ShelfLink
          shelf={{ kind: 'all' }}
          icon="notes"
          name="All notes"
          count={notes.length}
          isOn={shelf.kind === 'all'}
        />
        {conflicts > 0 && (
          <ShelfLink
            shelf={{ kind: 'conflicts' }}
            icon="conflict"
            name="Conflicts"
            count={conflicts}
            isOn={shelf.kind === 'conflicts'}
          />
        )}
      </ul>
      <h2 class="shelf-head">Books</h2>
      <ul class="shelves">
        {books.map(({ id, name }) => (
          <ShelfLink
            key={id}
            shelf={{ kind: 'book', id }}
            icon="book"
            name={name}
            count={notes.filter((note) => note.bookId === id).length}
            isOn={isOn(id)}
          />
        ))}
      </ul>
      <NewBook />
      {tags.length > 0 && <h2 class="shelf-head">Tags</h2>}
      <ul class="shelves">
        {tags.map(({ id, name }) => (
          <ShelfLink
            key={id}
            shelf={{ kind: 'tag', id }}
            icon="tag"
            name={name}
            count={notes.filter((note) => note.tags.includes(id)).length}
            isOn={isOn(id)}
          />
        ))}
      </ul>
      <div class="sidebar-foot">
        <SyncBadge />
        <a class="shelf" href={hashOf({ screen: 'preferences', section: null })}>
          <Icon name="settings" /> <span>Preferences</span>
        </a>
      </div>
    </nav>
  )
}

interface ShelfLinkProps {
  readonly shelf: Shelf
  readonly icon: IconName
  readonly name: string
  readonly count: number
  readonly isOn: boolean
}

function ShelfLink({ shelf, icon, name, count, isOn }: ShelfLinkProps) {
  return (
    <li>
      <a
        class={`shelf${isOn ? ' is-on' : ''}`}
        href={hashOf({ screen: 'notes', shelf, note: null })}
        aria-current={isOn ? 'page' : undefined}
      >
        <Icon name={icon} /> <span>{name}</span> <small>{count}</small>
      </a>
    </li>
  )
}

function NewBook() {
  const { library } = useServices()
  const [name, setName] = useState<string | null>(null)
  const field = useRef<HTMLInputElement>(null)
  const isOpen = name !== null
  // Before the user can act: a later effect would take the focus from a field that the user has chosen meanwhile.
  useLayoutEffect(() => {
    if (isOpen) field.current?.focus()
  }, [isOpen])
  if (name === null) {
    return (
      <button type="button" class="shelf quiet" onClick={() => setName('')}>
        <Icon name="add" /> <span>New book</span>
      </button>
    )
  }
  const add = async () => {
    setName(null)
    if (name.trim() !== '') await library.addBook(name)
  }
  return (
    <form
      class="new-book"
      onSubmit={(event) => {
        event.preventDefault()
        void add()
      }}
    >
      <input
        aria-label="Name of the book"
        placeholder="Name of the book"
        ref={field}
        value={name}
        onInput={(event) => setName(event.currentTarget.value)}
        onKeyDown={(event) => event.key === 'Escape' && setName(null)}
      />
      <button type="submit" class="small">
        Add
      </button>
    </form>
  )
}
