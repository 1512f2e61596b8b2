/** The messages between the HTTP thread and a database thread, sent over rpc.ts. */
import type { ChangesSource } from '../changes/page.ts'
import type { PackedError } from '../core/errors.ts'
import type { SecurityObject, Settings, Space } from '../core/types.ts'
import type { CouchappSource } from '../couchapps/couchapps.ts'
import type { Database } from '../documents/database.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import type { FindSource } from '../query/find.ts'
import type { IndexSource } from '../query/index-changes.ts'
import type { IndexReportSource } from '../query/index-report.ts'
import type { NormalSelector } from '../query/normal-selector.ts'
import type { SkippedDocument } from '../query/view-map.ts'
import type { ViewSource } from '../query/views.ts'
import type { SandboxAccess, SandboxNotice } from '../sandbox/messages.ts'
import type { Catalog } from '../storage/catalog.ts'
import type { StoreLocation } from '../storage/open-engine.ts'
import type { CatalogChange } from '../storage/records.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'
import type { Prepared } from '../storage/storage-engine.ts'
import type { CompactionProgress } from '../storage/upkeep.ts'
import type { PackedArgs } from './message-bytes.ts'
import type { StreamControl } from './rpc-stream.ts'
import type { ThreadStats } from './thread-stats.ts'

/** The methods of a database that its thread serves (methods.ts). */
export type ServedDatabase = Database &
  ChangesSource &
  ViewSource &
  FindSource &
  IndexSource &
  IndexReportSource &
  CouchappSource

/** The methods with one answer. */
export type CallMethod = {
  [M in keyof ServedDatabase]: ReturnType<ServedDatabase[M]> extends Promise<unknown> ? M : never
}[keyof ServedDatabase]

/** The methods that answer with a stream. */
export type StreamMethod = Exclude<keyof ServedDatabase, CallMethod>

/** The methods of the catalog that its thread serves. */
export type CatalogMethod = Exclude<keyof Catalog, 'serverUuid' | 'folderUuid' | 'watch'>

/** Calls a method of the catalog on its thread. */
export type CatalogCall = <M extends CatalogMethod>(
  method: M,
  ...args: Parameters<Catalog[M]>
) => Promise<Awaited<ReturnType<Catalog[M]>>>

/** The contents of the catalog when it is opened. */
export interface OpenedCatalog {
  readonly serverUuid: string
  readonly folderUuid: string
  /** The engine's capability of this name. */
  readonly sharedWriters: boolean
  /** Whether the engine copies databases as files. */
  readonly hasCopies: boolean
}

/** The database that a call is for. */
interface Target {
  readonly database: string
  readonly incarnation: number
  /** The last known sequence before the server started; undefined once the database was opened. */
  readonly lastKnown?: LastKnownSequence | undefined
}

/** A call of a method of a database. */
export interface DatabaseCall extends Target, PackedArgs {
  readonly type: 'call'
  readonly method: keyof ServedDatabase
}

/** Keeps a database open until it is released; answered when it is open. */
export interface HoldRequest extends Target {
  readonly type: 'hold'
}

/** A request with an answer of its own type: {@link Answers}. */
export type Query =
  /** Closes a database that is about to be removed; its waiting calls are refused. */
  | { readonly type: 'drop'; readonly database: string }
  /** Prepares a copy that is to replace a database; for a thread that serves no databases. */
  | { readonly type: 'prepare'; readonly database: string; readonly copy: string }
  /** Copies the server's own data to a new file. */
  | { readonly type: 'copyCatalog'; readonly path: string }
  /** Which open databases cannot be read? */
  | { readonly type: 'check' }
  /** Does a closed database hold expired bodies of the time machine? */
  | { readonly type: 'overdue'; readonly database: string }
  /** Compiles a selector, and answers with its normal form. */
  | { readonly type: 'normalSelector'; readonly selector: unknown }
  /** Opens the catalog, and with it the data folder. */
  | {
      readonly type: 'openCatalog'
      readonly serverFile?: string | undefined
      readonly isDamaged?: boolean | undefined
    }
  | { readonly type: 'catalog'; readonly method: CatalogMethod; readonly args: readonly unknown[] }
  /** Begins the step of an index for which the event `growth` has asked, or refuses it. Answered when it has ended. */
  | { readonly type: 'growth'; readonly number: number; readonly refusal: PackedError | null }
  /** Answered before all waiting calls. */
  | { readonly type: 'stats' }
  | { readonly type: 'stop' }

