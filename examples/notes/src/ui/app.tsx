import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { ConflictView } from './conflict-view.tsx'
import { HelpDialog } from './help-dialog.tsx'
import { focusList, NotesScreen } from './notes-screen.tsx'
import { Preferences } from './preferences.tsx'
import { go, type Route, useRoute } from './route.ts'
import { useServices } from './services.ts'
import { useShortcut } from './shortcuts.ts'
import { Sidebar } from './sidebar.tsx'
import { ToastLine } from './toast-line.tsx'

export function App() {
  const route = useRoute()
  const { syncer } = useServices()
  const [hasHelp, showHelp] = useState(false)
  useShortcut('?', () => showHelp(true))
  useShortcut('s', () => {
    if (syncer.value.phase === 'idle') go({ screen: 'preferences', section: 'synchronization' })
    else syncer.again()
  })
  return (
    <>
      {route.screen === 'preferences' ? (
        <Preferences section={route.section} />
      ) : (
        <Notebook route={route} onHelp={() => showHelp(true)} />
      )}
      {hasHelp && <HelpDialog onClose={() => showHelp(false)} />}
      <ToastLine />
    </>
  )
}

interface NotebookProps {
  readonly route: Exclude<Route, { readonly screen: 'preferences' }>
  readonly onHelp: () => void
}

/** The sidebar, and the list with a note or the versions of one. */
function Notebook({ route, onHelp }: NotebookProps) {
  const [isMenuOpen, openMenu] = useState(false)
  // Before the user can act: a later effect would take the focus from what the user has chosen meanwhile.
  useLayoutEffect(() => {
    if (!isMenuOpen) return undefined
    document.querySelector<HTMLElement>('.sidebar a')?.focus()
    // The focus returns to the button that opened the menu, if it is still on the page.
    return () => document.querySelector<HTMLElement>('.menu-button')?.focus()
  }, [isMenuOpen])
  // A choice in the menu closes it.
  useEffect(() => openMenu(false), [location.hash])
  useEffect(() => {
    const close = (event: KeyboardEvent) => event.key === 'Escape' && openMenu(false)
    addEventListener('keydown', close)
    return () => removeEventListener('keydown', close)
  }, [])
  const opened = route.screen === 'notes' ? route.note !== null : true
  return (
    <div class={`app${opened ? ' has-note' : ''}${isMenuOpen ? ' has-menu' : ''}`}>
      {route.screen === 'notes' && (
        <nav class="skip-links" aria-label="Skip">
          <SkipLink onGo={focusList} name="Skip to the list" />
          {route.note !== null && (
            <SkipLink
              onGo={() => document.querySelector<HTMLElement>('.sheet')?.focus()}
              name="Skip to the note"
            />
          )}
        </nav>
      )}
      <Sidebar shelf={route.screen === 'notes' ? route.shelf : { kind: 'conflicts' }} onHelp={onHelp} />
      {isMenuOpen && (
        <button type="button" class="curtain" aria-label="Close the menu" onClick={() => openMenu(false)} />
      )}
      {route.screen === 'notes' ? (
        <NotesScreen shelf={route.shelf} noteId={route.note} onMenu={() => openMenu(true)} />
      ) : (
        <ConflictView noteId={route.note} key={route.note} />
      )}
    </div>
  )
}

/** A button, because the page's address says which note is open. */
function SkipLink({ onGo, name }: { readonly onGo: () => void; readonly name: string }) {
  return (
    <button type="button" class="small" onClick={onGo}>
      {name}
    </button>
  )
}
