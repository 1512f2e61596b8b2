/** Contents of attachments in PostgreSQL: uploads, references and reads. */
import { CouchError } from '../../core/errors.ts'
import type { BlobReference, BlobUpload } from '../blob-leases.ts'
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
import { storeFault } from './store-fault.ts'

const BEGIN = { name: 'begin_upload', text: 'SELECT begin_upload($1, $2, $3)' }

const ADD = { name: 'add_chunks', text: 'SELECT add_chunks($1, $2, $3, $4, $5, $6, $7, $8)' }
/** The values of {@link ADD} that are chunks. */
const CHUNKS = 4

const FINISH = { name: 'finish_upload', text: 'SELECT finish_upload($1, $2, $3, $4, $5, $6, $7, $8, $9)' }

const HOLD = { name: 'hold_blob', text: 'SELECT hold_blob($1, $2, $3, $4)' }

/** How often it is looked for what uploads of nodes that have ended have left, in ms. */
export const SWEEP_MS = 600_000

/** Bytes of chunks that one statement reads, at most. */
const READ_BYTES = 4 * CHUNK_BYTES

/** The chunks of a stretch of bytes, from offset $3 to before offset $4, each cut to it. One row without data: no such bytes. */
const READ = {
  name: 'read_blob',
  text: `SELECT substring(c.data FROM greatest($3 - c.position * ${CHUNK_BYTES}, 0)::integer + 1
      FOR least($4 - greatest($3, c.position * ${CHUNK_BYTES}), ${CHUNK_BYTES})::integer)
    FROM blob b LEFT JOIN chunk c ON c.db = $1 AND c.blob = $2
      AND c.position BETWEEN $3 / ${CHUNK_BYTES} AND ($4 - 1) / ${CHUNK_BYTES}
    WHERE b.db = $1 AND b.blob = $2 AND b.sha256 IS NOT NULL ORDER BY c.position`,
}

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
      const held = JSON.parse(row[0]) as { readonly digest: string; readonly length: number }
      return { ...held, release: () => void release() }
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
    for (let at = offset, end = offset + length; ; ) {
      const part = await this.#read(blob, at, Math.min(end, at + READ_BYTES - (at % CHUNK_BYTES)))
      if (part === null) return null
      parts.push(part)
      at += part.length
      if (at >= end || part.length === 0) return parts.length === 1 ? part : Buffer.concat(parts)
    }
  }

  async #read(blob: number, start: number, end: number): Promise<Uint8Array | null> {
    const { connections, db } = this.#database
    const rows = await connections.read<readonly [Buffer | null]>({
      ...READ,
      values: [db, blob, start, Math.max(start, end)],
    })
    if (rows.length === 0) return null
    const parts = rows.flatMap(([data]) => data ?? [])
    return parts.length === 1 ? (parts[0] as Buffer) : Buffer.concat(parts)
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
    const isThere = await this.#write<boolean | null>(ADD, [blob, holder, position, ...pieces])
    if (isThere === null) throw new CouchError('no_database')
    if (!isThere) throw lost()
  }

  async finish({ sha256, md5, length, chunks, rest }: WholeContent): Promise<number> {
    const { blob, holder } = await this.#begin()
    const values = [blob, holder, this.#database.now(), sha256, digestOf(md5), length, chunks, rest]
    const finished = await this.#write<number | null>(FINISH, values)
    if (finished === null) throw lost()
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

/** The upload was not renewed for so long that another opener has removed it. */
function lost(): CouchError {
  return new CouchError('store_unavailable')
}
