/**
 * Documents that a server has refused, with its reasons. A replication tries each document only once, so refusals are
 * stored per database, and are still known when the page is opened again.
 */
import type { Shelf } from '../settings.ts'
import { Store, type Watched } from '../store.ts'

export interface Refusal {
  readonly id: string
  readonly reason: string
}

const KEY = 'notes.refusals'
/** Refusals per database; with more, the oldest are forgotten. */
const MOST = 500
/** Databases whose refusals are stored. */
const MOST_TARGETS = 5

type Kept = readonly (readonly [target: string, refusals: readonly Refusal[]])[]

export class Refusals implements Watched<readonly Refusal[]> {
  readonly #shelf: Shelf
  readonly #shown = new Store<readonly Refusal[]>([])
  #kept: Kept
  #target = ''

  constructor(shelf: Shelf) {
    this.#shelf = shelf
    this.#kept = read(shelf.getItem(KEY))
  }

  /** The refusals of the database in use. */
  get value(): readonly Refusal[] {
    return this.#shown.value
  }

  subscribe(listener: (refusals: readonly Refusal[]) => void): () => void {
    return this.#shown.subscribe(listener)
  }

  /** @param target the key of the database (`keyOf`); empty: no database */
  show(target: string): void {
    this.#target = target
    this.#shown.set(this.#kept.find(([name]) => name === target)?.[1] ?? [])
  }

  add(refusal: Refusal): void {
    this.#keep([...this.value.filter(({ id }) => id !== refusal.id), refusal].slice(-MOST))
  }

  /** Called for documents that the server has accepted after all. */
  remove(ids: ReadonlySet<string>): void {
    const rest = this.value.filter(({ id }) => !ids.has(id))
    if (rest.length < this.value.length) this.#keep(rest)
  }

  #keep(refusals: readonly Refusal[]): void {
    const others = this.#kept.filter(([name]) => name !== this.#target)
    const own: Kept = refusals.length > 0 ? [[this.#target, refusals]] : []
    this.#kept = [...others, ...own].slice(-MOST_TARGETS)
    try {
      this.#shelf.setItem(KEY, JSON.stringify(this.#kept))
    } catch {
      // The storage is full. The refusals are shown as long as the page is open.
    }
    this.#shown.set(refusals)
  }
}

function read(text: string | null): Kept {
  try {
    const value: unknown = JSON.parse(text ?? '[]')
    return Array.isArray(value) ? value.filter(isKept) : []
  } catch {
    return []
  }
}

function isKept(value: unknown): value is Kept[number] {
  if (!Array.isArray(value) || typeof value[0] !== 'string' || !Array.isArray(value[1])) return false
  return value[1].every(
    (each: Partial<Refusal> | null) => typeof each?.id === 'string' && typeof each.reason === 'string',
  )
}

/** The user's word for a kind of document. */
export function kindOf(id: string): string {
  if (id.startsWith('file:')) return 'Picture'
  if (id.startsWith('_design/')) return 'Design document'
  if (id.startsWith('book:')) return 'Book'
  return id.startsWith('tag:') ? 'Tag' : 'Note'
}
