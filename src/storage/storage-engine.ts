/** The contract's first part: an engine as a whole, and how its databases are opened; see engine.ts. */
import type { Catalog } from './catalog.ts'
import type { DatabaseStore } from './engine.ts'
import type { Mark } from './sequence.ts'

/** What a kind of engine can do; the house asks for a capability, never for an engine's name. */
export interface EngineCapabilities {
  /** Whether data survives the end of the process. */
  readonly durable: boolean
  /** Whether another process may write the same databases at the same time. */
  readonly sharedWriters: boolean
}

export interface StorageEngine {
  readonly capabilities: EngineCapabilities
  /**
   * The list of databases and what belongs to the server. One holder at a time: a second call, here or in
   * another process, rejects with a plain Error that says who holds it.
   * @param copy the path of a copy, as far as engines have files, that takes the place of what belongs to the server
   * first; databases stay as they are
   */
  openCatalog(copy?: string): Promise<Catalog>
  /**
   * Opens a database that exists.
   * @param mark how far it was when last heard of: one that is not that far was put back by hand, and begins anew
   * @throws no_database
   */
  openDatabase(name: string, mark?: Mark): Promise<DatabaseStore>
  /**
   * Makes of a copy of a database what can take a database's place ({@link Catalog.replace}): examined, of the newest
   * schema, and begun anew: the next number is of a new epoch, `createdAt` is a later one, no replication's checkpoint
   * is left, and {@link StoreView.wasRestored}. The copy stays as it is. Takes as long as reading all of it, and its
   * thread is busy meanwhile.
   * @param copy the path of a file, as far as engines have files
   * @throws bad_request when it is no database, a damaged one, or one of a newer settee
   */
  prepare(name: string, copy: string): Promise<Prepared>
  /** Closes what is open. Idempotent. */
  close(): Promise<void>
}

/** A database that was prepared to take another's place; nobody knows of it yet, and the next start forgets it. */
export interface Prepared {
  /** Names it in {@link Catalog.replace} and {@link Catalog.discard}. */
  readonly draft: string
  readonly updateSeq: number
  readonly docCount: number
}
