/**
 * Opens a file that an older settee wrote. It is first copied and then migrated to the newest schema, while the thread
 * serves other databases. An interruption leaves the file as the older settee wrote it.
 */
import { constants, statSync } from 'node:fs'
import { copyFile, type FileHandle, mkdir, open, rename, rm, stat, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Limiter } from '../../core/concurrency.ts'
import { syncPath } from '../../core/durable-files.ts'
import { CouchError } from '../../core/errors.ts'
import { Connection, type ConnectionOptions } from './connection.ts'
import { isFull } from './database-access.ts'
import { type Migration, migrate, migrateInSteps, schemaOf } from './schema.ts'

/** Files that a thread upgrades at once, so that a small one need not wait for a large one. */
const AT_ONCE = 4
/** More than the databases of most threads; further requests are refused. */
const MAY_WAIT = 10_000

/** The file that is opened. */
interface UpgradedFile {
  readonly path: string
  /** Its name in error messages. */
  readonly label: string
  readonly migrations: readonly Migration[]
  /** Whether to create a missing file. */
  readonly mayBeNew?: boolean
  /** The path of its copy. @param schema its current version */
  copyPath(schema: number): string
  /** Called when the file was opened exclusively, for lack of disk space. */
  onExclusive?(): void
}

interface UpgradesOptions {
  readonly onOperation: ConnectionOptions['onOperation']
  /** Whether files are copied before an upgrade. */
  keepsCopies(): boolean
  /** Ends upgrades when the thread stops. */
  readonly ending: AbortSignal | undefined
}

export class Upgrades {
  readonly #options: UpgradesOptions
  readonly #limiter = new Limiter(AT_ONCE, MAY_WAIT)

  constructor(options: UpgradesOptions) {
    this.#options = options
  }

  /**
   * Opens a file, and upgrades it first where that is needed.
   * @throws RefusedFile, insufficient_storage, unavailable when the thread stops during the upgrade; SQLite's and the file
   *   system's errors
   */
  async open(file: UpgradedFile): Promise<Connection> {
    const connection = this.#connect(file)
    if (closingOnError(connection, () => isReady(connection, file))) return connection
    connection.close()
    return this.#limiter.run(() => this.#upgraded(file))
  }

  #connect({ path, mayBeNew = false, onExclusive }: UpgradedFile): Connection {
    // A file gets its name when it is complete, so an empty file has lost its content.
    if (!mayBeNew && statSync(path).size === 0) throw new CouchError('damaged_file')
    const options = { onOperation: this.#options.onOperation, mustExist: !mayBeNew }
    try {
      return readable(new Connection(path, options), mayBeNew)
    } catch (error) {
      if (!isFull(error)) throw error
      // All connections share the index of the log, which is a file. On a full disk the index is in memory, and no
      // other connection can open the database.
      const exclusive = readable(new Connection(path, { ...options, exclusive: true }), mayBeNew)
      onExclusive?.()
      return exclusive
    }
  }

  async #upgraded(file: UpgradedFile): Promise<Connection> {
    this.#refuseIfEnding()
    if (this.#options.keepsCopies()) await this.#copy(file)
    const connection = this.#connect(file)
    try {
      await migrateInSteps(connection, file.label, file.migrations, () => this.#refuseIfEnding())
      return connection
    } catch (error) {
      connection.close()
      throw error
    }
  }

  /** Closing the last connection checkpoints the whole log into the file. */
  async #copy(file: UpgradedFile): Promise<void> {
    const connection = this.#connect(file)
    const schema = closingOnError(connection, () => {
      connection.checkpoint()
      return schemaOf(connection, file.label, file.migrations)
    })
    connection.close()
    const refuseIfEnding = () => this.#refuseIfEnding()
    await keepCopy(file.path, file.copyPath(schema), {
      label: file.label,
      refuseIfEnding,
      throughSqlite: async (target) => {
        const source = this.#connect(file)
        try {
          await source.copyTo(target, refuseIfEnding)
        } finally {
          source.close()
        }
      },
    })
  }

  #refuseIfEnding(): void {
    if (this.#options.ending?.aborted) throw new CouchError('unavailable')
  }
}

/** @throws damaged_file when the schema is missing */
function readable(connection: Connection, mayBeNew: boolean): Connection {
  closingOnError(connection, () => {
    if (connection.pragma('user_version') === 0 && !mayBeNew) throw new CouchError('damaged_file')
  })
  return connection
}

/** Whether the file has the newest schema. An empty file is given it. */
function isReady(connection: Connection, { label, migrations }: UpgradedFile): boolean {
  const schema = schemaOf(connection, label, migrations)
  if (schema === migrations.length) return true
  if (schema > 0 || connection.prepare('SELECT 1 FROM sqlite_schema LIMIT 1').get() !== undefined)
    return false
  migrate(connection, label, migrations)
  return true
}

function closingOnError<R>(connection: Connection, work: () => R): R {
  try {
    return work()
  } catch (error) {
    connection.close()
    throw error
  }
}

