/** One opener of the databases in memory, as a process or a thread is one of databases on a server. */
import { LEASE_GRACE_MS, LEASE_MS } from '../../../src/storage/blob-leases.ts'
import type { Network } from './network.ts'

/** Faults of an engine that its tests must find. */
export type Mutant =
  /** A page's view is read after its rows. */
  | 'view after page'
  /** A write takes its number before it commits. */
  | 'number before commit'
  /** A write commits although what it was decided on has changed. */
  | 'no comparison'
  /** Leases of other openers are not respected. */
  | 'own leases only'

export class MemoryOpener {
  readonly network: Network
  readonly mutant: Mutant | null
  #diedAt: number | null = null

  constructor(network: Network, mutant: Mutant | null = null) {
    this.network = network
    this.mutant = mutant
  }

  get isDead(): boolean {
    return this.#diedAt !== null
  }

  /** From now on it neither calls, nor hears, nor renews anything. @param now in ms since 1970 */
  die(now: number): void {
    this.#diedAt ??= now
  }

  /** Whether its leases still keep blobs from removal. It renews them until it dies. */
  holdsAt(now: number): boolean {
    return this.#diedAt === null || now < this.#diedAt + LEASE_MS + LEASE_GRACE_MS
  }
}

/** The leases of a database: what each upload or reference holds, and for whom. */
export class MemoryLeases {
  readonly #leases = new Map<object, { readonly blob: number; readonly opener: MemoryOpener }>()

  set(holder: object, blob: number, opener: MemoryOpener): void {
    this.#leases.set(holder, { blob, opener })
  }

  end(holder: object): void {
    this.#leases.delete(holder)
  }

  /** Ends all leases of an opener that has closed the database, or that cannot exist any more. */
  endAll(isMeant: (opener: MemoryOpener) => boolean): void {
    for (const [holder, { opener }] of this.#leases) if (isMeant(opener)) this.#leases.delete(holder)
  }

  /** @param by who asks; @param now in ms since 1970 */
  isHeld(blob: number, by: MemoryOpener, now: number): boolean {
    for (const lease of this.#leases.values()) {
      if (lease.blob !== blob) continue
      if (by.mutant === 'own leases only' && lease.opener !== by) continue
      if (lease.opener.holdsAt(now)) return true
    }
    return false
  }
}
