/**
 * Brings server.sqlite in line with the files of the data folder, since the files decide which databases exist. The start
 * waits for none of it: a database that is asked for is looked at alone, and lists wait for the end. Each step is short.
 */
import { type Dir, opendirSync } from 'node:fs'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import { isFull } from './database-access.ts'
import type { DatabaseTable } from './database-table.ts'
import type { Files } from './files.ts'
import { rollBackRewrite } from './page-size.ts'

/** Rows or files of one step, which takes about a millisecond. */
const STEP = 100

interface FolderScanOptions {
  readonly files: Files
  readonly table: DatabaseTable
  /** Runs work that fits a transaction. @throws SqliteError */
  transaction(work: () => void): void
  /** Notes that databases were written to. Part of the caller's transaction. */
  noteUpdated(names: readonly string[]): void
  /** Databases have appeared or gone, or were noted as written to. */
  onChange(names: readonly string[]): void
}

export class FolderScan {
  readonly #options: FolderScanOptions
  /** Databases that were looked at, and may be open now; until the scan has ended. */
  readonly #checked = new Set<string>()
  /** Databases written to before the start whose update a full disk kept from being noted. */
  readonly unnoted = new Set<string>()
  #run: Promise<void> | null = null
  #count = 0
  /** Rows up to this name are counted. */
  #countedTo: string | null = ''
  /** Rows with a file, and files: of the same number, unless a file has no row. */
  readonly #found = { rows: 0, files: 0 }
  /** Whether databases have come or gone during the scan, so that the numbers mean nothing. */
  #hasChanged = false
  #hasEnded = false
  #isClosed = false

  constructor(options: FolderScanOptions) {
    this.#options = options
  }

  /**
   * Resolves when the whole folder was read. A scan that failed begins anew with the next call.
   * @throws the error of the file system or SQLite; unavailable when it was closed
   */
  whenListed(): Promise<void> {
    this.#run ??= this.#scan().catch((error: unknown) => {
      this.#run = null
      throw error
    })
    return this.#run
  }

  /** The number of databases, once {@link whenListed} has resolved. */
  get count(): number {
    return this.#count
  }

  /** A database was created, or has come with a replacement. */
  made(name: string): void {
    this.#hasChanged = true
    if (!this.#hasEnded) this.#checked.add(name)
    if (this.#isCounted(name)) this.#count += 1
  }

  /** A database was deleted. */
  removed(name: string): void {
    this.#hasChanged = true
    if (this.#isCounted(name)) this.#count -= 1
  }

  #isCounted(name: string): boolean {
    return this.#countedTo === null || name <= this.#countedTo
  }

  /**
   * Brings one database in line with its file, before it is opened.
   * @throws the error of the file system or SQLite
   */
  check(name: string): void {
    if (this.#hasEnded || this.#checked.has(name)) return
    const { files, table } = this.#options
    if (files.hasJournal(name)) rollBackRewrite(files.path(name))
    if (!files.exists(name)) {
      if (table.has(name)) this.#drop([name])
      return
    }
    if (!table.has(name)) this.#add([name])
    else if (files.isLeftOpen(name)) this.#note([name])
    this.#checked.add(name)
  }

  async #scan(): Promise<void> {
    this.#count = 0
    this.#countedTo = ''
    this.#hasChanged = false
    this.#found.rows = 0
    this.#found.files = 0
    const { files } = this.#options
    await this.#lookAtRows()
    await this.#lookAtFolder(files.databasesFolder, (names) => this.#lookAtFiles(names))
    // Looking for the row of each file takes ten times as long as counting them.
    if (this.#found.rows !== this.#found.files || this.#hasChanged) {
      await this.#lookAtFolder(files.databasesFolder, (names) => this.#addUnknown(names))
    }
    await this.#lookAtFolder(files.indexesFolder, (names) => files.sweepIndexes(names))
    this.#hasEnded = true
    this.#checked.clear()
  }

  /** Drops rows whose file is missing, and counts the others. */
  async #lookAtRows(): Promise<void> {
    const { table, files } = this.#options
    for (let after = ''; ; ) {
      const names = table.names({ after }, STEP)
      const gone = names.filter((name) => !files.exists(name))
      after = names.at(-1) ?? after
      this.#count += names.length - gone.length
      this.#found.rows += names.length - gone.length
      this.#countedTo = names.length < STEP ? null : after
      if (gone.length > 0) this.#drop(gone, false)
      if (names.length < STEP) return
      await this.#pause()
    }
  }

  async #lookAtFolder(path: string, look: (names: readonly string[]) => void): Promise<void> {
    const folder = openFolder(path)
    if (folder === null) return
    try {
      for (let names = readNames(folder); names.length > 0; names = readNames(folder)) {
        look(names)
        await this.#pause()
      }
    } finally {
      folder.closeSync()
    }
  }

  /** After each step, since the requests of a starting server come one after the other. */
  async #pause(): Promise<void> {
    await nextTurn()
    if (this.#isClosed) throw new CouchError('unavailable')
  }

  /** Removes what a crash left behind, counts the databases, and notes those that were left open. */
  #lookAtFiles(names: readonly string[]): void {
    const { files, table } = this.#options
    const isNew = (name: string) => !this.#checked.has(name)
    const found = files.sweep(names)
    for (const name of found.interrupted.filter(isNew)) rollBackRewrite(files.path(name))
    this.#found.files += found.databases.length
    const leftOpen = found.logged.filter((name) => isNew(name) && table.has(name) && files.isLeftOpen(name))
    if (leftOpen.length > 0) this.#note(leftOpen)
  }

  /** Adds databases that have no row. */
  #addUnknown(names: readonly string[]): void {
    const { files, table } = this.#options
    const unknown = files
      .sweep(names)
      .databases.filter((name) => !this.#checked.has(name) && !table.has(name) && files.exists(name))
    if (unknown.length > 0) this.#add(unknown)
  }

  /** On a full disk the known databases are served, so that the operator can start the server to free space. */
  #attempt(work: () => void): boolean {
    try {
      this.#options.transaction(work)
      return true
    } catch (error) {
      if (!isFull(error)) throw error
      return false
    }
  }

  #add(names: readonly string[]): void {
    const { table, onChange } = this.#options
    if (!this.#attempt(() => void table.enterAll(names))) return
    for (const name of names) if (this.#isCounted(name)) this.#count += 1
    this.#hasChanged = true
    onChange(names)
  }

  #drop(names: readonly string[], wereCounted = true): void {
    const { table, onChange } = this.#options
    table.hide(names)
    if (this.#attempt(() => table.forget(names))) table.unhide(names)
    if (wereCounted) for (const name of names) this.removed(name)
    onChange(names)
  }

  #note(names: readonly string[]): void {
    if (this.#attempt(() => this.#options.noteUpdated(names))) this.#options.onChange(names)
    else for (const name of names) this.unnoted.add(name)
  }

  /** Ends the scan before its next step. */
  close(): void {
    this.#isClosed = true
  }
}

/** @returns null if there is no such folder */
function openFolder(path: string): Dir | null {
  try {
    return opendirSync(path, { bufferSize: STEP })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    throw error
  }
}

function readNames(folder: Dir): string[] {
  const names: string[] = []
  for (let entry = folder.readSync(); entry !== null; entry = folder.readSync()) {
    names.push(entry.name)
    if (names.length === STEP) break
  }
  return names
}
