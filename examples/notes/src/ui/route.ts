/** Which screen is shown. It is part of the page's address, so that the browser's back button works. */
import { useEffect, useState } from 'preact/hooks'
import type { Shelf } from '../notes/shelves.ts'

export const SECTIONS = ['synchronization', 'logging', 'about'] as const
export type Section = (typeof SECTIONS)[number]

/** Stands for the id of a note that is not stored yet. */
export const NEW_NOTE = 'new'

export type Route =
  | { readonly screen: 'notes'; readonly shelf: Shelf; readonly note: string | null }
  | { readonly screen: 'conflict'; readonly note: string }
  | { readonly screen: 'preferences'; readonly section: Section | null }

function readRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?')
  const [screen, rest] = path.split('/')
  const asked = new URLSearchParams(query)
  if (screen === 'preferences') {
    return { screen, section: SECTIONS.find((section) => section === rest) ?? null }
  }
  const note = asked.get('note')
  if (screen === 'conflict' && note !== null) return { screen, note }
  return { screen: 'notes', shelf: shelfOf(asked.get('shelf') ?? ''), note }
}

function shelfOf(text: string): Shelf {
  if (text.startsWith('book:')) return { kind: 'book', id: text }
  if (text.startsWith('tag:')) return { kind: 'tag', id: text }
  return { kind: text === 'conflicts' || text === 'trash' ? text : 'all' }
}

export function hashOf(route: Route): string {
  if (route.screen === 'preferences')
    return `#/preferences${route.section === null ? '' : `/${route.section}`}`
  const asked = new URLSearchParams()
  if (route.screen === 'notes' && route.shelf.kind !== 'all') {
    asked.set('shelf', 'id' in route.shelf ? route.shelf.id : route.shelf.kind)
  }
  if (route.note !== null) asked.set('note', route.note)
  const query = asked.size > 0 ? `?${asked}` : ''
  return `#/${route.screen}${query}`
}

export function go(route: Route): void {
  location.hash = hashOf(route)
}

/** Goes there without a new step in the browser's history. */
export function replaceRoute(route: Route): void {
  history.replaceState(history.state, '', hashOf(route))
  dispatchEvent(new HashChangeEvent('hashchange'))
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash)
  useEffect(() => {
    const changed = () => setHash(location.hash)
    addEventListener('hashchange', changed)
    changed() // It may have changed before the effect ran.
    return () => removeEventListener('hashchange', changed)
  }, [])
  return readRoute(hash)
}
