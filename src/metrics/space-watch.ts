/**
 * Looks after the room on the disk of the data folder (docs/operating.md, Full disks): asks the file system in the
 * background, tells whoever must know what is left, and keeps the ballast while there is room for it.
 */
import type { Logger } from 'pino'
import { AMPLE_SPACE, defaultFloor, type HealthFact, isShort, type Space } from '../core/types.ts'
import {
  type DiskSize,
  diskSize,
  hasReservedSpace,
  RESERVED_BYTES,
  reserveSpace,
} from '../storage/free-space.ts'

/** How often is looked, in ms; and how often where less is left than twice the floor. */
const LOOK_MS = 1000
const LOOK_SHORT_MS = 200
/** A disk that stands just at its floor would fill the log, too. */
const TELL_MS = 60_000

interface SpaceWatchOptions {
  /** The data folder. */
  readonly dataDir: string
  /** `settee/free_space_floor`, in bytes; null: it is not set. Asked at each look. */
  floor(): number | null
  /** What is left has changed, as far as it matters to writes; or was asked for by {@link SpaceWatch.look}. */
  onChange(space: Space): void
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  /** For tests. */
  measure?(folder: string): Promise<DiskSize>
}

export class SpaceWatch {
  readonly #options: SpaceWatchOptions
  #space: Space = AMPLE_SPACE
  /** Why the disk could not be asked. */
  #failure: string | undefined
  #hasReservedSpace = false
  #toldAt = -Infinity
  #isAsked = false
  #isClosed = false
  #timer: NodeJS.Timeout | undefined
  #looking: Promise<void> | undefined

  private constructor(options: SpaceWatchOptions) {
    this.#options = options
  }

  /** Looks once, and then again and again until it is closed. Never rejects: a disk that cannot be asked has room. */
  static async start(options: SpaceWatchOptions): Promise<SpaceWatch> {
    const watch = new SpaceWatch(options)
    await watch.#measure()
    watch.#later(0)
    return watch
  }

  /** As it was found last. */
  get space(): Space {
    return this.#space
  }

  /** Looks now, and tells what it finds in any case. */
  look(): void {
    this.#isAsked = true
    this.#later(0)
  }

  #later(ms: number): void {
    clearTimeout(this.#timer)
    if (this.#isClosed) return
    this.#timer = setTimeout(() => {
      this.#looking ??= this.#turn().finally(() => {
        this.#looking = undefined
        this.#later(this.#pause())
      })
    }, ms)
    this.#timer.unref()
  }

  #pause(): number {
    if (this.#isAsked) return 0
    const { free, floor } = this.#space
    return free < 2 * floor ? LOOK_SHORT_MS : LOOK_MS
  }

  async #turn(): Promise<void> {
    await this.#measure()
    if (!this.#isClosed) await this.#keepBallast()
  }

  async #measure(): Promise<void> {
    const { dataDir, floor, measure = diskSize } = this.#options
    const isAsked = this.#isAsked
    this.#isAsked = false
    try {
      const { free, total } = await measure(dataDir)
      this.#found({ free, floor: floor() ?? defaultFloor(total) }, isAsked)
      this.#failure = undefined
    } catch (error) {
      this.#failure = (error as Error).message
    }
  }

  #found(space: Space, isAsked: boolean): void {
    const before = this.#space
    this.#space = space
    const isNews = isShort(space) ? space.free !== before.free : isShort(before)
    if (isNews || isAsked || space.floor !== before.floor) this.#options.onChange(space)
    if (isShort(space) !== isShort(before)) this.#tell()
  }

  #tell(): void {
    const { logger } = this.#options
    const { free, floor } = this.#space
    if (!isShort(this.#space)) {
      logger.info({ free, floor }, 'the disk has free space again: all writes are accepted')
      return
    }
    if (performance.now() - this.#toldAt < TELL_MS) return
    this.#toldAt = performance.now()
    logger.warn(
      { free, floor },
      'the disk is full: only deletions are accepted until there is free space again',
    )
  }

  /** It must not be what makes the disk short; where that is short already, most of what is left stays free. */
  async #keepBallast(): Promise<void> {
    const { dataDir } = this.#options
    try {
      this.#hasReservedSpace = await hasReservedSpace(dataDir)
      const { free, floor } = this.#space
      const hasRoom = isShort(this.#space) ? free >= 3 * RESERVED_BYTES : free >= floor + RESERVED_BYTES
      if (this.#hasReservedSpace || !hasRoom) return
      await reserveSpace(dataDir)
      this.#hasReservedSpace = true
    } catch {
      // Others were quicker to take the room, or the file system takes no files: so it is without.
      this.#hasReservedSpace = false
    }
  }

  /** How the disk is. */
  async health(): Promise<readonly HealthFact[]> {
    const { free, floor } = this.#space
    const ballast = this.#hasReservedSpace
    const fact = { name: 'free_space', ok: !isShort(this.#space), free, floor, ballast }
    if (this.#failure !== undefined) {
      const reason = 'The free space of the disk cannot be read; see the log.'
      return [{ name: 'free_space', ok: false, reason }]
    }
    if (fact.ok) return [fact]
    const reason = 'The disk is full: only deletions are accepted until there is free space again.'
    return [{ ...fact, reason }]
  }

  /** Ends it; what it is at is waited for. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#looking
  }
}
