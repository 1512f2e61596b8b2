import type { Shelf } from '../notes/shelves.ts'
import { Icon } from './icons.tsx'
import type { NoteView } from './note-view.ts'
import { hashOf } from './route.ts'
import { SyncDot } from './sync-badge.tsx'

interface EditorBarProps {
  readonly shelf: Shelf
  readonly view: NoteView
  readonly isTrashed: boolean
  readonly onView: (view: NoteView) => void
  /** null: no pictures can be added. */
  readonly onPictures: ((files: readonly File[]) => void) | null
  readonly onRemove: () => void
}

const VIEWS: Readonly<Record<NoteView, string>> = { write: 'Write', both: 'Both', read: 'Read' }

/** The buttons for an open note. */
export function EditorBar({ shelf, view, isTrashed, onView, onPictures, onRemove }: EditorBarProps) {
  return (
    <header class="bar">
      <a
        class="bare back-button"
        href={hashOf({ screen: 'notes', shelf, note: null })}
        aria-label="Back to the list"
      >
        <Icon name="back" />
      </a>
      {!isTrashed && (
        <fieldset class="switch">
          <legend class="unseen">Write or read</legend>
          {(['write', 'both', 'read'] as const).map((each) => (
            <button
              type="button"
              class={`as-${each}`}
              key={each}
              aria-pressed={view === each}
              onClick={() => onView(each)}
            >
              {VIEWS[each]}
            </button>
          ))}
        </fieldset>
      )}
      <span class="spring" />
      <SyncDot />
      {onPictures !== null && !isTrashed && (
        <label class="bare" title="Add a picture">
          <Icon name="picture" />
          <span class="unseen">Add a picture</span>
          <input
            class="unseen"
            type="file"
            accept="image/*"
            multiple
            onChange={(event) => {
              onPictures([...(event.currentTarget.files ?? [])])
              event.currentTarget.value = ''
            }}
          />
        </label>
      )}
      {!isTrashed && (
        <button type="button" class="bare" onClick={onRemove} aria-label="Delete" title="Move to the trash">
          <Icon name="bin" />
        </button>
      )}
    </header>
  )
}
