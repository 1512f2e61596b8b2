/** A note that the user is editing, saved while the user types. */
import type { Pouch, PouchError } from '../pouch.ts'
import { Store, type Watched } from '../store.ts'
import type { NoteText } from './library.ts'
import type { Note } from './model.ts'

/** The pause in typing after which the note is saved, in milliseconds. */
const PAUSE_MS = 400
/** The time after which the note is saved without a pause, in milliseconds. */
const LONGEST_MS = 2000
/** The time until the next attempt after a failed save, in milliseconds. */
const RETRY_MS = 5000
/** How many revisions of its own a draft remembers. */
const MOST_PAST = 100

/**
 * An edit is saved as a successor of the revision that the user saw. If another device's edit arrived meanwhile, both
 * stay as a conflict for the user to resolve; nothing is overwritten.
 */
export class Draft {
  readonly #db: Pick<Pouch, 'put'>
  readonly #id: string
  #rev: string
  /** Revisions that this draft has written, because the library reports them late. */
  #past: readonly string[] = []
  #createdAt: number
  #text: NoteText
  #unsaved: NoteText | null = null
  #saving: Promise<void> = Promise.resolve()
  #timer: ReturnType<typeof setTimeout> | undefined
  /** The time of the oldest unsaved change. */
  #since: number | undefined
  readonly #fault = new Store<string | null>(null)

  constructor(db: Pick<Pouch, 'put'>, note: Note) {
    this.#db = db
    this.#id = note.id
    this.#rev = note.rev
    this.#createdAt = note.createdAt
    this.#text = textOf(note)
  }

  get text(): NoteText {
    return this.#unsaved ?? this.#text
  }

  /** The database's reason why the note is not saved; null: there is no problem. */
  get fault(): Watched<string | null> {
    return this.#fault
  }

  change(members: Partial<NoteText>): void {
    this.#unsaved = { ...this.text, ...members }
    const now = performance.now()
    this.#since ??= now
    this.#saveIn(Math.max(0, Math.min(PAUSE_MS, this.#since + LONGEST_MS - now)))
  }

  /**
   * Takes over a revision that has arrived on this device.
   * @returns whether the draft now has its text; false while there are unsaved changes, or while this draft's own revision
   * is in conflict with it, so that the text does not change while the user edits it
   */
  follow(note: Note): boolean {
    const isOwn = note.rev === this.#rev || this.#past.includes(note.rev)
    if (this.#unsaved !== null || isOwn || note.conflicts.includes(this.#rev)) return false
    this.#rev = note.rev
    this.#createdAt = note.createdAt
    this.#text = textOf(note)
    return true
  }

  /** Resolves when all changes so far are in the database, or could not be saved ({@link fault}). */
  save(): Promise<void> {
    clearTimeout(this.#timer)
    this.#saving = this.#saving.then(() => this.#write())
    return this.#saving
  }

  /** Drops unsaved changes. Resolves when no write is under way. */
  discard(): Promise<void> {
    clearTimeout(this.#timer)
    this.#unsaved = null
    return this.#saving
  }

  #saveIn(delay: number): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.save(), delay)
  }

  async #write(): Promise<void> {
    const text = this.#unsaved
    if (text === null) return
    this.#since = undefined
    try {
      const rev = await this.#put(text)
      this.#past = [...this.#past, this.#rev].slice(-MOST_PAST)
      this.#rev = rev
      this.#text = text
      if (this.#unsaved === text) this.#unsaved = null
      this.#fault.set(null)
    } catch (error) {
      const { reason, message } = error as PouchError
      this.#fault.set(reason ?? message ?? 'The database of this device refused the note.')
      if (this.#unsaved !== null) this.#saveIn(RETRY_MS)
    }
  }

  /** @returns the new revision */
  async #put(text: NoteText): Promise<string> {
    const doc = { _id: this.#id, _rev: this.#rev, ...text, createdAt: this.#createdAt, updatedAt: Date.now() }
    const { rev } = await this.#db.put(doc).catch((error: PouchError) => {
      if (error.status !== 409) throw error
      return this.#db.put(doc, { force: true })
    })
    return rev
  }
}

function textOf({ title, body, bookId, tags }: Note): NoteText {
  return { title, body, bookId, tags }
}
