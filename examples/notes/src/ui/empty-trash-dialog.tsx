import { useState } from 'preact/hooks'
import type { Note } from '../notes/model.ts'
import { emptyTrash, isDeletable } from '../notes/trash.ts'
import { Dialog } from './dialog.tsx'
import { useServices } from './services.ts'
import { countOf } from './times.ts'
import { reasonOf } from './toast-line.tsx'

interface EmptyTrashDialogProps {
  /** Notes in the trash. */
  readonly notes: readonly Note[]
  readonly onClose: () => void
  readonly onDone: () => void
}

/** The question before notes are deleted for good. */
export function EmptyTrashDialog({ notes, onClose, onDone }: EmptyTrashDialogProps) {
  const { library, toasts } = useServices()
  const [done, setDone] = useState<number | null>(null)
  const [fault, setFault] = useState('')
  const deletable = notes.filter(isDeletable)
  const kept = notes.length - deletable.length
  const words = deletable.length === 1 ? 'this note' : countOf(deletable.length, 'note')
  const empty = async () => {
    setDone(0)
    try {
      await emptyTrash(library.db, deletable, setDone)
      onClose()
      onDone()
      toasts.show(
        deletable.length === 1 ? 'The note is deleted.' : `${countOf(deletable.length, 'note')} deleted.`,
      )
    } catch (error) {
      setFault(reasonOf(error))
      setDone(null)
    }
  }
  return (
    <Dialog title={`Delete ${words} for good?`} onClose={onClose} isBusy={done !== null}>
      <p>
        It goes from every device that syncs with this one, and the app cannot bring it back.
        {kept > 0 &&
          ` ${countOf(kept, 'note')} with a conflict ${kept === 1 ? 'stays' : 'stay'}: compare the versions first.`}
      </p>
      {fault !== '' && (
        <p class="notice is-bad" role="alert">
          Not all of it worked: {fault}
        </p>
      )}
      {done !== null && (
        <p class="working" role="status">
          <span class="dot is-busy" /> {done} of {countOf(deletable.length, 'note')}…
        </p>
      )}
      <div class="buttons">
        <button type="button" class="quiet" disabled={done !== null} onClick={onClose}>
          Cancel
        </button>
        <button
          type="button"
          class="is-bad"
          disabled={done !== null || deletable.length === 0}
          onClick={() => void empty()}
        >
          Delete for good
        </button>
      </div>
    </Dialog>
  )
}
