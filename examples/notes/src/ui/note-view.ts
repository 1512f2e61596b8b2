/** How the open note is shown. */
import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { useServices, useWatched } from './services.ts'

export type NoteView = 'write' | 'both' | 'read'

/** Wide enough for the text and the formatted note side by side. */
const WIDE = '(min-width: 1100px)'

interface NoteViewing {
  readonly view: NoteView
  /** Whether the editor has been needed, and so is there. */
  readonly hasText: boolean
  readonly choose: (view: NoteView) => void
}

/**
 * @param isEmpty an empty note is opened to write, any other one to read; to users of the split view, both at once
 * @param isFixed shows the note to read only
 */
export function useNoteView(isEmpty: boolean, isFixed: boolean): NoteViewing {
  const { settings } = useServices()
  const { isSplit } = useWatched(settings)
  const isWide = useMedia(WIDE)
  const [isReading, read] = useState(!isEmpty && !isSplit)
  const view = isFixed || isReading ? 'read' : isSplit && isWide ? 'both' : 'write'
  const [hasText, need] = useState(view !== 'read')
  if (view !== 'read' && !hasText) need(true)
  const choose = (next: NoteView) => {
    read(next === 'read')
    if (next !== 'read') settings.setSplit(next === 'both')
  }
  return { view, hasText, choose }
}

function useMedia(query: string): boolean {
  const [holds, set] = useState(() => matchMedia(query).matches)
  useEffect(() => {
    const list = matchMedia(query)
    const changed = () => set(list.matches)
    list.addEventListener('change', changed)
    return () => list.removeEventListener('change', changed)
  }, [query])
  return holds
}

/** On a phone, the note takes the place of the list that had the focus. */
export function useFocusOnOpen(sheet: { readonly current: HTMLElement | null }, isFresh: boolean): void {
  useLayoutEffect(() => {
    const had = document.activeElement
    if (!isFresh && (had === null || had === document.body || !had.checkVisibility())) {
      sheet.current?.focus({ preventScroll: true })
    }
  }, [])
}
