/** A note under somebody's hands, saved as it is written. */
import type { Pouch, PouchError } from '../pouch.ts'
import { Store, type Watched } from '../store.ts'
import type { NoteText } from './library.ts'
import type { Note } from './model.ts'

/** Pause in the writing after which it is saved, in milliseconds. */
const PAUSE_MS = 400
/** After which it is saved though nobody pauses. */
const LONGEST_MS = 2000
/** After which it is tried again when it could not be saved. */
const RETRY_MS = 5000
/** Own revisions that are known again. */
const MOST_PAST = 100

/**
 * What is written goes onto the revision that it was written over. When another device's edit came in meanwhile, both
 * stay, as a conflict that somebody resolves; nothing is overwritten.
 */
export class Draft {
  readonly #db: Pick<Pouch, 'put'>
  readonly #id: string
  #rev: string
  /** Revisions that this draft has been through: the library tells of them late. */
  #past: readonly string[] = []
  #createdAt: number
  #text: NoteText
  #unsaved: NoteText | null = null
  #saving: Promise<void> = Promise.resolve()
  #timer: ReturnType<typeof setTimeout> | undefined
  /** When the oldest of what is not saved was written. */
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

  /** Why it is not saved, in the database's words; null: nothing is in the way. */
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
   * Another revision has come to this device.
   * @returns whether the text has become that one's; not while there is something unsaved, nor while this one's own stands
   * beside it in a conflict: a text does not turn into another one under somebody's hands
   */
  follow(note: Note): boolean {
    const isOwn = note.rev === this.#rev || this.#past.includes(note.rev)
    if (this.#unsaved !== null || isOwn || note.conflicts.includes(this.#rev)) return false
    this.#rev = note.rev
    this.#createdAt = note.createdAt
    this.#text = textOf(note)
    return true
  }

  /** Resolves when everything written so far is in the database, or could not be saved ({@link fault}). */
  save(): Promise<void> {
    clearTimeout(this.#timer)
    this.#saving = this.#saving.then(() => this.#write())
    return this.#saving
  }

  /** Forgets what is not saved. Resolves when nothing is being written any more. */
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
      this.#fault.set(reason ?? message ?? 'The database of this device does not take it.')
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
