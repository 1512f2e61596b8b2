/** Reads documents in the file of a database beside the store that has it open, or in a copy of it. */
import type { CouchError } from '../../core/errors.ts'
import type { BlobReference } from '../blob-leases.ts'
import { digestOf } from '../content-upload.ts'
import type { DocState, LocalDoc, StoreView } from '../engine.ts'
import type { DocReadSet } from '../read-set.ts'
import type { FileReader } from '../storage-engine.ts'
import { Connection } from './connection.ts'
import { FileErrors, storageError } from './database-access.ts'
import { openTables, readDocs, type Tables } from './document-writes.ts'
import { MIGRATIONS, RefusedFile, schemaOf } from './schema.ts'

/** What it finds damaged is reported to nobody: its caller looks for it. */
export class SqliteFileReader implements FileReader {
  readonly partitioned: boolean
  readonly #connection: Connection
  readonly #tables: Tables

  /** @throws RefusedFile for a file of another schema; the translated error of the driver */
  constructor(path: string) {
    this.#connection = translated(() => new Connection(path, { isReadOnly: true, mustExist: true }))
    try {
      if (schemaOf(this.#connection, 'The copy') !== MIGRATIONS.length)
        throw new RefusedFile('The copy has an older schema.')
      this.#tables = openTables(this.#connection, { damage: new FileErrors() })
    } catch (error) {
      this.#connection.close()
      throw storageError(error)
    }
    this.partitioned = this.#tables.state.partitioned
  }

  async view(): Promise<StoreView> {
    return this.#tables.state.view
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    readSet?: DocReadSet,
    chars?: number,
  ): Promise<R[]> {
    return translated(() => readDocs(this.#tables, ids, read, readSet, chars))
  }

  async readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    return translated(() => ids.map((id) => this.#tables.locals.byId(id)))
  }

  async readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null> {
    return translated(() => this.#tables.blobs.read(blob, offset, length))
  }

  /** Nothing keeps the blob: its number may be gone when it is read. */
  async referenceBlob(blob: number): Promise<BlobReference | null> {
    const row = translated(() => this.#tables.blobs.find(blob))
    return row === undefined
      ? null
      : { digest: digestOf(row.md5), length: row.length, release: () => undefined }
  }

  sha256Of(blob: number): Uint8Array | null {
    return translated(() => this.#tables.blobs.find(blob)?.sha256 ?? null)
  }

  blobOf(sha256: Uint8Array): number | null {
    return translated(() => this.#tables.blobs.byHash(sha256) ?? null)
  }

  close(): void {
    this.#connection.close()
  }
}

/** @throws CouchError; what `work` throws */
function translated<R>(work: () => R): R {
  try {
    return work()
  } catch (error) {
    throw storageError(error) as CouchError
  }
}
