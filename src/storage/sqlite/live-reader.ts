/** Reads short documents of a database that a store of another thread has open and writes to. */
import { CouchError } from '../../core/errors.ts'
import type { BlobReference } from '../blob-leases.ts'
import { valueChecksum } from '../checksum.ts'
import { DamageReports } from '../damage.ts'
import type { ChangesRange, DocState, LocalDoc, Page, Paging, StoreView } from '../engine.ts'
import type { DocReadSet } from '../read-set.ts'
import { LEFT_TO_STORE, type LiveReader } from '../storage-engine.ts'
import type { RememberedPoint } from '../token-position.ts'
import { Connection } from './connection.ts'
import { DAMAGED_LEAVES_KEY } from './damaged-leaves.ts'
import { PageCache, type PageCaches } from './database-access.ts'
import { openTables, readChanges, readDocs, type Tables } from './document-writes.ts'
import { readMeta, SETTINGS_VERSION_KEY } from './meta.ts'
import { PAGE } from './page-size.ts'
import { Revisions } from './revisions.ts'
import { MIGRATIONS, schemaOf } from './schema.ts'
import { COUNT_KEYS, type Counts } from './state.ts'
import type { Statement } from './statement.ts'
import type { StoredDocument } from './stored-document.ts'

/** The longest `_local` document that is read, in bytes. */
const MAX_LOCAL_BYTES = 65_536
/** Of the documents of one call. */
const MAX_ATTACHMENTS = 100
/** Updates since the position of a reader of the feed: each may be a row. */
const MAX_BEHIND = 10
/** The ancestry of a leaf has 16 bytes for each. */
const MAX_REVS_LIMIT = 10_000

/** For what the store must read: it is long, or the store must report or repair it. */
function refuse(): never {
  throw LEFT_TO_STORE
}

/** Reads what takes microseconds: bodies that were read with their documents, and the ancestry of a single leaf. */
class ShortRevisions extends Revisions {
  override contentOf = refuse
  override branchesOf = refuse
  override revisionsOf = refuse
  override retainedOf = refuse
  override rebuilt = refuse
}

/** @returns counts the attachments of documents, and refuses more than a call reads */
function attachmentBound(): (doc: StoredDocument | null) => void {
  let left = MAX_ATTACHMENTS
  return (doc) => {
    left -= doc?.attachmentCount ?? 0
    if (left < 0) refuse()
  }
}

type Outcome<R> = { readonly value: R } | { readonly error: unknown }

function outcomeOf<R>(work: (tables: Tables) => R, tables: Tables): Outcome<R> {
  try {
    return { value: work(tables) }
  } catch (error) {
    return { error }
  }
}

function unpacked<R>(outcome: Outcome<R>): R {
  if ('error' in outcome) throw outcome.error
  return outcome.value
}

/** A state of the file. */
interface Seen {
  /** Changes with every commit of another connection. */
  readonly version: number
  /** What the tables have in memory is of these values, as JSON. */
  readonly settings: string
  readonly tables: Tables
}

/**
 * Each call reads one state: that of the last commit, which SQLite shows to other connections once it is durable. Nothing
 * is reported or repaired here: what does not say what was written is left to the store.
 */
export class SqliteLiveReader implements LiveReader {
  readonly partitioned: boolean
  readonly #connection: Connection
  readonly #cache: PageCache
  readonly #damage: DamageReports
  readonly #begin: Statement
  readonly #end: Statement
  readonly #version: Statement<readonly [version: number]>
  readonly #settings: Statement<readonly [key: string, value: unknown]>
  readonly #counts: Statement<readonly [key: keyof typeof COUNT_KEYS, value: number, checksum: number]>
  readonly #localBytes: Statement<readonly [bytes: number]>
  /** Of the state that was read last. */
  #seen: Seen | undefined
  isUsable = true

