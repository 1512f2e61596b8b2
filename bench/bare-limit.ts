/**
 * The upper limits of trials that SQLite bounds: it writes the same notes, with their ancestry, into settee's own tables, and
 * reads them, on one thread and without a server. A separate program, which can therefore run on a slow disk:
 * `node bench/bare-limit.ts NOTES` prints the figures as JSON.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Connection } from '../src/storage/sqlite/connection.ts'
import { migrate } from '../src/storage/sqlite/schema.ts'
import { batches, makeNotes, type Note } from './seed.ts'
import type { Figure } from './trial.ts'

const PER_TRANSACTION = 100
/** Ids in a call of `_revs_diff`. */
const PER_CALL = 100
const READS = 5
const UNITS: Readonly<Record<string, string>> = { bulkget: 'doc', diff: 'id' }
const SELF = fileURLToPath(import.meta.url)

/** The figure of a trial, without a server. */
export interface Limit extends Figure {
  readonly trial: string
}

/** @throws when the program fails */
export function bareLimits(notes: number, env: Readonly<Record<string, string>> = {}): Limit[] {
  const { stdout, status } = spawnSync(process.execPath, [SELF, `${notes}`], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
    encoding: 'utf8',
  })
  if (status !== 0) throw new Error('the bare limits cannot be measured')
  return JSON.parse(stdout) as Limit[]
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

/** @returns seconds that it takes to read all documents so often that the code is warm */
function seconds(read: () => unknown): number {
  read()
  const since = performance.now()
  for (let n = 0; n < READS; n++) read()
  return (performance.now() - since) / 1000 / READS
}

/** Reads what an answer needs, and joins it as text, without parsing or formatting any JSON. */
function reads(
  connection: Connection,
  notes: readonly Note[],
): readonly [trial: string, read: () => string][] {
  const columns = 'doc.id, doc.rev, ancestry, body'
  const one = connection.prepare<Read>(
    `SELECT ${columns} FROM doc JOIN revision ON revision.num = doc.winner WHERE doc.id = ?`,
  )
  const all = connection.prepare<Read>(
    `SELECT ${columns} FROM doc JOIN revision ON revision.num = doc.winner ORDER BY doc.id`,
  )
  const feed = connection.prepare<Read>('SELECT id, seq, rev FROM doc ORDER BY seq')
  const known = connection.prepare<Read>(
    'SELECT doc.id, rev FROM json_each(?) AS asked JOIN doc ON doc.id = asked.value',
  )
  const asked = batches(notes, PER_CALL).map((some) => JSON.stringify(some.map(({ _id }) => _id)))
  return [
    ['diff', () => asked.map((ids) => known.all(ids).map(textOf).join(',')).join(',')],
    ['bulkget', () => notes.map(({ _id }) => textOf(one.get(_id))).join(',')],
    ['changes', () => feed.all().map(textOf).join(',')],
    ['alldocs', () => all.all().map(textOf).join(',')],
  ]
}

interface Read {
  readonly id: string
  readonly rev: string
  readonly seq?: number
  readonly body?: string
}

function textOf(row: Read | undefined): string {
  return `{"id":"${row?.id}","rev":"${row?.rev}","doc":${row?.body ?? row?.seq}}`
}

function measure(count: number): Limit[] {
  const folder = mkdtempSync(join(tmpdir(), 'settee-bench-'))
  try {
    const file = join(folder, 'bare.sqlite')
    const connection = new Connection(file)
    migrate(connection, file)
    const notes = makeNotes(count)
    const groups = batches(notes.map(rowsOf), PER_TRANSACTION)
    const since = performance.now()
    fill(connection, groups)
    const pushed = count / ((performance.now() - since) / 1000)
    const limits = reads(connection, notes).map(([trial, read]): Limit => {
      const unit = UNITS[trial] ?? 'row'
      return { trial, name: `${unit}s`, unit: `${unit}s/s`, value: count / seconds(read) }
    })
    return [{ trial: 'push', name: 'docs', unit: 'docs/s', value: pushed }, ...limits]
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

if (process.argv[1] === SELF) console.log(JSON.stringify(measure(Number(process.argv[2]))))
