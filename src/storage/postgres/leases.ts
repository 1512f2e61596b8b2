/** The leases of one open database: storage/blob-leases.ts. */
import { randomBytes } from 'node:crypto'
import { CouchError } from '../../core/errors.ts'
import { LEASE_RENEWAL_MS } from '../blob-leases.ts'
import type { OpenDatabase } from './open-database.ts'

const RENEW = {
  name: 'renew_leases',
  text: 'SELECT renew_leases($1, $2::text[], $3)',
}

const END = {
  name: 'end_leases',
  text: 'SELECT end_leases($1, $2)',
}

const END_ALL = {
  name: 'end_all_leases',
  text: 'DELETE FROM lease WHERE db = $1 AND holder >= $2 AND holder < $3',
}

export class Leases {
  readonly #database: OpenDatabase
  /** Identifies this store among all that have the database open. */
  readonly #id = randomBytes(12).toString('hex')
  readonly #holders = new Set<string>()
  #last = 0
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(database: OpenDatabase) {
    this.#database = database
  }

  /** @throws unavailable when the store is closed */
  refuseIfClosed(): void {
    if (this.#isClosed) throw new CouchError('unavailable')
  }

  /**
   * Names a new upload or reference. Its leases are renewed until it is ended.
   * @throws unavailable when the store is closed
   */
  begin(): string {
    this.refuseIfClosed()
    this.#last += 1
    const holder = `${this.#id}/${this.#last}`
    this.#holders.add(holder)
    this.#timer ??= setInterval(() => void this.#renew(), LEASE_RENEWAL_MS).unref()
    return holder
  }

  /** Forgets a holder that has no leases. */
  forget(holder: string): void {
    this.#holders.delete(holder)
    if (this.#holders.size === 0) this.#stop()
  }

  /**
   * Ends the leases of a holder. Never rejects: leases that could not be ended are not renewed.
   * @returns the blobs that no revision has named
   */
  async end(holder: string): Promise<readonly number[]> {
    this.forget(holder)
    if (this.#isClosed) return []
    try {
      const { connections, db } = this.#database
      const [row] = await connections.write<readonly [blobs: readonly number[]]>({
        ...END,
        values: [db, holder],
      })
      return row?.[0] ?? []
    } catch {
      return []
    }
  }

  /** Leases that are gone stay gone: what needs them is refused. */
  async #renew(): Promise<void> {
    const { connections, db, now } = this.#database
    try {
      await connections.write({ ...RENEW, values: [db, [...this.#holders], now()], isBackground: true })
    } catch {
      // The next renewal comes before the leases have ended.
    }
  }

  #stop(): void {
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Ends all leases. Never rejects. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#stop()
    if (this.#last === 0) return
    const { connections, db } = this.#database
    // The character after `/` is `0`.
    const values = [db, `${this.#id}/`, `${this.#id}0`]
    await connections.write({ ...END_ALL, values }).catch(() => undefined)
  }
}
