/**
 * Copies of databases for backups, and checks of databases. Each backup and each check starts a thread of its own
 * (copy-job.ts), and ends it.
 */
import { rm } from 'node:fs/promises'
import { Worker } from 'node:worker_threads'
import { CouchError, isFileFault } from '../core/errors.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { Damage } from '../storage/damage.ts'
import type { StoreLocation } from '../storage/open-engine.ts'
import type { CheckPosition, CheckStep, CopyFacts } from '../storage/storage-engine.ts'
import type { FoundRevision, SoughtContent, SoughtPiece, SoughtRevision } from './good-copies.ts'
import { RpcClient } from './rpc.ts'
import { threadFlags } from './thread.ts'

/** An earlier copy, which may still equal the database. */
export interface KnownCopy {
  readonly path: string
  readonly bytes: number
  readonly sha256: string
  readonly facts: CopyFacts
  readonly damage: Damage | null
  /** The database's fingerprint at that time (storage/storage-engine.ts). */
  readonly fingerprint: string | null
}

export interface CopyJob {
  readonly database: string
  /** The path of the new copy. */
  readonly target: string
  readonly known: KnownCopy | null
  /** Bytes that must stay free on the target's disk; null for the default (core/types.ts). */
  readonly floor: number | null
}

export interface CopyOutcome {
  readonly incarnation: number
  readonly facts: CopyFacts
  readonly bytes: number
  /** 64 hex digits. */
  readonly sha256: string
  readonly fingerprint: string | null
  /** The database is unchanged since the known copy, and the new file is a link to it. */
  readonly isSame: boolean
  /** The rows of the database, and so of its copy, that are not what was written; null if there are none. */
  readonly damage: Damage | null
  /** What is wrong with the known copy; null if nothing is, or if it was not checked. */
  readonly knownFault: string | null
}

/** The progress of one database's copy. */
export interface JobProgress {
  /** 0 to 100. */
  readonly percent: number
}

/** The copying thread of one backup. */
export interface Copier {
  /**
   * Copies a database in its current state, and compares the copy with it. Damaged rows are copied as they are, and named.
   * @throws no_database when it does not exist, or was deleted in the meantime; DamagedCopy when the copy differs from
   *   the database, or the database's pages are damaged; insufficient_storage; internal_server_error
   */
  copy(job: CopyJob, onProgress: (progress: JobProgress) => void): Promise<CopyOutcome>
  /** Checks a copy of the server's own data. @throws internal_server_error */
  checkCatalog(path: string, folderUuid: string): Promise<FileHash>
  /** Terminates the thread, whatever it is doing. */
  close(): Promise<void>
}

/** Where an earlier check of a database has ended. */
export interface CheckedUpTo {
  /** A later database of the same name is checked from its beginning. */
  readonly incarnation: number
  readonly position: CheckPosition
}

/** The thread of one check. */
export interface Checker {
  /**
   * Checks a database, which stays in use, in steps of about a second.
   * @param from null: from the beginning
   * @param onStep called after each step, with the incarnation of the database; false ends the check
   * @throws no_database when it does not exist, or was deleted in the meantime; DamagedCopy or the error of a file when it
   *   cannot be opened
   */
  check(
    database: string,
    from: CheckedUpTo | null,
    onStep: (step: CheckStep, incarnation: number) => Promise<boolean>,
  ): Promise<void>
  /** Checks the server's own data. @returns what is damaged, for people; null: nothing is, or it is not in a file */
  checkServer(): Promise<string | null>
  /**
   * Finds a good copy of a revision.
   * @returns null if there is none
   * @throws no_database
   */
  find(sought: SoughtRevision): Promise<FoundRevision | null>
  /** @returns the number of a content in a database; null if it has none that is whole @throws no_database */
  findContent(database: string, sought: SoughtContent): Promise<number | null>
  /** Reads a piece of a content that was found. @throws no_database, no_attachment, damaged_document */
  readPiece(database: string, piece: SoughtPiece): Promise<Uint8Array>
  /** Terminates the thread, whatever it is doing. */
  close(): Promise<void>
}

