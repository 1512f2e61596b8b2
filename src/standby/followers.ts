/** The standbys that follow this server, as far as their requests show: each reads the settings once a minute. */

export interface FollowerSighting {
  /** The network address that it has called from. */
  readonly address: string
  /** Its last call, in ms since 1970. */
  readonly lastSeen: number
}

/** A standby that has not called for so long has gone, in ms. */
const GONE_MS = 300_000
const MAX_REMEMBERED = 16

export class Followers {
  /** By address, the last seen last. */
  readonly #seen = new Map<string, number>()

  /** Notes a call. @param now in ms since 1970 */
  note(address: string, now: number): void {
    this.#seen.delete(address)
    this.#seen.set(address, now)
    const [oldest] = this.#seen.keys()
    if (this.#seen.size > MAX_REMEMBERED && oldest !== undefined) this.#seen.delete(oldest)
  }

  /** Those that have called lately, the last seen first. @param now in ms since 1970 */
  list(now: number): readonly FollowerSighting[] {
    return [...this.#seen]
      .filter(([, lastSeen]) => now - lastSeen < GONE_MS)
      .map(([address, lastSeen]) => ({ address, lastSeen }))
      .reverse()
  }
}
