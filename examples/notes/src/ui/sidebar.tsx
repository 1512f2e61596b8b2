import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { countsOf, type Shelf } from '../notes/shelves.ts'
import { Icon, type IconName } from './icons.tsx'
import { hashOf } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { SyncBadge } from './sync-badge.tsx'

interface SidebarProps {
  readonly shelf: Shelf
  readonly onHelp: () => void
}

/** The books, the tags, the trash, and the link to Preferences. */
export function Sidebar({ shelf, onHelp }: SidebarProps) {
  const { library } = useServices()
  const notebook = useWatched(library)
  const { books, tags } = notebook
  const { all, conflicts, trash, byId } = useMemo(() => countsOf(notebook), [notebook])
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
          count={all}
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
        <ShelfLink
          shelf={{ kind: 'trash' }}
          icon="bin"
          name="Trash"
          count={trash}
          isOn={shelf.kind === 'trash'}
        />
      </ul>
      <h2 class="shelf-head">Books</h2>
      <ul class="shelves">
        {books.map(({ id, name }) => (
          <ShelfLink
            key={id}
            shelf={{ kind: 'book', id }}
            icon="book"
            name={name}
            count={byId.get(id) ?? 0}
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
            count={byId.get(id) ?? 0}
            isOn={isOn(id)}
          />
        ))}
      </ul>
      <div class="sidebar-foot">
        <SyncBadge />
        <a class="shelf" href={hashOf({ screen: 'preferences', section: null })}>
          <Icon name="settings" /> <span>Preferences</span>
        </a>
        <button type="button" class="shelf help-button" onClick={onHelp}>
          <Icon name="help" /> <span>Keyboard</span> <kbd>?</kbd>
        </button>
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
        <Icon name={icon} /> <span>{name}</span> <small>{count > 0 ? count.toLocaleString() : ''}</small>
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
