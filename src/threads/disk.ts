/** What a database thread knows of the disk, and what it does when the disk is full to its end. */
import { AMPLE_SPACE, isShort, type Space } from '../core/space.ts'
import { giveUpBallast } from '../storage/ballast.ts'
import { diskSizeNow } from '../storage/free-space.ts'

export class Disk {
  readonly #folder: string
  readonly #tell: () => void
  #space: Space = AMPLE_SPACE

  /**
   * @param folder the data folder
   * @param tell has the HTTP thread look at the disk, which says what is left of it from then on
   */
  constructor(folder: string, tell: () => void) {
    this.#folder = folder
    this.#tell = tell
  }

  get space(): Space {
    return this.#space
  }

  /** As the HTTP thread has found it. */
  set(space: Space): void {
    this.#space = space
  }

  /**
   * A write has met the end of the disk. What grows is refused from now on; what meets it all the same must go on, and
   * the ballast is given up for it.
   * @returns whether it was the disk's end, and not another limit, a quota for one: then another trial is worth it
   */
  onFull(): boolean {
    this.#tell()
    const wasShort = isShort(this.#space)
    const free = this.#freeNow()
    if (free === null || !isShort({ ...this.#space, free })) return false
    this.#space = { ...this.#space, free }
    if (wasShort) giveUpBallast(this.#folder)
    return true
  }

  #freeNow(): number | null {
    try {
      return diskSizeNow(this.#folder).free
    } catch {
      return null
    }
  }
}
