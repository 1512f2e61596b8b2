/**
 * The upper limit of the trial `push`: SQLite alone writes the same notes, with their ancestry, into settee's own
 * tables, on one thread. A separate program, which can therefore run on a slow disk: `node bench/bare-limit.ts NOTES`
 * prints the documents per second.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Connection } from '../src/storage/sqlite/connection.ts'
import { migrate } from '../src/storage/sqlite/schema.ts'
import { batches, makeNotes, type Note } from './seed.ts'

const PER_TRANSACTION = 100
const SELF = fileURLToPath(import.meta.url)

/** @returns documents per second @throws when the program fails */
export function bareLimit(notes: number, env: Readonly<Record<string, string>> = {}): number {
  const { stdout, status } = spawnSync(process.execPath, [SELF, `${notes}`], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error('the bare limit cannot be measured')
  return Number(stdout)
}

/** The two rows of a note. */
interface Rows {
  readonly id: string
  readonly rev: string
  readonly ancestry: Buffer
  readonly body: string
}

function rowsOf({ _id, _rev, _revisions, ...content }: Note): Rows {
  const ancestry = Buffer.from(_revisions.ids.slice(1).join(''), 'hex')
  return { id: _id, rev: _rev, ancestry, body: JSON.stringify(content) }
}

function fill(connection: Connection, groups: readonly (readonly Rows[])[]): void {
  const doc = connection.prepare(
    'INSERT INTO doc (num, id, seq, rev, deleted, leaves, winner) VALUES (?, ?, ?, ?, 0, 1, ?)',
  )
  const revision = connection.prepare(
    'INSERT INTO revision (num, doc, rev, leaf, deleted, ancestry, attachments, size, body) ' +
      'VALUES (?, ?, ?, 1, 0, ?, 0, ?, ?)',
  )
  let num = 0
  for (const group of groups) {
    connection.exec('BEGIN IMMEDIATE')
    for (const { id, rev, ancestry, body } of group) {
      num += 1
      revision.run(num, num, rev, ancestry, body.length, body)
      doc.run(num, id, num, rev, num)
    }
    connection.exec('COMMIT')
  }
}

function measure(count: number): number {
  const folder = mkdtempSync(join(tmpdir(), 'settee-bench-'))
  try {
    const file = join(folder, 'bare.sqlite')
    const connection = new Connection(file)
    migrate(connection, file)
    const groups = batches(makeNotes(count).map(rowsOf), PER_TRANSACTION)
    const since = performance.now()
    fill(connection, groups)
    return count / ((performance.now() - since) / 1000)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

if (process.argv[1] === SELF) console.log(measure(Number(process.argv[2])))
