/** The documents of a notebook. The id of each begins with its kind. Pure. */
import type { Doc, StoredDoc } from '../pouch.ts'

export interface Note {
  readonly id: string
  readonly rev: string
  readonly title: string
  /** Markdown. */
  readonly body: string
  /** Empty: the note is not in a book. */
  readonly bookId: string
  readonly tags: readonly string[]
  /** Milliseconds since 1970. */
  readonly createdAt: number
  readonly updatedAt: number
  /** When the note was moved to the trash; 0: it is not in the trash. */
  readonly trashedAt: number
  /** The device that wrote this revision; null: the app that wrote it does not say. */
  readonly device: DeviceLabel | null
  /** The other conflicting revisions. */
  readonly conflicts: readonly string[]
  /** The document itself, whose other members an edit keeps. */
  readonly doc: Doc
}

/** How a device signs what it writes. */
export interface DeviceLabel {
  readonly id: string
  readonly name: string
}

export interface Book {
  readonly id: string
  readonly rev: string
  readonly name: string
}

export interface Tag {
  readonly id: string
  readonly rev: string
  readonly name: string
}

export interface Picture {
  readonly id: string
  readonly rev: string
  readonly name: string
  readonly contentType: string
}

/** Everything that the app shows, in display order. */
export interface Notebook {
  readonly notes: readonly Note[]
  readonly books: readonly Book[]
  readonly tags: readonly Tag[]
  readonly pictures: ReadonlyMap<string, Picture>
  readonly isLoaded: boolean
}

export const EMPTY: Notebook = { notes: [], books: [], tags: [], pictures: new Map(), isLoaded: false }

export type Kind = 'note' | 'book' | 'tag' | 'file'

/** @returns an id that no other device makes; ids sort by the time at which they were made */
export function newId(kind: Kind, now = Date.now()): string {
  const random = crypto.getRandomValues(new Uint8Array(6))
  const text = [...random].map((byte) => (byte % 36).toString(36)).join('')
  return `${kind}:${now.toString(36).padStart(9, '0')}${text}`
}

/**
 * The id of a tag is its name, so that the same tag made on two devices is one tag. Colons are removed: a tag
 * "profile: x" would have `file:` in its id, and mobile devices would leave it out.
 */
export function tagId(name: string): string {
  return `tag:${name
    .trim()
    .toLowerCase()
    .replace(/[\s:]+/g, '-')}`
}

/** @param docs all documents except tombstones; documents of other apps are ignored */
export function notebookOf(docs: Iterable<StoredDoc>): Notebook {
  const notes: Note[] = []
  const books: Book[] = []
  const tags: Tag[] = []
  const pictures = new Map<string, Picture>()
  for (const doc of docs) {
    if (doc._id.startsWith('note:')) notes.push(knownNoteOf(doc))
    if (doc._id.startsWith('book:')) books.push(named(doc))
    if (doc._id.startsWith('tag:')) tags.push(named(doc))
    if (doc._id.startsWith('file:')) {
      pictures.set(doc._id, { ...named(doc), contentType: textAt(doc, 'contentType') })
    }
  }
  notes.sort((a, b) => b.updatedAt - a.updatedAt || (a.id < b.id ? -1 : 1))
  books.sort(byName)
  tags.sort(byName)
  return { notes, books, tags, pictures, isLoaded: true }
}

const known = new WeakMap<StoredDoc, Note>()

/** The same object for the same document, so that it is not rendered again. */
function knownNoteOf(doc: StoredDoc): Note {
  const note = known.get(doc) ?? noteOf(doc)
  known.set(doc, note)
  return note
}

export function noteOf(doc: StoredDoc): Note {
  const tags = Array.isArray(doc.tags) ? doc.tags.filter((tag): tag is string => typeof tag === 'string') : []
  return {
    id: doc._id,
    rev: doc._rev,
    title: textAt(doc, 'title'),
    body: textAt(doc, 'body'),
    bookId: textAt(doc, 'bookId'),
    tags,
    createdAt: timeAt(doc, 'createdAt'),
    updatedAt: timeAt(doc, 'updatedAt'),
    trashedAt: timeAt(doc, 'trashedAt'),
    device: deviceOf(doc.device),
    conflicts: doc._conflicts ?? [],
    doc,
  }
}

/** A note that is not stored yet; its revision is empty. */
export function freshNote(id: string, members: Partial<Pick<Note, 'bookId' | 'tags'>> = {}): Note {
  return { ...noteOf({ _id: id, _rev: '', createdAt: Date.now() }), ...members }
}

function deviceOf(value: unknown): DeviceLabel | null {
  const { id, name } = (value ?? {}) as Partial<Record<keyof DeviceLabel, unknown>>
  return typeof id === 'string' && typeof name === 'string' ? { id, name } : null
}

function named(doc: StoredDoc): Book {
  return { id: doc._id, rev: doc._rev, name: textAt(doc, 'name') }
}

function textAt(doc: StoredDoc, member: string): string {
  const value = doc[member]
  return typeof value === 'string' ? value : ''
}

/** The range of Date, in milliseconds before and after 1970. */
const LATEST = 8.64e15

/** @returns 0 for an invalid time, since another app may have written the document */
function timeAt(doc: StoredDoc, member: string): number {
  const value = doc[member]
  return typeof value === 'number' && Math.abs(value) <= LATEST ? value : 0
}

function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  return a.name.localeCompare(b.name)
}

const EXCERPT = 120

/** The beginning of a note's text without Markdown's characters. */
export function excerptOf(body: string): string {
  return body
    .slice(0, EXCERPT * 4)
    .replace(/!\[([^\]]*)\]\([^)]*\)/g, '')
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/^\s*(?:#+|>|[-*+]\s\[[ x]\]|[-*+]|\d+\.)\s+/gm, '')
    .replace(/[`*_~|]/g, '')
    .replace(/\s+/g, ' ')
    .trim()
    .slice(0, EXCERPT)
}
