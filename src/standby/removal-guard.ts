/**
 * Whether a standby may remove copies of databases that its primary has deleted. If most of them are gone, the primary has
 * probably lost them, and an operator must decide. Pure: times are given in ms.
 */

/** How long a removed database counts among those that are gone, in ms. */
const WINDOW_MS = 600_000

export class RemovalGuard {
  #removals: number[] = []

  /** Notes that a copy is removed. */
  note(now: number): void {
    this.#removals.push(now)
  }

  /**
   * @param missing databases that are to be removed, of those that are followed
   * @param followed databases that are here, those included
   * @returns why they may not be removed; null: they may
   */
  refusal(missing: number, followed: number, now: number): string | null {
    this.#removals = this.#removals.filter((at) => now - at < WINDOW_MS)
    const gone = missing + this.#removals.length
    const all = followed + this.#removals.length
    if (missing === 0 || gone < 2 || gone * 2 <= all) return null
    return `${gone} of ${all} databases are gone on the primary`
  }
}
