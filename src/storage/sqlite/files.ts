/** The paths of the files in a data folder, and durable changes to them. */
import {
  constants,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { dirname, join } from 'node:path'
import { closeToOthers } from '../../core/file-modes.ts'
import { databaseFileName, databaseOfFileName } from '../../core/ids.ts'
import { COPIES_FOLDER, SERVER_COPY } from '../storage-engine.ts'
import { fileBytes, logOf, syncPathNow } from './page-copy.ts'

const SUFFIX = '.sqlite'
/** The suffix of files that are unfinished or about to be deleted. The next start deletes those that a crash left behind. */
const UNFINISHED = '.unfinished'
/** The suffix of a kept file that is damaged. It is never removed (backup/upgrade-copies.ts). */
const DAMAGED = '.damaged.sqlite'
const JOURNAL = '-journal'
/** The suffixes of the files that SQLite keeps beside a database. */
const WAL = '-wal'
const COMPANIONS = [WAL, '-shm', JOURNAL]
/** The name of a kept file: that of the database's file, a time, and a number if there are several of one second. */
const KEPT = /^(.+)\.\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(?:-\d+)?\.sqlite$/

export interface SweptFiles {
  readonly databases: readonly string[]
  readonly logged: readonly string[]
  readonly interrupted: readonly string[]
}

export class Files {
  readonly server: string
  /** The copy from which a server starts whose file is damaged (server-copy.ts). */
  readonly serverCopy: string
  /** The lock file of the folder. It has no suffix, since it is not a database. */
  readonly lock: string
  readonly #folder: string
  readonly #copies: string
  readonly #kept: string
  readonly #indexes: string

  constructor(dataDir: string) {
    this.server = join(dataDir, `server${SUFFIX}`)
    this.serverCopy = join(dataDir, SERVER_COPY)
    this.lock = join(dataDir, 'lock')
    this.#copies = join(dataDir, COPIES_FOLDER)
    this.#folder = join(dataDir, 'databases')
    this.#kept = join(dataDir, 'replaced')
    this.#indexes = join(dataDir, 'indexes')
  }

  /** Makes the folder for databases, readable only by its owner. @throws the file system's error */
  makeFolder(): void {
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 })
  }

  path(database: string): string {
    return join(this.#folder, databaseFileName(database) + SUFFIX)
  }

  /** The folder of a database's index stores. */
  indexFolder(database: string): string {
    return join(this.#indexes, databaseFileName(database))
  }

  /** The path of the copy of a database's file from before an upgrade. @param schema the version of the copy */
  copyPath(database: string, schema: number): string {
    return join(this.#copies, `databases-${schema}`, databaseFileName(database) + SUFFIX)
  }

  /** As {@link copyPath}, for `server.sqlite`. */
  serverCopyPath(schema: number): string {
    return join(this.#copies, `server-${schema}`, `server${SUFFIX}`)
  }

  /**
   * The path for a new file. Deletes the file of an earlier attempt, and the log of an earlier file of this name, which
   * SQLite would apply to the new file.
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

  get databasesFolder(): string {
    return this.#folder
  }

  get indexesFolder(): string {
    return this.#indexes
  }

  /** Whether a database has a file. If others had rights to it, they lose them. */
  exists(database: string): boolean {
    const path = this.path(database)
    const found = closeToOthers(path)
    return found !== null && (found !== 'foreign' || existsSync(path))
  }

  /** Whether a crash interrupted a rewrite of the file (page-size.ts). */
  hasJournal(database: string): boolean {
    return existsSync(this.path(database) + JOURNAL)
  }

  /** Whether a database's log was left behind: closing the file removes it. */
  isLeftOpen(database: string): boolean {
    return fileBytes(logOf(this.path(database))) > 0
  }

  /**
   * A text that every write to a database changes; null while its log is not empty, since writes in the log cannot be
   * distinguished from writes already in the file.
   */
  fingerprint(database: string): string | null {
    const found = statSync(this.path(database), { throwIfNoEntry: false, bigint: true })
    if (found === undefined || this.isLeftOpen(database)) return null
    // ctime changes with every change to the file, and no program can set it.
    return [found.ino, found.size, found.mtimeNs, found.ctimeNs].join('-')
  }

  /** Gives a finished file its database's name. The name and the content are durable when this returns. */
  publish(database: string): void {
    syncPathNow(this.#unfinished(database))
    renameSync(this.#unfinished(database), this.path(database))
    this.#sync()
  }

  /** Removes a file that was just published and is not yet in use. Never throws. */
  withdraw(database: string): void {
    try {
      this.#removeWithCompanions(this.path(database))
      this.#sync()
    } catch {
      // The file is empty, and the next start adds it.
    }
  }

  /**
   * Links a database's file under another name, for a removal that keeps it. After a crash before the removal, the next start
   * removes the link.
   * @param time ms since 1970
   */
  keep(database: string, time: number): void {
    this.#keep(this.path(database), databaseFileName(database), time)
  }

  /**
   * Removes a database's file. It is renamed first, so that a crash leaves no part of it under the database's name.
   * @param onRenamed called when the rename is durable
   */
  remove(database: string, onRenamed: () => void): void {
    this.#takeName(database)
    onRenamed()
    this.#removeWithCompanions(this.path(database))
    this.#removeWithCompanions(this.#unfinished(database))
    this.#sync()
    rmSync(this.indexFolder(database), { recursive: true, force: true })
  }

  #takeName(database: string): void {
    renameSync(this.path(database), this.#unfinished(database))
    try {
      this.#sync()
    } catch (error) {
      // The database remains, so its file gets its name back; the next start would remove an unfinished file.
      renameSync(this.#unfinished(database), this.path(database))
      throw error
    }
  }

  /** The path of a copy that is prepared to replace a database. @param draft names the copy */
  draft(database: string, draft: string): string {
    return `${this.path(database)}.${draft}${UNFINISHED}`
  }

  /** Removes a prepared copy. Never throws. */
  discard(database: string, draft: string): void {
    try {
      this.#removeWithCompanions(this.draft(database, draft))
    } catch {
      // The next start removes it.
    }
  }

  /**
   * Gives a prepared copy a database's name; durable when this returns. The old file is linked under another name first,
   * so that after a crash there is always a whole file under the database's name.
   * @param time ms since 1970
   * @returns the path at which the old file is kept; null if there was no file
   */
  replace(database: string, draft: string, time: number): string | null {
    const path = this.path(database)
    const kept = existsSync(path) ? this.#keep(path, databaseFileName(database), time) : null
    // SQLite would apply the log of the old file to the new one. A log remains only when it could not be checkpointed,
    // because the old file is damaged or being read. A copy of the log is kept; after a crash before the rename, sweep
    // puts it back.
    for (const companion of COMPANIONS) rmSync(path + companion, { force: true })
    if (kept !== null) this.#sync()
    renameSync(this.draft(database, draft), path)
    try {
      this.#sync()
    } catch (error) {
      this.#putBack(path, kept)
      throw error
    }
    return kept
  }

  /**
   * Gives the old file its name back, since the replacement is refused. A crash in the middle leaves what a crash before
   * the replacement leaves.
   */
  #putBack(path: string, kept: string | null): void {
    const old = path + UNFINISHED
    if (kept === null) {
      renameSync(path, old)
      this.#removeWithCompanions(old)
      return
    }
    linkOrCopy(kept, old)
    renameSync(old, path)
    const log = logOf(kept)
    if (existsSync(log)) linkOrCopy(log, logOf(path))
    this.#sync()
    this.#removeWithCompanions(kept)
  }

  /** Where the file that is to replace `server.sqlite` is made. */
  get serverDraft(): string {
    return this.server + UNFINISHED
  }

  /**
   * Gives the whole file at {@link serverDraft} the name of `server.sqlite`. The old file is kept with its log, a damaged one
   * forever. After a crash in the middle, {@link finishServer} continues.
   * @param time ms since 1970
   */
  replaceServer(time: number, { isDamaged }: { readonly isDamaged: boolean }): void {
    syncPathNow(this.serverDraft)
    if (existsSync(this.server)) {
      this.#keep(this.server, 'server', time, isDamaged ? DAMAGED : SUFFIX)
      // SQLite would apply the log of the old file to the new one, and an old file without its log would be read.
      rmSync(this.server)
      syncPathNow(dirname(this.server))
    }
    this.finishServer()
  }

  /** Ends {@link replaceServer}: without it, there is always a file of this name. */
  finishServer(): void {
    if (existsSync(this.server) || !existsSync(this.serverDraft)) return
    this.#removeCompanions(this.server)
    renameSync(this.serverDraft, this.server)
    syncPathNow(dirname(this.server))
  }

  /** Whether the folder has databases. */
  hasDatabases(): boolean {
    return existsSync(this.#folder) && readdirSync(this.#folder).some((name) => name.endsWith(SUFFIX))
  }

  #keep(path: string, name: string, time: number, suffix = SUFFIX): string {
    mkdirSync(this.#kept, { recursive: true, mode: 0o700 })
    const kept = this.#keptPath(name, time, suffix)
    linkOrCopy(path, kept)
    const log = statSync(`${path}-wal`, { throwIfNoEntry: false })
    if (log !== undefined && log.size > 0) linkOrCopy(`${path}-wal`, `${kept}-wal`)
    syncPathNow(this.#kept)
    syncPathNow(dirname(this.server))
    return kept
  }

  #keptPath(name: string, time: number, suffix: string): string {
    const stamp = new Date(time)
      .toISOString()
      .replace(/\.\d+Z$/, 'Z')
      .replaceAll(':', '-')
    const base = join(this.#kept, `${name}.${stamp}`)
    let nth = 1
    while (existsSync(base + ordinal(nth) + suffix)) nth += 1
    return base + ordinal(nth) + suffix
  }

  /**
   * Removes what a crash left behind: unfinished files, and companions of deleted files.
   * @param files some file names of the folder, which may have been removed since
   * @returns the databases among them, and those with a log or with a journal
   */
  sweep(files: readonly string[]): SweptFiles {
    const swept = { databases: [] as string[], logged: [] as string[], interrupted: [] as string[] }
    for (const file of files) {
      const companion = COMPANIONS.find((suffix) => file.endsWith(suffix)) ?? ''
      const owner = file.slice(0, file.length - companion.length)
      const isOrphan = companion !== '' && !existsSync(join(this.#folder, owner))
      if (companion !== '') closeToOthers(join(this.#folder, file))
      if (owner.endsWith(UNFINISHED) || isOrphan) rmSync(join(this.#folder, file), { force: true })
      else if (owner.endsWith(SUFFIX)) {
        const name = databaseOfFileName(owner.slice(0, -SUFFIX.length))
        if (name === null) continue
        if (companion === '') swept.databases.push(name)
        else if (companion === JOURNAL) swept.interrupted.push(name)
        else if (companion === WAL) swept.logged.push(name)
      }
    }
    return swept
  }

  /** Removes the indexes of databases that are gone. @param folders names of folders with indexes */
  sweepIndexes(folders: readonly string[]): void {
    for (const folder of folders) {
      if (existsSync(join(this.#folder, folder + SUFFIX))) continue
      rmSync(join(this.#indexes, folder), { recursive: true, force: true })
    }
  }

  /**
   * A crash between keeping a file and replacing it leaves the file with two names. The database's name is the right one.
   * Its log may have been deleted already, and is then put back.
   */
  sweepKept(): void {
    if (!existsSync(this.#kept)) return
    for (const file of readdirSync(this.#kept)) {
      const owner = KEPT.exec(file)?.[1]
      const kept = join(this.#kept, file)
      if (owner === undefined || (statSync(kept, { throwIfNoEntry: false })?.nlink ?? 0) < 2) continue
      const path = join(this.#folder, owner + SUFFIX)
      if (inodeOf(path) === undefined || inodeOf(path) !== inodeOf(kept)) continue
      const log = kept + WAL
      if (existsSync(log) && !existsSync(path + WAL)) linkOrCopy(log, path + WAL)
      this.#sync()
      this.#removeWithCompanions(kept)
    }
  }

  #removeWithCompanions(path: string): void {
    rmSync(path, { force: true })
    this.#removeCompanions(path)
  }

  #removeCompanions(path: string): void {
    for (const companion of COMPANIONS) rmSync(path + companion, { force: true })
  }

  #sync(): void {
    syncPathNow(this.#folder)
  }
}

function inodeOf(path: string): bigint | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino
}

function ordinal(nth: number): string {
  return nth === 1 ? '' : `-${nth}`
}

/** Copies the file where the file system has no links. */
function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to)
  } catch {
    copyFileSync(from, to, constants.COPYFILE_EXCL)
    syncPathNow(to)
  }
}
