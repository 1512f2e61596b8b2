import { useState } from 'preact/hooks'
import type { Shelf } from '../notes/model.ts'
import { Icon } from './icons.tsx'
import { hashOf } from './route.ts'

interface EditorBarProps {
  readonly shelf: Shelf
  readonly isReading: boolean
  readonly onRead: (isReading: boolean) => void
  readonly onPictures: (files: readonly File[]) => void
  readonly onRemove: () => void
}

/** The buttons for an open note. */
export function EditorBar({ shelf, isReading, onRead, onPictures, onRemove }: EditorBarProps) {
  const [isSure, ask] = useState(false)
  return (
    <header class="bar">
      <a
        class="bare back-button"
        href={hashOf({ screen: 'notes', shelf, note: null })}
        aria-label="Back to the list"
      >
        <Icon name="back" />
      </a>
      <fieldset class="switch">
        <legend class="unseen">Write or read</legend>
        <button type="button" aria-pressed={!isReading} onClick={() => onRead(false)}>
          Write
        </button>
        <button type="button" aria-pressed={isReading} onClick={() => onRead(true)}>
          Read
        </button>
      </fieldset>
      <span class="spring" />
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
      {isSure ? (
        <button type="button" class="small is-bad" onClick={onRemove} onBlur={() => ask(false)}>
          Delete this note
        </button>
      ) : (
        <button type="button" class="bare" onClick={() => ask(true)} aria-label="Delete" title="Delete">
          <Icon name="bin" />
        </button>
      )}
    </header>
  )
}
