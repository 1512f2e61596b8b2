/**
 * Finds a good copy of a damaged revision, on the thread that checks databases: in the database's own file, as far as that can
 * be read, and in copies of it. A revision never changes, so any copy that agrees with its checksums is the right one.
 */

import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { Throttle } from '../core/event-loop.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { OpenedParts } from '../documents/database.ts'
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

export interface FoundContent extends SoughtContent {
  /** Where it is; null: none of the files has it. */
  readonly place: FilePlace | null
  readonly blob: number
}

/** A content that is to be found in any database: equal hashes mean equal bytes. */
export interface SoughtContent {
  readonly sha256: Uint8Array
  /** In bytes, as it is stored. */
  readonly length: number
}

/** A revision of which every byte was compared with its checksum, but for contents that are nowhere. */
export interface FoundRevision {
  /**
   * The JSON with `_revisions`. Of attachments, all are stubs if the database has their contents; otherwise all follow it
   * (protocol.md 7.2).
   */
  readonly json: Uint8Array
  /** The path of the copy that had the revision, or one of its contents; null: the database itself had all. */
  readonly copy: string | null
  /** In the order of the JSON; empty for stubs. */
  readonly contents: readonly FoundContent[]
}

type Copies = Pick<EngineCopies, 'openReader'>

/** Bytes of one step of reading. */
const STEP = 256 * 1024

/**
 * @returns null if no file has the revision; without some of its contents if no file has them
 * @throws no_database
 */
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
    let incomplete: FoundRevision | null = null
    for (const [at, reader] of this.#readers.entries()) {
      if (reader === null) continue
      const opened = await this.#open(reader)
      if (opened === null) continue
      const contents = await this.#contentsOf(opened, reader)
      if (contents === null) continue
      const places = [this.#placeOf(at), ...contents.map(({ place }) => place)]
      const copy = places.map((place) => (place && 'path' in place ? place.path : null)).find(Boolean) ?? null
      const revision = { json: opened.json, copy, contents }
      if (places.includes(null)) incomplete ??= revision
      else if (copy !== null) return revision
      else {
        const { json } = (await this.#open(reader, false)) ?? opened
        return { json, copy, contents: [] }
      }
    }
    return incomplete
  }

  #placeOf(reader: number): FilePlace {
    const { database, copies } = this.#sought
    return reader === 0 ? { database } : { path: copies[reader - 1] as string }
  }

  /** @returns null if the reader does not have the revision, or not as it was written */
  async #open(reader: FileReader, attachments = true): Promise<OpenedParts | null> {
    const { id, rev } = this.#sought
    const options = { revs: true, attachments, deleted: true, ...(rev !== null && { rev }) }
    // As a server admin: the database's own security object may be damaged.
    return openParts(reader, SYSTEM_USER, id, options, 'follows').catch(nullIfUnreadable)
  }

  /** @returns null if the reader does not know what it looks for */
  async #contentsOf({ parts }: OpenedParts, from: FileReader): Promise<FoundContent[] | null> {
    const found: FoundContent[] = []
    for (const { blob, storedLength } of parts) {
      const sha256 = hashOf(from, blob)
      if (sha256 === null) return null
      found.push(await this.#contentOf({ sha256, length: storedLength }))
    }
    return found
  }

  /** Prefers the database itself. */
  async #contentOf(sought: SoughtContent): Promise<FoundContent> {
    for (const [at, reader] of this.#readers.entries()) {
      const blob = reader === null ? null : await wholeBlob(reader, sought, this.#throttle)
      if (blob !== null) return { ...sought, place: this.#placeOf(at), blob }
    }
    return { ...sought, place: null, blob: 0 }
  }
}

/** @returns the number of the content in a database that is open; null if it has none, or a damaged one @throws no_database */
export async function findContent(
  copies: Copies,
  database: string,
  sought: SoughtContent,
): Promise<number | null> {
  const reader = openIfPossible(copies, { database })
  try {
    return reader === null ? null : await wholeBlob(reader, sought, new Throttle())
  } finally {
    reader?.close()
  }
}

/** @returns the number of a content of which every byte was compared with the hash; null if the file has none */
async function wholeBlob(
  reader: FileReader,
  { sha256, length }: SoughtContent,
  throttle: Throttle,
): Promise<number | null> {
  const blob = blobIn(reader, sha256)
  if (blob === null) return null
  const hash = createHash('sha256')
  for (let at = 0; at < length; ) {
    const piece = await reader.readBlob(blob, at, Math.min(STEP, length - at)).catch(nullIfUnreadable)
    if (piece === null || piece.length === 0) return null
    hash.update(piece)
    at += piece.length
    throttle.pause()
  }
  return hash.digest().equals(sha256) ? blob : null
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
