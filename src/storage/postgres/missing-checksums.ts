/**
 * Notes the checksums of rows that lack them: they are older than the checksums, or a node of the version before has written them.
 * What they say then counts as what was written. It works in short statements, and nobody waits for it.
 */
import { Yielder } from '../../core/event-loop.ts'
import { localChecksum, rowChecksum } from '../checksum.ts'
import type { Statement } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import {
  blobSum,
  chunkSum,
  ofBlob,
  purgeRowSum,
  type RevisionFacts,
  storedAttachments,
  sumsOf,
} from './row-checksums.ts'
import { textOf } from './stored-text.ts'
import type { StepMeans } from './sums-anew.ts'
import { firstValues } from './write-functions.ts'

/** Rows that one statement looks at. */
const LOOK_ROWS = 2000
/** Rows that one statement reads whole, and bytes of their bodies, unless the first has more. */
const READ_ROWS = 50
const READ_BYTES = 2 * 1024 * 1024
/** A revision may move from one table to the other behind the reader, so that both are looked through again. */
const MAX_PASSES = 3

type Key = readonly (string | number)[]

/** A table whose rows may lack checksums. */
interface LackingTable {
  readonly look: Statement
  readonly read: Statement
  readonly note: Statement
  /** Below all keys. */
  readonly first: Key
  /** @returns the values of `note` after the database, one for each row that is read; null leaves a row as it is */
  noted(row: Row): readonly unknown[] | null
  /** Whether `note` takes null in the place of the keys' second part. */
  readonly hasWinners?: true
}

interface TableParts {
  readonly table: string
  readonly key: Readonly<Record<string, 'text' | 'bigint'>>
  /** Bytes that a row takes in memory. */
  readonly bytes: string
  readonly lacks: string
  /** Of a row t, after its key. */
  readonly columns: string
  readonly note: Statement
  readonly hasWinners?: true
  noted(row: Row): readonly unknown[] | null
}

function tableOf({ table, key, bytes, lacks, columns, ...rest }: TableParts): LackingTable {
  const names = Object.keys(key)
  const keys = names.join(', ')
  const place = names.map((name, at) => `$${at + 2}::${key[name]}`).join(', ')
  const lists = names.map((name, at) => `$${at + 2}::${key[name]}[]`).join(', ')
  return {
    ...rest,
    first: Object.values(key).map((type) => (type === 'text' ? '' : -1)),
    look: {
      name: `look_at_${table}`,
      text: `SELECT ${keys}, ${bytes}, ${lacks} FROM ${table}
        WHERE db = $1 AND (${keys}) > (${place}) ORDER BY ${keys} LIMIT ${LOOK_ROWS}`,
    },
    read: {
      name: `read_whole_${table}`,
      text: `SELECT ${names.map((name) => `t.${name}`).join(', ')}, ${columns}
        FROM unnest(${lists}) AS w (${keys}) CROSS JOIN LATERAL (
          SELECT * FROM ${table} AS k WHERE k.db = $1 AND ${names.map((name) => `k.${name} = w.${name}`).join(' AND ')}
          OFFSET 0) AS t`,
    },
  }
}

/** The statement that calls a function of compaction-functions.ts with so many values. */
function noteOf(name: string, values: number): Statement {
  return { name, text: `SELECT ${name}(${firstValues(values)})` }
}

const NOTE_REVISIONS = noteOf('note_checksums', 8)
const REVISION_COLUMNS = 't.deleted, t.attachments, t.ancestry, t.body'
const REVISIONS = { bytes: 'octet_length(body)', lacks: 'content_checksum IS NULL', note: NOTE_REVISIONS }

/** Of documents; `unsummed` says whether their rows lack some. */
const OF_DOCUMENTS: readonly LackingTable[] = [
  tableOf({
    ...REVISIONS,
    table: 'doc',
    key: { id: 'text' },
    columns: `t.rev, ${REVISION_COLUMNS}, t.version, t.seq, t.leaves`,
    hasWinners: true,
    noted: notedRevision,
  }),
  tableOf({
    ...REVISIONS,
    table: 'revision',
    key: { id: 'text', rev: 'text' },
    columns: `${REVISION_COLUMNS}, (SELECT d.version FROM doc d WHERE d.db = $1 AND d.id = t.id), 0::bigint, 0`,
    noted: notedRevision,
  }),
]

const NOTE_CONTENTS = noteOf('note_content_checksums', 4)

/** As `unsummed_others` says. */
const OTHERS: readonly LackingTable[] = [
  tableOf({
    table: 'local_doc',
    key: { id: 'text' },
    bytes: 'octet_length(body)',
    lacks: 'checksum IS NULL',
    columns: 't.version, t.rev, t.body',
    note: noteOf('note_local_checksums', 4),
    noted: (row) => {
      const [id, version, rev, body] = row as unknown as [string, number, number, string]
      return [id, version, localChecksum({ id: textOf(id), rev, body: textOf(body) })]
    },
  }),
  tableOf({
    table: 'purge',
    key: { seq: 'bigint' },
    bytes: 'octet_length(revs)',
    lacks: 'checksum IS NULL',
    columns: 't.id, t.revs',
    note: noteOf('note_purge_checksums', 3),
    noted: (row) => {
      const [seq, id, revs] = row as unknown as [number, string, string]
      return [seq, purgeRowSum({ seq, id: textOf(id), revs })]
    },
  }),
  tableOf({
    table: 'blob',
    key: { blob: 'bigint' },
    bytes: '0',
    // Of a complete one.
    lacks: 'checksum IS NULL AND sha256 IS NOT NULL',
    columns: 't.sha256, t.digest, t.length',
    note: NOTE_CONTENTS,
    noted: (row) => {
      const [blob, sha256, digest, length] = row as unknown as [number, Buffer | null, string, number]
      return sha256 === null ? null : [blob, null, ofBlob(blobSum({ sha256, digest, length }), blob)]
    },
  }),
  tableOf({
    table: 'chunk',
    key: { blob: 'bigint', position: 'bigint' },
    bytes: 'octet_length(data)',
    lacks: 'checksum IS NULL',
    columns: 't.data',
    note: NOTE_CONTENTS,
    noted: (row) => {
      const [blob, position, data] = row as unknown as [number, number, Buffer]
      return [blob, position, ofBlob(chunkSum(position, data), blob)]
    },
  }),
]

