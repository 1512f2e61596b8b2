/** Databases that are held open for whoever works with their files. */

type Accompany = (database: string, incarnation: number, work: () => Promise<void>) => Promise<void>

export class HeldOpen {
  readonly #accompany: Accompany
  /** What lets them go, by the calls that asked for it. */
  readonly #releases = new Map<number, () => void>()

  /** @param accompany keeps a database open until work is done */
  constructor(accompany: Accompany) {
    this.#accompany = accompany
  }

  /** Resolves when it is open; it stays so until {@link release}. @throws as `accompany` */
  hold({
    call,
    database,
    incarnation,
  }: {
    readonly call: number
    readonly database: string
    readonly incarnation: number
  }): Promise<void> {
    return new Promise((opened, failed) => {
      const untilReleased = () => {
        opened()
        return new Promise<void>((release) => this.#releases.set(call, release))
      }
      this.#accompany(database, incarnation, untilReleased).catch(failed)
    })
  }

  /** @param call that of the hold */
  release(call: number): void {
    this.#releases.get(call)?.()
    this.#releases.delete(call)
  }
}
