/** Follows the databases named `_replicator` or `x/_replicator`, and reports each change of their documents. */

import { findDatabase, PLAIN_FEED } from '../../auth/users.ts'
import type { ChangesOptions } from '../../changes/rows.ts'
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { holdsReplications } from '../../core/ids.ts'
import { SYSTEM_USER } from '../../core/types.ts'
import type { DatabaseHandle, Databases } from '../../threads/databases.ts'

/** The members of a document, with `_id` and `_rev`. */
export type DocumentMembers = Readonly<Record<string, unknown>>

interface ReplicatorFeedOptions {
  readonly databases: Pick<Databases, 'allNames' | 'get' | 'updates' | 'watchUpdates'>
  /**
   * A document was written; null: it was deleted. Called for all of them at the start, in the order of their changes. The
   * next change of the database waits for it.
   */
  onDocument(database: string, id: string, doc: DocumentMembers | null): Promise<void>
  /** A database was deleted, or replaced by another one, whose documents follow. */
  onGone(database: string): void
  /** Reading a database, or the list of them (null), failed; it is tried again. */
  onFault(database: string | null, fault: unknown): void
}

const WITH_DOCS: ChangesOptions = { ...PLAIN_FEED, includeDocs: true }
const PAGE_ROWS = 200
/** Updates of the catalog that are read at once. */
const PAGE_UPDATES = 500
/** Wait after a failure, in ms. */
const RETRY_MS = 5000

export class ReplicatorFeed {
  readonly #options: ReplicatorFeedOptions
  readonly #followers = new Map<string, Follower>()
  #isRunning = false
  #stopWatching: () => void = () => {}
  /** Followers that finish the work of their last page. */
  readonly #closing = new Set<Promise<void>>()
  /** The last update of the catalog that was looked at; null: all names are to be looked through. */
  #since: number | null = null
  #isAsked = false
  #looking: Promise<void> | null = null
  #retry: NodeJS.Timeout | undefined

  constructor(options: ReplicatorFeedOptions) {
    this.#options = options
  }

  /** Idempotent. */
  start(): void {
    if (this.#isRunning) return
    this.#isRunning = true
    this.#stopWatching = this.#options.databases.watchUpdates(() => this.#look())
    this.#look()
  }

  /** Reports nothing more until the next {@link start}, which reports everything again. Idempotent. */
  stop(): void {
    this.#isRunning = false
    this.#stopWatching()
    this.#since = null
    clearTimeout(this.#retry)
    for (const follower of this.#followers.values()) this.#close(follower)
    this.#followers.clear()
  }

  /** Reports all documents again. */
  again(): void {
    for (const follower of this.#followers.values()) follower.again()
  }

  /** Stops; resolves when work under way is done. */
  async close(): Promise<void> {
    this.stop()
    await this.#looking
    await Promise.all(this.#closing)
  }

  #look(): void {
    if (!this.#isRunning) return
    this.#isAsked = true
    this.#looking ??= this.#run().finally(() => {
      this.#looking = null
    })
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    clearTimeout(this.#retry)
    try {
      while (this.#isAsked && this.#isRunning) {
        this.#isAsked = false
        if (this.#since === null) await this.#lookAtAll()
        else await this.#lookAtUpdates(this.#since)
      }
    } catch (fault) {
      if (!this.#isRunning) return
      this.#options.onFault(null, fault)
      this.#retry = setTimeout(() => this.#look(), RETRY_MS).unref()
    }
  }

  async #lookAtAll(): Promise<void> {
    const { databases } = this.#options
    const { lastSeq } = await databases.updates({ since: Number.MAX_SAFE_INTEGER }, 1)
    for await (const name of databases.allNames()) {
      if (!this.#isRunning) return
      if (holdsReplications(name)) await this.#follow(name)
    }
    this.#since = lastSeq
    this.#isAsked = true
  }

  /** Follows databases that were made, deleted or replaced since. */
  async #lookAtUpdates(since: number): Promise<void> {
    const { rows } = await this.#options.databases.updates({ since }, PAGE_UPDATES)
    for (const { name, type } of rows) {
      if (!this.#isRunning) return
      if (type !== 'updated' && holdsReplications(name)) await this.#follow(name)
    }
    const last = rows.at(-1)
    if (last === undefined || !this.#isRunning) return
    this.#since = last.seq
    this.#isAsked = true
  }

  async #follow(name: string): Promise<void> {
    const handle = await findDatabase(this.#options.databases, name)
    const follower = this.#followers.get(name)
    if (!this.#isRunning || follower?.handle === (handle ?? undefined)) return
    if (follower !== undefined) {
      this.#followers.delete(name)
      this.#close(follower)
      this.#options.onGone(name)
    }
    if (handle !== null) this.#followers.set(name, new Follower(handle, this.#options))
  }

  #close(follower: Follower): void {
    const closing = follower.close().finally(() => this.#closing.delete(closing))
    this.#closing.add(closing)
  }
}

class Follower {
  readonly handle: DatabaseHandle
  readonly #options: ReplicatorFeedOptions
  readonly #unwatch: () => void
  #since = 0
  #isAsked = false
  #running: Promise<void> | null = null
  #retry: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(handle: DatabaseHandle, options: ReplicatorFeedOptions) {
    this.handle = handle
    this.#options = options
    // Also when its thread has died (`closed`), since the last commits may not have been reported.
    this.#unwatch = handle.watch((event) => {
      if (event.type !== 'secured') this.#wake()
    })
    this.#wake()
  }

  again(): void {
    this.#since = 0
    this.#wake()
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#unwatch()
    clearTimeout(this.#retry)
    await this.#running
  }

  #wake(): void {
    if (this.#isClosed) return
    this.#isAsked = true
    this.#running ??= this.#run().finally(() => {
      this.#running = null
    })
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    clearTimeout(this.#retry)
    try {
      while (this.#isAsked && !this.#isClosed) {
        this.#isAsked = false
        await this.#read()
      }
    } catch (fault) {
      if (this.#isClosed || isGone(fault)) return
      this.#options.onFault(this.handle.name, fault)
      this.#retry = setTimeout(() => this.#wake(), RETRY_MS).unref()
    }
  }

  async #read(): Promise<void> {
    for (let atTip = false; !atTip && !this.#isClosed; ) {
      const since = this.#since
      const page = await this.handle.changes(SYSTEM_USER, { options: WITH_DOCS, since, limit: PAGE_ROWS })
      await this.#report(page.bytes)
      // Unless all of it is to be reported again.
      if (this.#since === since) this.#since = page.lastSeq
      atTip = page.atTip && this.#since === page.lastSeq
    }
  }

  async #report(bytes: Uint8Array): Promise<void> {
    const yielder = new Yielder()
    for (const line of Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString().split('\n')) {
      if (line === '' || this.#isClosed) continue
      const { id, deleted, doc } = JSON.parse(line) as {
        id: string
        deleted?: boolean
        doc?: DocumentMembers
      }
      if (!id.startsWith('_'))
        await this.#options.onDocument(this.handle.name, id, deleted ? null : (doc ?? null))
      await yielder.yieldIfDue()
    }
  }
}

/** The database was deleted, of which a message is on its way. */
function isGone(fault: unknown): boolean {
  return fault instanceof CouchError && fault.code === 'no_database'
}
