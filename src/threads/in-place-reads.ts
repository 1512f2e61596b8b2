/**
 * Reads of short documents on the HTTP thread. A request that is alone, as those of devices are, saves both hops to the thread of
 * its database, which takes a third to a half of its CPU time; and it does not wait for writes and their syncs.
 */
import { LRUCache } from 'lru-cache'
import { atMost } from '../core/cache.ts'
import { CouchError } from '../core/errors.ts'
import { currentTurn } from '../core/event-loop.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import { engineFor, type StoreLocation } from '../storage/open-engine.ts'
import type { EngineCopies, LiveReader } from '../storage/storage-engine.ts'

/** Readers that are open at once, each with three files. Among more databases, they would be opened all the time. */
const MAX_READERS = 32
/** Reads of a database before a reader is opened, which takes as long as about ten of them. */
const MIN_READS = 16
/** Databases whose reads are counted. */
const MAX_COUNTED = 1000
/** A reader that was not used for one to two intervals is closed, in ms. Devices come back after some minutes. */
const SWEEP_MS = 300_000
/** How long a database is read on its own thread after a reader could not be opened, or has failed, in ms. */
const PAUSE_MS = 10_000

interface OpenReader {
  readonly reader: LiveReader
  isUsed: boolean
}

/** Reads in a turn of the event loop, above which the threads of databases serve them, until a turn has one alone. */
const MAX_READS = 6
/** Reads in a turn that are made here while the thread of their database is held up. */
const MAX_READS_INSTEAD = 16

/**
 * Whether a read is made here. When many clients ask at once, the threads of databases read beside this one, which has its
 * share of each request to do. While a thread waits for its disk, this one reads more.
 */
export class ReadCrowd {
  #turn = 0
  #reads = 0
  #isCrowded = false

  /**
   * Notes a read.
   * @param turn as `currentTurn`
   * @param isHeldUp whether the database's thread does something else; asked while many read
   */
  hasRoom(turn: number, isHeldUp: () => boolean): boolean {
    if (turn !== this.#turn) {
      if (this.#reads === 1) this.#isCrowded = false
      this.#reads = 0
      this.#turn = turn
    }
    this.#reads += 1
    if (this.#reads > MAX_READS) this.#isCrowded = true
    return !this.#isCrowded || (this.#reads <= MAX_READS_INSTEAD && isHeldUp())
  }
}

export class InPlaceReads {
  readonly #location: StoreLocation
  readonly #isHeldUp: (database: string) => boolean
  /** By incarnation. */
  readonly #open = new Map<number, OpenReader>()
  /** By incarnation: how many reads have come, and until when no reader is opened, in ms of `performance.now`. */
  readonly #counted = new LRUCache<number, { reads: number; readonly notBefore: number }>(atMost(MAX_COUNTED))
  /** Undefined until it is loaded; null if the engine has no files. */
  #copies: EngineCopies | null | undefined
  #loading: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #isClosed = false
  readonly #crowd = new ReadCrowd()

  /** @param isHeldUp whether a database's thread does something else; asked while many read */
  constructor(location: StoreLocation, isHeldUp: (database: string) => boolean) {
    this.#location = location
    this.#isHeldUp = isHeldUp
  }

  /** @returns a reader of a database that is read often; null: its thread is asked */
  readerOf(entry: DatabaseEntry): LiveReader | null {
    const open = this.#open.get(entry.incarnation)
    if (open === undefined) return this.#isClosed ? null : this.#openAfterSome(entry)
    if (open.reader.isUsable) {
      open.isUsed = true
      return this.#crowd.hasRoom(currentTurn(), () => this.#isHeldUp(entry.name)) ? open.reader : null
    }
    this.close(entry)
    return this.#pause(entry)
  }

  #openAfterSome(entry: DatabaseEntry): LiveReader | null {
    const { incarnation } = entry
    const counted = this.#counted.get(incarnation) ?? { reads: 0, notBefore: 0 }
    if (counted.reads === 0) this.#counted.set(incarnation, counted)
    counted.reads += 1
    if (counted.reads < MIN_READS || performance.now() < counted.notBefore) return null
    if (this.#copies === undefined) {
      this.#loading ??= this.#load()
      return null
    }
    if (this.#copies === null) return null
    return this.#open.size < MAX_READERS ? this.#opened(this.#copies, entry) : this.#pause(entry)
  }

  /** Loads the engine, which a server whose databases rest does not need on this thread. Never rejects. */
  async #load(): Promise<void> {
    const makeEngine = await engineFor(this.#location)
    this.#copies = makeEngine().copies
  }

  #opened(copies: EngineCopies, entry: DatabaseEntry): LiveReader | null {
    try {
      const reader = copies.openLiveReader(entry.name)
      this.#open.set(entry.incarnation, { reader, isUsed: true })
      this.#counted.delete(entry.incarnation)
      this.#timer ??= setInterval(() => this.#sweep(), SWEEP_MS).unref()
      return reader
    } catch {
      // The thread of the database reports what is to be reported.
      return this.#pause(entry)
    }
  }

  #pause({ incarnation }: DatabaseEntry): null {
    this.#counted.set(incarnation, { reads: 0, notBefore: performance.now() + PAUSE_MS })
    return null
  }

  #sweep(): void {
    for (const [incarnation, open] of this.#open) {
      if (open.isUsed) open.isUsed = false
      else this.close({ incarnation })
    }
    if (this.#open.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }

  /** Closes the reader of a database: its file is about to be removed. */
  close({ incarnation }: Pick<DatabaseEntry, 'incarnation'>): void {
    this.#open.get(incarnation)?.reader.close()
    this.#open.delete(incarnation)
  }

  /** Closes all readers; no other is opened. */
  closeAll(): void {
    this.#isClosed = true
    for (const incarnation of this.#open.keys()) this.close({ incarnation })
    clearInterval(this.#timer)
  }
}

/**
 * What a reader has read.
 * @returns null if the thread of the database must be asked, which finds and reports what is wrong
 * @throws an error that is the answer to a request
 */
export async function answerOf<T>(reading: Promise<T>): Promise<T | null> {
  try {
    return await reading
  } catch (error) {
    if (error instanceof CouchError && error.status < 500) throw error
    return null
  }
}
