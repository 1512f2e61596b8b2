/** Copies of databases, seen from the HTTP thread: each backup has a thread of its own for as long as it takes. */
import { rm } from 'node:fs/promises'
import { Worker } from 'node:worker_threads'
import { CouchError } from '../core/errors.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import {
  type Copier,
  type CopierData,
  type Copies,
  type CopyJob,
  type CopyOutcome,
  type CopyReply,
  type CopyRequest,
  DamagedCopy,
  type FileHash,
  type JobProgress,
  type MadeCopy,
} from './copy-wire.ts'
import { isFileFault } from './databases.ts'
import { threadFlags } from './thread.ts'
import { unpackError } from './wire.ts'

interface CopiesOptions {
  readonly dataDir: string
  /** The file that a thread runs: host.ts, which knows the engine. */
  readonly entry: URL
  /** The database that has this name now. */
  entryOf(name: string): DatabaseEntry | undefined
  /** Keeps a database open. @returns what lets it go */
  hold(entry: DatabaseEntry): Promise<() => void>
  copyCatalog(path: string): Promise<void>
}

export function databaseCopies(options: CopiesOptions): Copies {
  return { start: () => new CopyThread(options), copyCatalog: options.copyCatalog }
}

interface Waiting {
  resolve(value: unknown): void
  reject(error: unknown): void
  onProgress?: ((progress: JobProgress) => void) | undefined
}

type Unnumbered<T> = T extends { call: number } ? Omit<T, 'call'> : never

class CopyThread implements Copier {
  readonly #options: CopiesOptions
  readonly #worker: Worker
  readonly #waiting = new Map<number, Waiting>()
  readonly #ended: Promise<void>
  #fault: unknown
  #isOver = false
  #calls = 0

  constructor(options: CopiesOptions) {
    this.#options = options
    const data: CopierData = { dataDir: options.dataDir, copies: true }
    this.#worker = new Worker(options.entry, { workerData: data, execArgv: threadFlags(process.execArgv) })
    this.#worker.on('message', (reply: CopyReply) => this.#take(reply))
    this.#worker.on('error', (thrown) => {
      this.#fault ??= thrown
    })
    this.#ended = new Promise((resolve) => {
      this.#worker.once('exit', () => {
        this.#end()
        resolve()
      })
    })
  }

  #end(): void {
    this.#isOver = true
    for (const { reject } of this.#waiting.values()) reject(this.#gone())
    this.#waiting.clear()
  }

  #gone(): CouchError {
    return new CouchError('unavailable', undefined, { cause: this.#fault })
  }

  #take(reply: CopyReply): void {
    const waiting = this.#waiting.get(reply.call)
    if (waiting === undefined) return
    if (reply.type === 'progress') {
      waiting.onProgress?.(reply.progress)
      return
    }
    this.#waiting.delete(reply.call)
    if (reply.type === 'answer') waiting.resolve(reply.value)
    else if (reply.type === 'damaged') waiting.reject(new DamagedCopy(reply.reason))
    else waiting.reject(unpackError(reply.error))
  }

  #ask(request: Unnumbered<CopyRequest>, onProgress?: (progress: JobProgress) => void): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#isOver) {
        reject(this.#gone())
        return
      }
      const call = ++this.#calls
      this.#waiting.set(call, { resolve, reject, onProgress })
      this.#worker.postMessage({ ...request, call })
    })
  }

  async copy(job: CopyJob, onProgress: (progress: JobProgress) => void): Promise<CopyOutcome> {
    const entry = this.#options.entryOf(job.database)
    if (entry === undefined) throw new CouchError('no_database')
    try {
      const made = await this.#make(entry, job, onProgress)
      this.#refuseIfGone(entry)
      return { ...made, incarnation: entry.incarnation }
    } catch (error) {
      await rm(job.target, { force: true })
      this.#refuseIfGone(entry)
      throw error
    }
  }

  async #make(
    entry: DatabaseEntry,
    job: CopyJob,
    onProgress: (progress: JobProgress) => void,
  ): Promise<MadeCopy> {
    const { known } = job
    if (known !== null) {
      const taken = await this.#ask({ type: 'same', job: { ...job, known } })
      if (taken !== null) return taken as MadeCopy
    }
    const release = await this.#options.hold(entry).catch(damagedDatabase)
    try {
      return (await this.#ask({ type: 'copy', job }, onProgress)) as MadeCopy
    } finally {
      release()
    }
  }

  /** What a copy shows of a database that is no more, or of the one before it, nobody asked for. */
  #refuseIfGone({ name, incarnation }: DatabaseEntry): void {
    if (this.#options.entryOf(name)?.incarnation !== incarnation) throw new CouchError('no_database')
  }

  checkCatalog(path: string, serverUuid: string): Promise<FileHash> {
    return this.#ask({ type: 'catalog', path, serverUuid }) as Promise<FileHash>
  }

  async close(): Promise<void> {
    void this.#worker.terminate()
    await this.#ended
  }
}

/** One that cannot be opened is left out, as one whose copy is not what it holds. */
function damagedDatabase(error: unknown): never {
  throw isFileFault(error) ? new DamagedCopy(error.message, { cause: error.cause }) : error
}
