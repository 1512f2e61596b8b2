/** A message about what was just done, with a way back. */
import { Store, type Watched } from '../store.ts'

export interface Toast {
  readonly text: string
  readonly undo?: () => Promise<void>
}

/** The last message; a new one replaces it. */
export class Toasts implements Watched<Toast | null> {
  readonly #shown = new Store<Toast | null>(null)

  get value(): Toast | null {
    return this.#shown.value
  }

  subscribe(listener: (toast: Toast | null) => void): () => void {
    return this.#shown.subscribe(listener)
  }

  show(text: string, undo?: () => Promise<void>): void {
    this.#shown.set({ text, ...(undo && { undo }) })
  }

  close(): void {
    this.#shown.set(null)
  }
}