export interface Checks {
  start(): Checker
}

export interface FileHash {
  readonly bytes: number
  /** 64 hex digits. */
  readonly sha256: string
}

export interface Copies {
  start(): Copier
  /** Copies the server's own data, which belongs to no database. */
  copyCatalog(path: string): Promise<void>
}

/** The outcome without the incarnation, which only the HTTP thread knows. */
export type FinishedCopy = Omit<CopyOutcome, 'incarnation'>

/** The message says what is wrong, without the name of the database. */
export class DamagedCopy extends Error {
  override readonly name = 'DamagedCopy'
}

/** A request of the HTTP thread to the copying thread, sent over rpc.ts. */
type CopyQuery =
  | { readonly type: 'same'; readonly job: CopyJob & { readonly known: KnownCopy } }
  | { readonly type: 'copy'; readonly job: CopyJob }
  | { readonly type: 'catalog'; readonly path: string; readonly folderUuid: string }
  | { readonly type: 'check'; readonly database: string; readonly from: CheckPosition | null }
  | { readonly type: 'server' }
  | { readonly type: 'find'; readonly sought: SoughtRevision }
  | { readonly type: 'content'; readonly database: string; readonly sought: SoughtContent }
  | { readonly type: 'piece'; readonly piece: SoughtPiece }

export type CopyRequest = { readonly call: number } & CopyQuery

/** The answer to a request that has found damage. */
export interface DamageAnswer {
  readonly damagedBecause: string
}

/** The progress of the copy that is being made. */
export interface ProgressEvent {
  readonly type: 'progress'
  readonly progress: JobProgress
}

/** The `workerData` of the copying thread. */
interface CopierData {
  readonly location: StoreLocation
  readonly copies: true
}

export function isCopier(data: unknown): data is CopierData {
  return typeof data === 'object' && data !== null && 'copies' in data && data.copies === true
}

interface CopiesOptions {
  readonly location: StoreLocation
  /** The file that a thread runs: host.ts, which knows the engine. */
  readonly entry: URL
  /** The database that now has this name. */
  findEntry(name: string): Promise<DatabaseEntry | null>
  /** Keeps a database open. @returns a function that releases it */
  hold(entry: DatabaseEntry): Promise<() => void>
  copyCatalog(path: string): Promise<void>
}

export function databaseCopies(options: CopiesOptions): Copies {
  return { start: () => new CopyThread(options), copyCatalog: options.copyCatalog }
}

export function databaseChecks(options: Omit<CopiesOptions, 'copyCatalog'>): Checks {
  return { start: () => new CopyThread(options) }
}

class CopyThread implements Copier, Checker {
  readonly #options: Omit<CopiesOptions, 'copyCatalog'>
  readonly #worker: Worker
  readonly #rpc: RpcClient<ProgressEvent>
  readonly #ended: Promise<void>
  #onProgress: (progress: JobProgress) => void = () => undefined

