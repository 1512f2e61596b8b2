/** The databases of a server over its pool of threads. */
import { extname } from 'node:path'
import { CouchError } from '../core/errors.ts'
import { checkDatabaseName } from '../core/ids.ts'
import type { Limits } from '../core/types.ts'
import type { DatabaseEntry } from '../storage/engine.ts'
import type { DatabaseHandle, Databases } from './databases.ts'
import { type OpenedCatalog, Pool } from './pool.ts'
import { type ProxiedDatabase, proxyDatabase } from './proxy.ts'
import type { ThreadEvent } from './thread.ts'

export interface ServerDatabasesOptions {
  readonly dataDir: string
  readonly limits: Limits
  /** Databases kept open at the most, unless more are in use. */
  readonly maxOpen: number
  /** The file that a thread runs; by default host.ts beside this file. */
  readonly threadEntry?: URL | undefined
  /** A database thread has died. */
  onFault(fault: unknown): void
}

/**
 * Takes the data folder and lists its databases.
 * @throws Error with one clear line when the folder cannot be used or another settee holds it
 */
export async function openServerDatabases(options: ServerDatabasesOptions): Promise<Databases> {
  const databases = new ServerDatabases(options)
  try {
    await databases.open()
  } catch (error) {
    await databases.close()
    throw error instanceof CouchError && error.cause !== undefined ? new Error(firstLine(error.cause)) : error
  }
  return databases
}

/** The message of an error that has come over the wire as its stack. */
function firstLine(cause: unknown): string {
  const [line = ''] = String(cause).split('\n')
  return line.replace(/^\w*Error: /, '')
}

/** A deletion before this one went through, though the thread died before it could say so. */
function isGone(error: unknown): boolean {
  return error instanceof CouchError && error.code === 'no_database'
}

class ServerDatabases implements Databases {
  #serverUuid = ''
  readonly #pool: Pool
  readonly #byName = new Map<string, ProxiedDatabase>()
  readonly #byIncarnation = new Map<number, ProxiedDatabase>()
  /** Makings and deletings under way: one at a time for a name. */
  readonly #changing = new Map<string, Promise<unknown>>()
  #names: readonly string[] | undefined
  #closed: Promise<void> | undefined

  constructor({ dataDir, limits, maxOpen, threadEntry, onFault }: ServerDatabasesOptions) {
    this.#pool = new Pool({
      dataDir,
      limits,
      maxOpen,
      entry: threadEntry ?? new URL(`./host${extname(import.meta.url)}`, import.meta.url),
      onEvent: (event) => this.#tell(event),
      onDeath: (names, fault) => {
        onFault(fault)
        // Whoever watches may have missed a commit: feeds end, and their clients come back.
        for (const name of names) this.#byName.get(name)?.emit({ type: 'gone' })
      },
      onCatalog: (opened) => this.#adopt(opened),
    })
  }

  open(): Promise<void> {
    return this.#pool.openCatalog()
  }

  /** Enters what is not known yet: all at first; later what a thread had made when it died before it said so. */
  #adopt({ serverUuid, databases }: OpenedCatalog): void {
    this.#serverUuid = serverUuid
    for (const entry of databases) {
      if (!this.#byName.has(entry.name) && !this.#changing.has(entry.name)) this.#enter(entry)
    }
  }

  get serverUuid(): string {
    return this.#serverUuid
  }

  #enter(entry: DatabaseEntry): void {
    const proxied = proxyDatabase(entry, () => this.#pool.owner(entry.name))
    this.#byName.set(entry.name, proxied)
    this.#byIncarnation.set(entry.incarnation, proxied)
    this.#names = undefined
  }

  #leave({ name, incarnation }: DatabaseEntry): void {
    this.#byName.delete(name)
    this.#byIncarnation.delete(incarnation)
    this.#names = undefined
  }

  #tell(event: ThreadEvent): void {
    const proxied = this.#byIncarnation.get(event.incarnation)
    if (event.type === 'committed') proxied?.emit({ type: 'committed', updateSeq: event.updateSeq })
    else proxied?.emit({ type: 'secured', security: event.security })
  }

  /** Legal names are ASCII, so the order of UTF-16 is that of bytes. */
  names(): readonly string[] {
    this.#names ??= [...this.#byName.keys()].sort()
    return this.#names
  }

  get(name: string): DatabaseHandle {
    const proxied = this.#byName.get(name)
    if (proxied === undefined) throw new CouchError('no_database')
    return proxied.handle
  }

  create(name: string): Promise<void> {
    checkDatabaseName(name)
    return this.#alone(name, async () => {
      if (this.#byName.has(name)) throw new CouchError('file_exists')
      this.#enter((await this.#pool.catalog({ act: 'create', name })) as DatabaseEntry)
    })
  }

  delete(name: string): Promise<void> {
    return this.#alone(name, async () => {
      const proxied = this.#byName.get(name)
      if (proxied === undefined) throw new CouchError('no_database')
      this.#leave(proxied.entry)
      proxied.retire()
      try {
        await this.#pool.owner(name).ask({ type: 'drop', database: name })
        await this.#pool.catalog({ act: 'delete', name })
      } catch (error) {
        if (!isGone(error)) {
          this.#enter(proxied.entry)
          throw error
        }
      }
      this.#pool.release(name)
    })
  }

  async #alone(name: string, work: () => Promise<void>): Promise<void> {
    const before = this.#changing.get(name) ?? Promise.resolve()
    const done = before.then(work, work)
    this.#changing.set(name, done)
    try {
      await done
    } finally {
      if (this.#changing.get(name) === done) this.#changing.delete(name)
    }
  }

  setLimits(limits: Limits): void {
    this.#pool.setLimits(limits)
  }

  endFeeds(): void {
    for (const proxied of this.#byName.values()) proxied.emit({ type: 'gone' })
  }

  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    this.endFeeds()
    await this.#pool.close()
  }
}
