/** The sizes of a database in PostgreSQL: from counters, and of its parts from a scan in short statements. */
import { CouchError } from '../../core/errors.ts'
import { lapsed } from '../blob-leases.ts'
import type { StoreInfo } from '../engine.ts'
import type { GarbageCounts, SizePart, StoreSizes } from '../upkeep.ts'
import type { Statement } from './connections.ts'
import { VIEW_COLUMNS, type ViewRow } from './database-view.ts'
import type { OpenDatabase } from './open-database.ts'

/** Rows that one statement of a scan reads: some milliseconds. */
const ROWS = 2000
/** As in stored_bytes of schema.ts: the approximate size of a revision besides its body, and that of the database's row. */
const ROW_BYTES = 200

/** All bytes that a database takes, and those without what is retained for the time machine. */
const ACTIVE = 'leaf_bytes + superseded_bytes + blob_bytes'

const INFO = {
  name: 'size_info',
  text: `SELECT ${VIEW_COLUMNS}, purge_seq, ${ACTIVE}, retained_bytes, external_bytes,
      EXISTS (SELECT FROM compaction c WHERE c.db = $1 AND c.opener <> $2 AND c.renewed_at > $3)
    FROM database d WHERE d.db = $1`,
}
type InfoRow = readonly [
  ...view: ViewRow,
  purgeSeq: number,
  active: number,
  retained: number,
  external: number,
  isCompacting: boolean,
]

/** The part of {@link StoreInfo} that is stored. */
type StoredInfo = Omit<StoreInfo, 'name' | 'createdAt'>

const GARBAGE = {
  name: 'garbage',
  text: `SELECT writes, ${ACTIVE} + retained_bytes, superseded_bytes, loose_bytes,
      (SELECT min(superseded_at) FROM revision WHERE db = $1 AND retained),
      compacted_at, purge_seq > compacted_purge OR longest_ancestry > revs_limit
    FROM database WHERE db = $1`,
}
type GarbageRow = readonly [
  writes: number,
  storedBytes: number,
  supersededBytes: number,
  looseBytes: number,
  oldestRetained: number | null,
  compactedAt: number,
  isOwed: boolean,
]

/** The kinds of the rows that a scan counts. */
const KINDS = ['live', 'tombstones', 'old', 'kept', 'attachments', 'local'] as const
type Kind = (typeof KINDS)[number]
const KIND = Object.fromEntries(KINDS.map((kind, at) => [kind, at])) as Record<Kind, number>

interface Scan {
  readonly table: string
  /** The columns of the key, which are texts. */
  readonly key: readonly string[]
  /** The kind of a row, a number, and its bytes. */
  readonly kind: string
  readonly bytes: string
}

const LEAF = `CASE WHEN deleted THEN ${KIND.tombstones} ELSE ${KIND.live} END`
const SCANS: readonly Scan[] = [
  { table: 'doc', key: ['id'], kind: LEAF, bytes: 'octet_length(body)' },
  {
    table: 'revision',
    key: ['id', 'rev'],
    kind: `CASE WHEN retained THEN ${KIND.kept} WHEN NOT leaf THEN ${KIND.old} ELSE ${LEAF} END`,
    bytes: 'octet_length(body)',
  },
  { table: 'local_doc', key: ['id'], kind: `${KIND.local}`, bytes: 'octet_length(body)' },
]

type ScanRow = readonly [rows: number, counts: readonly number[], bytes: readonly number[], ...last: string[]]

/** The next rows above a key: how many there are, how many of each kind, and their bytes; and the last key. */
function pageOf({ table, key, kind, bytes }: Scan) {
  const columns = key.join(', ')
  const above = key.map((_, at) => `$${at + 2}`).join(', ')
  const each = (value: (at: number) => string) => `ARRAY[${KINDS.map((_, at) => value(at)).join(', ')}]`
  const order = key.map((column) => `${column} DESC`).join(', ')
  return {
    name: `sizes_of_${table}`,
    text: `SELECT count(*), ${each((at) => `count(*) FILTER (WHERE kind = ${at})`)},
        ${each((at) => `coalesce(sum(bytes) FILTER (WHERE kind = ${at}), 0)::bigint`)},
        ${key.map((column) => `(array_agg(${column} ORDER BY ${order}))[1]`).join(', ')}
      FROM (
        SELECT ${columns}, ${kind} AS kind, ${bytes} AS bytes FROM ${table}
        WHERE db = $1 AND (${columns}) > (${above}) ORDER BY ${columns} LIMIT ${ROWS}
      ) page`,
  }
}

