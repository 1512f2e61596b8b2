/** Contents of attachments in PostgreSQL: uploads, references and reads. */
import { CouchError } from '../../core/errors.ts'
import type { BlobReference, BlobUpload } from '../blob-leases.ts'
import { agrees } from '../checksum.ts'
import {
  CHUNK_BYTES,
  ContentUpload,
  digestOf,
  type UploadTarget,
  type WholeContent,
} from '../content-upload.ts'
import { BlobRemoval } from './blob-removal.ts'
import { Leases } from './leases.ts'
import type { OpenDatabase } from './open-database.ts'
import { type BlobFacts, blobSum, chunkSum, ofBlob } from './row-checksums.ts'
import { storeFault } from './store-fault.ts'
import { readChunks } from './stored-contents.ts'
import { firstValues } from './write-functions.ts'

const BEGIN = { name: 'begin_upload', text: 'SELECT begin_upload($1, $2, $3)' }

const ADD = { name: 'store_chunks', text: `SELECT store_chunks(${firstValues(9)})` }
/** The values of {@link ADD} that are chunks. */
const CHUNKS = 4

const FINISH = { name: 'complete_upload', text: `SELECT complete_upload(${firstValues(11)})` }

const MEND = { name: 'mend_chunks', text: `SELECT mend_chunks(${firstValues(6)})` }
/** Chunks that {@link MEND} compares: 2 MB of each content. */
const MENDED_CHUNKS = 8

const HOLD = { name: 'hold_blob', text: 'SELECT hold_blob($1, $2, $3, $4)' }

/** How often it is looked for what uploads of nodes that have ended have left, in ms. */
export const SWEEP_MS = 600_000

/** Chunks that one statement reads, at most. */
const READ_CHUNKS = 4

export class Uploads {
  readonly #database: OpenDatabase
  readonly #leases: Leases
  readonly #removal: BlobRemoval
  #timer: NodeJS.Timeout | undefined
  #sweeping: Promise<void> | null = null

  constructor(database: OpenDatabase) {
    this.#database = database
    this.#leases = new Leases(database)
    this.#removal = new BlobRemoval(database)
  }

  async uploadBlob(): Promise<BlobUpload> {
    this.#leases.refuseIfClosed()
    return new ContentUpload(new StoredUpload(this.#database, this.#leases, (blobs) => this.#remove(blobs)))
  }

  async referenceBlob(blob: number): Promise<BlobReference | null> {
    const { connections, db, now } = this.#database
    const holder = this.#leases.begin()
    const release = () => this.#end(holder)
    try {
      const values = [db, blob, holder, now()]
      const [row] = await connections.write<readonly [string | null]>({ ...HOLD, values })
      if (row?.[0] == null) {
        this.#leases.forget(holder)
        return null
      }
      const { digest, length, sha256, checksum } = JSON.parse(row[0]) as HeldBlob
      const sum = blobSum({ sha256: Buffer.from(sha256, 'hex'), digest, length })
      if (!agrees(checksum, ofBlob(sum, blob), true)) throw this.#damaged(blob)
      return { digest, length, release: () => void release() }
    } catch (cause) {
      // The lease may be stored.
      void release()
      throw storeFault(cause)
    }
  }

  /** As {@link DatabaseStore.readBlob}; at most 1 MB is read at once. */
  async readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null> {
    this.#leases.refuseIfClosed()
    const parts: Uint8Array[] = []
    for (let at = offset; ; ) {
      const first = Math.floor(at / CHUNK_BYTES)
      const most = Math.ceil((offset + length) / CHUNK_BYTES) - first
      const read = await readChunks(this.#database, blob, first, Math.min(most, READ_CHUNKS))
      if (read === null) return null
      if (!read.isSound) throw this.#damaged(blob)
      const end = Math.min(offset + length, read.length)
      for (const chunk of read.chunks) {
        if (at >= end) break
        const start = at % CHUNK_BYTES
        const part = chunk?.subarray(start, start + end - at)
        if (!part?.length) throw this.#damaged(blob)
        // A copy, so that the garbage collector can free the rest.
        parts.push(part.length === chunk?.length ? part : Uint8Array.from(part))
        at += part.length
      }
      if (at >= end) return parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts)
    }
  }

  #damaged(blob: number): CouchError {
    const { damage, leaves } = this.#database
    leaves.noteContent(blob)
    return damage.damagedContent()
  }

  /** Removes what ended uploads have left in the database, now and from time to time: a database may stay open for long. */
  startSweeping(): void {
    this.#sweep()
    this.#timer = setInterval(() => this.#sweep(), SWEEP_MS).unref()
  }

  /** What cannot be removed now is found the next time. */
  #sweep(): void {
    this.#sweeping ??= this.#removal
      .sweep(async () => this.#leases.refuseIfClosed())
      .catch(() => undefined)
      .finally(() => {
        this.#sweeping = null
      })
  }

  /** Ends the leases of a holder, and removes what no revision has named. Never rejects. */
  async #end(holder: string): Promise<void> {
    await this.#remove(await this.#leases.end(holder))
  }

