/** Whether a copy of a database is whole: asked of the file alone, of its pages, counters, rows and contents. */
import { createHash } from 'node:crypto'
import { statSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { Pace } from '../../core/pace.ts'
import type { CopyFacts } from '../copies.ts'
import { APPLICATION_ID } from './connection.ts'
import { factsOf, openForReading } from './snapshot.ts'

/** Faults that SQLite is asked to name. */
const FAULTS = 5

/**
 * Reads a copy of a database whole.
 * @returns what it holds
 * @throws Error whose message says what is wrong
 */
export function checkCopy(path: string): CopyFacts {
  return checked(path, (db) => {
    checkCounters(db)
    checkContents(db)
    return factsOf(db)
  })
}

/**
 * Reads a copy of server.sqlite whole.
 * @returns the server's uuid
 * @throws Error whose message says what is wrong
 */
export function checkCatalogCopy(path: string): string {
  return checked(path, (db) =>
    String(db.prepare("SELECT value FROM server WHERE key = 'uuid'").pluck().get()),
  )
}

function checked<R>(path: string, read: (db: Sqlite.Database) => R): R {
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) throw new Error('the copy is missing')
  const db = opened(path)
  try {
    checkKind(db)
    checkPages(db)
    return read(db)
  } catch (error) {
    if (error instanceof Sqlite.SqliteError) throw damaged(error)
    throw error
  } finally {
    db.close()
  }
}

function damaged(error: InstanceType<typeof Sqlite.SqliteError>): Error {
  return new Error(`SQLite cannot read it: ${error.message} (${error.code})`, { cause: error })
}

function opened(path: string): Sqlite.Database {
  try {
    return openForReading(path)
  } catch (error) {
    throw error instanceof Sqlite.SqliteError ? damaged(error) : error
  }
}

function checkKind(db: Sqlite.Database): void {
  if (db.pragma('application_id', { simple: true }) !== APPLICATION_ID) {
    throw new Error('it is no database of settee')
  }
}

function checkPages(db: Sqlite.Database): void {
  const told = db.prepare(`PRAGMA integrity_check(${FAULTS})`).pluck().all() as string[]
  if (told.length !== 1 || told[0] !== 'ok') throw new Error(`its pages are damaged: ${told.join('; ')}`)
}

/** What the database counts as it goes, and the rows that were counted. */
const COUNTERS: readonly { readonly key: string; readonly rows: string }[] = [
  { key: 'doc_count', rows: 'SELECT count(*) FROM doc WHERE NOT deleted' },
  { key: 'deleted_count', rows: 'SELECT count(*) FROM doc WHERE deleted' },
]

function checkCounters(db: Sqlite.Database): void {
  const meta = db.prepare('SELECT value FROM meta WHERE key = ?').pluck()
  const counter = (key: string) => Number(meta.get(key) ?? 0)
  const number = (sql: string) => Number(db.prepare(sql).pluck().get())
  for (const { key, rows } of COUNTERS) {
    const found = number(rows)
    if (found !== counter(key)) throw new Error(`${key} is ${counter(key)}, and there are ${found}`)
  }
  const last = number('SELECT coalesce(max(seq), 0) FROM doc')
  if (last > counter('update_seq'))
    throw new Error(`update_seq is ${counter('update_seq')}, and ${last} is taken`)
  const lost = number(
    'SELECT count(*) FROM attachment WHERE blob NOT IN (SELECT num FROM blob WHERE sha256 IS NOT NULL)',
  )
  if (lost > 0) throw new Error(`${lost} attachments have no content`)
}

interface WholeBlob {
  readonly num: number
  readonly sha256: Buffer
  readonly length: number
}

function checkContents(db: Sqlite.Database): void {
  const pace = new Pace()
  const chunks = db.prepare('SELECT data FROM chunk WHERE blob = ? ORDER BY position').pluck()
  const blobs = db.prepare('SELECT num, sha256, length FROM blob WHERE sha256 IS NOT NULL ORDER BY num')
  for (const { num, sha256, length } of blobs.iterate() as IterableIterator<WholeBlob>) {
    const hash = createHash('sha256')
    let bytes = 0
    for (const data of chunks.iterate(num) as IterableIterator<Buffer>) {
      hash.update(data)
      bytes += data.length
      pace.rest()
    }
    if (bytes !== length || !hash.digest().equals(sha256)) {
      throw new Error(`the bytes of an attachment are not those that were stored (content ${num})`)
    }
  }
}
