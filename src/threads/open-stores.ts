/** The open databases of a thread: opened on first use, closed when there are too many. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError, isFileFault } from '../core/errors.ts'
import { AMPLE_SPACE, isShort, type Space } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { diskSizeNow, releaseReservedSpace } from '../storage/free-space.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'

/** An open database. */
export interface Closable {
  close(): Promise<void>
}

interface Entry<T> {
  readonly incarnation: number
  readonly opened: Promise<T>
  /** Requests under way. */
  users: number
  /** Background tasks under way. */
  backgroundTasks: number
  /** Called when no requests are under way. */
  readonly whenIdle: (() => void)[]
  isDropped: boolean
  /** Whether it is closed as soon as it is unused. */
  isStale: boolean
}

const FRESH = { isDropped: false, isStale: false }

export class OpenStores<T extends Closable> {
  readonly #open: (name: string, incarnation: number) => Promise<T>
  readonly #max: number
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry<T>>()
  /** Databases that are being closed; one is not reopened before its file is closed. Never rejects. */
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

  /** Databases that are open or being opened, least recently used first. Does not count as a use. */
  opened(): { readonly name: string; readonly opened: Promise<T> }[] {
    return [...this.#entries].map(([name, { opened }]) => ({ name, opened }))
  }

  /**
   * Runs a piece of work with a database, which stays open until it is done.
   * @throws no_database when the database has another incarnation by now; unavailable after closeAll
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
   * Runs a background task with a database, which is not closed to make room for others until the task is done. When
   * {@link drop} or {@link closeAll} closes it, the task fails with whatever error it meets.
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
      // Whatever the error is, its cause is that the database was removed.
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

  /** Closes a database as soon as it is unused; the next use reopens it. */
  renew(name: string): void {
    const entry = this.#entries.get(name)
    if (entry === undefined) return
    entry.isStale = true
    this.#hasStale = true
    this.#closeSpare()
  }

  /** Closes a database that cannot be trusted any more: its users get unavailable, and the next use reopens it. */
  discard(name: string): void {
    const entry = this.#entries.get(name)
    if (entry !== undefined) void this.#close(name, entry)
  }

  /** The incarnation of the open database of a name; undefined if none is open. */
  incarnationOf(name: string): number | undefined {
    return this.#entries.get(name)?.incarnation
  }

  /** Resolves when the file is closed, or the attempt has failed. */
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

  /** Waits until no request uses a database, but at most so many milliseconds. Background tasks do not count. */
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
   * Closes a database that is to be removed, after the writes under way; resolves when its file is closed. Its other
   * users get no_database.
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

  /** Waits for the work under way, refuses new work, and closes everything. */
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

type KeepOpen = (database: string, incarnation: number, work: () => Promise<void>) => Promise<void>

/** Databases that stay open while another thread works with their files. */
export class HeldOpen {
  readonly #keepOpen: KeepOpen
  /** Functions that release a database, by the number of the call that holds it. */
  readonly #releases = new Map<number, () => void>()

  /** @param keepOpen keeps a database open until the work is done */
  constructor(keepOpen: KeepOpen) {
    this.#keepOpen = keepOpen
  }

  /** Resolves when the database is open; it stays open until {@link release}. @throws as `keepOpen` */
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

  /** @param call the number of the call that holds the database */
  release(call: number): void {
    this.#releases.get(call)?.()
    this.#releases.delete(call)
  }
}

/** How long the search for unreadable databases takes at most, in ms; it begins with those used last. */
const LOOK_MS = 500

interface Readable {
  readonly store: Pick<DatabaseStore, 'readChanges'>
  close(): Promise<void>
}

/** @returns the names of the open databases whose newest document cannot be read */
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

/** A database that is being opened, or closes in the meantime, counts as readable. */
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

/** The free disk space as a database thread knows it, and what the thread does when the disk is full. */
export class Disk {
  readonly #folder: string
  readonly #tell: () => void
  #space: Space = AMPLE_SPACE

  /**
   * @param folder the data folder
   * @param tell makes the HTTP thread check the disk, which then sends the free space
   */
  constructor(folder: string, tell: () => void) {
    this.#folder = folder
    this.#tell = tell
  }

  get space(): Space {
    return this.#space
  }

  /** Sets the space that the HTTP thread has found. */
  set(space: Space): void {
    this.#space = space
  }

  /**
   * Called when a write has found the disk full. From now on writes that need space are refused. When a write fails all
   * the same, the reserved disk space is given up, so that the work under way can end.
   * @returns whether the disk is full, and another attempt is worthwhile; false for another limit, such as a quota
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
