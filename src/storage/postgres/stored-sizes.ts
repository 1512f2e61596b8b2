/** The sizes of a database in PostgreSQL: from counters, and of its parts from a scan in short statements. */
import { CouchError } from '../../core/errors.ts'
import { lapsed } from '../blob-leases.ts'
import type { StoreInfo } from '../engine.ts'
import type { GarbageCounts, SizePart, StoreSizes } from '../upkeep.ts'
import type { Query } from './connections.ts'
import { VIEW_COLUMNS, type ViewRow } from './database-view.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import { ROW_BYTES } from './row-bytes.ts'

/** Rows that one statement of a scan reads: some milliseconds. */
const ROWS = 2000

/**
 * All bytes that a database takes, without what is retained for the time machine. The sums of a database from before the upgrade
 * may be negative until they are counted anew.
 */
const ACTIVE = 'greatest(0, leaf_bytes) + greatest(0, superseded_bytes) + blob_bytes'
const RETAINED = 'greatest(0, retained_bytes)'

const INFO = {
  name: 'size_info',
  text: `SELECT ${VIEW_COLUMNS}, purge_seq, ${ACTIVE}, ${RETAINED}, external_bytes,
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
  text: `SELECT writes, ${ACTIVE} + ${RETAINED}, superseded_bytes, loose_bytes,
      (SELECT min(superseded_at) FROM revision WHERE db = $1 AND retained),
      compacted_at, purge_seq > compacted_purge OR longest_ancestry > revs_limit OR uncounted IS DISTINCT FROM 0
        OR unsummed IS DISTINCT FROM 0 OR unsummed_others IS DISTINCT FROM 0
    FROM database WHERE db = $1`,
}
type GarbageRow = readonly [
  writes: number,
  storedBytes: number,
  supersededBytes: number,
  maybeUnreferencedBytes: number,
  oldestRetained: number | null,
  compactedAt: number,
  needsCompaction: boolean,
]

/** The kinds of the rows that a scan counts; `notes` are rows without a body. */
const KINDS = ['live', 'tombstones', 'old', 'kept', 'local', 'notes'] as const
type Kind = (typeof KINDS)[number]
const KIND = Object.fromEntries(KINDS.map((kind, at) => [kind, at])) as Record<Kind, number>

interface Scan {
  readonly table: string
  /** The columns of the key, and values below all of theirs. */
  readonly key: readonly string[]
  readonly first: readonly (string | number)[]
  /** The kind of a row, a number; the bytes of its body; and all that it counts. */
  readonly kind: string
  readonly body: string
  readonly bytes: string
}

const LEAF = `CASE WHEN deleted THEN ${KIND.tombstones} ELSE ${KIND.live} END`
const REVISION = { body: 'octet_length(body)', bytes: 'revision_bytes(id, rev, ancestry, body)' }
const BY_ID = { key: ['id'], first: [''] }
const SCANS: readonly Scan[] = [
  { table: 'doc', ...BY_ID, kind: LEAF, ...REVISION },
  {
    table: 'revision',
    key: ['id', 'rev'],
    first: ['', ''],
    kind: `CASE WHEN retained THEN ${KIND.kept} WHEN NOT leaf THEN ${KIND.old} ELSE ${LEAF} END`,
    ...REVISION,
  },
  {
    table: 'local_doc',
    ...BY_ID,
    kind: `${KIND.local}`,
    body: 'octet_length(body)',
    bytes: "revision_bytes(id, '', NULL, body)",
  },
  {
    table: 'purge',
    key: ['seq'],
    first: [-1],
    kind: `${KIND.notes}`,
    body: '0',
    bytes: 'purge_bytes(id, revs)',
  },
  { table: 'met', ...BY_ID, kind: `${KIND.notes}`, body: '0', bytes: 'met_bytes(id)' },
]

type ScanRow = readonly [
  rows: number,
  counts: readonly number[],
  bodies: readonly number[],
  bytes: readonly number[],
  ...last: (string | number)[],
]

/** The next rows above a key: how many there are, and of each kind how many, and their bytes; and the last key. */
function pageOf({ table, key, kind, body, bytes }: Scan) {
  const columns = key.join(', ')
  const above = key.map((_, at) => `$${at + 2}`).join(', ')
  const each = (value: (at: number) => string) => `ARRAY[${KINDS.map((_, at) => value(at)).join(', ')}]`
  const sums = (of: string) => each((at) => `coalesce(sum(${of}) FILTER (WHERE kind = ${at}), 0)::bigint`)
  const order = key.map((column) => `${column} DESC`).join(', ')
  return {
    name: `sizes_of_${table}`,
    text: `SELECT count(*), ${each((at) => `count(*) FILTER (WHERE kind = ${at})`)}, ${sums('body')}, ${sums('bytes')},
        ${key.map((column) => `(array_agg(${column} ORDER BY ${order}))[1]`).join(', ')}
      FROM (
        SELECT ${columns}, ${kind} AS kind, ${body} AS body, ${bytes} AS bytes FROM ${table}
        WHERE db = $1 AND (${columns}) > (${above}) ORDER BY ${columns} LIMIT ${ROWS}
      ) page`,
  }
}

const PAGES = SCANS.map((scan) => ({ page: pageOf(scan), first: scan.first }))

const BLOBS = {
  name: 'sizes_of_blob',
  text: `SELECT count(*), coalesce(sum(length), 0)::bigint, max(blob)
    FROM (SELECT blob, length FROM blob WHERE db = $1 AND blob > $2 ORDER BY blob LIMIT ${ROWS}) page`,
}

/** What the row of a database counts itself. */
const OWN_ROW = {
  name: 'size_of_own_row',
  text: `SELECT ${ROW_BYTES} + coalesce(octet_length(security), 0) FROM database WHERE db = $1`,
}

/** Runs a statement that reads. */
type Read = <R extends Row>(query: Query) => Promise<R[]>

/** Of each kind of rows how many there are, the bytes of their bodies, and all that they count. */
interface RowSums {
  readonly counts: number[]
  readonly bodies: number[]
  readonly bytes: number[]
}

/** Adds up the rows of a database, in short statements. */
export async function sumRows(db: number, read: Read): Promise<RowSums> {
  const [counts, bodies, bytes] = [0, 1, 2].map(() => KINDS.map(() => 0)) as [number[], number[], number[]]
  const add = (sums: number[], page: readonly number[]) => {
    for (const at of KINDS.keys()) sums[at] = (sums[at] ?? 0) + (page[at] ?? 0)
  }
  for (const { page, first } of PAGES) {
    for (let last: readonly (string | number)[] | null = first; last !== null; ) {
      const values: readonly unknown[] = [db, ...last]
      const [row]: ScanRow[] = await read<ScanRow>({ ...page, values })
      const [rows, pageCounts, pageBodies, pageBytes, ...end] = row as ScanRow
      add(counts, pageCounts)
      add(bodies, pageBodies)
      add(bytes, pageBytes)
      last = rows < ROWS ? null : end
    }
  }
  return { counts, bodies, bytes }
}

/** @returns what the counters of the database's row should be, without its security object */
export function countersOf({ bodies, bytes }: RowSums) {
  const of = (kind: Kind) => bytes[KIND[kind]] ?? 0
  const retained = bodies[KIND.kept] ?? 0
  const rest = of('kept') - retained
  return {
    leaf: of('live') + of('tombstones') + of('local') + of('notes') + rest,
    superseded: of('old'),
    retained,
  }
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
    const [
      writes,
      storedBytes,
      supersededBytes,
      maybeUnreferencedBytes,
      oldestRetained,
      compactedAt,
      needsCompaction,
    ] = row
    const counts = { writes, storedBytes, freeBytes: 0, supersededBytes, maybeUnreferencedBytes }
    return { ...counts, oldestRetained, compactedAt, needsCompaction }
  }

  /** Scans bodies, contents and `_local` documents. @throws as {@link info} */
  async count(): Promise<StoreSizes> {
    const { connections, db } = this.#database
    const sums = await sumRows(db, (query) => connections.read(query))
    const part = (kind: Kind): SizePart => ({
      count: sums.counts[KIND[kind]] ?? 0,
      bytes: sums.bodies[KIND[kind]] ?? 0,
    })
    const attachments = await this.#blobs()
    const [live, tombstones, old, kept] = [part('live'), part('tombstones'), part('old'), part('kept')]
    const parts = { live, tombstones, old, kept, attachments, local: part('local') }
    const all = (of: readonly number[]) => of.reduce((sum, bytes) => sum + bytes, 0)
    const [row] = await connections.read<readonly [number]>({ ...OWN_ROW, values: [db] })
    if (row === undefined) throw new CouchError('no_database')
    const indexes = { bytes: row[0] + all(sums.bytes) - all(sums.bodies) }
    const file = [...Object.values(parts), indexes].reduce((sum, { bytes }) => sum + bytes, 0)
    return { file, ...parts, indexes, free: null, log: null }
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
