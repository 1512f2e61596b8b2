/** The open databases of a thread. A database is opened on first use, and closed when too many are open. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError, isFileFault } from '../core/errors.ts'
import { AMPLE_SPACE, isShort, type Space } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { diskSizeNow, releaseReservedSpace } from '../storage/free-space.ts'
import type { StoreLocation } from '../storage/open-engine.ts'
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
  /** Whether to close it as soon as it is unused. */
  isStale: boolean
}

const FRESH = { isDropped: false, isStale: false }

export class OpenStores<T extends Closable> {
  readonly #open: (name: string, incarnation: number) => Promise<T>
  readonly #max: number
  /** Least recently used first. */
  readonly #entries = new Map<string, Entry<T>>()
  /** Databases that are being closed. A database is not reopened before its file is closed. Never rejects. */
  readonly #closing = new Map<string, Promise<void>>()
  #isClosed = false
  #hasStale = false

  /** @param max databases kept open, unless more are in use */
  constructor(max: number, open: (name: string, incarnation: number) => Promise<T>) {
    this.#open = open
    this.#max = max
  }

  /** The number of databases that are open or being opened. */
  get size(): number {
    return this.#entries.size
  }

  /** Databases that are open or being opened, least recently used first. Does not count as a use. */
  openDatabases(): { readonly name: string; readonly opened: Promise<T> }[] {
    return [...this.#entries].map(([name, { opened }]) => ({ name, opened }))
  }

  /**
   * Runs a piece of work with a database, and keeps the database open until the work is done.
   * @throws no_database when the database now has another incarnation; unavailable after closeAll
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
   * Runs a background task with a database, which is not closed to make room for others until the task is done. If
   * {@link drop} or {@link closeAll} closes the database, the task fails with any error.
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
      // Any error is a consequence of the removal of the database.
      throw entry.isDropped ? new CouchError('no_database', undefined, { cause: error }) : error
    }
  }

  #leave(entry: Entry<T>): void {
    entry.users -= 1
    if (entry.users === 0) for (const resolve of entry.whenIdle.splice(0)) resolve()
    this.#closeSpare()
  }

  #entry(name: string, incarnation: number): Entry<T> {
    if (this.#isClosed) throw new CouchError('unavailable')
    const known = this.#entries.get(name)
    if (known === undefined) return this.#add(name, incarnation)
    if (known.incarnation > incarnation) throw new CouchError('no_database')
    if (known.incarnation < incarnation) {
      // Another opener has replaced it, of which its store has not told yet. Incarnations only grow.
      void this.drop(name)
      return this.#add(name, incarnation)
    }
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
  reopenWhenIdle(name: string): void {
    const entry = this.#entries.get(name)
    if (entry === undefined) return
    entry.isStale = true
    this.#hasStale = true
    this.#closeSpare()
  }

  /** Closes a database whose cache cannot be trusted. Its requests fail with unavailable; the next use reopens it. */
  discard(name: string): void {
    const entry = this.#entries.get(name)
    if (entry !== undefined) void this.#close(name, entry)
  }

  /** The incarnation of the open database with this name; undefined if it is not open. */
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

  /** Waits until no request uses a database, or the time is over. Background tasks do not count. */
  async waitForRequests(name: string, ms: number): Promise<void> {
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
   * Closes a database that is to be removed, after the writes under way. Its other requests fail with no_database.
   * Resolves when the file is closed.
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
    this.#isClosed = true
    await Promise.all([...this.#entries].map(([name, entry]) => this.#closeIdle(name, entry)))
    await Promise.all(this.#closing.values())
  }

  async #closeIdle(name: string, entry: Entry<T>): Promise<void> {
    if (entry.users > 0) await new Promise<void>((resolve) => entry.whenIdle.push(resolve))
    await this.#close(name, entry)
  }
}

/** The last known sequences of databases before the server started, until each database is opened. */
export class LastKnownSequences {
  readonly #sequences = new Map<string, LastKnownSequence>()
  /** Databases that were opened since. */
  readonly #opened = new Set<string>()

  /** Notes the sequence in a request, unless the database was opened: it has advanced since. */
  note({
    database,
    lastKnown,
  }: {
    readonly database: string
    readonly lastKnown?: LastKnownSequence | undefined
  }): void {
    if (lastKnown !== undefined && !this.#opened.has(database)) this.#sequences.set(database, lastKnown)
  }

  /** @returns the sequence to open the database with; undefined from the second call on */
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
  /** Functions that release a database, by the number of the `hold` call. */
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

  /** @param call the number of the `hold` call */
  release(call: number): void {
    this.#releases.get(call)?.()
    this.#releases.delete(call)
  }
}

/** Time limit of the search for unreadable databases, in ms. It begins with the most recently used. */
const SEARCH_MS = 500

interface Readable {
  readonly store: Pick<DatabaseStore, 'readChanges'>
  close(): Promise<void>
}

/** @returns the names of the open databases whose newest document cannot be read */
export async function unreadable(stores: OpenStores<Readable>): Promise<string[]> {
  const until = performance.now() + SEARCH_MS
  const names: string[] = []
  for (const { name, opened } of stores.openDatabases().toReversed()) {
    if (performance.now() > until) break
    if (!(await isReadable(opened))) names.push(name)
    await nextTurn()
  }
  return names
}

/** A database counts as readable if it is closed during the check. */
async function isReadable(opened: Promise<Readable>): Promise<boolean> {
  try {
    const { store } = await opened
    await store.readChanges({ since: 0, descending: true }, { limit: 1, readSet: { body: true } }, (doc) => {
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

/** The free disk space as a database thread knows it, and the thread's reaction to a full disk. */
export class Disk {
  readonly #folder: string | null
  readonly #reportFull: () => void
  #space: Space = AMPLE_SPACE

  /**
   * @param location where the databases are: only a folder has a disk of this machine
   * @param reportFull makes the HTTP thread check the disk and send the free space
   */
  constructor(location: StoreLocation, reportFull: () => void) {
    this.#folder = location.kind === 'files' ? location.dataDir : null
    this.#reportFull = reportFull
  }

  get space(): Space {
    return this.#space
  }

  /** Sets the space that the HTTP thread has found. */
  set(space: Space): void {
    this.#space = space
  }

  /**
   * Called when a write has found the disk full. From now on, writes that need space are refused. If one fails even so,
   * the reserved space is released, so that the work under way can end.
   * @returns whether the disk is full and a retry is worthwhile; false for another limit, such as a disk quota
   */
  onFull(): boolean {
    if (this.#folder === null) return false
    this.#reportFull()
    const wasShort = isShort(this.#space)
    const free = freeNow(this.#folder)
    if (free === null || !isShort({ ...this.#space, free })) return false
    this.#space = { ...this.#space, free }
    if (wasShort) releaseReservedSpace(this.#folder)
    return true
  }
}

function freeNow(folder: string): number | null {
  try {
    return diskSizeNow(folder).free
  } catch {
    return null
  }
}
