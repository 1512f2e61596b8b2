/** What the databases of a server are made with, and who is told what becomes of them. */
import type { Settings } from '../core/types.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'

export interface ServerDatabasesOptions {
  readonly dataDir: string
  readonly settings: Settings
  /** Databases kept open at the most, unless more are in use. */
  readonly maxOpen: number
  /** A copy of server.sqlite that takes the place of the folder's own first; absolute. */
  readonly serverFile?: string | undefined
  /** The file that a thread runs; by default host.ts beside this file. */
  readonly threadEntry?: URL | undefined
  /** The file that a thread for functions of design documents runs; by default the sandbox's own. */
  readonly sandboxEntry?: URL | undefined
  /** How often threads are looked at whether they hang, in ms; by default 1000. For tests. */
  readonly watchMs?: number | undefined
  /** A thread has died. */
  onFault(fault: unknown): void
  /** Most of a database was deleted within a minute; told again while that goes on. */
  onMassDeletion?(database: DatabaseEntry, found: MassDeletion): void
  /** A database's file was found to be put back by hand; its devices compare anew. */
  onPutBack?(database: string): void
  /** A compaction has failed; the database is as it was, less what was cleaned up by then. */
  onCompactionFault(database: string, fault: unknown): void
  /** A database's file is damaged, or the disk has failed it; told once of each. */
  onDatabaseFault?(database: string, fault: unknown): void
  /** A write has met the end of the disk. */
  onFull?(): void
}
