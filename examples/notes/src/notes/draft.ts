/** A note under somebody's hands, saved as it is written. */
import type { Pouch, PouchError } from '../pouch.ts'
import type { NoteText } from './library.ts'
import type { Note } from './model.ts'

/** Pause in the writing after which it is saved, in milliseconds. */
const PAUSE_MS = 400

/**
 * What is written goes onto the revision that it was written over. When another device's edit came in meanwhile, both
 * stay, as a conflict that somebody resolves; nothing is overwritten.
 */
export class Draft {
  readonly #db: Pick<Pouch, 'put' | 'get'>
  readonly #id: string
  #rev: string
  #createdAt: number
  #text: NoteText
  #unsaved: NoteText | null = null
  #saving: Promise<void> = Promise.resolve()
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(db: Pick<Pouch, 'put' | 'get'>, note: Note) {
    this.#db = db
    this.#id = note.id
    this.#rev = note.rev
    this.#createdAt = note.createdAt
    this.#text = textOf(note)
  }

  get text(): NoteText {
    return this.#unsaved ?? this.#text
  }

  change(members: Partial<NoteText>): void {
    this.#unsaved = { ...this.text, ...members }
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.save(), PAUSE_MS)
  }

  /**
   * Another revision has come to this device.
   * @returns whether the text has become that one's; not while there is something unsaved
   */
  follow(note: Note): boolean {
    if (this.#unsaved !== null || note.rev === this.#rev) return false
    this.#rev = note.rev
    this.#createdAt = note.createdAt
    this.#text = textOf(note)
    return true
  }

  /** Resolves when everything written so far is in the database. */
  save(): Promise<void> {
    clearTimeout(this.#timer)
    this.#saving = this.#saving.then(() => this.#write())
    return this.#saving
  }

  async #write(): Promise<void> {
    const text = this.#unsaved
    if (text === null) return
    const doc = { _id: this.#id, _rev: this.#rev, ...text, createdAt: this.#createdAt, updatedAt: Date.now() }
    const { rev } = await this.#db.put(doc).catch(async (error: PouchError) => {
      if (error.status !== 409) throw error
      return this.#db.put(doc, { force: true })
    })
    this.#rev = rev
    this.#text = text
    if (this.#unsaved === text) this.#unsaved = null
  }
}

function textOf({ title, body, bookId, tags }: Note): NoteText {
  return { title, body, bookId, tags }
}
