/** The databases that a thread has open: opened when first asked for, closed when others need the room. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError, isFileFault } from '../core/errors.ts'
import { AMPLE_SPACE, isShort, type Space } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { diskSizeNow, releaseReservedSpace } from '../storage/free-space.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'

/** What is kept open, and how it is closed. */
export interface Closable {
  close(): Promise<void>
}

interface Entry<T> {
  readonly incarnation: number
  readonly opened: Promise<T>
  /** Requests that are being served by it. */
  users: number
  /** Pieces of work in its background. */
  backgroundTasks: number
  /** Called when it has no users. */
  readonly whenIdle: (() => void)[]
  isDropped: boolean
  /** Whether it is to be closed as soon as nobody uses it. */
  isStale: boolean
}

const FRESH = { isDropped: false, isStale: false }

export class OpenStores<T extends Closable> {
  readonly #open: (name: string, incarnation: number) => Promise<T>
  readonly #max: number
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry<T>>()
  /** Databases that are being closed: nobody opens one anew before its file is let go. Never rejected. */
  readonly #closing = new Map<string, Promise<void>>()
  #isOver = false
  #hasStale = false

  /** @param max databases kept open, unless more are in use */
  constructor(max: number, open: (name: string, incarnation: number) => Promise<T>) {
    this.#open = open
    this.#max = max
  }

  /** How many are open, or being opened. */
  get size(): number {
    return this.#entries.size
  }

  /** Those that are open, or being opened, least recently used first; looking at them is no use of them. */
  opened(): { readonly name: string; readonly opened: Promise<T> }[] {
    return [...this.#entries].map(([name, { opened }]) => ({ name, opened }))
  }

  /**
   * Runs a piece of work with a database, which stays open until it is done.
   * @throws no_database when the database is not of that incarnation any more; unavailable after closeAll
   */
  async use<R>(name: string, incarnation: number, work: (opened: T) => Promise<R>): Promise<R> {
    const entry = this.#entry(name, incarnation)
    entry.users += 1
    try {
      return await this.#run(entry, work)
    } finally {
      this.#leave(entry)
    }
  }

  /**
   * Runs work in the background of a database, which is not closed for want of room before it is done. When the
   * database is closed for good, by {@link drop} or {@link closeAll}, the work ends of what it then meets.
   * @throws as {@link use}
   */
  async keepOpen<R>(name: string, incarnation: number, work: (opened: T) => Promise<R>): Promise<R> {
    const entry = this.#entry(name, incarnation)
    entry.backgroundTasks += 1
    try {
      return await this.#run(entry, work)
    } finally {
      entry.backgroundTasks -= 1
      this.#closeSpare()
    }
  }

  async #run<R>(entry: Entry<T>, work: (opened: T) => Promise<R>): Promise<R> {
    try {
      return await work(await entry.opened)
    } catch (error) {
      // Whatever it says, it comes of the database being taken away.
      throw entry.isDropped ? new CouchError('no_database', undefined, { cause: error }) : error
    }
  }

