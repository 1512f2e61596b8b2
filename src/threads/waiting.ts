/** Who waits for what a thread answers: for one answer, or for the chunks of a stream. */
import { holdOutgoing, releaseOutgoing } from '../core/outgoing.ts'

/** Takes what a thread replies to one call. */
export interface Waiting {
  answer(value: unknown): void
  chunk(chunk: Uint8Array): void
  end(): void
  failed(error: unknown): void
}

/** Somebody who waits for one answer. */
export class Asked implements Waiting {
  readonly answer: (value: unknown) => void
  readonly failed: (error: unknown) => void

  constructor(resolve: (value: unknown) => void, reject: (error: unknown) => void) {
    this.answer = resolve
    this.failed = reject
  }

  chunk(): void {
    this.failed(new Error('a stream answered a call'))
  }

  end(): void {
    this.chunk()
  }
}

/** What has come of a stream and was not read yet. */
export class Arrivals implements Waiting {
  readonly #arrived: (Uint8Array | { readonly error: unknown } | null)[] = []
  #wake: () => void = () => undefined
  /** Whether the stream's end has arrived. */
  isOver: boolean = false

  chunk(chunk: Uint8Array): void {
    holdOutgoing(chunk.length)
    this.#arrived.push(chunk)
    this.#wake()
  }

  answer(): void {
    this.end()
  }

  end(): void {
    this.#last(null)
  }

  failed(error: unknown): void {
    this.#last({ error })
  }

  #last(item: { readonly error: unknown } | null): void {
    this.#arrived.push(item)
    this.isOver = true
    this.#wake()
  }

  /** The next chunk; null at the end. @throws what the stream failed with */
  async next(): Promise<Uint8Array | null> {
    while (this.#arrived.length === 0) await this.#arrival()
    const item = this.#arrived.shift()
    if (item instanceof Uint8Array) {
      releaseOutgoing(item.length)
      return item
    }
    if (item) throw item.error
    return null
  }

  /** Throws away what nobody will read. */
  drop(): void {
    for (const item of this.#arrived.splice(0)) if (item instanceof Uint8Array) releaseOutgoing(item.length)
  }

  /** Resolves when the stream's end has arrived, whatever it is. */
  async over(): Promise<void> {
    while (!this.isOver) await this.#arrival()
  }

  #arrival(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}
