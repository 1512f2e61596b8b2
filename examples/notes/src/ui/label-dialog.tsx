import { useState } from 'preact/hooks'
import { deleteBook, deleteTag, renameBook, renameTag } from '../notes/labels.ts'
import { tagId } from '../notes/model.ts'
import type { Shelf } from '../notes/shelves.ts'
import { Dialog } from './dialog.tsx'
import { go } from './route.ts'
import { useServices, useWatched } from './services.ts'
import { countOf } from './times.ts'
import { reasonOf } from './toast-line.tsx'

interface LabelDialogProps {
  readonly kind: 'book' | 'tag'
  readonly id: string
  /** The present name. */
  readonly name: string
  /** How many notes it has. */
  readonly count: number
  readonly onClose: () => void
}

/** Renames or deletes a book or a tag. */
export function LabelDialog({ kind, id, name, count, onClose }: LabelDialogProps) {
  const { library, toasts } = useServices()
  const { notes, tags } = useWatched(library)
  const [typed, type] = useState(name)
  const [done, setDone] = useState<number | null>(null)
  const [fault, setFault] = useState('')
  const label = { id, rev: '', name }
  const merged = kind === 'tag' ? tags.find((tag) => tag.id === tagId(typed) && tag.id !== id) : undefined
  const isBusy = done !== null
  const during = async (act: () => Promise<void>) => {
    setDone(0)
    setFault('')
    try {
      await act()
      onClose()
    } catch (error) {
      setFault(reasonOf(error))
      setDone(null)
    }
  }
  const rename = () =>
    during(async () => {
      if (kind === 'book') return renameBook(library.db, label, typed)
      const next: Shelf = { kind, id: await renameTag(library.db, label, typed, notes, setDone) }
      return go({ screen: 'notes', shelf: next, note: null })
    })
  const remove = () =>
    during(async () => {
      const undo =
        kind === 'book'
          ? await deleteBook(library.db, label)
          : await deleteTag(library.db, label, notes, setDone)
      go({ screen: 'notes', shelf: { kind: 'all' }, note: null })
      toasts.show(`The ${kind} “${name}” is deleted.`, undo)
    })
  return (
    <Dialog title={kind === 'book' ? 'Edit the book' : 'Edit the tag'} onClose={onClose} isBusy={isBusy}>
      <form
        class="form label-form"
        onSubmit={(event) => {
          event.preventDefault()
          void rename()
        }}
      >
        <label class="field">
          <span>Name</span>
          <input value={typed} onInput={(event) => type(event.currentTarget.value)} />
        </label>
        {merged !== undefined && (
          <p class="hint">There is already a tag “{merged.name}”. The two become one.</p>
        )}
        {isBusy && (
          <p class="working" role="status">
            <span class="dot is-busy" /> {done} of {countOf(count, 'note')}…
          </p>
        )}
        {fault !== '' && (
          <p class="notice is-bad" role="alert">
            That did not work: {fault}
          </p>
        )}
        <div class="buttons">
          <button type="submit" disabled={isBusy || typed.trim() === '' || typed.trim() === name}>
            Rename
          </button>
          <button type="button" class="quiet" disabled={isBusy} onClick={onClose}>
            Cancel
          </button>
        </div>
        <div class="label-end">
          <p>{keptWords(kind, count)}</p>
          <button type="button" class="small quiet" disabled={isBusy} onClick={() => void remove()}>
            Delete the {kind}
          </button>
        </div>
      </form>
    </Dialog>
  )
}

function keptWords(kind: 'book' | 'tag', count: number): string {
  if (count === 0) return `The ${kind} has no notes.`
  const [notes, verb] = [countOf(count, 'note'), count === 1 ? 'stays' : 'stay']
  return kind === 'book' ? `Its ${notes} ${verb}, without a book.` : `Its ${notes} ${verb}, without the tag.`
}
