/**
 * Watches the free space on the disk of the data folder (docs/operating.md, Full disks): asks the file system in the
 * background, reports changes, and keeps the ballast file while there is space for it.
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

/** Interval of the checks in ms, and while less than twice the floor is free. */
const LOOK_MS = 1000
const LOOK_SHORT_MS = 200
/** Shortest interval of warnings, so that a disk just at its floor does not fill the log. */
const TELL_MS = 60_000

interface SpaceWatchOptions {
  /** The data folder. */
  readonly dataDir: string
  /** `settee/free_space_floor` in bytes; null: not set. Read at each check. */
  floor(): number | null
  /** Called when the free space changes in a way that matters to writes, and after {@link SpaceWatch.look}. */
  onChange(space: Space): void
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  /** For tests. */
  measure?(folder: string): Promise<DiskSize>
}

export class SpaceWatch {
  readonly #options: SpaceWatchOptions
  #space: Space = AMPLE_SPACE
  /** Why the free space could not be read. */
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

  /** Checks now, and then regularly until it is closed. Never rejects: if the free space is unknown, writes are accepted. */
  static async start(options: SpaceWatchOptions): Promise<SpaceWatch> {
    const watch = new SpaceWatch(options)
    await watch.#measure()
    watch.#later(0)
    return watch
  }

  /** The result of the last check. */
  get space(): Space {
    return this.#space
  }

  /** Checks now, and reports the result in any case. */
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

  /** The ballast must not fill the disk; on a full disk most of the rest stays free. */
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
      // Others took the space first, or the file system accepts no files.
      this.#hasReservedSpace = false
    }
  }

  /** The health of the disk. */
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

  /** Stops, after a check under way has ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#looking
  }
}
