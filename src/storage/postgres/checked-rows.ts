/** The tables of a database whose rows a check compares with their checksums, and what a damaged row belongs to. */
import { agrees, localChecksum } from '../checksum.ts'
import type { DamagedPart } from '../damage.ts'
import type { Query, Statement } from './connections.ts'
import type { Row } from './prepared-query.ts'
import { attachmentSum, purgeRowSum, type RevisionFacts, sumsOf } from './row-checksums.ts'
import { textOf } from './stored-text.ts'

/** A part of a key. */
export type KeyPart = string | number

/** Bytes of rows that one statement reads, unless the first row has more. */
const READ_BYTES = 2 * 1024 * 1024

/** A table whose rows are read in the order of their keys. */
export interface CheckedTable {
  /** Below all keys. */
  readonly first: readonly KeyPart[]
  /** About how many rows the table has for each document. */
  rowsOf(docs: number): number
  /**
   * The last column of a row says that no other follows: those that are added meanwhile are not waited for.
   * @param after the key of the last row before them
   * @param skip how many rows after that one are left out
   */
  read(db: number, after: readonly KeyPart[], skip: number, limit: number): Query
  /** As `read`, of the keys alone, which are beside the row's long values. */
  readKeys(db: number, after: readonly KeyPart[], skip: number): Query
  /** What is damaged of a row, whose key comes first; nothing if it is what was written. */
  faults(row: Row): readonly DamagedPart[]
  /** What a row belongs to that cannot be read. */
  unreadable(key: readonly KeyPart[]): DamagedPart
}

interface TableParts extends Pick<CheckedTable, 'rowsOf' | 'faults' | 'unreadable'> {
  readonly table: string
  readonly key: Readonly<Record<string, 'text' | 'bigint'>>
  readonly bytes: string
  /** Of a row k, after its key. */
  readonly columns: string
}

function tableOf({ table, key, bytes, columns, ...rest }: TableParts): CheckedTable {
  const names = Object.keys(key)
  const keys = names.map((name) => `k.${name}`).join(', ')
  const place = names.map((name, at) => `$${at + 2}::${key[name]}`).join(', ')
  const [skip, limit] = [names.length + 2, names.length + 3].map((at) => `$${at}::integer`)
  const page = (read: string) =>
    `SELECT ${read} FROM ${table} AS k WHERE k.db = $1 AND (${keys}) > (${place}) ORDER BY ${keys} OFFSET ${skip}`
  const statement: Statement = {
    name: `check_${table}`,
    // A row that is out of order stays where it is.
    text: `SELECT t.*, t.is_end AND t.is_last FROM (
        SELECT i.*, count(*) OVER () < ${limit} AS is_end,
            sum(i.bytes) OVER (ROWS UNBOUNDED PRECEDING) - i.bytes AS before, row_number() OVER () = count(*) OVER () AS is_last
          FROM (${page(`${keys}, ${columns}, ${bytes} AS bytes`)} LIMIT ${limit}) AS i) AS t
      WHERE t.before < ${READ_BYTES}`,
  }
  const keysAlone: Statement = { name: `check_keys_of_${table}`, text: `${page(keys)} LIMIT 1` }
  return {
    ...rest,
    first: Object.values(key).map((type) => (type === 'text' ? '' : -1)),
    read: (db, after, skipped, most) => ({ ...statement, values: [db, ...after, skipped, most] }),
    readKeys: (db, after, skipped) => ({ ...keysAlone, values: [db, ...after, skipped] }),
  }
}

const REVISION_COLUMNS =
  'k.deleted, k.attachments, k.ancestry, k.body, k.content_checksum, k.ancestry_checksum'
type RevisionRow = readonly [
  id: string,
  rev: string,
  deleted: boolean,
  attachments: string | null,
  ancestry: Buffer | null,
  body: string,
  content: number | null,
  ancestrySum: number | null,
]
type DocRow = readonly [
  ...RevisionRow,
  seq: number,
  leaves: number,
  checksum: number | null,
  otherLeaves: number,
]

