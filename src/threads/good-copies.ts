/**
 * Finds a good copy of a damaged revision, on the thread that checks databases: in the database's own file, as far as that can
 * be read, and in copies of it. A revision never changes, so any copy that agrees with its checksums is the right one.
 */
import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { Throttle } from '../core/event-loop.ts'
import type { AttachmentPart, OpenedParts } from '../documents/database.ts'
import { openParts } from '../documents/open.ts'
import type { EngineCopies, FilePlace, FileReader } from '../storage/storage-engine.ts'

/** A revision that is to be found. */
export interface SoughtRevision {
  readonly database: string
  readonly id: string
  /** null: the winner. */
  readonly rev: string | null
  /** The paths of copies of the database, the best first. */
  readonly copies: readonly string[]
}

export interface FoundContent {
  /** Of `copies`; null: the database itself. */
  readonly copy: number | null
  readonly blob: number
  readonly length: number
  readonly name: string
}

/** A revision of which every byte was compared with its checksum. */
export interface FoundRevision {
  /**
   * The JSON with `_revisions`. Of attachments, all are stubs if the database has their contents; otherwise all follow it
   * (protocol.md 7.2).
   */
  readonly json: Uint8Array
  /** As {@link FoundContent.copy}. */
  readonly copy: number | null
  /** In the order of the JSON; empty for stubs. */
  readonly contents: readonly FoundContent[]
}

type Copies = Pick<EngineCopies, 'openReader'>

/** Reads as a server admin: a database's own security object may be damaged. */
const READER = { name: null, roles: ['_admin'] } as const

/** Bytes of one step of reading. */
const STEP = 256 * 1024

/** @returns null if no file has the whole revision. @throws no_database */
export async function findRevision(copies: Copies, sought: SoughtRevision): Promise<FoundRevision | null> {
  const own = openIfPossible(copies, { database: sought.database })
  const readers = [own]
  try {
    for (const path of sought.copies) readers.push(openIfPossible(copies, { path }))
    return await new Search(readers, sought).find()
  } finally {
    for (const reader of readers) reader?.close()
  }
}

/** @returns null for a file that cannot be read, or that an older settee has written */
function openIfPossible(copies: Copies, place: FilePlace): FileReader | null {
  try {
    return copies.openReader(place)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') throw error
    return null
  }
}

class Search {
  /** The first is the database itself. */
  readonly #readers: readonly (FileReader | null)[]
  readonly #sought: SoughtRevision
  readonly #throttle = new Throttle()

  constructor(readers: readonly (FileReader | null)[], sought: SoughtRevision) {
    this.#readers = readers
    this.#sought = sought
  }

  async find(): Promise<FoundRevision | null> {
    for (const [at, reader] of this.#readers.entries()) {
      if (reader === null) continue
      const opened = await this.#open(reader)
      if (opened === null) continue
      const copy = at === 0 ? null : at - 1
      const contents = await this.#contentsOf(opened, reader)
      if (contents === null) continue
      if (contents.some((content) => content.copy !== null) || copy !== null)
        return { json: opened.json, copy, contents }
      const { json } = (await this.#open(reader, false)) ?? opened
      return { json, copy, contents: [] }
    }
    return null
  }

  /** @returns null if the reader does not have the revision, or not as it was written */
  async #open(reader: FileReader, attachments = true): Promise<OpenedParts | null> {
    const { id, rev } = this.#sought
    const options = { revs: true, attachments, deleted: true, ...(rev !== null && { rev }) }
    return openParts(reader, READER, id, options, 'follows').catch(nullIfUnreadable)
  }

  async #contentsOf({ parts }: OpenedParts, from: FileReader): Promise<FoundContent[] | null> {
    const found: FoundContent[] = []
    for (const part of parts) {
      const content = await this.#contentOf(part, from)
      if (content === null) return null
      found.push(content)
    }
    return found
  }

  /** Prefers the database itself. */
  async #contentOf(
    { blob: known, name, storedLength }: AttachmentPart,
    from: FileReader,
  ): Promise<FoundContent | null> {
    const sha256 = hashOf(from, known)
    if (sha256 === null) return null
    for (const [at, reader] of this.#readers.entries()) {
      const blob = reader === null ? null : blobIn(reader, sha256)
      if (reader === null || blob === null) continue
      if (!(await this.#isWhole(reader, blob, storedLength, sha256))) continue
      return { copy: at === 0 ? null : at - 1, blob, length: storedLength, name }
    }
    return null
  }

  async #isWhole(reader: FileReader, blob: number, length: number, sha256: Uint8Array): Promise<boolean> {
    const hash = createHash('sha256')
    for (let at = 0; at < length; ) {
      const piece = await reader.readBlob(blob, at, Math.min(STEP, length - at)).catch(nullIfUnreadable)
      if (piece === null || piece.length === 0) return false
      hash.update(piece)
      at += piece.length
      this.#throttle.pause()
    }
    return hash.digest().equals(sha256)
  }
}

function hashOf(reader: FileReader, blob: number): Uint8Array | null {
  try {
    return reader.sha256Of(blob)
  } catch (error) {
    return nullIfUnreadable(error)
  }
}

function blobIn(reader: FileReader, sha256: Uint8Array): number | null {
  try {
    return reader.blobOf(sha256)
  } catch (error) {
    return nullIfUnreadable(error)
  }
}

/** A copy that cannot be read, for whatever reason, is no good copy. */
function nullIfUnreadable(error: unknown): null {
  if (error instanceof CouchError) return null
  throw error
}

/** A piece of a content that {@link findRevision} has found. */
export interface SoughtPiece {
  readonly place: FilePlace
  readonly blob: number
  readonly offset: number
  readonly length: number
}

/** @throws no_attachment if it is gone; damaged_document */
export async function readPiece(
  copies: Copies,
  { place, blob, offset, length }: SoughtPiece,
): Promise<Uint8Array> {
  const reader = copies.openReader(place)
  try {
    const piece = await reader.readBlob(blob, offset, length)
    if (piece === null || piece.length !== length) throw new CouchError('no_attachment')
    // In memory of its own, which the message takes along.
    return Uint8Array.from(piece)
  } finally {
    reader.close()
  }
}
