import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { excerptOf, type Note, type Notebook } from '../notes/model.ts'
import type { Shelf } from '../notes/shelves.ts'
import { hashOf } from './route.ts'
import { dayOf } from './times.ts'

/** Rows that are drawn at first, and with each look at the end of them: thousands at once would hold up the page. */
const DRAWN_AT_ONCE = 100

interface NoteRowsProps {
  readonly notes: readonly Note[]
  /** What was searched; another search begins at the top. */
  readonly search: string
  readonly notebook: Notebook
  readonly shelf: Shelf
  readonly openId: string | null
}

/** The notes of a shelf. The list is one stop for Tab; the arrow keys go through it. */
export function NoteRows({ notes, search, notebook, shelf, openId }: NoteRowsProps) {
  const [drawn, draw] = useState(DRAWN_AT_ONCE)
  const searched = useRef(search)
  if (searched.current !== search) {
    searched.current = search
    draw(DRAWN_AT_ONCE)
  }
  const [focused, setFocused] = useState<string | null>(null)
  const end = useRef<HTMLLIElement>(null)
  const tagNames = useMemo(() => new Map(notebook.tags.map(({ id, name }) => [id, name])), [notebook.tags])
  const hasMore = drawn < notes.length
  useEffect(() => {
    const last = end.current
    if (!hasMore || last === null) return undefined
    const more = new IntersectionObserver(
      ([seen]) => {
        if (seen?.isIntersecting) draw((count) => count + DRAWN_AT_ONCE)
      },
      { rootMargin: '600px' },
    )
    more.observe(last)
    return () => more.disconnect()
    // A new observer looks again: the end may still be in view after more rows.
  }, [hasMore, drawn])
  const shown = notes.slice(0, drawn)
  const stop = [focused, openId].find((id) => id !== null && shown.some((note) => note.id === id))
  return (
    <ul class="rows" onKeyDown={walk}>
      {shown.map((note, at) => (
        <Row
          key={note.id}
          note={note}
          href={hashOf({ screen: 'notes', shelf, note: note.id })}
          tagNames={note.tags.map((id) => tagNames.get(id) ?? '').join('\n')}
          isOpen={note.id === openId}
          isStop={stop === undefined ? at === 0 : note.id === stop}
          onFocus={setFocused}
        />
      ))}
      {hasMore && <li class="rows-end" ref={end} aria-hidden="true" />}
    </ul>
  )
}

function walk(event: KeyboardEvent): void {
  const rows = [...document.querySelectorAll<HTMLElement>('.rows .row')]
  const at = rows.indexOf(document.activeElement as HTMLElement)
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key]
  if (at < 0 || to === undefined) return
  event.preventDefault()
  if (to < 0) document.querySelector<HTMLElement>('.search input')?.focus()
  else rows[to]?.focus()
}

interface RowProps {
  readonly note: Note
  readonly href: string
  /** One line per tag. */
  readonly tagNames: string
  readonly isOpen: boolean
  /** Whether Tab stops here. */
  readonly isStop: boolean
  readonly onFocus: (id: string) => void
}

/** Rendered again only when its content changes, because there may be many rows. */
function Row({ note, href, tagNames, isOpen, isStop, onFocus }: RowProps) {
  return useMemo(
    () => (
      <li>
        <a
          class={`row${isOpen ? ' is-on' : ''}`}
          href={href}
          aria-current={isOpen ? 'true' : undefined}
          tabIndex={isStop ? 0 : -1}
          onFocus={() => onFocus(note.id)}
        >
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
    [note, href, tagNames, isOpen, isStop, onFocus],
  )
}

function Chip({ name }: { readonly name: string }) {
  return <span class="chip">{name}</span>
}
