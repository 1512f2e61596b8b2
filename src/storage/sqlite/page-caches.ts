/**
 * How much of their files a thread's databases keep in memory. SQLite would keep 16 MB for each one that is open
 * (docs/decisions/0005); here those that are at work share that much, and one that has rested gives its pages back.
 */
import type { Connection } from './connection.ts'

/** For all databases of a thread together, of which there are at most 8: room for one that is at work by itself. */
const TOTAL_KIB = 16 * 1024
/** Below this a database would read its inner pages again with every document. */
const LEAST_KIB = 256
/** A database that nobody used for one to two of these has rested. */
const SWEEP_MS = 15_000

/** The pages of one file. */
export class PageCache {
  readonly connection: Pick<Connection, 'pragma'>
  readonly #caches: PageCaches
  isUsed = false
  isWarm = false

  constructor(connection: Pick<Connection, 'pragma'>, caches: PageCaches) {
    this.connection = connection
    this.#caches = caches
  }

  /** The file is about to be read or written. */
  use(): void {
    this.isUsed = true
    if (!this.isWarm) this.#caches.warm(this)
  }

  /** The file is about to be closed. */
  close(): void {
    this.#caches.close(this)
  }
}

export class PageCaches {
  readonly #warm = new Set<PageCache>()
  #share = 0
  #timer: NodeJS.Timeout | undefined

  warm(cache: PageCache): void {
    cache.isWarm = true
    this.#warm.add(cache)
    if (!this.#divide()) this.#limit(cache)
    this.#timer ??= setInterval(() => this.sweep(), SWEEP_MS).unref()
  }

  close(cache: PageCache): void {
    this.#drop(cache)
    this.#divide()
  }

  #drop(cache: PageCache): void {
    cache.isWarm = false
    this.#warm.delete(cache)
    if (this.#warm.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Takes back what was not used since the last time. Never throws. */
  sweep(): void {
    for (const cache of this.#warm) {
      if (cache.isUsed) cache.isUsed = false
      else this.#cool(cache)
    }
    this.#divide()
  }

  #cool(cache: PageCache): void {
    this.#drop(cache)
    this.#tell(cache, 'shrink_memory')
  }

  /**
   * Equal shares, of as many as a power of two, so that most comings and goings change nobody else's.
   * @returns whether they have changed
   */
  #divide(): boolean {
    const parts = 2 ** Math.ceil(Math.log2(Math.max(1, this.#warm.size)))
    const share = Math.max(LEAST_KIB, TOTAL_KIB / parts)
    if (share === this.#share) return false
    this.#share = share
    for (const cache of this.#warm) this.#limit(cache)
    return true
  }

  #limit(cache: PageCache): void {
    this.#tell(cache, `cache_size = -${this.#share}`)
  }

  #tell(cache: PageCache, pragma: string): void {
    try {
      cache.connection.pragma(pragma)
    } catch {
      // A file that cannot be read keeps its pages; whoever uses it next hears why.
    }
  }
}
