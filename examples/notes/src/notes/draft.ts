/** A note that the user is editing, saved while the user types. */
import type { Doc, Pouch, PouchError } from '../pouch.ts'
import { Store, type Watched } from '../store.ts'
import type { NoteText } from './library.ts'
import type { DeviceLabel, Note } from './model.ts'

/** The pause in typing after which the note is saved, in milliseconds. */
const PAUSE_MS = 400
/** The time after which the note is saved without a pause, in milliseconds. */
const LONGEST_MS = 2000
/** The time until the next attempt after a failed save, in milliseconds. */
const RETRY_MS = 5000
/** How many revisions of its own a draft remembers. */
const MOST_PAST = 100

/**
 * A note that is not stored yet is stored with its first title or text. An edit is saved as a successor of the revision that the user saw. If another device's edit arrived meanwhile, both
 * stay as a conflict for the user to resolve; nothing is overwritten.
 */
export class Draft {
  readonly #db: Pick<Pouch, 'put'>
  readonly #id: string
  readonly #device: DeviceLabel
  /** Empty: not stored yet. */
  #rev: string
  /** Revisions that this draft has written, because the library reports them late. */
  #past: readonly string[] = []
  #createdAt: number
  /** The document that was edited last, whose other members stay. */
  #doc: Doc
  #text: NoteText
  #unsaved: NoteText | null = null
  #saving: Promise<void> = Promise.resolve()
  #timer: ReturnType<typeof setTimeout> | undefined
  /** The time of the oldest unsaved change. */
  #since: number | undefined
  readonly #fault = new Store<string | null>(null)

  /** @param device signs each revision, so that the sides of a conflict can be told apart */
  constructor(db: Pick<Pouch, 'put'>, note: Note, device: DeviceLabel) {
    this.#db = db
    this.#device = device
    this.#id = note.id
    this.#rev = note.rev
    this.#createdAt = note.createdAt
    this.#doc = note.doc
    this.#text = textOf(note)
  }

  get id(): string {
    return this.#id
  }

  /** Whether there is a document of this note. */
  get isStored(): boolean {
    return this.#rev !== ''
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
    if (this.#rev === '' && isBlank(this.#unsaved)) return
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
    this.#doc = note.doc
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
    if (text === null || (this.#rev === '' && isBlank(text))) return
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
    const { _conflicts, _rev, ...others } = this.#doc
    const doc = {
      ...others,
      _id: this.#id,
      ...(this.#rev !== '' && { _rev: this.#rev }),
      ...text,
      createdAt: this.#createdAt,
      updatedAt: Date.now(),
      device: this.#device,
    }
    const { rev } = await this.#db.put(doc).catch((error: PouchError) => {
      if (error.status !== 409) throw error
      return this.#db.put(doc, { force: true })
    })
    return rev
  }
}

function isBlank({ title, body }: NoteText): boolean {
  return title.trim() === '' && body.trim() === ''
}

function textOf({ title, body, bookId, tags }: Note): NoteText {
  return { title, body, bookId, tags }
}
