/** What the listeners of one open database are told: own changes at once, and those of others as notices and polls bring them. */
import { CouchError } from '../../core/errors.ts'
import { Listeners } from '../../core/listeners.ts'
import { epochAt } from '../sequence.ts'
import type { StoreEvent } from '../store-events.ts'
import type { DatabaseSettings, DatabaseViews } from './database-view.ts'

/** Where a database stands, as other openers are told. */
export interface DatabasePosition {
  readonly updateSeq: number
  readonly settingsVersion: number
}

interface DatabaseEventsOptions {
  readonly views: DatabaseViews
  /** As it was read when the database was opened. */
  readonly position: DatabasePosition
  /** Tells the other openers of an own change. */
  notify(position: DatabasePosition): void
}

export class DatabaseEvents {
  readonly #options: DatabaseEventsOptions
  readonly #listeners = new Listeners<[StoreEvent]>()
  /** What the listeners know. */
  #updateSeq: number
  #settingsVersion: number
  #settings: string
  /** The newest that was heard of others. */
  #heard: DatabasePosition
  #isTelling = false
  /** Own writes that are not answered yet. */
  #writing = 0
  #isGone = false
  #isClosed = false

  constructor(options: DatabaseEventsOptions) {
    this.#options = options
    this.#heard = options.position
    this.#updateSeq = options.position.updateSeq
    this.#settingsVersion = options.position.settingsVersion
    this.#settings = contentOf(options.views.settings)
  }

  /** Whether the database was deleted or replaced: every call rejects with no_database. */
  get isGone(): boolean {
    return this.#isGone
  }

  on(listener: (event: StoreEvent) => void): void {
    this.#listeners.add(listener)
  }

  /** An own write begins. Until its end a poll may find it, which must not be told as a commit of others. */
  writeBegins(): void {
    this.#writing += 1
  }

  /** An own write was answered, or failed. */
  writeEnds(): void {
    this.#writing -= 1
    if (this.#writing === 0 && this.#heard.updateSeq > this.#updateSeq) this.hear(this.#heard)
  }

  /**
   * Tells of an own commit, after it is stored.
   * @param updates numbers that it has used; 0 if it has none, and nobody is told
   * @param settingsVersion that it was stored with
   */
  committed(updateSeq: number, epoch: string, updates: number, settingsVersion: number): void {
    if (updates === 0) return
    this.#updateSeq = Math.max(this.#updateSeq, updateSeq)
    this.#options.notify({ updateSeq: this.#updateSeq, settingsVersion })
    this.#emit({ type: 'committed', updateSeq: this.#updateSeq, epoch, updates })
  }

  /**
   * Own settings were stored, which the views know already.
   * @param from the version that they were decided on
   */
  settingsChanged(from: number, to: number): void {
    this.#options.notify({ updateSeq: this.#updateSeq, settingsVersion: to })
    // Otherwise others have changed them, too, and have not been heard yet.
    if (this.#settingsVersion !== from) return
    this.#settingsVersion = to
    this.#settings = contentOf(this.#options.views.settings)
  }

  /** Takes the position that a notice or a poll has led to. */
  hear(position: DatabasePosition): void {
    if (this.#isGone || this.#isClosed) return
    this.#heard = {
      updateSeq: Math.max(this.#heard.updateSeq, position.updateSeq),
      settingsVersion: Math.max(this.#heard.settingsVersion, position.settingsVersion),
    }
    if (!this.#isTelling) void this.#tellAll()
  }

  /** The database was deleted or replaced. Idempotent. */
  end(): void {
    if (this.#isGone) return
    this.#isGone = true
    this.#emit({ type: 'deleted' })
    this.#isClosed = true
  }

  /** Nobody is told anything any more. */
  close(): void {
    this.#isClosed = true
  }

  async #tellAll(): Promise<void> {
    this.#isTelling = true
    try {
      while (!this.#isClosed && this.#heard.settingsVersion > this.#settingsVersion)
        await this.#readSettings()
    } catch {
      // The next poll comes to it again, unless the database is gone.
      return
    } finally {
      this.#isTelling = false
    }
    if (this.#isClosed || this.#writing > 0 || this.#heard.updateSeq <= this.#updateSeq) return
    this.#updateSeq = this.#heard.updateSeq
    const { epochs } = this.#options.views.settings
    const epoch = epochAt(epochs, this.#updateSeq)
    this.#emit({ type: 'committed', updateSeq: this.#updateSeq, epoch, updates: 0 })
  }

  async #readSettings(): Promise<void> {
    let settings: DatabaseSettings
    try {
      settings = await this.#options.views.refresh()
    } catch (error) {
      if (error instanceof CouchError && error.code === 'no_database') this.end()
      throw error
    }
    if (this.#isClosed) return
    const content = contentOf(settings)
    const isChanged = content !== this.#settings
    this.#settingsVersion = Math.max(settings.settingsVersion, this.#settingsVersion)
    this.#settings = content
    if (isChanged) this.#emit({ type: 'settings', security: settings.security })
  }

  #emit(event: StoreEvent): void {
    if (!this.#isClosed) this.#listeners.tell(event)
  }
}

/** What an event of settings is about: a design document or an epoch changes their version, too. */
function contentOf({ security, revsLimit, purgedInfosLimit }: DatabaseSettings): string {
  return JSON.stringify([security, revsLimit, purgedInfosLimit])
}
