/** What has gone wrong with databases and threads since the server started, as the HTTP thread has heard of it. */
import type { CouchError, ErrorName } from '../core/errors.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'

/** A database whose file is not as it should be. */
export interface DatabaseFault {
  readonly database: string
  /** `damaged_file`: until it is replaced. `disk_fault`: until something was written to it. */
  readonly code: ErrorName
  readonly reason: string
  /** Seconds since 1970: when it was met first, and last. */
  readonly since: number
  readonly last: number
}

/** Threads that have died; others took their places. */
export interface ThreadDeaths {
  readonly count: number
  /** Seconds since 1970; null: none has. */
  readonly last: number | null
}

export interface Faults {
  readonly databases: readonly DatabaseFault[]
  readonly threads: ThreadDeaths
}

export class FaultRecord {
  /** By incarnation: never more than there are databases. */
  readonly #databases = new Map<number, DatabaseFault>()
  #deaths: ThreadDeaths = { count: 0, last: null }

  /** Notes a fault. @returns whether it is news, which the log should have once */
  note({ name, incarnation }: DatabaseEntry, { code, message }: CouchError): boolean {
    const known = this.#databases.get(incarnation)
    const isNews = known?.code !== code
    const last = now()
    const since = isNews ? last : known.since
    this.#databases.set(incarnation, { database: name, code, reason: message, since, last })
    return isNews
  }

  /** Something was written to the database, as to a disk that works again. */
  written(incarnation: number): void {
    if (this.#databases.get(incarnation)?.code === 'disk_fault') this.#databases.delete(incarnation)
  }

  /** The database is gone. */
  forget(incarnation: number): void {
    this.#databases.delete(incarnation)
  }

  died(): void {
    this.#deaths = { count: this.#deaths.count + 1, last: now() }
  }

  list(): Faults {
    return { databases: [...this.#databases.values()], threads: this.#deaths }
  }
}

function now(): number {
  return Math.floor(Date.now() / 1000)
}
