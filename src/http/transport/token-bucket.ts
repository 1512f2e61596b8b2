/** A bucket holds the tokens of so many seconds, and owes at most as many. */
const BURST_S = 2

/** The tokens of a network for requests of one kind. */
export class TokenBucket {
  #tokens = Infinity
  #filledAt = 0

  /**
   * Takes a token for a request.
   * @param rate tokens that come back in a second; 0: no limit
   * @param now in milliseconds
   * @returns false when no token is left
   */
  take(rate: number, now: number): boolean {
    if (this.tokens(rate, now) < 1) return false
    this.#tokens -= 1
    return true
  }

  /** Takes a token even if none is left, for work that cannot wait. */
  charge(): void {
    this.#tokens -= 1
  }

  /** Gives a token back, for a request that turned out to have an account. */
  refund(): void {
    this.#tokens += 1
  }

  /** @returns how many tokens there are; below 0 after more charges than there were tokens */
  tokens(rate: number, now: number): number {
    if (rate === 0) return Infinity
    const back = ((now - this.#filledAt) * rate) / 1000
    // The debt is limited, since everybody who shares the address pays for it.
    this.#tokens = Math.min(rate * BURST_S, Math.max(-rate * BURST_S, this.#tokens) + back)
    this.#filledAt = now
    return this.#tokens
  }
}
