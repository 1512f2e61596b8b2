import { useEffect, useLayoutEffect, useState } from 'preact/hooks'
import { ConflictView } from './conflict-view.tsx'
import { NotesScreen } from './notes-screen.tsx'
import { Preferences } from './preferences.tsx'
import { useRoute } from './route.ts'
import { Sidebar } from './sidebar.tsx'

export function App() {
  const route = useRoute()
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
  if (route.screen === 'preferences') return <Preferences section={route.section} />
  const opened = route.screen === 'notes' ? route.note !== null : true
  return (
    <div class={`app${opened ? ' has-note' : ''}${isMenuOpen ? ' has-menu' : ''}`}>
      <Sidebar shelf={route.screen === 'notes' ? route.shelf : { kind: 'conflicts' }} />
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
