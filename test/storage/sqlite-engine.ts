import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { sqliteEngine } from '../../src/storage/sqlite/sqlite-engine.ts'
import type { DamagedRow, KeptContents, MakeEngine } from './conformance/setup.ts'

/** The SQLite engine in a temporary folder, for the storage suite. */
export const makeSqliteEngine: MakeEngine = async (t, options = {}) => {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-storage-'))
  const onOperation = (operation: string) => {
    try {
      options.onOperation?.(operation)
    } catch (cause) {
      // What the driver throws when the disk fails.
      throw Object.assign(new Sqlite.SqliteError(String(cause), 'SQLITE_IOERR'), { cause })
    }
  }
  const { now } = options
  const made = { dataDir, ...(options.onOperation && { onOperation }), ...(now && { now }) }
  let engine = sqliteEngine(made)
  t.teardown(async () => {
    await engine.close()
    await rm(dataDir, { recursive: true, force: true })
  })
  const reopen = async () => {
    await engine.close()
    engine = sqliteEngine(made)
    return engine
  }
  const notes = join(dataDir, 'databases', 'notes.sqlite')
  let copies = 0
  const snapshot = async () => {
    const copy = join(dataDir, `copy-${++copies}.sqlite`)
    const file = new Sqlite(notes, { readonly: true })
    file.prepare('VACUUM INTO ?').run(copy)
    file.close()
    return copy
  }
  const damage = async (row: DamagedRow, id: string) => damageRow(notes, row, id)
  return { engine, reopen, snapshot, damage, keptContents: async () => keptContents(notes) }
}

const WINNER = '(SELECT winner FROM doc WHERE id = ?)'
const DAMAGES: Record<DamagedRow, string> = {
  content: `UPDATE chunk SET data = CAST(substr(data, 1, length(data) / 2) || x'00' || substr(data, length(data) / 2 + 2) AS BLOB)
    WHERE blob IN (SELECT blob FROM attachment WHERE revision = ${WINNER})`,
  security: "UPDATE security SET body = replace(body, 'true', 'tr3e') WHERE ? <> ''",
  // An index follows an UPDATE, as it does not follow a disk, so the row contradicts its leaves, too.
  row: 'UPDATE doc SET seq = seq + 1000, leaves = leaves + 1 WHERE id = ?',
  body: `UPDATE revision SET body = replace(body, 'true', 'tr3e') WHERE num = ${WINNER}`,
  ancestry: `UPDATE revision SET ancestry = CAST(substr(ancestry, 1, 2) || x'00' || substr(ancestry, 4) AS BLOB) WHERE num = ${WINNER}`,
  local: "UPDATE local SET body = replace(body, 'true', 'tr3e') WHERE id = ?",
  attachment: `UPDATE attachment SET type = 'text/true' WHERE revision = ${WINNER}`,
}

function damageRow(path: string, row: DamagedRow, id: string): void {
  const file = new Sqlite(path)
  const { changes } = file.prepare(DAMAGES[row]).run(id)
  file.close()
  if (changes === 0) throw new Error(`nothing of ${id} was changed`)
}

function keptContents(path: string): KeptContents {
  const file = new Sqlite(path, { readonly: true })
  try {
    const { blobs } = file.prepare('SELECT count(*) AS blobs FROM blob').get() as { blobs: number }
    const chunks = file.prepare('SELECT total(length(data)) AS bytes FROM chunk').get() as { bytes: number }
    return { blobs, bytes: chunks.bytes }
  } finally {
    file.close()
  }
}
