/** Where a data folder keeps its files, and the folder's own durability. */
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
import { databaseFileName, databaseOfFileName } from '../../core/ids.ts'
import { COPIES_FOLDER } from '../storage-engine.ts'
import { fileBytes, logOf, syncPathNow } from './page-copy.ts'

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
  readonly #kept: string

  constructor(dataDir: string) {
    this.server = join(dataDir, `server${SUFFIX}`)
    this.lock = join(dataDir, 'lock')
    this.#copies = join(dataDir, COPIES_FOLDER)
    this.#folder = join(dataDir, 'databases')
    this.#kept = join(dataDir, 'replaced')
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
    syncPathNow(this.#unfinished(database))
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

  /** Where a copy is prepared to take a database's place. @param draft names it */
  draft(database: string, draft: string): string {
    return `${this.path(database)}.${draft}${UNFINISHED}`
  }

  /** Removes what was prepared. Never throws. */
  discard(database: string, draft: string): void {
    try {
      this.#removeWithCompanions(this.draft(database, draft))
    } catch {
      // The next start sweeps it.
    }
  }

  /**
   * Gives what was prepared a database's name; durable when this returns. What has the name keeps another, so that no
   * crash leaves the name without a whole file.
   * @param time ms since 1970
   * @returns where it is kept what was there; null: nothing was
   */
  replace(database: string, draft: string, time: number): string | null {
    const path = this.path(database)
    const kept = existsSync(path) ? this.#keep(path, databaseFileName(database), time) : null
    // Beside another file a log of the old one would be read as its own. It is there only when it could not be brought
    // into the old file: that is damaged, or somebody reads it. It is kept, and a crash before the new file has the
    // name gives it back (sweep).
    for (const companion of COMPANIONS) rmSync(path + companion, { force: true })
    if (kept !== null) this.#sync()
    renameSync(this.draft(database, draft), path)
    this.#sync()
    return kept
  }

  /** As {@link replace}, of the server's own file, whose log must be empty. @param draft the path of a whole file */
  replaceServer(draft: string, time: number): void {
    syncPathNow(draft)
    if (existsSync(this.server)) this.#keep(this.server, 'server', time)
    renameSync(draft, this.server)
    syncPathNow(dirname(this.server))
  }

  #keep(path: string, name: string, time: number): string {
    mkdirSync(this.#kept, { recursive: true, mode: 0o700 })
    const kept = this.#keptPath(name, time)
    linkOrCopy(path, kept)
    const log = statSync(`${path}-wal`, { throwIfNoEntry: false })
    if (log !== undefined && log.size > 0) linkOrCopy(`${path}-wal`, `${kept}-wal`)
    syncPathNow(this.#kept)
    syncPathNow(dirname(this.server))
    return kept
  }

  #keptPath(name: string, time: number): string {
    const stamp = new Date(time)
      .toISOString()
      .replace(/\.\d+Z$/, 'Z')
      .replaceAll(':', '-')
    const base = join(this.#kept, `${name}.${stamp}`)
    let nth = 1
    while (existsSync(base + ordinal(nth) + SUFFIX)) nth += 1
    return base + ordinal(nth) + SUFFIX
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
    this.#sweepKept()
  }

  /**
   * A crash between keeping a file and replacing it leaves one with two names, of which the database's is the right one;
   * its log may have had to go first.
   */
  #sweepKept(): void {
    if (!existsSync(this.#kept)) return
    const linked = readdirSync(this.#kept)
      .map((file) => join(this.#kept, file))
      .filter((path) => (statSync(path, { throwIfNoEntry: false })?.nlink ?? 0) > 1)
    if (linked.length === 0) return
    const databases = readdirSync(this.#folder).map((file) => join(this.#folder, file))
    const byInode = new Map(databases.map((path) => [inodeOf(path), path]))
    for (const kept of linked) {
      const path = byInode.get(inodeOf(kept))
      if (path === undefined) continue
      const log = `${kept}-wal`
      if (existsSync(log) && !existsSync(`${path}-wal`)) linkOrCopy(log, `${path}-wal`)
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

/** Some file systems have no links. */
function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to)
  } catch {
    copyFileSync(from, to, constants.COPYFILE_EXCL)
    syncPathNow(to)
  }
}