const PAGES = SCANS.map((scan) => ({ page: pageOf(scan), first: scan.key.map(() => '') }))

const BLOBS = {
  name: 'sizes_of_blob',
  text: `SELECT count(*), coalesce(sum(length), 0)::bigint, max(blob)
    FROM (SELECT blob, length FROM blob WHERE db = $1 AND blob > $2 ORDER BY blob LIMIT ${ROWS}) page`,
}

export class Sizes {
  readonly #database: OpenDatabase

  constructor(database: OpenDatabase) {
    this.#database = database
  }

  /**
   * For the database's information object.
   * @param claim of the caller: whether it compacts is not asked
   * @throws no_database, as {@link Connections.read}
   */
  info(claim: string): Promise<StoredInfo> {
    const { connections, db, views, now } = this.#database
    const values = [db, claim, lapsed(now())]
    return views.reading(
      async () => {
        const [row] = await connections.read<InfoRow>({ ...INFO, values })
        if (row === undefined) return { view: null, rows: null }
        return { view: [row[0], row[1], row[2], row[3]] as const, rows: row }
      },
      (row, view) => {
        const [, , , , purgeSeq, active, retained, external, compacting] = row as InfoRow
        return {
          ...view,
          purgeSeq,
          compacting,
          sizes: { file: ROW_BYTES + active + retained, active, external },
        }
      },
    )
  }

  /** @throws as {@link info} */
  async garbage(): Promise<GarbageCounts> {
    const { connections, db } = this.#database
    const [row] = await connections.read<GarbageRow>({ ...GARBAGE, values: [db] })
    if (row === undefined) throw new CouchError('no_database')
    const [writes, storedBytes, supersededBytes, looseBytes, oldestRetained, compactedAt, isOwed] = row
    const counts = { writes, storedBytes, freeBytes: 0, supersededBytes, looseBytes }
    return { ...counts, oldestRetained, compactedAt, isOwed }
  }

  /** Scans bodies, contents and `_local` documents. @throws as {@link info} */
  async count(): Promise<StoreSizes> {
    const counts = KINDS.map(() => 0)
    const bytes = KINDS.map(() => 0)
    for (const { page, first } of PAGES) await this.#scan(page, first, counts, bytes)
    const attachments = await this.#blobs()
    const part = (kind: Kind): SizePart => ({ count: counts[KIND[kind]] ?? 0, bytes: bytes[KIND[kind]] ?? 0 })
    const [live, tombstones, old, kept] = [part('live'), part('tombstones'), part('old'), part('kept')]
    const revisions = live.count + tombstones.count + old.count + kept.count
    const parts = { live, tombstones, old, kept, attachments, local: part('local') }
    const indexes = { bytes: ROW_BYTES * revisions }
    const file = [...Object.values(parts), indexes].reduce((sum, { bytes }) => sum + bytes, 0)
    return { file, ...parts, indexes, free: null, log: null }
  }

  async #scan(page: Statement, first: readonly string[], counts: number[], bytes: number[]): Promise<void> {
    const { connections, db } = this.#database
    for (let last: readonly string[] | null = first; last !== null; ) {
      const values: readonly unknown[] = [db, ...last]
      const [row]: ScanRow[] = await connections.read<ScanRow>({ ...page, values })
      const [rows, pageCounts, pageBytes, ...end] = row as ScanRow
      for (const at of KINDS.keys()) {
        counts[at] = (counts[at] ?? 0) + (pageCounts[at] ?? 0)
        bytes[at] = (bytes[at] ?? 0) + (pageBytes[at] ?? 0)
      }
      last = rows < ROWS ? null : end
    }
  }

  async #blobs(): Promise<SizePart> {
    const { connections, db } = this.#database
    const sum = { count: 0, bytes: 0 }
    for (let last: number | null = 0; last !== null; ) {
      const values: readonly unknown[] = [db, last]
      const [row] = await connections.read<readonly [number, number, number | null]>({ ...BLOBS, values })
      const [count = 0, bytes = 0, end = null] = row ?? []
      sum.count += count
      sum.bytes += bytes
      last = count < ROWS ? null : end
    }
    return sum
  }
}
