/** The rows that have a checksum: those of an older settee get theirs here, and damaged ones are found. */
import {
  agrees,
  type ContentFacts,
  checkedAncestry,
  chunkChecksum,
  contentChecksum,
  type DocFacts,
  docChecksum,
  localChecksum,
  type PurgeFacts,
  purgeChecksum,
  rowChecksum,
  withChecksum,
} from '../checksum.ts'
import type { DamagedPart } from '../damage.ts'
import type { LocalDoc } from '../engine.ts'
import { type AttachmentFacts, attachmentChecksum, type BlobFacts, blobChecksum } from './blobs.ts'
import { SUMMED_META_VERSION } from './meta.ts'
import { SUMMED_VERSION } from './schema.ts'
import type { Value } from './statement.ts'
import type { Readable, WalkedTable } from './table-walk.ts'

interface SummedTable {
  readonly table: string
  /** The column of numbers in whose order the rows are read. */
  readonly key: string
  /** A further column that names a row among those with one number. */
  readonly name?: string
  readonly columns: string
  /** Numbers of a stretch: one reads so many rows at most, and of attachments those of so many revisions. */
  readonly stretch: number
  /** The version of the schema since which the rows have checksums; by default {@link SUMMED_VERSION}. */
  readonly since?: number
  /** Whether the rows have ancestries, which end with a checksum of their own. */
  readonly hasAncestry?: true
  checksumOf(row: never): number
}

interface RevisionRow extends ContentFacts {
  readonly doc: number
  readonly ancestry: Uint8Array | null
}

interface ChunkRow {
  readonly blob: number
  readonly position: number
  readonly data: Uint8Array
}

const TABLES: readonly SummedTable[] = [
  {
    table: 'doc',
    key: 'num',
    columns: 'num, id, seq, rev, deleted, leaves, winner',
    stretch: 100,
    checksumOf: (row: DocFacts & { id: string; rev: string }) => docChecksum(row.id, row.rev, row),
  },
  {
    table: 'revision',
    key: 'num',
    columns: 'num, doc, rev, deleted, attachments, body, ancestry',
    stretch: 10,
    hasAncestry: true,
    checksumOf: (row: RevisionRow) => contentChecksum(row),
  },
  {
    table: 'attachment',
    key: 'revision',
    name: 'name',
    columns: 'revision, name, blob, type, revpos, encoding, length, place',
    stretch: 100,
    checksumOf: (row: AttachmentFacts & { revision: number }) => attachmentChecksum(row.revision, row),
  },
  {
    table: 'blob',
    key: 'num',
    columns: 'num, sha256, md5, length',
    stretch: 100,
    checksumOf: (row: BlobFacts) => blobChecksum(row),
  },
  {
    table: 'chunk',
    key: 'rowid',
    columns: 'blob, position, data',
    stretch: 2,
    checksumOf: (row: ChunkRow) => chunkChecksum(row.blob, row.position, row.data),
  },
  {
    table: 'local',
    key: 'rowid',
    columns: 'id, rev, body',
    stretch: 10,
    checksumOf: (row: LocalDoc) => localChecksum(row),
  },
  {
    table: 'security',
    key: 'one',
    columns: 'body',
    stretch: 1,
    checksumOf: (row: { body: string }) => rowChecksum(row.body),
  },
  {
    table: 'purge',
    key: 'seq',
    columns: 'seq, id, revs',
    stretch: 100,
    since: SUMMED_META_VERSION,
    checksumOf: (row: PurgeFacts) => purgeChecksum(row),
  },
]

type FoundRow = { readonly at: number; readonly checksum: number | null } & Readonly<Record<string, unknown>>

export class SummedRows {
  readonly #database: Readable

  constructor(database: Readable) {
    this.#database = database
  }

  /**
   * Notes the checksums of rows that lack them, inside the transaction of the caller. What such a row says now counts as
   * what was written.
   */
  tablesToFill(): readonly WalkedTable[] {
    return TABLES.map((summed) => {
      const { table, key, name, stretch, hasAncestry, checksumOf } = summed
      const sql = `${selectOf(summed)} AND checksum IS NULL`
      const set = hasAncestry ? 'checksum = ?, ancestry = ?' : 'checksum = ?'
      const named = name === undefined ? '' : ` AND ${name} = ?`
      const visit = (above: number, end: number) => {
        const rows = this.#database.prepare<FoundRow>(sql)
        const put = this.#database.prepare(`UPDATE ${table} SET ${set} WHERE ${key} = ?${named}`)
        for (const row of rows.all(above, end)) {
          const ancestry = hasAncestry ? [summedAncestry(row as unknown as RevisionRow)] : []
          const names = name === undefined ? [] : [row[name] as string]
          put.run(checksumOf(row as never), ...ancestry, row.at, ...names)
        }
      }
      return { table, key, stretch, visit }
    })
  }