/** Bytes copied at once: occupies one of the process's file threads for about 1 ms. */
const PIECE = 1024 * 1024
/** Space that a copy leaves free for the upgrade itself and for other databases: bytes, and a share of the file. */
const SPARE_BYTES = 8 * 1024 * 1024
const SPARE_SHARE = 0.25

interface CopyOptions {
  /** The name of the file in error messages. */
  readonly label: string
  /** Called regularly; an error that it throws ends the copy. */
  refuseIfEnding(): void
  /** The free bytes of a folder; by default as the file system reports them. */
  readonly freeBytes?: (folder: string) => Promise<number>
  /** Copies a database that other connections have open, which cannot be copied as a file. */
  throughSqlite(target: string): Promise<void>
}

/**
 * Copies a file to `target` and makes its folders. An existing copy is replaced unless it is up to date. Where the file
 * system supports it, the copy shares its blocks with the file and takes no space.
 * @throws insufficient_storage, the file system's errors, and errors of `refuseIfEnding`
 */
export async function keepCopy(path: string, target: string, options: CopyOptions): Promise<void> {
  if (await isCopied(path, target)) return
  const unfinished = `${target}.unfinished`
  await mkdir(dirname(target), { recursive: true, mode: 0o700 })
  try {
    if (!(await cloned(path, unfinished))) {
      await requireRoom(path, unfinished, options)
      await copied(path, unfinished, options)
    }
    await syncPath(unfinished)
    await rename(unfinished, target)
  } catch (error) {
    await rm(unfinished, { force: true })
    throw isFull(error) ? noRoom(options) : error
  }
  for (const folder of foldersOf(target, 3)) await syncPath(folder)
}

/** Each request retries a failed upgrade, which must not copy the file each time. */
async function isCopied(path: string, target: string): Promise<boolean> {
  const [file, copy] = await Promise.all([stat(path), stat(target).catch(() => null)])
  return copy !== null && copy.size === file.size && copy.mtimeMs >= file.mtimeMs && !(await isShared(path))
}

function foldersOf(path: string, depth: number): string[] {
  const folder = dirname(path)
  return depth === 1 ? [folder] : [folder, ...foldersOf(folder, depth - 1)]
}

/** Whether the file has a log, without which it is incomplete. */
async function isShared(path: string): Promise<boolean> {
  return stat(`${path}-wal`).then(
    () => true,
    () => false,
  )
}

async function cloned(path: string, target: string): Promise<boolean> {
  if (await isShared(path)) return false
  return copyFile(path, target, constants.COPYFILE_FICLONE_FORCE).then(
    () => true,
    () => false,
  )
}

async function requireRoom(path: string, target: string, options: CopyOptions): Promise<void> {
  const { size } = await stat(path)
  const free = await (options.freeBytes ?? freeBytes)(dirname(target))
  const needed = size * (1 + SPARE_SHARE) + SPARE_BYTES
  if (free < needed)
    throw noRoom(options, `: ${megabytes(needed)} MB are needed, ${megabytes(free)} MB are free`)
}

async function freeBytes(folder: string): Promise<number> {
  const { bavail, bsize } = await statfs(folder)
  return bavail * bsize
}

function noRoom({ label }: CopyOptions, figures = ''): CouchError {
  return new CouchError(
    'insufficient_storage',
    `${label} needs an upgrade, and the disk has no space for a copy of the old file${figures}. ` +
      'Free some space, or set settee/upgrade_copies_days to 0 to upgrade without copies.',
  )
}

function megabytes(bytes: number): number {
  return Math.ceil(bytes / 1_000_000)
}

async function copied(path: string, target: string, options: CopyOptions): Promise<void> {
  await rm(target, { force: true })
  if (!(await isShared(path)) && (await copiedAsFile(path, target, options))) return
  await rm(target, { force: true })
  await options.throughSqlite(target)
}

/** @returns whether the file was unchanged during the copy */
async function copiedAsFile(path: string, target: string, options: CopyOptions): Promise<boolean> {
  const source = await open(path, 'r')
  try {
    const before = await source.stat()
    const file = await open(target, 'wx', 0o600)
    try {
      await copyBytes(source, file, options)
    } finally {
      await file.close()
    }
    const after = await source.stat()
    return before.mtimeMs === after.mtimeMs && before.size === after.size && !(await isShared(path))
  } finally {
    await source.close()
  }
}

async function copyBytes(
  source: FileHandle,
  file: FileHandle,
  { refuseIfEnding }: CopyOptions,
): Promise<void> {
  const piece = Buffer.allocUnsafe(PIECE)
  for (let position = 0; ; ) {
    refuseIfEnding()
    const { bytesRead } = await source.read(piece, 0, PIECE, position)
    if (bytesRead === 0) return
    for (let written = 0; written < bytesRead; ) {
      const { bytesWritten } = await file.write(piece, written, bytesRead - written, position + written)
      written += bytesWritten
    }
    position += bytesRead
  }
}
