/** Where a data folder keeps its files, and the folder's own durability. */
import { closeSync, fsyncSync, mkdirSync, openSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { databaseFileName, databaseOfFileName } from '../../core/ids.ts'

const SUFFIX = '.sqlite'
/** A file that is being made, or is to be removed: left behind by a crash, it goes at the next start. */
const UNFINISHED = '.unfinished'
/** What SQLite keeps beside a file. */
const COMPANIONS = ['-wal', '-shm', '-journal']

export class Files {
  readonly server: string
  readonly #folder: string

  constructor(dataDir: string) {
    this.server = join(dataDir, `server${SUFFIX}`)
    this.#folder = join(dataDir, 'databases')
  }

  /** Makes the folder for databases, readable by its owner alone. @throws the file system's error */
  makeFolder(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
  }

  path(database: string): string {
    return join(this.#folder, databaseFileName(database) + SUFFIX)
  }

  /** Where a new file is made; what an attempt before has left there goes. */
  makeUnfinished(database: string): string {
    const path = this.#unfinished(database)
    this.#removeWithCompanions(path)
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
    const log = statSync(`${this.path(database)}-wal`, { throwIfNoEntry: false })
    return log !== undefined && log.size > 0
  }

  /**
   * A text that every write to a database changes; null while its log holds something, since what is written there
   * cannot be told from what has come into the file already.
   */
  fingerprint(database: string): string | null {
    const found = statSync(this.path(database), { throwIfNoEntry: false, bigint: true })
    if (found === undefined || this.isLeftOpen(database)) return null
    // The last of them changes with whatever is done to the file, and nobody can set it.
    return [found.ino, found.size, found.mtimeNs, found.ctimeNs].join('-')
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
    renameSync(this.path(database), this.#unfinished(database))
    this.#sync()
    gone()
    this.#removeWithCompanions(this.path(database))
    this.#removeWithCompanions(this.#unfinished(database))
    this.#sync()
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
    for (const companion of ['', ...COMPANIONS]) rmSync(path + companion, { force: true })
  }

  #sync(): void {
    syncPath(this.#folder)
  }
}

function syncPath(path: string): void {
  const descriptor = openSync(path, 'r')
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}
