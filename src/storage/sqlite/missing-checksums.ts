/** Notes the checksums of rows that an older settee wrote. What they say now counts as what was written. */
import {
  type ContentFacts,
  chunkChecksum,
  contentChecksum,
  type DocFacts,
  docChecksum,
  rowChecksum,
  withChecksum,
} from '../checksum.ts'
import type { LocalDoc } from '../engine.ts'
import { type AttachmentFacts, attachmentChecksum, type BlobFacts, blobChecksum } from './blobs.ts'
import type { Connection } from './connection.ts'
import { localChecksum } from './documents.ts'
import type { Statement, Value } from './statement.ts'

interface Place {
  /** The number by which the row is found again. */
  readonly at: number
}

interface Fill {
  readonly table: string
  /** The column of numbers in whose order the rows are read. */
  readonly key: string
  /** A further column that names a row among those with one number. */
  readonly name?: string
  readonly columns: string
  /** Numbers of a stretch: one reads so many rows at most, and of attachments those of so many revisions. */
  readonly stretch: number
  /** What is set: the checksum, unless it says otherwise. */
  readonly set?: string
  valuesOf(row: never): Value | readonly Value[]
}

const FILLS: readonly Fill[] = [
  {
    table: 'doc',
    key: 'num',
    columns: 'num, id, seq, rev, deleted, leaves, winner',
    stretch: 100,
    valuesOf: (row: DocFacts & { id: string; rev: string }) => docChecksum(row.id, row.rev, row),
  },
  {
    table: 'revision',
    key: 'num',
    columns: 'num, rev, deleted, attachments, body, ancestry',
    stretch: 10,
    set: 'checksum = ?, ancestry = ?',
    valuesOf: (row: ContentFacts & { ancestry: Uint8Array | null }) => [
      contentChecksum(row),
      row.ancestry && withChecksum(row.ancestry, row.rev, row.deleted === 1),
    ],
  },
  {
    table: 'attachment',
    key: 'revision',
    name: 'name',
    columns: 'revision, name, blob, type, revpos, encoding, length, place',
    stretch: 100,
    valuesOf: (row: AttachmentFacts & { revision: number }) => attachmentChecksum(row.revision, row),
  },
  {
    table: 'blob',
    key: 'num',
    columns: 'num, sha256, md5, length',
    stretch: 100,
    valuesOf: (row: BlobFacts) => blobChecksum(row),
  },
  {
    table: 'chunk',
    key: 'rowid',
    columns: 'blob, position, data',
    stretch: 2,
    valuesOf: (row: { blob: number; position: number; data: Uint8Array }) =>
      chunkChecksum(row.blob, row.position, row.data),
  },
  {
    table: 'local',
    key: 'rowid',
    columns: 'id, rev, body',
    stretch: 10,
    valuesOf: (row: LocalDoc) => localChecksum(row),
  },
  {
    table: 'security',
    key: 'one',
    columns: 'body',
    stretch: 1,
    valuesOf: (row: { body: string }) => rowChecksum(row.body),
  },
]

interface Prepared {
  readonly fill: Fill
  readonly page: Statement
  readonly put: Statement
  readonly last: Statement<Place>
}

/** How far the tables are done. */
export interface FillPosition {
  /** Which of the tables is next. */
  readonly table: number
  /** The number of its rows that is done last. */
  readonly above: number
}

export class MissingChecksums {
  readonly #tables: readonly Prepared[]

  constructor(connection: Connection) {
    this.#tables = FILLS.map((fill) => {
      const { table, key, columns, name, set = 'checksum = ?' } = fill
      const named = name === undefined ? '' : ` AND ${name} = ?`
      return {
        fill,
        page: connection.prepare(
          `SELECT ${key} AS at, ${columns} FROM ${table} WHERE ${key} > ? AND ${key} <= ? AND checksum IS NULL`,
        ),
        put: connection.prepare(`UPDATE ${table} SET ${set} WHERE ${key} = ?${named}`),
        last: connection.prepare(`SELECT coalesce(max(${key}), 0) AS at FROM ${table}`),
      }
    })
  }

  /**
   * Processes stretches of rows, one at least, inside the transaction of the caller.
   * @param until a time, in ms as of `performance.now`
   * @returns where the next step begins; null when all tables are done
   */
  step({ table: first, above: from }: FillPosition, until: number): FillPosition | null {
    let above = from
    for (const [table, { fill, page, put, last }] of this.#tables.entries()) {
      if (table < first) continue
      const end = last.get()?.at ?? 0
      for (; above < end; above += fill.stretch) {
        if (performance.now() > until) return { table, above }
        for (const row of page.all(above, above + fill.stretch)) {
          const found = row as unknown as Place & Record<string, string>
          const name = fill.name === undefined ? [] : [found[fill.name] as string]
          put.run(...[fill.valuesOf(row as never)].flat(), found.at, ...name)
        }
      }
      above = 0
    }
    return null
  }
}
