/** The present route. */
import { signal } from '@preact/signals'
import { parseHash, type Route } from './hash.ts'

export const route = signal<Route>(parseHash(location.hash))

/** Asked before the route changes; a guard that returns false keeps the user where they are. */
type Guard = (next: Route) => boolean

let guard: Guard | null = null

/**
 * Guards the route while there is something unsaved. A guard that refuses asks the user, and calls {@link go} later.
 * @returns a function that removes the guard
 */
export function guardRoute(next: Guard): () => void {
  guard = next
  return () => {
    if (guard === next) guard = null
  }
}

/** Goes to a route. @param replaces whether the present entry of the browser's history is replaced */
export function go(hash: string, { replaces = false }: { readonly replaces?: boolean } = {}): void {
  if (replaces) {
    history.replaceState(null, '', hash)
    follow()
  } else location.hash = hash
}

let shownHash = location.hash

function follow(): void {
  const next = parseHash(location.hash)
  if (guard !== null && location.hash !== shownHash && !guard(next)) {
    history.replaceState(null, '', shownHash || '#/')
    return
  }
  shownHash = location.hash
  route.value = next
}

addEventListener('hashchange', follow)
