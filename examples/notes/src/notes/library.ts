/** The notes of this device: the content of PouchDB, read once and kept current by its changes feed. */
import type { Pouch, StoredDoc } from '../pouch.ts'
import { Store, type Watched } from '../store.ts'
import { EMPTY, type Notebook, newId, notebookOf, tagId } from './model.ts'

/** The members of a note that the user edits. */
export interface NoteText {
  readonly title: string
  readonly body: string
  readonly bookId: string
  readonly tags: readonly string[]
}

/** The maximum size of a picture in bytes: a sync holds several copies of a picture in memory. */
export const LARGEST_PICTURE = 10_000_000
const PICTURE_NAME = 'index'
/** The time between two updates, in milliseconds: a replication brings thousands of changes, and each would rebuild all lists. */
const PAUSE_MS = 100

export class Library implements Watched<Notebook> {
  readonly db: Pouch
  readonly #notebook = new Store<Notebook>(EMPTY)
  readonly #docs = new Map<string, StoredDoc>()
  #timer: ReturnType<typeof setTimeout> | undefined
  #toldAt = 0

  constructor(db: Pouch) {
    this.db = db
  }

  get value(): Notebook {
    return this.#notebook.value
  }

  subscribe(listener: (notebook: Notebook) => void): () => void {
    return this.#notebook.subscribe(listener)
  }

  /** Reads everything, then follows changes. Resolves when everything is read. */
  async open(): Promise<void> {
    const { update_seq: since } = await this.db.info()
    const { rows } = await this.db.allDocs({ include_docs: true, conflicts: true })
    for (const { doc } of rows) if (doc !== undefined) this.#docs.set(doc._id, doc)
    this.#tell()
    this.db
      .changes({ since, live: true, include_docs: true, conflicts: true })
      .on('change', ({ id, deleted, doc }) => {
        if (deleted === true || doc === undefined) this.#docs.delete(id)
        else this.#docs.set(id, doc)
        const wait = this.#toldAt + PAUSE_MS - performance.now()
        this.#timer ??= setTimeout(() => this.#tell(), Math.max(0, wait))
      })
  }

  #tell(): void {
    this.#timer = undefined
    this.#toldAt = performance.now()
    this.#notebook.set(notebookOf(this.#docs.values()))
  }

  async addBook(name: string): Promise<string> {
    const id = newId('book')
    await this.db.put({ _id: id, name: name.trim(), createdAt: Date.now() })
    return id
  }

  /** @returns the id of the tag of this name, which may have existed before */
  async addTag(name: string): Promise<string> {
    const id = tagId(name)
    if (!this.#docs.has(id))
      await this.db.put({ _id: id, name: name.trim(), createdAt: Date.now() }).catch(passConflict)
    return id
  }

  /** @throws Error with a text for the user */
  async addPicture(file: File): Promise<{ readonly id: string; readonly name: string }> {
    if (!file.type.startsWith('image/')) throw new Error(`${file.name} is not a picture.`)
    if (file.size > LARGEST_PICTURE) throw new Error(`${file.name} is larger than 10 MB.`)
    const id = newId('file')
    const name = file.name === '' ? 'picture' : file.name
    await this.db.put({
      _id: id,
      name,
      contentType: file.type,
      contentLength: file.size,
      createdAt: Date.now(),
      _attachments: { [PICTURE_NAME]: { content_type: file.type, data: file } },
    })
    return { id, name }
  }

  /** @throws when the picture is not on this device */
  pictureContent(id: string): Promise<Blob> {
    return this.db.getAttachment(id, PICTURE_NAME)
  }
}

function passConflict(error: unknown): void {
  if ((error as { status?: number }).status !== 409) throw error
}
