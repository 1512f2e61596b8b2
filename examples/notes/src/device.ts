/** The name with which this device signs what it writes. */
import type { DeviceLabel } from './notes/model.ts'
import type { Shelf } from './settings.ts'
import { Store, type Watched } from './store.ts'

const KEY = 'notes.device'
/** Of a name, in characters. */
export const LONGEST_NAME = 60

export class ThisDevice implements Watched<DeviceLabel> {
  readonly #shelf: Shelf
  readonly #label: Store<DeviceLabel>

  /** @param name used until the user chooses another one */
  constructor(shelf: Shelf, name: string) {
    this.#shelf = shelf
    const kept = read(shelf.getItem(KEY))
    this.#label = new Store(kept ?? { id: crypto.randomUUID().slice(0, 8), name })
    if (kept === null) this.#keep()
  }

  get value(): DeviceLabel {
    return this.#label.value
  }

  subscribe(listener: (label: DeviceLabel) => void): () => void {
    return this.#label.subscribe(listener)
  }

  /** A blank name is not taken. */
  rename(name: string): void {
    const next = name.trim().slice(0, LONGEST_NAME)
    if (next === '') return
    this.#label.update({ name: next })
    this.#keep()
  }

  #keep(): void {
    try {
      this.#shelf.setItem(KEY, JSON.stringify(this.value))
    } catch {
      // The storage is full. The name holds as long as the page is open.
    }
  }
}

function read(text: string | null): DeviceLabel | null {
  try {
    const { id, name } = JSON.parse(text ?? '{}') as Partial<Record<keyof DeviceLabel, unknown>>
    return typeof id === 'string' && typeof name === 'string' ? { id, name } : null
  } catch {
    return null
  }
}

/** The browser and the system of this device, such as "Firefox on Android". */
export function browserName(userAgent: string): string {
  const browser = ['Firefox', 'Edg', 'Chrome', 'Safari'].find((name) => userAgent.includes(`${name}/`))
  const system = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac', 'Linux'].find((name) =>
    userAgent.includes(name),
  )
  return `${browser === 'Edg' ? 'Edge' : (browser ?? 'Browser')}${system ? ` on ${system}` : ''}`
}
