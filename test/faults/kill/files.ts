/** What a kill has left in the data folder, looked at in a copy, so that the server finds it as it was left. */
import { createHash } from 'node:crypto'
import {
  closeSync,
  copyFileSync,
  cpSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
} from 'node:fs'
import { join } from 'node:path'
import Database from 'better-sqlite3'
import { isBackupId, SUMS_FILE, UNFINISHED } from '../../../src/backup/backup-format.ts'

const SUFFIX = '.sqlite'

export function databaseFile(dataDir: string, name: string): string {
  return join(dataDir, 'databases', name + SUFFIX)
}

/** Opens a copy of a database's file and its log, which SQLite brings together as it does at every opening. */
export function withCopy<R>(path: string, scratch: string, read: (file: Database.Database) => R): R {
  const copy = join(scratch, 'copy.sqlite')
  for (const companion of ['', '-wal']) {
    rmSync(copy + companion, { force: true })
    if (existsSync(path + companion)) copyFileSync(path + companion, copy + companion)
  }
  const file = new Database(copy)
  try {
    return read(file)
  } finally {
    file.close()
  }
}

/**
 * Reads every file of a data folder whose server is gone.
 * @returns what is damaged or only half there
 */
export function fileFaults(dataDir: string, scratch: string): string[] {
  const copy = join(scratch, 'folder')
  rmSync(copy, { recursive: true, force: true })
  cpSync(dataDir, copy, { recursive: true, filter: (path) => !/-shm$|\.sock$|\/(?:tmp|backups)$/.test(path) })
  const names = readdirSync(join(copy, 'databases')).filter((name) => name.endsWith(SUFFIX))
  const files = [join(copy, `server${SUFFIX}`), ...names.map((name) => join(copy, 'databases', name))]
  const faults = files.flatMap((path) => {
    const file = new Database(path)
    try {
      const isServer = path.endsWith(`server${SUFFIX}`)
      const found = [...integrityFaults(file), ...(isServer ? [] : relationFaults(file))]
      return found.map((fault) => `${path.slice(copy.length + 1)}: ${fault}`)
    } finally {
      file.close()
    }
  })
  rmSync(copy, { recursive: true, force: true })
  return faults
}

/** Whatever has a backup's name is whole, and as it was when it was verified. @returns what is not */
export function backupFaults(dataDir: string): string[] {
  return backupsOf(dataDir)
    .filter(isBackupId)
    .flatMap((id) => wrongFiles(join(dataDir, BACKUPS, id)).map((file) => `backup ${id}: ${file}`))
}

/** What backups have left that were not finished. */
export function unfinishedBackups(dataDir: string): string[] {
  return backupsOf(dataDir).filter((name) => name.endsWith(UNFINISHED))
}

const BACKUPS = 'backups'

function backupsOf(dataDir: string): string[] {
  const folder = join(dataDir, BACKUPS)
  return existsSync(folder) ? readdirSync(folder) : []
}

function wrongFiles(folder: string): string[] {
  const lines = readFileSync(join(folder, SUMS_FILE), 'utf8').trimEnd().split('\n')
  return lines
    .map((line) => line.split('  ') as [sum: string, file: string])
    .filter(([sum, file]) => !isTrue(join(folder, file), sum))
    .map(([, file]) => file)
}

function isTrue(path: string, sum: string): boolean {
  if (!existsSync(path)) return false
  return createHash('sha256').update(readFileSync(path)).digest('hex') === sum
}

function integrityFaults(file: Database.Database): string[] {
  const told = file.pragma('integrity_check', { simple: true }) as string
  return told === 'ok' ? [] : [told]
}

/** Counts of rows that must be none. */
const NONE: Readonly<Record<string, string>> = {
  'documents without a leaf':
    'SELECT count(*) FROM doc AS d WHERE NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.doc = d.num AND r.leaf)',
  'documents whose winner is no leaf':
    'SELECT count(*) FROM doc AS d WHERE NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.doc = d.num AND r.rev = d.rev AND r.leaf AND r.deleted = d.deleted)',
  'leaves without a document':
    'SELECT count(*) FROM revision AS r WHERE r.leaf AND NOT EXISTS (SELECT 1 FROM doc AS d WHERE d.num = r.doc)',
  'leaves without ancestry': 'SELECT count(*) FROM revision WHERE leaf AND ancestry IS NULL',
  'bodies that are no JSON': 'SELECT count(*) FROM revision WHERE leaf AND NOT json_valid(body)',
  'attachments without a revision':
    'SELECT count(*) FROM attachment AS a WHERE NOT EXISTS (SELECT 1 FROM revision AS r WHERE r.num = a.revision)',
  'leaves that lack an attachment':
    'SELECT count(*) FROM revision AS r WHERE r.leaf AND r.attachments <> (SELECT count(*) FROM attachment AS a WHERE a.revision = r.num)',
  'attachments whose content is not whole':
    "SELECT count(*) FROM attachment AS a WHERE NOT EXISTS (SELECT 1 FROM blob AS b WHERE b.num = a.blob AND b.state = 'stored' AND b.sha256 IS NOT NULL)",
  'chunks without a blob':
    'SELECT count(*) FROM chunk AS c WHERE NOT EXISTS (SELECT 1 FROM blob AS b WHERE b.num = c.blob)',
  'numbers above the newest':
    "SELECT count(*) FROM doc WHERE seq > (SELECT value FROM meta WHERE key = 'update_seq')",
  'local documents that are no JSON': 'SELECT count(*) FROM local WHERE NOT json_valid(body)',
}

function relationFaults(file: Database.Database): string[] {
  const faults = Object.entries(NONE).flatMap(([what, sql]) => {
    const count = file.prepare(sql).pluck().get() as number
    return count === 0 ? [] : [`${count} ${what}`]
  })
  return [...faults, ...contentFaults(file)]
}

/** Every content that is called whole has its bytes. */
function contentFaults(file: Database.Database): string[] {
  const chunks = file.prepare('SELECT data FROM chunk WHERE blob = ? ORDER BY position').pluck()
  const blobs = file.prepare("SELECT num, sha256, md5, length FROM blob WHERE state = 'stored'").all() as {
    num: number
    sha256: Buffer
    md5: Buffer
    length: number
  }[]
  return blobs.flatMap(({ num, sha256, md5, length }) => {
    const [sha, md] = [createHash('sha256'), createHash('md5')]
    let bytes = 0
    for (const chunk of chunks.all(num) as Buffer[]) {
      sha.update(chunk)
      md.update(chunk)
      bytes += chunk.length
    }
    const isWhole = bytes === length && sha.digest().equals(sha256) && md.digest().equals(md5)
    return isWhole ? [] : [`blob ${num} has ${bytes} of ${length} bytes, or others`]
  })
}

/** Where SQLite keeps, in the index of a log, how far a checkpoint means to come, and how far one has come. */
const BACKFILLED_AT = 96
const ATTEMPTED_AT = 128

/**
 * Whether a checkpoint is at work: it says how many frames it means to copy, copies them, syncs, and only then says
 * that they are copied. Of a process that is gone: whether one was (https://sqlite.org/walformat.html, 2.3.2).
 */
export function isInCheckpoint(path: string): boolean {
  const index = `${path}-shm`
  if (!existsSync(index)) return false
  const words = Buffer.alloc(ATTEMPTED_AT + 4)
  const descriptor = openSync(index, 'r')
  try {
    if (readSync(descriptor, words, 0, words.length, 0) < words.length) return false
  } finally {
    closeSync(descriptor)
  }
  return words.readUInt32LE(ATTEMPTED_AT) > words.readUInt32LE(BACKFILLED_AT)
}
