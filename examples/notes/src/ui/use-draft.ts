/** The open note while it is edited. */
import { useEffect, useState } from 'preact/hooks'
import { Draft } from '../notes/draft.ts'
import type { NoteText } from '../notes/library.ts'
import type { Note } from '../notes/model.ts'
import { useServices } from './services.ts'

/** The text on the screen, and whether this user changed it last. */
export interface ShownText {
  readonly text: NoteText
  readonly isOwn: boolean
}

export interface Drafting extends ShownText {
  readonly draft: Draft
  readonly change: (members: Partial<NoteText>) => void
}

/** Saves when the page is hidden or left, and when the note is closed. Follows other devices' edits. */
export function useDraft(note: Note): Drafting {
  const { library, device } = useServices()
  const [draft] = useState(() => new Draft(library.db, note, device.value))
  const [shown, show] = useState<ShownText>({ text: draft.text, isOwn: true })
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
  useEffect(() => {
    if (draft.follow(note)) show({ text: draft.text, isOwn: false })
  }, [draft, note])
  const change = (members: Partial<NoteText>) => {
    draft.change(members)
    show({ text: draft.text, isOwn: true })
  }
  return { ...shown, draft, change }
}
