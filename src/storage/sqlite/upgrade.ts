/**
 * Opening a file that an older settee wrote: it is copied as it was, and then brought to the newest schema, while the
 * thread serves other databases. Whatever ends this in between leaves the file as the older settee wrote it.
 */
import { statSync } from 'node:fs'
import { CouchError } from '../../core/errors.ts'
import { WorkQueue } from '../../core/work-queue.ts'
import { Connection, type ConnectionOptions, isFull } from './connection.ts'
import { keepCopy } from './file-copy.ts'
import { type Migration, migrate, migrateInSteps, schemaOf } from './schema.ts'

/** Files of a thread that are upgraded at once: a small one need not wait for a large one. */
const AT_ONCE = 4
/** More than a thread has databases on most servers; whoever comes on top is told to try again. */
const MAY_WAIT = 10_000

/** The file that is opened. */
export interface UpgradedFile {
  readonly path: string
  /** What it is called in a refusal. */
  readonly label: string
  readonly migrations: readonly Migration[]
  /** Makes the file where there is none. */
  readonly mayBeNew?: boolean
  /** Where its copy goes. @param schema the one it has */
  copyPath(schema: number): string
  /** It was opened so that nobody else can open it, for want of room on the disk. */
  onAlone?(): void
}

export interface UpgradesOptions {
  readonly onOperation: ConnectionOptions['onOperation']
  /** Whether files are copied before. */
  keepsCopies(): boolean
  /** Ends upgrades under way, since the thread is to stop. */
  readonly ending: AbortSignal | undefined
}

export class Upgrades {
  readonly #options: UpgradesOptions
  readonly #queue = new WorkQueue(AT_ONCE, MAY_WAIT)

  constructor(options: UpgradesOptions) {
    this.#options = options
  }

  /**
   * Opens a file, and upgrades it first where that is needed.
   * @throws RefusedFile, insufficient_storage, unavailable when the thread stops meanwhile; SQLite's and the file
   *   system's errors
   */
  async open(file: UpgradedFile): Promise<Connection> {
    const connection = this.#connect(file)
    if (closingOnError(connection, () => isReady(connection, file))) return connection
    connection.close()
    return this.#queue.take(() => this.#upgraded(file))
  }

  #connect({ path, mayBeNew = false, onAlone }: UpgradedFile): Connection {
    // A file gets its name when it is finished: one that has lost everything is no empty database.
    if (!mayBeNew && statSync(path).size === 0) throw new CouchError('damaged_file')
    const options = { onOperation: this.#options.onOperation, mustExist: !mayBeNew }
    try {
      return readable(new Connection(path, options), mayBeNew)
    } catch (error) {
      if (!isFull(error)) throw error
      // The index of the log is a file that all who have opened it share. On a disk without room for that it is in
      // memory, and nobody else can open the file.
      const alone = readable(new Connection(path, { ...options, exclusive: true }), mayBeNew)
      onAlone?.()
      return alone
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

  /** Closing the last connection brings the whole log into the file. */
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

/** @throws damaged_file for one that has no schema and should */
function readable(connection: Connection, mayBeNew: boolean): Connection {
  closingOnError(connection, () => {
    if (connection.pragma('user_version') === 0 && !mayBeNew) throw new CouchError('damaged_file')
  })
  return connection
}

/** Whether the file has the newest schema; one that has nothing yet is given it. */
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
