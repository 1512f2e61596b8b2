/** Where a data folder keeps its files, and the folder's own durability. */
import { mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { databaseFileName, databaseOfFileName } from '../../core/ids.ts'
import { COPIES_FOLDER } from '../upgrade-copies.ts'
import { fileBytes, logOf, syncPath } from './log-file.ts'

const SUFFIX = '.sqlite'
/** A file that is being made, or is to be removed: left behind by a crash, it goes at the next start. */
const UNFINISHED = '.unfinished'
/** What SQLite keeps beside a file. */
const COMPANIONS = ['-wal', '-shm', '-journal']

export class Files {
  readonly server: string
  /** Held by the settee that works on the folder; without the suffix, since it holds nothing. */
  readonly lock: string
  readonly #folder: string
  readonly #copies: string

  constructor(dataDir: string) {
    this.server = join(dataDir, `server${SUFFIX}`)
    this.lock = join(dataDir, 'lock')
    this.#copies = join(dataDir, COPIES_FOLDER)
    this.#folder = join(dataDir, 'databases')
  }

  /** Makes the folder for databases, readable by its owner alone. @throws the file system's error */
  makeFolder(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
  }

  path(database: string): string {
    return join(this.#folder, databaseFileName(database) + SUFFIX)
  }

  /** Where a database's file is kept as it was before its schema changed. @param schema the one it has */
  copyPath(database: string, schema: number): string {
    return join(this.#copies, `databases-${schema}`, databaseFileName(database) + SUFFIX)
  }

  /** As {@link copyPath}, of `server.sqlite`. */
  serverCopyPath(schema: number): string {
    return join(this.#copies, `server-${schema}`, `server${SUFFIX}`)
  }

  /**
   * Where a new file is made. What an attempt before has left there goes, and so does what an earlier file of this
   * name has left beside itself: SQLite would take its log for the new one's.
   */
  makeUnfinished(database: string): string {
    const path = this.#unfinished(database)
    this.#removeWithCompanions(path)
    this.#removeCompanions(this.path(database))
    return path
  }

  #unfinished(database: string): string {
    return this.path(database) + UNFINISHED
  }

  /** The databases that have a file. */
  databases(): string[] {
    return readdirSync(this.#folder)
      .filter((file) => file.endsWith(SUFFIX))
      .map((file) => databaseOfFileName(file.slice(0, -SUFFIX.length)))
      .filter((name) => name !== null)
  }

  /** Whether a database's log was left behind: closing the file removes it. */
  isLeftOpen(database: string): boolean {
    return fileBytes(logOf(this.path(database))) > 0
  }

  /** Gives a finished file its database's name; it and what it holds are durable when this returns. */
  publish(database: string): void {
    syncPath(this.#unfinished(database))
    renameSync(this.#unfinished(database), this.path(database))
    this.#sync()
  }

  /** Takes back a file that was just published and that nobody has seen. Never throws. */
  withdraw(database: string): void {
    try {
      this.#removeWithCompanions(this.path(database))
      this.#sync()
    } catch {
      // It is empty, and the next start enters it.
    }
  }

  /**
   * Removes a database's file, which loses its name before anything of it is gone.
   * @param gone called when that is durable
   */
  remove(database: string, gone: () => void): void {
    this.#takeName(database)
    gone()
    this.#removeWithCompanions(this.path(database))
    this.#removeWithCompanions(this.#unfinished(database))
    this.#sync()
  }

  #takeName(database: string): void {
    renameSync(this.path(database), this.#unfinished(database))
    try {
      this.#sync()
    } catch (error) {
      // It stays, and so must its file; the next start would remove it under the other name.
      renameSync(this.#unfinished(database), this.path(database))
      throw error
    }
  }

  /** Removes what a crash has left: unfinished files, and companions of files that are no more. */
  sweep(): void {
    const files = readdirSync(this.#folder)
    for (const file of files) {
      const owner = COMPANIONS.reduce(
        (name, companion) => name.replace(new RegExp(`${companion}$`), ''),
        file,
      )
      const isOrphan = owner !== file && !files.includes(owner)
      if (owner.endsWith(UNFINISHED) || isOrphan) rmSync(join(this.#folder, file), { force: true })
    }
    this.#sync()
  }

  #removeWithCompanions(path: string): void {
    rmSync(path, { force: true })
    this.#removeCompanions(path)
  }

  #removeCompanions(path: string): void {
    for (const companion of COMPANIONS) rmSync(path + companion, { force: true })
  }

  #sync(): void {
    syncPath(this.#folder)
  }
}