type RevisionRow = readonly [
  id: string,
  rev: string,
  deleted: boolean,
  attachments: string | null,
  ancestry: Buffer | null,
  body: string,
  version: number | null,
  seq: number,
  leaves: number,
]

/** What is damaged already stays as it is. */
function notedRevision(row: Row): readonly unknown[] | null {
  const [id, rev, deleted, attachments, ancestry, body, version, seq, leaves] = row as unknown as RevisionRow
  const facts: RevisionFacts = { id: textOf(id), rev: textOf(rev), deleted, attachments, ancestry, body }
  const sums = sumsOf(facts, seq + leaves)
  if (sums === null) return null
  const listed = storedAttachments(facts.id, facts.rev, sums.listed)
  return [id, rev, version, listed, sums.row, sums.content, sums.ancestry]
}

/** Which rows lack some is noted in columns of `database`. */
const KINDS = [
  { column: 'unsummed', tables: OF_DOCUMENTS },
  { column: 'unsummed_others', tables: OTHERS },
] as const

const READ_LACKS = {
  name: 'read_unsummed',
  text: `SELECT security, security_checksum, ${KINDS.map(({ column }) => column).join(', ')} FROM database WHERE db = $1`,
}
type LacksRow = readonly [security: string | null, checksum: number | null, ...lacks: (number | null)[]]

const NOTE_SECURITY = {
  name: 'note_security_checksum',
  text: `UPDATE database SET security_checksum = $3
    WHERE db = $1 AND security = $2 AND security_checksum IS NULL`,
}

/** @throws what `pause` and `step` throw; the error of pg */
export async function noteMissingChecksums(database: OpenDatabase, means: StepMeans): Promise<void> {
  const { connections, db } = database
  const [row] = await connections.read<LacksRow>({ ...READ_LACKS, values: [db] })
  if (row === undefined) return
  const [security, checksum, ...lacks] = row
  if (security !== null && checksum === null)
    await means.step({ ...NOTE_SECURITY, values: [db, security, rowChecksum(security)] })
  for (const [at, { column, tables }] of KINDS.entries()) {
    const isNoted = lacks[at] === 0 || (await noteAll(tables, database, means))
    if (lacks[at] === 0 || !isNoted) continue
    await means.step({
      name: `nothing_${column}`,
      text: `UPDATE database SET ${column} = 0 WHERE db = $1 AND ${column} IS NOT DISTINCT FROM $2`,
      values: [db, lacks[at]],
    })
  }
}

/** @returns whether none of the rows lacks a checksum */
async function noteAll(
  tables: readonly LackingTable[],
  database: OpenDatabase,
  means: StepMeans,
): Promise<boolean> {
  for (let pass = 0; pass < MAX_PASSES; pass++) {
    let found = 0
    for (const table of tables) found += await noteIn(table, database, means)
    if (found === 0) return true
  }
  return false
}

/** @returns how many rows lacked a checksum, without those that are damaged */
async function noteIn(table: LackingTable, database: OpenDatabase, means: StepMeans): Promise<number> {
  const { connections, db } = database
  const { length } = table.first
  let found = 0
  for (let last: Key | null = table.first; last !== null; ) {
    const values: readonly unknown[] = [db, ...last]
    const began = performance.now()
    const rows: Row[] = await connections.read({ ...table.look, values })
    await means.pause(performance.now() - began)
    const lacking = rows.filter((row) => row[length + 1] === true)
    for (const keys of batchesOf(lacking, length)) {
      const whole = await readWhole(table, database, keys)
      const noted = await notedOf(table, whole)
      const column = (at: number) => noted.map((values) => values[at])
      const columns = (noted[0] ?? []).map((_, at) => (at === 1 && table.hasWinners ? null : column(at)))
      if (noted.length > 0) await means.step({ ...table.note, values: [db, ...columns] })
      found += noted.length
    }
    const end: Row | undefined = rows.at(-1)
    last = rows.length < LOOK_ROWS || end === undefined ? null : (end.slice(0, length) as Key)
  }
  return found
}

function batchesOf(rows: readonly Row[], length: number): Key[][] {
  const batches: Key[][] = []
  let bytes = 0
  for (const row of rows) {
    const size = row[length] as number
    const isFull = bytes + size > READ_BYTES || (batches.at(-1)?.length ?? READ_ROWS) >= READ_ROWS
    if (isFull) batches.push([])
    bytes = size + (isFull ? 0 : bytes)
    batches.at(-1)?.push(row.slice(0, length) as Key)
  }
  return batches
}

function readWhole(
  { read, first }: LackingTable,
  { connections, db }: OpenDatabase,
  keys: readonly Key[],
): Promise<Row[]> {
  return connections.read({ ...read, values: [db, ...first.map((_, at) => keys.map((key) => key[at]))] })
}

async function notedOf(table: LackingTable, rows: readonly Row[]): Promise<(readonly unknown[])[]> {
  const noted: (readonly unknown[])[] = []
  const yielder = new Yielder()
  for (const row of rows) {
    const values = table.noted(row)
    if (values !== null) noted.push(values)
    await yielder.yieldIfDue()
  }
  return noted
}
