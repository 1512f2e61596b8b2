/** Single keys, which work wherever the user does not type. */
import { useEffect, useRef } from 'preact/hooks'
import { useServices, useWatched } from './services.ts'

export const SHORTCUTS = [
  { key: 'n', about: 'New note' },
  { key: '/', about: 'Search' },
  { key: 'e', about: 'Write or read the open note' },
  { key: 's', about: 'Sync now' },
  { key: '?', about: 'This help' },
] as const

export type ShortcutKey = (typeof SHORTCUTS)[number]['key']

/**
 * Calls `act` for a key while the component is shown. Keys with Ctrl, Alt or Cmd belong to the browser. WCAG 2.1.4: the
 * user can turn single keys off; the help stays, because that is where they are turned on again.
 */
export function useShortcut(key: ShortcutKey, act: () => void): void {
  const { settings } = useServices()
  const { hasShortcuts } = useWatched(settings)
  const latest = useRef(act)
  latest.current = act
  useEffect(() => {
    if (!hasShortcuts && key !== '?') return undefined
    const pressed = (event: KeyboardEvent) => {
      if (event.key !== key || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey)
        return
      if (isTyping(event) || document.querySelector('dialog[open]') !== null) return
      event.preventDefault()
      latest.current()
    }
    addEventListener('keydown', pressed)
    return () => removeEventListener('keydown', pressed)
  }, [key, hasShortcuts])
}

/** The first element of the path is inside the editor's shadow root, too. */
function isTyping(event: KeyboardEvent): boolean {
  const [target] = event.composedPath()
  if (!(target instanceof HTMLElement)) return false
  return (
    target.isContentEditable || target.matches('input:not([type=checkbox], [type=radio]), textarea, select')
  )
}
