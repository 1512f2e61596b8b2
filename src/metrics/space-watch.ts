/**
 * Watches the free space on the disk of the data folder (docs/operating.md, Full disks): reads it in the background,
 * reports changes, and keeps the ballast file while there is space for it, which databases need.
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

/** Interval of the checks, in ms: usually, and while less than twice the floor is free. */
const CHECK_INTERVAL_MS = 1000
const SHORT_CHECK_INTERVAL_MS = 200
/** Minimum interval of warnings, in ms: a disk just at its floor must not fill the log. */
const WARNING_INTERVAL_MS = 60_000
/** How old the advice may be that refusals give, in ms. */
const ADVICE_MS = 60_000

interface SpaceWatchOptions {
  /** The data folder. */
  readonly dataDir: string
  /** What is on this disk, which decides what is refused when it is full: with databases elsewhere, only request bodies. */
  readonly holds: 'databases' | 'temporary files'
  /** `settee/free_space_floor` in bytes; null: not set. Read at each check. */
  floor(): number | null
  /** Called when the free space changes in a way that matters to writes, and after {@link SpaceWatch.check}. */
  onChange(space: Space): void
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  /** For tests. */
  measure?(folder: string): Promise<DiskSize>
}

const FULL = {
  databases: 'only deletions are accepted',
  'temporary files': 'large requests are refused',
} as const
const AGAIN = {
  databases: 'all writes are accepted',
  'temporary files': 'large requests are accepted',
} as const

export class SpaceWatch {
  readonly #options: SpaceWatchOptions
  #space: Space = AMPLE_SPACE
  /** Why the free space could not be read. */
  #failure: string | undefined
  #unsafe: string | undefined
  #hasReservedSpace = false
  #warnedAt = -Infinity
  #advise: (() => Promise<string>) | undefined
  #advice: string | undefined
  #advisedAt = -Infinity
  #isRequested = false
  #isClosed = false
  #timer: NodeJS.Timeout | undefined
  #running: Promise<void> | undefined

  private constructor(options: SpaceWatchOptions) {
    this.#options = options
  }

  /**
   * Checks now, and then regularly until it is closed. Never rejects: if the free space is unknown, writes are
   * accepted.
   */
  static async start(options: SpaceWatchOptions): Promise<SpaceWatch> {
    const watch = new SpaceWatch(options)
    await watch.#measure()
    watch.#schedule(0)
    return watch
  }

  /** The result of the last check. */
  get space(): Space {
    return this.#space
  }

  /** @param advise says what frees space; called while there is a shortage, once a minute at most */
  adviseBy(advise: () => Promise<string>): void {
    this.#advise = advise
    this.#schedule(0)
  }

  /** Checks now, and reports the result even if it has not changed. */
  check(): void {
    this.#isRequested = true
    this.#schedule(0)
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer)
    if (this.#isClosed) return
    this.#timer = setTimeout(() => {
      this.#running ??= this.#run().finally(() => {
        this.#running = undefined
        this.#schedule(this.#pause())
      })
    }, ms)
    this.#timer.unref()
  }

  #pause(): number {
    if (this.#isRequested) return 0
    const { free, floor } = this.#space
    return free < 2 * floor ? SHORT_CHECK_INTERVAL_MS : CHECK_INTERVAL_MS
  }

  async #run(): Promise<void> {
    await this.#measure()
    if (isShort(this.#space)) await this.#readAdvice()
    if (!this.#isClosed && this.#options.holds === 'databases') await this.#restoreBallast()
  }

  /** Without advice, refusals name the command that has it. */
  async #readAdvice(): Promise<void> {
    if (this.#advise === undefined || performance.now() - this.#advisedAt < ADVICE_MS) return
    this.#advisedAt = performance.now()
    this.#advice = await this.#advise().catch(() => undefined)
    if (this.#advice === undefined || this.#isClosed) return
    this.#space = { ...this.#space, advice: this.#advice }
    this.#options.onChange(this.#space)
  }

  async #measure(): Promise<void> {
    const { dataDir, floor, measure = diskSize } = this.#options
    const isRequested = this.#isRequested
    this.#isRequested = false
    try {
      const { free, total, unsafe } = await measure(dataDir)
      this.#unsafe = unsafe
      const advice = this.#advice === undefined ? {} : { advice: this.#advice }
      this.#update({ free, floor: floor() ?? defaultFloor(total), ...advice }, isRequested)
      this.#failure = undefined
    } catch (error) {
      this.#failure = (error as Error).message
    }
  }

  #update(space: Space, isRequested: boolean): void {
    const before = this.#space
    this.#space = space
    const isRelevant = isShort(space) ? space.free !== before.free : isShort(before)
    if (isRelevant || isRequested || space.floor !== before.floor) this.#options.onChange(space)
    if (isShort(space) !== isShort(before)) this.#log()
  }

  #log(): void {
    const { logger, holds } = this.#options
    const { free, floor } = this.#space
    if (!isShort(this.#space)) {
      logger.info({ free, floor }, `the disk has free space again: ${AGAIN[holds]}`)
      return
    }
    if (performance.now() - this.#warnedAt < WARNING_INTERVAL_MS) return
    this.#warnedAt = performance.now()
    logger.warn({ free, floor }, `the disk is full: ${FULL[holds]} until there is free space again`)
  }

  /** Restores the ballast only where space is left: below the floor, three times its size must be free. */
  async #restoreBallast(): Promise<void> {
    const { dataDir } = this.#options
    try {
      this.#hasReservedSpace = await hasReservedSpace(dataDir)
      const { free, floor } = this.#space
      const hasRoom = isShort(this.#space) ? free >= 3 * RESERVED_BYTES : free >= floor + RESERVED_BYTES
      if (this.#hasReservedSpace || !hasRoom) return
      await reserveSpace(dataDir)
      this.#hasReservedSpace = true
    } catch {
      // The space was used up in the meantime, or the file system accepts no files.
      this.#hasReservedSpace = false
    }
  }

  /** The health of the disk. */
  async health(): Promise<readonly HealthFact[]> {
    const { free, floor } = this.#space
    const ballast = this.#hasReservedSpace
    const unsafe = this.#unsafe === undefined ? {} : { unsafe_file_system: this.#unsafe }
    const fact = { name: 'free_space', ok: !isShort(this.#space), free, floor, ballast, ...unsafe }
    if (this.#failure !== undefined) {
      const reason = 'The free space of the disk cannot be read; see the log.'
      return [{ name: 'free_space', ok: false, reason }]
    }
    if (fact.ok) return [fact]
    const reason = `The disk is full: ${FULL[this.#options.holds]} until there is free space again.`
    return [{ ...fact, reason }]
  }

  /** Stops the checks, after the one under way. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearTimeout(this.#timer)
    await this.#running
  }
}
