import { useState } from 'preact/hooks'
import type { Note } from '../notes/model.ts'
import type { Shelf } from '../notes/shelves.ts'
import { isDeletable, restore } from '../notes/trash.ts'
import { EmptyTrashDialog } from './empty-trash-dialog.tsx'
import { go } from './route.ts'
import { useServices } from './services.ts'
import { reasonOf } from './toast-line.tsx'

/** Says that the open note is in the trash, and offers to take it out. */
export function TrashNotice({ note, shelf }: { readonly note: Note; readonly shelf: Shelf }) {
  const { library, toasts } = useServices()
  const [isAsked, ask] = useState(false)
  const takeOut = async () => {
    try {
      await restore(library.db, [note.id])
      toasts.close()
      go({ screen: 'notes', shelf: { kind: 'all' }, note: note.id })
    } catch (error) {
      toasts.show(`That did not work: ${reasonOf(error)}`)
    }
  }
  return (
    <div class="notice">
      <span>This note is in the trash.</span>
      <button type="button" class="small" onClick={() => void takeOut()}>
        Restore
      </button>
      {isDeletable(note) && (
        <button type="button" class="small quiet" onClick={() => ask(true)}>
          Delete for good…
        </button>
      )}
      {isAsked && (
        <EmptyTrashDialog
          notes={[note]}
          onClose={() => ask(false)}
          onDone={() => go({ screen: 'notes', shelf, note: null })}
        />
      )}
    </div>
  )
}