  /** @throws SqliteError or the operating system's error; LEFT_TO_STORE */
  constructor(name: string, path: string, caches: PageCaches) {
    this.#damage = new DamageReports(name, { report: refuse, areDevicesAsked: false })
    this.#connection = new Connection(path, { isReadOnly: true, mustExist: true, busyMs: 0 })
    this.#cache = new PageCache(this.#connection, caches)
    this.#begin = this.#connection.prepare('BEGIN')
    this.#end = this.#connection.prepare('COMMIT')
    this.#version = this.#connection.prepareTuples('PRAGMA data_version')
    const keys = `'${SETTINGS_VERSION_KEY}', '${DAMAGED_LEAVES_KEY}'`
    this.#settings = this.#connection.prepareTuples(`SELECT key, value FROM meta WHERE key IN (${keys})`)
    const counts = Object.keys(COUNT_KEYS).map((key) => `'${key}'`)
    this.#counts = this.#connection.prepareTuples(
      `SELECT key, value, checksum FROM meta WHERE key IN (${counts.join(', ')})`,
    )
    this.#localBytes = this.#connection.prepareTuples('SELECT octet_length(body) FROM local WHERE id = ?')
    try {
      // A small file is rewritten as it grows, which an open reader would prevent. SQLite alone may open the file to look: any
      // other file descriptor would give up the locks of the store when it is closed.
      if (this.#connection.pragma('page_size') !== PAGE.large) refuse()
      if (schemaOf(this.#connection, 'The database') !== MIGRATIONS.length) refuse()
      this.partitioned = this.#read(({ state }) => state.partitioned)
    } catch (error) {
      this.close()
      throw error
    }
  }

  /**
   * Runs work that reads one state; perhaps twice.
   * @throws what `work` throws; LEFT_TO_STORE, also after a fault, which makes the reader unusable
   */
  #read<R>(work: (tables: Tables) => R): R {
    this.#cache.use()
    try {
      const seen = this.#seen
      if (seen !== undefined) {
        const outcome = outcomeOf(work, seen.tables)
        // Nothing was committed since, so all of it was read in the state that was seen. A transaction takes two more statements.
        if (this.#versionNow() === seen.version) return unpacked(outcome)
      }
      return unpacked(this.#readInTransaction(work))
    } catch (error) {
      if (error instanceof CouchError || error === LEFT_TO_STORE) throw error
      this.isUsable = false
      refuse()
    }
  }

  #versionNow(): number {
    return this.#version.get()?.[0] ?? 0
  }

  #readInTransaction<R>(work: (tables: Tables) => R): Outcome<R> {
    this.#begin.run()
    try {
      this.#seen = this.#look(this.#versionNow())
      return outcomeOf(work, this.#seen.tables)
    } finally {
      this.#end.run()
    }
  }

  /** Looks at a new state. Few commits change what is in memory here. @throws LEFT_TO_STORE */
  #look(version: number): Seen {
    const settings = JSON.stringify(this.#settings.all())
    if (this.#seen?.settings === settings) {
      this.#seen.tables.state.follow(this.#countsNow())
      return { ...this.#seen, version }
    }
    // What is wrong now stays wrong for a while.
    this.isUsable = false
    if (readMeta(this.#connection).damaged.length > 0) refuse()
    const tables = openTables(this.#connection, { damage: this.#damage, RevisionTable: ShortRevisions })
    const { garbage, damagedLeaves, state } = tables
    const isSound = !garbage.lacksChecksums && damagedLeaves.size === 0
    if (!isSound || state.view.revsLimit > MAX_REVS_LIMIT) refuse()
    this.isUsable = true
    return { version, settings, tables }
  }

  /** @throws LEFT_TO_STORE if a count does not say what was written */
  #countsNow(): Counts {
    const counts = { updateSeq: 0, docCount: 0, deletedCount: 0 }
    for (const [key, value, checksum] of this.#counts.all()) {
      if (typeof value !== 'number' || valueChecksum(key, value) !== checksum) {
        this.isUsable = false
        refuse()
      }
      counts[COUNT_KEYS[key]] = value
    }
    return counts
  }

  async view(): Promise<StoreView> {
    return this.#read(({ state }) => state.view)
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    readSet?: DocReadSet,
    chars?: number,
  ): Promise<R[]> {
    return this.#read((tables) => {
      const count = attachmentBound()
      return readDocs(
        tables,
        ids,
        (doc, ...rest) => {
          count(doc)
          return read(doc, ...rest)
        },
        readSet,
        chars,
      )
    })
  }

  async readChanges<R>(
    range: ChangesRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#read((tables) => {
      if (range.descending || tables.state.view.updateSeq - range.since > MAX_BEHIND) refuse()
      const count = attachmentBound()
      const page = readChanges(tables, range, paging, (doc, view) => {
        count(doc)
        return read(doc, view)
      })
      // The store reports rows that are not where they should be.
      if (page.damaged) refuse()
      return page
    })
  }

  async readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    return this.#read(({ locals }) =>
      ids.map((id) => {
        const [bytes = 0] = this.#localBytes.get(id) ?? []
        if (bytes > MAX_LOCAL_BYTES) refuse()
        return locals.byId(id)
      }),
    )
  }

  async countChanges(): Promise<number> {
    return refuse()
  }

  async findPoint(): Promise<RememberedPoint | null> {
    return refuse()
  }

  async readBlob(): Promise<Uint8Array | null> {
    return refuse()
  }

  async referenceBlob(): Promise<BlobReference | null> {
    return refuse()
  }

  close(): void {
    this.#cache.close()
    this.#connection.close()
  }
}