  #leave(entry: Entry<T>): void {
    entry.users -= 1
    if (entry.users === 0) for (const resolve of entry.whenIdle.splice(0)) resolve()
    this.#closeSpare()
  }

  #entry(name: string, incarnation: number): Entry<T> {
    if (this.#isOver) throw new CouchError('unavailable')
    const known = this.#entries.get(name)
    if (known === undefined) return this.#add(name, incarnation)
    if (known.incarnation !== incarnation) throw new CouchError('no_database')
    this.#entries.delete(name)
    this.#entries.set(name, known)
    return known
  }

  #add(name: string, incarnation: number): Entry<T> {
    const opened = (this.#closing.get(name) ?? Promise.resolve()).then(() => this.#open(name, incarnation))
    const entry: Entry<T> = { incarnation, opened, users: 0, backgroundTasks: 0, whenIdle: [], ...FRESH }
    this.#entries.set(name, entry)
    opened.catch(() => {
      if (this.#entries.get(name) === entry) this.#entries.delete(name)
    })
    return entry
  }

  #closeSpare(): void {
    let spare = this.#entries.size - this.#max
    if (spare <= 0 && !this.#hasStale) return
    this.#hasStale = false
    for (const [name, entry] of this.#entries) {
      if (spare <= 0 && !entry.isStale) continue
      if (entry.users > 0 || entry.backgroundTasks > 0) {
        this.#hasStale ||= entry.isStale
        continue
      }
      spare -= 1
      this.#close(name, entry)
    }
  }

  /** Has a database closed as soon as nobody uses it; whoever comes next opens it anew. */
  renew(name: string): void {
    const entry = this.#entries.get(name)
    if (entry === undefined) return
    entry.isStale = true
    this.#hasStale = true
    this.#closeSpare()
  }

  /** Closes a database that is not to be trusted any more: who uses it gets unavailable, who comes next opens it anew. */
  discard(name: string): void {
    const entry = this.#entries.get(name)
    if (entry !== undefined) void this.#close(name, entry)
  }

  /** Of the database that is open under a name; undefined: none is. */
  incarnationOf(name: string): number | undefined {
    return this.#entries.get(name)?.incarnation
  }

  /** Resolves when the file is let go, or could not be closed any better. */
  #close(name: string, entry: Entry<T>): Promise<void> {
    if (this.#entries.get(name) === entry) this.#entries.delete(name)
    const closing: Promise<void> = entry.opened
      .then((opened) => opened.close())
      .catch(() => undefined)
      .finally(() => {
        if (this.#closing.get(name) === closing) this.#closing.delete(name)
      })
    this.#closing.set(name, closing)
    return closing
  }

  /** Waits until nobody uses a database, or so many milliseconds; what is in its background does not count. */
  async settle(name: string, ms: number): Promise<void> {
    const entry = this.#entries.get(name)
    if (entry === undefined || entry.users === 0) return
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms)
      entry.whenIdle.push(() => {
        clearTimeout(timer)
        resolve()
      })
    })
  }

  /**
   * Closes a database that is to be removed, once the writes under way are done; resolves when its file is let go.
   * Whoever still works with it gets no_database.
   */
  async drop(name: string): Promise<void> {
    const entry = this.#entries.get(name)
    if (entry === undefined) {
      await this.#closing.get(name)
      return
    }
    entry.isDropped = true
    await this.#close(name, entry)
  }

  /** Lets the work under way end, refuses any more, and closes everything. */
  async closeAll(): Promise<void> {
    this.#isOver = true
    await Promise.all([...this.#entries].map(([name, entry]) => this.#closeIdle(name, entry)))
    await Promise.all(this.#closing.values())
  }

  async #closeIdle(name: string, entry: Entry<T>): Promise<void> {
    if (entry.users > 0) await new Promise<void>((resolve) => entry.whenIdle.push(resolve))
    await this.#close(name, entry)
  }
}

/** How far databases were before the server started, until each is opened. */
export class LastKnownSequences {
  readonly #sequences = new Map<string, LastKnownSequence>()
  /** Databases that were opened with theirs, or had none. */
  readonly #opened = new Set<string>()

  /** Notes what a request brings. It counts only until the database is opened, which has gone on since. */
  note({
    database,
    lastKnown,
  }: {
    readonly database: string
    readonly lastKnown?: LastKnownSequence | undefined
  }): void {
    if (lastKnown !== undefined && !this.#opened.has(database)) this.#sequences.set(database, lastKnown)
  }

  /** @returns what the database is to be opened with, once */
  take(database: string): LastKnownSequence | undefined {
    const lastKnown = this.#sequences.get(database)
    this.#sequences.delete(database)
    this.#opened.add(database)
    return lastKnown
  }
}

// Databases that are held open for whoever works with their files.

type KeepOpen = (database: string, incarnation: number, work: () => Promise<void>) => Promise<void>

export class HeldOpen {
  readonly #keepOpen: KeepOpen
  /** What lets them go, by the calls that asked for it. */
  readonly #releases = new Map<number, () => void>()

  /** @param keepOpen keeps a database open until work is done */
  constructor(keepOpen: KeepOpen) {
    this.#keepOpen = keepOpen
  }

  /** Resolves when it is open; it stays so until {@link release}. @throws as `keepOpen` */
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
      this.#keepOpen(database, incarnation, untilReleased).catch(failed)
    })
  }

  /** @param call that of the hold */
  release(call: number): void {
    this.#releases.get(call)?.()
    this.#releases.delete(call)
  }
}

// Whether the databases that a thread has open can be read, asked now and then by whoever watches over the server.

/** How long is looked, in ms: the rest is looked at another time, since those used last come first. */
const LOOK_MS = 500

interface Readable {
  readonly store: Pick<DatabaseStore, 'readChanges'>
  close(): Promise<void>
}

/** @returns the names of those that are open, and of which not even the newest document can be read */
export async function unreadable(stores: OpenStores<Readable>): Promise<string[]> {
  const until = performance.now() + LOOK_MS
  const names: string[] = []
  for (const { name, opened } of stores.opened().toReversed()) {
    if (performance.now() > until) break
    if (!(await isReadable(opened))) names.push(name)
    await nextTurn()
  }
  return names
}

/** One that is being opened, or is closed meanwhile, is no news. */
async function isReadable(opened: Promise<Readable>): Promise<boolean> {
  try {
    const { store } = await opened
    await store.readChanges({ since: 0, descending: true }, { limit: 1, touches: { body: true } }, (doc) => {
      doc.body(doc.rev)
    })
    return true
  } catch (error) {
    return isClosing(error)
  }
}

function isClosing(error: unknown): boolean {
  return error instanceof CouchError && !isFileFault(error)
}

// What a database thread knows of the disk, and what it does when the disk is full to its end.

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
    if (wasShort) releaseReservedSpace(this.#folder)
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
