/**
 * Notes the checksums of rows that lack them: they are older than the checksums, or a node of the version before has written them.
 * What they say then counts as what was written. It works in short statements, and nobody waits for it.
 */
import { Yielder } from '../../core/event-loop.ts'
import { ancestryChecksum } from '../checksum.ts'
import type { OpenDatabase } from './open-database.ts'
import { contentSum, docRowChecksum, docSum, listedAttachments, storedAttachments } from './row-checksums.ts'
import { textOf } from './stored-text.ts'
import type { StepMeans } from './sums-anew.ts'

/** Rows that one statement looks at. */
const LOOK_ROWS = 2000
/** Rows that one statement reads whole, and bytes of their bodies, unless the first has more. */
const READ_ROWS = 50
const READ_BYTES = 2 * 1024 * 1024
/** A revision may move from one table to the other behind the reader, so that both are looked through again. */
const MAX_PASSES = 3

type Key = readonly [id: string, rev: string]

const TABLES = {
  doc: tableOf({
    table: 'doc',
    key: 'id',
    above: 'id > $2 AND $3::text IS NOT NULL',
    columns: 't.version, t.seq, t.leaves',
  }),
  revision: tableOf({
    ...{ table: 'revision', key: 'id, rev', above: '(id, rev) > ($2, $3)' },
    columns: '(SELECT d.version FROM doc d WHERE d.db = $1 AND d.id = t.id), 0::bigint, 0',
  }),
}

type LookRow = readonly [...key: Key, bytes: number, lacks: boolean]
type WholeRow = readonly [
  ...key: Key,
  deleted: boolean,
  attachments: string | null,
  ancestry: Buffer | null,
  body: string,
  version: number | null,
  seq: number,
  leaves: number,
]

interface Table {
  readonly table: string
  readonly key: string
  /** The rows above the key in the values 2 and 3. */
  readonly above: string
  /** The version of the document, and what its row has of its own. */
  readonly columns: string
}

function tableOf({ table, key, above, columns }: Table) {
  return {
    look: {
      name: `look_at_${table}`,
      text: `SELECT id, rev, octet_length(body), content_checksum IS NULL FROM ${table}
        WHERE db = $1 AND ${above} ORDER BY ${key} LIMIT ${LOOK_ROWS}`,
    },
    read: {
      name: `read_whole_${table}`,
      text: `SELECT t.id, t.rev, t.deleted, t.attachments, t.ancestry, t.body, ${columns}
        FROM unnest($2::text[], $3::text[]) AS w (id, rev) CROSS JOIN LATERAL (
          SELECT * FROM ${table} AS k WHERE k.db = $1 AND k.id = w.id AND k.rev = w.rev OFFSET 0) AS t`,
    },
  }
}

const NOTE = {
  name: 'note_checksums',
  text: `SELECT note_checksums($1, $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::integer[],
    $8::integer[])`,
}

const READ_UNSUMMED = { name: 'read_unsummed', text: 'SELECT unsummed FROM database WHERE db = $1' }
const NOTHING_LACKS = {
  name: 'nothing_unsummed',
  text: 'UPDATE database SET unsummed = 0 WHERE db = $1 AND unsummed IS NOT DISTINCT FROM $2',
}

/** @throws what `pause` and `step` throw; the error of pg */
export async function noteMissingChecksums(database: OpenDatabase, means: StepMeans): Promise<void> {
  const { connections, db } = database
  const [row] = await connections.read<readonly [number | null]>({ ...READ_UNSUMMED, values: [db] })
  if (row === undefined || row[0] === 0) return
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    const inDocs = await noteIn('doc', database, means)
    const inRevisions = await noteIn('revision', database, means)
    if (inDocs + inRevisions > 0) continue
    await means.step({ ...NOTHING_LACKS, values: [db, row[0]] })
    return
  }
}

/** @returns how many rows lacked a checksum, without those that are damaged */
async function noteIn(table: keyof typeof TABLES, database: OpenDatabase, means: StepMeans): Promise<number> {
  const { connections, db } = database
  let found = 0
  for (let last: Key | null = ['', '']; last !== null; ) {
    const values: readonly unknown[] = [db, ...last]
    const began = performance.now()
    const rows: LookRow[] = await connections.read<LookRow>({ ...TABLES[table].look, values })
    await means.pause(performance.now() - began)
    for (const keys of batchesOf(rows.filter(([, , , lacks]) => lacks))) {
      const noted = await checksumsOf(await readWhole(table, database, keys))
      const column = (at: number) => noted.map((values) => values[at])
      const revs = table === 'doc' ? null : column(1)
      await means.step({ ...NOTE, values: [db, column(0), revs, ...[2, 3, 4, 5, 6].map(column)] })
      found += noted.length
    }
    const end: LookRow | undefined = rows.at(-1)
    last = rows.length < LOOK_ROWS || end === undefined ? null : [end[0], end[1]]
  }
  return found
}

function batchesOf(rows: readonly LookRow[]): Key[][] {
  const batches: Key[][] = []
  let bytes = READ_BYTES
  for (const [id, rev, length] of rows) {
    const isFull = bytes + length > READ_BYTES || (batches.at(-1)?.length ?? 0) >= READ_ROWS
    if (isFull) batches.push([])
    bytes = length + (isFull ? 0 : bytes)
    batches.at(-1)?.push([id, rev])
  }
  return batches
}

function readWhole(
  table: keyof typeof TABLES,
  { connections, db }: OpenDatabase,
  keys: readonly Key[],
): Promise<WholeRow[]> {
  const values = [db, keys.map(([id]) => id), keys.map(([, rev]) => rev)]
  return connections.read<WholeRow>({ ...TABLES[table].read, values })
}

/** @returns of each row the values of note_checksums after the database */
async function checksumsOf(rows: readonly WholeRow[]): Promise<(readonly unknown[])[]> {
  const noted: (readonly unknown[])[] = []
  const yielder = new Yielder()
  for (const [storedId, storedRev, deleted, attachments, ancestry, body, version, seq, leaves] of rows) {
    const [id, rev] = [textOf(storedId), textOf(storedRev)]
    const listed = listOf(attachments ?? '')
    // What is damaged already stays as it is.
    if (listed === null) continue
    noted.push([
      ...[storedId, storedRev, version],
      storedAttachments(id, rev, listed),
      docRowChecksum(docSum(id, rev, deleted) + seq + leaves),
      contentSum(id, rev, deleted, { body: textOf(body), attachments: listed.length }),
      ancestry === null ? null : ancestryChecksum(ancestry, rev, deleted),
    ])
    await yielder.yieldIfDue()
  }
  return noted
}

function listOf(stored: string) {
  try {
    return listedAttachments(stored)
  } catch {
    return null
  }
}
