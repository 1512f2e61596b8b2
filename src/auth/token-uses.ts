import type { RecordWrite } from '../storage/catalog.ts'
import { recordOfToken } from './token-record.ts'
import type { TokenTable } from './token-table.ts'

/** A token in use writes this often, and all that were used write together. */
const USE_MS = 60_000
/** Records in one write: some 200 kB. */
const MAX_WRITES = 500
/** Of the header User-Agent. */
const MAX_CLIENT = 100

export interface UseOptions {
  /** Milliseconds since 1970; replaced in tests. */
  readonly now?: () => number
  /** How long uses may wait to be written, in milliseconds. Default a minute. */
  readonly writeMs?: number
  onFault(fault: unknown): void
}

/**
 * When, by what and from where each token was last used, to the minute: the way of a request only sets a field, and
 * a crash loses at most the last minute.
 */
export class TokenUses {
  readonly #table: TokenTable
  readonly #write: (writes: () => readonly RecordWrite[]) => Promise<void>
  readonly #now: () => number
  readonly #writeMs: number
  readonly #onFault: (fault: unknown) => void
  readonly #unwritten = new Set<string>()
  #timer: NodeJS.Timeout | undefined

  /** @param write takes what to write when its turn has come */
  constructor(
    table: TokenTable,
    write: (writes: () => readonly RecordWrite[]) => Promise<void>,
    { now = Date.now, writeMs = USE_MS, onFault }: UseOptions,
  ) {
    this.#table = table
    this.#write = write
    this.#now = now
    this.#writeMs = writeMs
    this.#onFault = onFault
  }

  note(id: string, client: string | undefined, address: string): void {
    const token = this.#table.get(id)
    const now = this.#now()
    // The clock may have been set back since.
    if (token === undefined || Math.abs(now - (token.lastUse?.time ?? 0)) < USE_MS) return
    const lastUse = { time: now, client: (client ?? '').slice(0, MAX_CLIENT), address }
    this.#table.set({ ...token, lastUse })
    this.#unwritten.add(id)
    this.#timer ??= setTimeout(() => void this.#flush(), this.#writeMs).unref()
  }

  async #flush(): Promise<void> {
    this.#timer = undefined
    try {
      while (this.#unwritten.size > 0) await this.#writeSome()
    } catch (fault) {
      this.#onFault(fault)
    }
  }

  /** What fails stays to be written with the next uses. */
  async #writeSome(): Promise<void> {
    const ids = [...this.#unwritten].slice(0, MAX_WRITES)
    for (const id of ids) this.#unwritten.delete(id)
    try {
      await this.#write(() => ids.flatMap((id) => this.#recordOf(id)))
    } catch (fault) {
      for (const id of ids) this.#unwritten.add(id)
      throw fault
    }
  }

  /** None of a token that was revoked meanwhile. */
  #recordOf(id: string): RecordWrite[] {
    const token = this.#table.get(id)
    return token === undefined ? [] : [recordOfToken(token)]
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#flush()
  }
}