export interface Answers {
  drop: undefined
  prepare: Prepared
  copyCatalog: undefined
  check: readonly string[]
  overdue: boolean
  normalSelector: NormalSelector
  openCatalog: OpenedCatalog
  catalog: unknown
  growth: undefined
  stats: ThreadStats
  stop: undefined
}

/** Messages without an answer. */
export type Notice =
  | { readonly type: 'settings'; readonly settings: Settings }
  | { readonly type: 'space'; readonly space: Space }
  | { readonly type: 'sandbox'; readonly notice: SandboxNotice }
  /** Shows that the event loop turns (core/event-loop.ts). */
  | { readonly type: 'ping' }
  /** Releases a database that a `hold` keeps open. @param hold the number of that call */
  | { readonly type: 'release'; readonly hold: number }

/** What a database thread receives. */
export type Request =
  | ({ readonly call: number } & DatabaseCall)
  | ({ readonly call: number } & HoldRequest)
  | ({ readonly call: number } & Query)
  | StreamControl
  | Notice

/** An event that a database thread sends to the HTTP thread. */
export type ThreadEvent =
  | {
      readonly type: 'committed'
      readonly incarnation: number
      readonly updateSeq: number
      /** The epoch of `updateSeq`. */
      readonly epoch: string
      /** Documents that the commit has written; 0 for commits of other openers of the storage, which report them. */
      readonly updates: number
    }
  /** A database's file was replaced by hand, and has a new epoch. */
  | { readonly type: 'fileReplaced'; readonly incarnation: number; readonly lastKnown: LastKnownSequence }
  /** A client has shown that a database has lost updates: it must be treated as restored. */
  | { readonly type: 'lost'; readonly incarnation: number }
  | { readonly type: 'secured'; readonly incarnation: number; readonly security: SecurityObject | null }
  /** Another opener of the storage has deleted the database. */
  | { readonly type: 'deleted'; readonly incarnation: number }
  /** A database's file is damaged, or the disk has failed. */
  | { readonly type: 'faulty'; readonly incarnation: number; readonly fault: PackedError }
  /** As {@link DiskWatch.onDamagedLeaf}. */
  | { readonly type: 'damagedLeaf'; readonly incarnation: number }
  /** As {@link DiskWatch.onRestored}. */
  | {
      readonly type: 'restored'
      readonly incarnation: number
      readonly leaves: number
      readonly rest: number
    }
  /** Records or the list of databases have changed. */
  | { readonly type: 'catalog'; readonly change: CatalogChange }
  /** A write has found the disk full. */
  | { readonly type: 'full' }
  /** The server's own file was found damaged. */
  | { readonly type: 'serverFault'; readonly fault: PackedError }
  /** Most of a database was deleted within a minute. */
  | { readonly type: 'alarm'; readonly incarnation: number; readonly found: MassDeletion }
  /** A view has skipped a document, because its function or one of its keys failed. */
  | {
      readonly type: 'skipped'
      readonly incarnation: number
      readonly ddoc: string
      readonly skipped: SkippedDocument
    }
  /** Functions of design documents wait for a sandbox thread. */
  | { readonly type: 'sandbox' }
  /** An index is to grow, and waits for the query of the same type. */
  | {
      readonly type: 'growth'
      readonly number: number
      readonly incarnation: number
      readonly bytes: number
    }
  /** Indexes have changed. */
  | { readonly type: 'indexed'; readonly incarnation: number }
  /** The progress of a compaction; null when it has ended, with its fault if it failed. */
  | {
      readonly type: 'compaction'
      readonly incarnation: number
      readonly progress: CompactionProgress | null
      readonly fault?: PackedError
    }

/** Events about databases. */
export type DatabaseThreadEvent = Exclude<ThreadEvent, { type: 'sandbox' | 'growth' }>

/** The `workerData` of a database thread. */
export interface ThreadOptions {
  readonly location: StoreLocation
  readonly settings: Settings
  readonly space: Space
  /** The maximum number of databases that one thread keeps open. */
  readonly maxOpen: number
  readonly sandbox: SandboxAccess
  /** How many bytes wait for readers: core/bytes.ts. */
  readonly outgoing: SharedArrayBuffer
  /** How many of these bytes are on their way from this thread. */
  readonly transit?: SharedArrayBuffer
  /** The thread's signs of life: core/event-loop.ts. */
  readonly heartbeat?: SharedArrayBuffer
}