  constructor(options: Omit<CopiesOptions, 'copyCatalog'>) {
    this.#options = options
    const data: CopierData = { location: options.location, copies: true }
    this.#worker = new Worker(options.entry, { workerData: data, execArgv: threadFlags(process.execArgv) })
    this.#rpc = new RpcClient<ProgressEvent>(this.#worker, ({ progress }) => this.#onProgress(progress))
    this.#worker.on('message', (messages) => this.#rpc.receive(messages))
    let fault: unknown
    this.#worker.on('error', (thrown) => {
      fault ??= thrown
    })
    this.#ended = new Promise((resolve) => {
      this.#worker.once('exit', () => {
        this.#rpc.close(fault)
        resolve()
      })
    })
  }

  /** @throws DamagedCopy */
  async #ask<Result>(query: CopyQuery): Promise<Result> {
    const answer = (await this.#rpc.call({ ...query })) as Result | DamageAnswer
    if (isDamage(answer)) throw new DamagedCopy(answer.damagedBecause)
    return answer
  }

  async copy(job: CopyJob, onProgress: (progress: JobProgress) => void): Promise<CopyOutcome> {
    const entry = await this.#options.findEntry(job.database)
    if (entry === null) throw new CouchError('no_database')
    this.#onProgress = onProgress
    try {
      const made = await this.#make(entry, job)
      await this.#refuseIfDeleted(entry)
      return { ...made, incarnation: entry.incarnation }
    } catch (error) {
      await rm(job.target, { force: true })
      await this.#refuseIfDeleted(entry)
      throw error
    }
  }

  async #make(entry: DatabaseEntry, job: CopyJob): Promise<FinishedCopy> {
    const { known } = job
    if (known !== null) {
      const same = await this.#ask<FinishedCopy | null>({ type: 'same', job: { ...job, known } })
      if (same !== null) return same
    }
    const release = await this.#options.hold(entry).catch(damagedDatabase)
    try {
      return await this.#ask<FinishedCopy>({ type: 'copy', job })
    } finally {
      release()
    }
  }

  /** Refuses the copy of a database that was deleted, or replaced by another one of the same name. */
  async #refuseIfDeleted({ name, incarnation }: DatabaseEntry): Promise<void> {
    if ((await this.#options.findEntry(name))?.incarnation !== incarnation)
      throw new CouchError('no_database')
  }

  async check(
    database: string,
    from: CheckedUpTo | null,
    onStep: (step: CheckStep, incarnation: number) => Promise<boolean>,
  ): Promise<void> {
    const entry = await this.#options.findEntry(database)
    if (entry === null) throw new CouchError('no_database')
    const { incarnation } = entry
    const release = await this.#options.hold(entry).catch(unopenedDatabase)
    try {
      let next = from?.incarnation === incarnation ? from.position : null
      do {
        const step: CheckStep = await this.#ask<CheckStep>({ type: 'check', database, from: next })
        await this.#refuseIfDeleted(entry)
        next = (await onStep(step, incarnation)) ? step.next : null
      } while (next !== null)
    } finally {
      release()
    }
  }

  checkServer(): Promise<string | null> {
    return this.#ask({ type: 'server' })
  }

  find(sought: SoughtRevision): Promise<FoundRevision | null> {
    return this.#askOpen(sought.database, { type: 'find', sought })
  }

  findContent(database: string, sought: SoughtContent): Promise<number | null> {
    return this.#askOpen(database, { type: 'content', database, sought })
  }

  readPiece(database: string, piece: SoughtPiece): Promise<Uint8Array> {
    return this.#askOpen(database, { type: 'piece', piece })
  }

  /** Asks while the database is open elsewhere, so that its log is in order. */
  async #askOpen<Result>(database: string, query: CopyQuery): Promise<Result> {
    const entry = await this.#options.findEntry(database)
    if (entry === null) throw new CouchError('no_database')
    const release = await this.#options.hold(entry)
    try {
      return await this.#ask<Result>(query)
    } finally {
      release()
    }
  }

  checkCatalog(path: string, folderUuid: string): Promise<FileHash> {
    return this.#ask({ type: 'catalog', path, folderUuid })
  }

  async close(): Promise<void> {
    void this.#worker.terminate()
    await this.#ended
  }
}

function isDamage(answer: unknown): answer is DamageAnswer {
  return typeof answer === 'object' && answer !== null && 'damagedBecause' in answer
}

/** A check cannot look into a file that cannot be opened. */
function unopenedDatabase(error: unknown): never {
  if (error instanceof CouchError && error.code === 'internal_server_error')
    throw new DamagedCopy(error.message, { cause: error.cause })
  return damagedDatabase(error)
}

/** A database that cannot be opened counts as damaged: the backup goes on without it. */
function damagedDatabase(error: unknown): never {
  throw isFileFault(error) ? new DamagedCopy(error.message, { cause: error.cause }) : error
}
