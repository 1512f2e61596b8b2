/** What the sync has done, event by event, for a person who looks for a fault. No credentials come into it. */
import type { Address } from '../../../src/core/address.ts'
import type { Shelf, SyncMode } from './settings.ts'
import { Store, type Watched } from './store.ts'

/** Events beyond these push out the oldest. */
export const MOST_EVENTS = 5000

export type SyncAct = 'start' | 'stop' | 'documents' | 'up to date' | 'denied' | 'error'

export interface SyncEvent {
  /** Milliseconds since 1970. */
  readonly time: number
  readonly mode: SyncMode
  readonly direction: 'push' | 'pull' | 'both'
  readonly act: SyncAct
  /** Documents that travelled. */
  readonly docs: number
  readonly error: string | null
}

const KEY = 'notes.log'
/** Between two writes, in milliseconds: all events are written each time. */
const WRITE_MS = 1000

/** The log of this device. While it is off nothing is noted, and what was is gone. */
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

  /** Writes what has not been written yet: the page is about to go. */
  write(): void {
    clearTimeout(this.#timer)
    this.#timer = undefined
    if (!this.#isOn) return
    try {
      this.#shelf.setItem(KEY, JSON.stringify(this.value))
    } catch {
      // The shelf is full. The events are still shown, and saved as a file.
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

/** @returns the log as the text of a file, a line for each event, columns apart by tabs */
export function logText(events: readonly SyncEvent[]): string {
  const head = ['time', 'mode', 'direction', 'event', 'documents', 'error'].join('\t')
  const rows = events.map(({ time, mode, direction, act, docs, error }) =>
    [new Date(time).toISOString(), mode, direction, act, docs, error ?? ''].join('\t'),
  )
  return `${[head, ...rows].join('\n')}\n`
}

const SHORTEST_SECRET = 3
/** Characters of a text that are kept: who words it may have much to say. */
const LONGEST_TEXT = 500

/**
 * Takes the credentials out of a text that a server or a browser has worded: those of any address in it, and the
 * password of this one however it is written.
 */
export function withoutCredentials(text: string, { username, password }: Partial<Address>): string {
  const secrets = [
    ...(password ? [password, encodeURIComponent(password)] : []),
    ...(username !== undefined && password ? [btoa(bytesOf(`${username}:${password}`))] : []),
  ].filter((secret) => secret.length >= SHORTEST_SECRET)
  const withoutUrls = text.replace(/\/\/[^/@\s]*@/g, '//')
  return secrets
    .reduce((rest, secret) => rest.replaceAll(secret, '***'), withoutUrls)
    .replace(/[\t\r\n]+/g, ' ')
    .slice(0, LONGEST_TEXT)
}

function bytesOf(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text))
}