  /**
   * Finds rows that do not say what was written.
   * @param version of the file's schema, {@link SUMMED_VERSION} or later
   * @param mayLack whether rows of an older settee may lack their checksums
   */
  tablesToCheck(
    version: number,
    mayLack: boolean,
    onDamaged: (part: DamagedPart) => void,
  ): readonly WalkedTable[] {
    return TABLES.filter(({ since = SUMMED_VERSION }) => since <= version).map((summed) => {
      const { table, key, stretch } = summed
      const sql = selectOf(summed)
      const visit = (above: number, end: number) => {
        let rows = 0
        for (const row of this.#database.prepare<FoundRow>(sql).iterate(above, end)) {
          if (!isSound(summed, row, mayLack)) for (const part of this.#partsOf(table, row)) onDamaged(part)
          // Damaged pages may refer to each other without an end.
          rows += 1
          if (rows > MAX_ROWS) return onDamaged({ kind: 'file' })
        }
      }
      return { table, key, stretch, visit }
    })
  }

  /** What a damaged row belongs to. */
  *#partsOf(table: string, row: FoundRow): Iterable<DamagedPart> {
    if (table === 'doc') yield { kind: 'document', id: textOf(row.id) }
    else if (table === 'local') yield { kind: 'local', id: textOf(row.id) }
    else if (table === 'security') yield { kind: 'security' }
    else if (table === 'purge') yield { kind: 'purges' }
    else if (table === 'revision') yield { kind: 'revision', id: this.#idOf(row.doc), rev: textOf(row.rev) }
    else if (table === 'attachment')
      yield* this.#attachmentsWhere('a.revision = ? AND a.name = ?', row.revision, row.name)
    else yield* this.attachmentsOf(table === 'blob' ? row.num : row.blob)
  }

  #idOf(doc: unknown): string | null {
    const row = this.#database.prepare<{ id: unknown }>('SELECT id FROM doc WHERE num = ?').get(doc as Value)
    return textOf(row?.id)
  }

  /** The attachments whose content is in a blob, {@link MAX_SHARING} at most. */
  attachmentsOf(blob: unknown): Iterable<DamagedPart> {
    return this.#attachmentsWhere('a.blob = ?', blob)
  }

  *#attachmentsWhere(where: string, ...values: readonly unknown[]): Iterable<DamagedPart> {
    const sql =
      'SELECT d.id, r.rev, a.name FROM attachment AS a LEFT JOIN revision AS r ON r.num = a.revision ' +
      `LEFT JOIN doc AS d ON d.num = r.doc WHERE ${where} LIMIT ${MAX_SHARING}`
    const found = this.#database.prepare<Record<'id' | 'rev' | 'name', unknown>>(sql)
    for (const { id, rev, name } of found.all(...(values as Value[])))
      yield { kind: 'attachment', id: textOf(id), rev: textOf(rev), name: textOf(name) }
  }
}

/** More than any stretch has rows. */
const MAX_ROWS = 1_000_000

/** How many attachments are named that share one damaged content. */
const MAX_SHARING = 10

function selectOf({ table, key, columns }: SummedTable): string {
  return `SELECT ${key} AS at, checksum, ${columns} FROM ${table} WHERE ${key} > ? AND ${key} <= ?`
}

function summedAncestry({ ancestry, rev, deleted }: RevisionRow): Uint8Array | null {
  return ancestry && withChecksum(ancestry, rev, deleted === 1)
}

function isSound({ table, hasAncestry, checksumOf }: SummedTable, row: FoundRow, mayLack: boolean): boolean {
  // The content of an upload that has not ended has no digest yet.
  if (table === 'blob' && row.sha256 === null) return true
  // A damaged row may have a column of another type, which no function expects.
  try {
    if (!agrees(row.checksum, checksumOf(row as never), mayLack)) return false
    const { ancestry, rev, deleted } = row as unknown as RevisionRow
    return (
      !hasAncestry || ancestry === null || checkedAncestry(ancestry, rev, deleted === 1, mayLack) !== null
    )
  } catch {
    return false
  }
}

/** A column that a damaged row may not have as a text. @returns null then */
export function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}