const BODY = 'octet_length(k.body)'
const REVISION = {
  bytes: BODY,
  unreadable: ([id, rev]: readonly KeyPart[]): DamagedPart =>
    rev === undefined
      ? { kind: 'document', id: textOf(String(id)) }
      : { kind: 'revision', id: textOf(String(id)), rev: textOf(String(rev)) },
}

/** In the order of a check, whose position names them by their places. */
export const CHECKED_TABLES: readonly CheckedTable[] = [
  tableOf({
    ...REVISION,
    table: 'doc',
    key: { id: 'text' },
    columns: `k.rev, ${REVISION_COLUMNS}, k.seq, k.leaves, k.checksum,
      (SELECT count(*) FROM revision AS r WHERE r.db = $1 AND r.id = k.id AND r.leaf) AS others`,
    rowsOf: (docs) => docs,
    faults: (row) => {
      const [id, , , , , , , , seq, leaves, checksum, others] = row as unknown as DocRow
      const facts = factsOf(row as unknown as RevisionRow)
      const sums = sumsOf(facts, seq + leaves)
      const isDocSound = sums === null || (agrees(checksum, sums.row, true) && leaves === others + 1)
      const document: DamagedPart = { kind: 'document', id: textOf(id) }
      return isDocSound ? revisionFaults(row as unknown as RevisionRow) : [document]
    },
  }),
  tableOf({
    ...REVISION,
    table: 'revision',
    key: { id: 'text', rev: 'text' },
    columns: REVISION_COLUMNS,
    rowsOf: (docs) => docs,
    faults: (row) => revisionFaults(row as unknown as RevisionRow),
  }),
  tableOf({
    table: 'local_doc',
    key: { id: 'text' },
    bytes: BODY,
    columns: 'k.rev, k.body, k.checksum',
    rowsOf: () => 100,
    faults: (row) => {
      const [id, rev, body, checksum] = row as unknown as [string, number, string, number | null]
      const sum = localChecksum({ id: textOf(id), rev, body: textOf(body) })
      return agrees(checksum, sum, true) ? [] : [{ kind: 'local', id: textOf(id) }]
    },
    unreadable: ([id]) => ({ kind: 'local', id: textOf(String(id)) }),
  }),
  tableOf({
    table: 'purge',
    key: { seq: 'bigint' },
    bytes: 'octet_length(k.revs)',
    columns: 'k.id, k.revs, k.checksum',
    rowsOf: () => 100,
    faults: (row) => {
      const [seq, id, revs, checksum] = row as unknown as [number, string, string, number | null]
      return agrees(checksum, purgeRowSum({ seq, id: textOf(id), revs }), true) ? [] : [{ kind: 'purges' }]
    },
    unreadable: () => ({ kind: 'purges' }),
  }),
]

function factsOf(row: RevisionRow): RevisionFacts {
  const [id, rev, deleted, attachments, ancestry, body] = row
  return { id: textOf(id), rev: textOf(rev), deleted, attachments, ancestry, body }
}

function revisionFaults(row: RevisionRow): readonly DamagedPart[] {
  const [, , , , , , content, ancestry] = row
  const facts = factsOf(row)
  const { id, rev } = facts
  const sums = sumsOf(facts, 0)
  const revision: DamagedPart = { kind: 'revision', id, rev }
  if (sums === null || !agrees(content, sums.content, true)) return [revision]
  if (sums.ancestry !== null && !agrees(ancestry, sums.ancestry, true)) return [revision]
  return sums.listed
    .filter(({ checksum = null, ...attachment }) => {
      return !agrees(checksum, attachmentSum(id, rev, attachment) + attachment.blob, true)
    })
    .map(({ name }) => ({ kind: 'attachment', id, rev, name }))
}
