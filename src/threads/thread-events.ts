/** What threads report of their databases: it is kept as far as it is asked for, and everybody who listens is told. */
import { type PackedError, unpackError } from '../core/errors.ts'
import { Listeners } from '../core/listeners.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'
import { FaultRecord } from './database-notes.ts'
import type { DatabaseProxy } from './database-proxy.ts'
import { type ServerDatabasesOptions, Tasks } from './databases.ts'
import type { DatabaseThreadEvent } from './thread-protocol.ts'

/** An event of one database. */
type DatabaseEvent = Extract<DatabaseThreadEvent, { incarnation: number }>

interface ThreadEventsOptions {
  readonly observer: ServerDatabasesOptions
  /** A database was written to. */
  onWritten(name: string, lastKnown: LastKnownSequence): void
  /** A client has shown that a database has lost updates. */
  onLost(proxy: DatabaseProxy): void
  /** Another opener has deleted a database. */
  onDeleted(proxy: DatabaseProxy): void
}

export class ThreadEvents {
  readonly faults = new FaultRecord()
  readonly tasks = new Tasks()
  /** Told after writes, compactions and changes of indexes. */
  readonly writes = new Listeners<[database: string]>()
  readonly security = new Listeners<[database: string]>()
  documentsWritten = 0
  readonly #options: ThreadEventsOptions

  constructor(options: ThreadEventsOptions) {
    this.#options = options
  }

  /** A database is no longer in the list. */
  forget({ incarnation }: DatabaseEntry): void {
    this.tasks.forget(incarnation)
    this.faults.forget(incarnation)
  }

  handle(proxy: DatabaseProxy, event: DatabaseEvent): void {
    const { observer, onDeleted, onLost, onWritten } = this.#options
    switch (event.type) {
      case 'committed':
        this.#noteCommit(proxy, event)
        break
      case 'fileReplaced':
        onWritten(proxy.name, event.lastKnown)
        observer.onWentBack?.(proxy.name)
        break
      case 'lost':
        onLost(proxy)
        break
      case 'secured':
        proxy.emit({ type: 'secured', security: event.security })
        this.security.tell(proxy.name)
        // Its bytes count for the owner.
        this.writes.tell(proxy.name)
        break
      case 'deleted':
        onDeleted(proxy)
        break
      case 'faulty':
        this.#noteFault(proxy, event.fault)
        break
      case 'damagedLeaf':
        observer.onDamagedLeaf?.(proxy.name)
        break
      case 'restored':
        if (event.rest === 0) this.faults.noteRestored(event.incarnation)
        observer.onRestored?.(proxy.name, event.leaves, event.rest)
        break
      case 'alarm':
        observer.onMassDeletion?.(proxy.entry, event.found)
        break
      case 'skipped':
        observer.onSkippedDocument?.(proxy.name, event.ddoc, event.skipped)
        break
      case 'indexed':
        this.writes.tell(proxy.name)
        break
      case 'compaction':
        this.#noteCompaction(proxy, event)
    }
  }

  #noteCommit(proxy: DatabaseProxy, event: Extract<DatabaseEvent, { type: 'committed' }>): void {
    const { updateSeq, epoch, updates } = event
    if (updates > 0) {
      this.documentsWritten += updates
      this.#options.onWritten(proxy.name, { updateSeq, epoch })
      this.faults.noteWrite(event.incarnation)
      this.writes.tell(proxy.name)
    }
    proxy.emit({ type: 'committed', updateSeq })
  }

  #noteFault(proxy: DatabaseProxy, packed: PackedError): void {
    const fault = unpackError(packed)
    if (this.faults.note(proxy.entry, fault)) this.#options.observer.onDatabaseFault?.(proxy.name, fault)
  }

  #noteCompaction(proxy: DatabaseProxy, event: Extract<DatabaseEvent, { type: 'compaction' }>): void {
    this.tasks.note(proxy.entry, event.progress)
    if (event.progress === null) {
      proxy.emit({ type: 'compacted' })
      this.writes.tell(proxy.name)
    }
    if (event.fault !== undefined)
      this.#options.observer.onCompactionFault(proxy.name, unpackError(event.fault))
  }
}
