/** A database as the first version of the schema wrote it, with so much in it that bringing it up takes a while. */
import { createHash } from 'node:crypto'
import Sqlite from 'better-sqlite3'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import { MIGRATIONS, migrate } from '../../../src/storage/sqlite/schema.ts'

/** One stretch of the feed's counts (1024 numbers) holds them all. */
export const OLD_DOCS = 1000
/** Of each document: their index is what takes long. */
export const OLD_ATTACHMENTS = 250
/** Contents that no revision names any more: what takes a compaction long. */
const UNNAMED = 6000

const CONTENT = Buffer.from('from the first version')
const TYPE = 'text/plain'

/** The digest of each of the attachments. */
export const OLD_DIGEST = `md5-${hash('md5', CONTENT).toString('base64')}`

function hash(name: string, bytes: Buffer): Buffer {
  return createHash(name).update(bytes).digest()
}

export function oldId(n: number): string {
  return `old-${String(n).padStart(4, '0')}`
}

/** The winner of a document; the revision below it has its body still. */
export function oldRev(n: number): string {
  return `2-${hash('md5', Buffer.from(`b${n}`)).toString('hex')}`
}

/** Whether a file is of an older version than this settee's. */
export function isOld(file: Sqlite.Database): boolean {
  return (file.pragma('user_version', { simple: true }) as number) < MIGRATIONS.length
}

/** Writes the file. */
export function writeOldFile(path: string): void {
  const connection = new Connection(path, { isDraft: true })
  migrate(connection, path, MIGRATIONS.slice(0, 1))
  connection.close()
  const file = new Sqlite(path)
  file.pragma('synchronous = OFF')
  file.transaction(() => {
    writeMeta(file)
    writeDocuments(file)
    writeContents(file)
  })()
  file.pragma('wal_checkpoint(TRUNCATE)')
  file.close()
}

function writeMeta(file: Sqlite.Database): void {
  const put = file.prepare('INSERT INTO meta (key, value) VALUES (?, ?)')
  put.run('created_at', 1)
  put.run('epochs', JSON.stringify([{ id: 'aaaaaaaaaaaa', firstSeq: 0 }]))
  put.run('update_seq', OLD_DOCS)
  put.run('doc_count', OLD_DOCS)
  put.run('external_bytes', OLD_DOCS * (bodyOf(0).length + OLD_ATTACHMENTS * CONTENT.length))
  const count = file.prepare('INSERT INTO feed_count VALUES (?, 0, ?)')
  for (const level of [1, 2, 3, 4]) count.run(level, OLD_DOCS)
}

function bodyOf(n: number): string {
  return JSON.stringify({ n: String(n).padStart(6, '0') })
}

function writeDocuments(file: Sqlite.Database): void {
  const doc = file.prepare('INSERT INTO doc VALUES (?, ?, ?, ?, 0)')
  const revision = file.prepare('INSERT INTO revision VALUES (?, ?, ?, ?, 0, ?, ?, ?, ?)')
  const attachment = file.prepare('INSERT INTO attachment VALUES (?, ?, 1, ?, 1)')
  for (let n = 0; n < OLD_DOCS; n++) {
    const [first, second] = [hash('md5', Buffer.from(`a${n}`)), oldRev(n)]
    const ancestry = Buffer.concat([Buffer.from([1]), Buffer.from(second.slice(2), 'hex'), first])
    doc.run(n + 1, oldId(n), n + 1, second)
    revision.run(2 * n + 1, n + 1, `1-${first.toString('hex')}`, 0, null, 0, 2, '{}')
    const size = bodyOf(n).length + OLD_ATTACHMENTS * CONTENT.length
    revision.run(2 * n + 2, n + 1, second, 1, ancestry, OLD_ATTACHMENTS, size, bodyOf(n))
    for (let a = 0; a < OLD_ATTACHMENTS; a++) attachment.run(2 * n + 2, `a${a}`, TYPE)
  }
}

function writeContents(file: Sqlite.Database): void {
  const blob = file.prepare("INSERT INTO blob VALUES (?, ?, ?, ?, 'stored')")
  const chunk = file.prepare('INSERT INTO chunk VALUES (?, 0, ?)')
  for (let num = 1; num <= 1 + UNNAMED; num++) {
    const bytes = num === 1 ? CONTENT : Buffer.alloc(3000, `${num} `)
    blob.run(num, hash('sha256', bytes), hash('md5', bytes), bytes.length)
    chunk.run(num, bytes)
  }
}
