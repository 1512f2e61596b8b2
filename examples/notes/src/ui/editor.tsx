import { useEffect, useRef, useState } from 'preact/hooks'
import { Draft } from '../notes/draft.ts'
import type { NoteText } from '../notes/library.ts'
import type { Note, Shelf } from '../notes/model.ts'
import { EditorBar } from './editor-bar.tsx'
import { Preview } from './preview.tsx'
import { go, hashOf } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { TagField } from './tag-field.tsx'

interface EditorProps {
  readonly note: Note
  readonly shelf: Shelf
}

/** An open note, to write or to read. Changes are saved automatically. */
export function Editor({ note, shelf }: EditorProps) {
  const { library } = useServices()
  const { books } = useWatched(library)
  const draft = useDraft(note)
  const [text, setText] = useState<NoteText>(draft.text)
  const [isReading, read] = useState(note.body !== '')
  const unsaved = useWatched(draft.fault)
  const [fault, setFault] = useState('')
  const area = useRef<HTMLTextAreaElement>(null)
  useEffect(() => {
    if (draft.follow(note)) setText(draft.text)
  }, [draft, note])
  const change = (members: Partial<NoteText>) => {
    draft.change(members)
    setText(draft.text)
  }
  const addPictures = async (files: readonly File[]) => {
    setFault('')
    for (const file of files) {
      try {
        const { id, name } = await library.addPicture(file)
        change({
          body: inserted(
            draft.text.body,
            area.current?.selectionEnd,
            `![${name.replace(/[[\]]/g, '')}](${id})`,
          ),
        })
      } catch (error) {
        setFault(error instanceof Error ? error.message : 'The picture cannot be added.')
      }
    }
  }
  const remove = async () => {
    await draft.discard()
    go({ screen: 'notes', shelf, note: null })
    await library.remove(note.id)
  }
  return (
    <article class="editor">
      <h1 class="unseen">{text.title === '' ? 'Untitled' : text.title}</h1>
      <EditorBar
        shelf={shelf}
        isReading={isReading}
        onRead={read}
        onPictures={(files) => void addPictures(files)}
        onRemove={() => void remove()}
      />
      {note.conflicts.length > 0 && (
        <p class="notice is-warning">
          <span>Two devices have changed this note independently.</span>
          <a href={hashOf({ screen: 'conflict', note: note.id })}>Compare the versions</a>
        </p>
      )}
      {unsaved !== null && (
        <p class="notice is-bad" role="alert">
          This note is not saved yet. The app tries again: {unsaved}
        </p>
      )}
      {fault !== '' && (
        <p class="notice is-bad" role="alert">
          {fault}
        </p>
      )}
      <div class="sheet">
        <input
          class="title"
          aria-label="Title"
          placeholder="Title"
          value={text.title}
          onInput={(event) => change({ title: event.currentTarget.value })}
        />
        <div class="meta">
          <select
            aria-label="Book"
            value={text.bookId}
            onChange={(event) => change({ bookId: event.currentTarget.value })}
          >
            <option value="">No book</option>
            {books.map(({ id, name }) => (
              <option value={id} key={id}>
                {name}
              </option>
            ))}
          </select>
          <TagField
            tags={text.tags}
            onAdd={(id) => change({ tags: [...new Set([...draft.text.tags, id])] })}
            onRemove={(id) => change({ tags: draft.text.tags.filter((tag) => tag !== id) })}
          />
        </div>
        {isReading ? (
          <Preview body={text.body} />
        ) : (
          <textarea
            class="body"
            aria-label="Text"
            placeholder="Write in Markdown…"
            ref={area}
            value={text.body}
            onInput={(event) => change({ body: event.currentTarget.value })}
            onPaste={(event) => {
              const files = [...(event.clipboardData?.files ?? [])]
              if (files.length > 0) event.preventDefault()
              void addPictures(files)
            }}
          />
        )}
      </div>
    </article>
  )
}

function useDraft(note: Note): Draft {
  const { library } = useServices()
  const [draft] = useState(() => new Draft(library.db, note))
  useEffect(() => {
    const save = () => void draft.save()
    addEventListener('pagehide', save)
    document.addEventListener('visibilitychange', save)
    return () => {
      removeEventListener('pagehide', save)
      document.removeEventListener('visibilitychange', save)
      save()
    }
  }, [draft])
  return draft
}

function inserted(body: string, at = body.length, text: string): string {
  const before = body.slice(0, at)
  const isAtLine = before === '' || before.endsWith('\n')
  return `${before}${isAtLine ? '' : '\n'}${text}\n${body.slice(at)}`
}
