/** A log of sync events that helps to find problems. It contains no credentials. */
import type { Address } from '../../../src/core/address.ts'
import type { Shelf, SyncMode } from './settings.ts'
import { Store, type Watched } from './store.ts'

/** With more events, the oldest are dropped. */
export const MOST_EVENTS = 5000

export type SyncAct = 'start' | 'stop' | 'documents' | 'up to date' | 'denied' | 'error'

export interface SyncEvent {
  /** Milliseconds since 1970. */
  readonly time: number
  readonly mode: SyncMode
  readonly direction: 'push' | 'pull' | 'both'
  readonly act: SyncAct
  /** Documents that were sent or received. */
  readonly docs: number
  readonly error: string | null
}

const KEY = 'notes.log'
/** The time between two writes, in milliseconds: each write stores all events. */
const WRITE_MS = 1000

/** The log of this device. Turning it off deletes all events, and none are added while it is off. */
export class SyncLog implements Watched<readonly SyncEvent[]> {
  readonly #shelf: Shelf
  readonly #events: Store<readonly SyncEvent[]>
  #isOn: boolean
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(shelf: Shelf, isOn: boolean) {
    this.#shelf = shelf
    this.#isOn = isOn
    this.#events = new Store(isOn ? readEvents(shelf.getItem(KEY)) : [])
    if (!isOn) shelf.removeItem(KEY)
  }

  get value(): readonly SyncEvent[] {
    return this.#events.value
  }

  subscribe(listener: (events: readonly SyncEvent[]) => void): () => void {
    return this.#events.subscribe(listener)
  }

  turn(isOn: boolean): void {
    this.#isOn = isOn
    if (isOn) return
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#shelf.removeItem(KEY)
    this.#events.set([])
  }

  note(event: SyncEvent): void {
    if (!this.#isOn) return
    this.#events.set([...this.value, event].slice(-MOST_EVENTS))
    this.#timer ??= setTimeout(() => this.write(), WRITE_MS)
  }

  /** Writes unsaved events, before the page closes. */
  write(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (!this.#isOn) return
    try {
      this.#shelf.setItem(KEY, JSON.stringify(this.value))
    } catch {
      // The storage is full. The events are still shown, and can be saved as a file.
    }
  }
}

function readEvents(text: string | null): readonly SyncEvent[] {
  try {
    const value: unknown = JSON.parse(text ?? '[]')
    return Array.isArray(value) ? value.filter(isEvent).slice(-MOST_EVENTS) : []
  } catch {
    return []
  }
}

function isEvent(value: unknown): value is SyncEvent {
  return typeof value === 'object' && value !== null && typeof (value as SyncEvent).time === 'number'
}

/** @returns the log as a text file: one line per event, with columns separated by tabs */
export function logText(events: readonly SyncEvent[]): string {
  const head = ['time', 'mode', 'direction', 'event', 'documents', 'error'].join('\t')
  const rows = events.map(({ time, mode, direction, act, docs, error }) =>
    [new Date(time).toISOString(), mode, direction, act, docs, error ?? ''].join('\t'),
  )
  return `${[head, ...rows].join('\n')}\n`
}

const SHORTEST_SECRET = 3
/** The maximum length of a text in characters: texts from servers can be long. */
const LONGEST_TEXT = 500

/**
 * Removes credentials from a text of a server or a browser: those of any address in it, and the name and the password of
 * this address in every encoding.
 */
export function withoutCredentials(text: string, { username, password }: Partial<Address>): string {
  const secrets = [
    ...(password ? [password, encodeURIComponent(password)] : []),
    ...(username !== undefined && password ? [btoa(bytesOf(`${username}:${password}`))] : []),
  ].filter((secret) => secret.length >= SHORTEST_SECRET)
  const withoutUrls = text.replace(/\/\/[^/@\s]*@/g, '//')
  return secrets
    .reduce((rest, secret) => rest.replaceAll(secret, '***'), withoutUrls)
    .replace(/[\p{L}\p{N}_.-]+/gu, (word) => (isName(word, username) ? '***' : word))
    .replace(/[\t\r\n]+/g, ' ')
    .slice(0, LONGEST_TEXT)
}

/** Short names stay: they may be ordinary words. */
function isName(word: string, username: string | undefined): boolean {
  return word === username && word.length >= SHORTEST_SECRET
}

function bytesOf(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text))
}
