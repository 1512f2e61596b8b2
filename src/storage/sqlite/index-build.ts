/**
 * The first build of an index store. Inserting rows in the order of the feed would change a random page of a large file
 * for each row. So the rows are appended to a second file, and a thread of their own sorts them into the first.
 */
import { renameSync } from 'node:fs'
import { dirname } from 'node:path'
import { Worker } from 'node:worker_threads'
import { CouchError } from '../../core/errors.ts'
import { isHeldLong, Yielder } from '../../core/event-loop.ts'
import { programModule } from '../../core/program-files.ts'
import { keyedRows, keysSum, rowSum } from '../index-rows.ts'
import type { IndexBuild, IndexedDoc, IndexPosition } from '../index-store.ts'
import { Connection } from './connection.ts'
import type { FileErrors } from './database-access.ts'
import { readPosition, removeFile, writePosition } from './index-file.ts'
import type { SortJob } from './index-sort.ts'
import { fileBytes, logOf, syncPathNow } from './page-copy.ts'

interface BuildOptions {
  /** The path of the store's file. */
  readonly path: string
  readonly indexes: number
  readonly errors: FileErrors
  readonly onOperation?: ((operation: string) => void) | undefined
  isClosed(): boolean
  /** Closes the store's file, calls the function, and opens the file again. */
  publish(put: () => void): void
}

export class StagedBuild implements IndexBuild {
  readonly #options: BuildOptions
  readonly #staged: string
  readonly #sorted: string
  #connection: Connection
  #target: IndexPosition | null
  #seq: number

  constructor(options: BuildOptions) {
    this.#options = options
    this.#staged = stagedPath(options.path)
    this.#sorted = `${options.path}.sorted`
    this.#connection = this.#open()
    this.#target = readPosition(this.#connection)
    this.#seq = this.#storedSeq()
  }

  get target(): IndexPosition | null {
    return this.#target
  }

  get seq(): number {
    return this.#seq
  }

  bytes(): number {
    return fileBytes(this.#staged) + fileBytes(logOf(this.#staged))
  }

  get #tables(): string[] {
    return ['docs', ...Array.from({ length: this.#options.indexes }, (_, index) => `rows_${index}`)]
  }

  /** A file of an older settee, or with a damaged position, begins anew. */
  #open(): Connection {
    const connection = this.#openStaged()
    if (isUsable(connection)) return connection
    connection.close()
    removeFile(this.#staged)
    return this.#openStaged()
  }

  #openStaged(): Connection {
    const { indexes, onOperation } = this.#options
    const connection = new Connection(this.#staged, { isDerived: true, onOperation })
    // The rows stay in the log until they are sorted: a checkpoint would write all of them once more.
    connection.pragma('wal_autocheckpoint = 0')
    const rows = Array.from(
      { length: indexes },
      (_, index) =>
        `CREATE TABLE IF NOT EXISTS rows_${index} (k BLOB, l INTEGER, key TEXT, value TEXT, c INTEGER);`,
    )
    connection.exec(`
      CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS progress (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
      CREATE TABLE IF NOT EXISTS docs (id TEXT, ks BLOB, c INTEGER);${rows.join('')}`)
    // A page that was added in part comes again.
    for (const table of this.#tables) {
      const end = `coalesce((SELECT value FROM progress WHERE name = '${table}'), 0)`
      connection.exec(`DELETE FROM ${table} WHERE rowid > ${end}`)
    }
    return connection
  }

  #storedSeq(): number {
    return (
      this.#connection.prepareTuples<[number]>("SELECT value FROM progress WHERE name = 'seq'").get()?.[0] ??
      0
    )
  }

  async restart(target: IndexPosition): Promise<void> {
    this.#connection.close()
    removeFile(this.#staged)
    this.#connection = this.#open()
    this.#target = target
    this.#seq = 0
    this.#transaction(() => writePosition(this.#connection, target))
  }

  async add(docs: readonly IndexedDoc[], seq: number, seen: number): Promise<void> {
    this.#noteSeen(seen)
    const yielder = new Yielder()
    let at = 0
    do {
      await yielder.yieldIfDue()
      if (this.#options.isClosed()) throw new CouchError('unavailable')
      const from = at
      this.#transaction(() => {
        at = from
        const since = performance.now()
        while (at < docs.length && !isHeldLong(since)) this.#append(docs[at++] as IndexedDoc)
        if (at < docs.length) return
        this.#connection.prepare("INSERT OR REPLACE INTO progress VALUES ('seq', ?)").run(seq)
        for (const table of this.#tables) {
          this.#connection.exec(`INSERT OR REPLACE INTO progress SELECT '${table}', max(rowid) FROM ${table}`)
        }
      })
    } while (at < docs.length)
    this.#seq = seq
  }

  #noteSeen(seen: number): void {
    const target = this.#target
    if (target === null || target.seen >= seen) return
    this.#target = { ...target, seen }
    this.#transaction(() => writePosition(this.#connection, { ...target, seen }))
  }

  #append(doc: IndexedDoc): void {
    if (doc.rows.every((rows) => rows.length === 0)) return
    const { rows, keys } = keyedRows(doc)
    this.#connection.prepare('INSERT INTO docs VALUES (?, ?, ?)').run(doc.id, keys, keysSum(doc.id, keys))
    for (const [index, list] of rows.entries()) {
      const insert = this.#connection.prepare(`INSERT INTO rows_${index} VALUES (?, ?, ?, ?, ?)`)
      for (const row of list) insert.run(row.rowKey, row.keyLength, row.keyText, row.valueText, rowSum(row))
    }
  }

  #transaction(work: () => void): void {
    try {
      this.#connection.begin()
      work()
      this.#connection.commit()
    } catch (error) {
      this.#connection.rollback(error)
      throw this.#options.errors.report(error)
    }
  }

  async finish(): Promise<void> {
    const { path, indexes, publish, isClosed } = this.#options
    removeFile(this.#sorted)
    const job = { staged: this.#staged, sorted: this.#sorted, indexes }
    // The thread closes the file last, since the last to close a file checkpoints its log.
    try {
      await sortInThread(job, () => this.#connection.close())
    } finally {
      this.#connection.close()
    }
    if (isClosed()) throw new CouchError('unavailable')
    publish(() => {
      removeFile(path)
      renameSync(this.#sorted, path)
      syncPathNow(dirname(path))
    })
    removeFile(this.#staged)
  }

  close(): void {
    this.#connection.close()
  }
}

function isUsable(connection: Connection): boolean {
  try {
    readPosition(connection)
    return connection.prepare("SELECT 1 FROM pragma_table_info('docs') WHERE name = 'c'").get() !== undefined
  } catch {
    return false
  }
}

function stagedPath(path: string): string {
  return `${path}.staged`
}

/** Removes what an unfinished build has left. */
export function removeBuild(path: string): void {
  removeFile(stagedPath(path))
  removeFile(`${path}.sorted`)
}

/** @param onOpened called when the thread has opened the staged file @throws the fault of the thread */
function sortInThread(job: SortJob, onOpened: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(programModule('storage/sqlite/index-sort'), { workerData: job })
    worker.once('message', onOpened)
    worker.once('error', reject)
    worker.once('exit', (code) => {
      if (code === 0) resolve()
      else reject(new Error(`the sorting thread has ended with ${code}`))
    })
  })
}
