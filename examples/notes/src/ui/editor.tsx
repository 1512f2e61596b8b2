import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import type { Note } from '../notes/model.ts'
import type { Shelf } from '../notes/shelves.ts'
import { toggledTask } from '../notes/tasks.ts'
import { moveToTrash, restore } from '../notes/trash.ts'
import type { CodeEditor } from '../writing/code-editor.ts'
import { EditorBar } from './editor-bar.tsx'
import { type NoteView, useFocusOnOpen, useNoteView } from './note-view.ts'
import { usePictures } from './pictures.ts'
import { Preview } from './preview.tsx'
import { go, hashOf } from './route.ts'
import { scrollInStep } from './scroll-in-step.ts'
import { useServices, useWatched } from './services.ts'
import { useShortcut } from './shortcuts.ts'
import { TagField } from './tag-field.tsx'
import { TextEditor } from './text-editor.tsx'
import { TitleField } from './title-field.tsx'
import { TrashNotice } from './trash-notice.tsx'
import { useDraft } from './use-draft.ts'

interface EditorProps {
  readonly note: Note
  readonly shelf: Shelf
  /** Whether the note is new, and not stored yet. */
  readonly isFresh: boolean
}

/** An open note, to write or to read. Changes are saved automatically. */
export function Editor({ note, shelf, isFresh }: EditorProps) {
  const { library, toasts } = useServices()
  const { books } = useWatched(library)
  const { text, isOwn, draft, change } = useDraft(note)
  const unsaved = useWatched(draft.fault)
  const isTrashed = note.trashedAt > 0
  const { view, hasText, choose } = useNoteView(text.body === '' && !isTrashed, isTrashed)
  const [editor, setEditor] = useState<CodeEditor | null>(null)
  const sheet = useRef<HTMLDivElement>(null)
  const wantsFocus = useRef(false)
  const pictures = usePictures((block) => {
    if (editor !== null) editor.insertBlock(block)
    else change({ body: `${draft.text.body.replace(/\n*$/, '\n\n').trimStart()}${block}\n` })
  })
  const page = () => sheet.current?.querySelector<HTMLElement>('.preview') ?? null
  const write = (next: NoteView) => {
    wantsFocus.current = next !== 'read'
    choose(next)
    if (next !== 'read' && editor !== null && view !== 'read') editor.focus()
  }
  const toggle = () => {
    if (isTrashed) return
    const next = view === 'read' ? 'write' : 'read'
    write(next)
    if (next === 'read') requestAnimationFrame(() => page()?.focus())
  }
  useShortcut('e', toggle)
  useFocusOnOpen(sheet, isFresh)
  useLayoutEffect(() => {
    if (editor === null || view === 'read' || !wantsFocus.current) return
    wantsFocus.current = false
    editor.focus()
  }, [editor, view])
  useEffect(() => {
    const preview = page()
    return view === 'both' && editor !== null && preview ? scrollInStep(editor.scroller, preview) : undefined
  }, [editor, view])
  const tick = (shown: readonly boolean[], index: number) => {
    const body = toggledTask(draft.text.body, shown, index)
    if (body !== null) change({ body })
  }
  const remove = async () => {
    await draft.save()
    go({ screen: 'notes', shelf, note: null })
    if (!draft.isStored) return
    const ids = [draft.id]
    await moveToTrash(library.db, ids)
    toasts.show(`“${draft.text.title || 'Untitled'}” is in the trash.`, () => restore(library.db, ids))
  }
  return (
    <article class={`editor is-${view}`}>
      <h1 class="unseen">{text.title === '' ? 'Untitled' : text.title}</h1>
      <EditorBar
        shelf={shelf}
        view={view}
        isTrashed={isTrashed}
        onView={write}
        onPictures={pictures.isOffered ? (files) => void pictures.add(files) : null}
        onRemove={() => void remove()}
      />
      {isTrashed && <TrashNotice note={note} shelf={shelf} />}
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
      {pictures.fault !== '' && (
        <p class="notice is-bad" role="alert">
          {pictures.fault}
        </p>
      )}
      <div class="sheet" ref={sheet} tabIndex={-1}>
        <TitleField
          title={text.title}
          isFixed={isTrashed}
          isFirst={isFresh}
          onChange={(title) => change({ title })}
          onEnter={() => write(view === 'read' ? 'write' : view)}
          onToggle={toggle}
        />
        <fieldset class="meta" disabled={isTrashed}>
          <legend class="unseen">Book and tags</legend>
          <select
            aria-label="Book"
            value={books.some(({ id }) => id === text.bookId) ? text.bookId : ''}
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
        </fieldset>
        <div class="columns">
          {hasText && (
            <TextEditor
              text={text.body}
              isOwn={isOwn}
              isHidden={view === 'read'}
              onReady={setEditor}
              onChange={(body) => change({ body })}
              onToggle={toggle}
              onFiles={(files) => void pictures.add(files)}
            />
          )}
          {view !== 'write' && (
            <Preview body={text.body} isScroller={view === 'both'} {...(!isTrashed && { onTick: tick })} />
          )}
        </div>
      </div>
    </article>
  )
}
