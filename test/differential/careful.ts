/** Choices of which a request has one odd thing at most: of several mistakes two servers may name different ones. */
import { Choices } from '../fuzz/choices.ts'

export class CarefulChoices extends Choices {
  #isOdd = false

  /** Begins another request. */
  begin(): void {
    this.#isOdd = false
  }

  override mostly<T>(usual: readonly T[], odd: readonly T[], oddity = 0.06): T {
    return this.pick(this.oddly(oddity) ? odd : usual)
  }

  /** Whether to do something odd. */
  oddly(probability: number): boolean {
    if (this.#isOdd || !this.chance(probability)) return false
    this.#isOdd = true
    return true
  }
}