  /** Never rejects: what remains is found by a later sweep. */
  async #remove(blobs: readonly number[]): Promise<void> {
    const removable = blobs.map((blob) => ({ blob }))
    await this.#removal.remove(removable, 'unnamed').catch(() => undefined)
  }

  /** Ends the leases of the store; what no revision names is removed at the next opening. Never rejects. Idempotent. */
  close(): Promise<void> {
    clearInterval(this.#timer)
    return this.#leases.close()
  }
}

class StoredUpload implements UploadTarget {
  readonly #database: OpenDatabase
  readonly #leases: Leases
  readonly #remove: (blobs: readonly number[]) => Promise<void>
  /** Set before the first statement. */
  #holder: string | undefined
  #blob: number | undefined

  /** @param remove removes those of some blobs that nobody holds and no revision has named; never rejects */
  constructor(database: OpenDatabase, leases: Leases, remove: (blobs: readonly number[]) => Promise<void>) {
    this.#database = database
    this.#leases = leases
    this.#remove = remove
  }

  refuseIfClosed(): void {
    this.#leases.refuseIfClosed()
  }

  async addChunks(chunks: readonly Uint8Array[], position: number): Promise<void> {
    const { blob, holder } = await this.#begin()
    const pieces = Array.from({ length: CHUNKS }, (_, at) => chunks[at] ?? null)
    const sums = chunks.map((data, at) => ofBlob(chunkSum(position + at, data), blob))
    const isThere = await this.#write<boolean | null>(ADD, [blob, holder, position, ...pieces, sums])
    if (isThere === null) throw new CouchError('no_database')
    if (!isThere) throw lost()
  }

  async finish({ sha256, md5, length, chunks, rest }: WholeContent): Promise<number> {
    const { blob, holder } = await this.#begin()
    const digest = digestOf(md5)
    const values = [blob, holder, this.#database.now(), sha256, digest, length, chunks, rest]
    const sums = [blobSum({ sha256, digest, length }), chunkSum(chunks, rest)]
    const finished = await this.#write<number | null>(FINISH, [...values, ...sums])
    if (finished === null) throw lost()
    for (let position = 0; finished !== blob && position < chunks; position += MENDED_CHUNKS)
      await this.#write(MEND, [blob, finished, holder, position, MENDED_CHUNKS])
    return finished
  }

  async #begin(): Promise<{ readonly blob: number; readonly holder: string }> {
    this.refuseIfClosed()
    const holder = this.#holder ?? this.#leases.begin()
    this.#holder = holder
    const blob = this.#blob ?? (await this.#write<number | null>(BEGIN, [holder, this.#database.now()]))
    if (blob === null) throw new CouchError('no_database')
    this.#blob = blob
    return { blob, holder }
  }

  /** @returns the value of the only column of the only row */
  async #write<T>(
    statement: { readonly name: string; readonly text: string },
    values: readonly unknown[],
  ): Promise<T> {
    const { connections, db } = this.#database
    try {
      const [row] = await connections.write<readonly [unknown]>({ ...statement, values: [db, ...values] })
      return row?.[0] as T
    } catch (cause) {
      throw storeFault(cause)
    }
  }

  async release(): Promise<void> {
    if (this.#holder !== undefined) await this.#remove(await this.#leases.end(this.#holder))
  }
}

interface HeldBlob extends Omit<BlobFacts, 'sha256'> {
  /** As hex digits. */
  readonly sha256: string
  readonly checksum: number | null
}

/** The upload was not renewed for so long that another opener has removed it. */
function lost(): CouchError {
  return new CouchError('store_unavailable')
}
