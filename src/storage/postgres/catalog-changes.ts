/** The changes of the catalog that other nodes make, read from the rows in which each call of theirs has stored its own. */
import type { CatalogChange } from '../records.ts'
import type { Connections } from './connections.ts'
import { type StorePosition, WAL } from './store-memory.ts'

/** How long rows are kept, in ms, and how often old ones are removed. */
const KEEP_MS = 120_000
const SWEEP_MS = 30_000
/** Beyond this time since the last look, in ms, rows may have been removed that were not seen. */
const MAX_AWAY_MS = KEEP_MS / 2
/** Rows of one look; if there are more, everything is read again. */
const MAX_ROWS = 5000
/** Rows that one statement removes. */
const SWEPT_ROWS = 5000

const MOMENT = `timeline(), pg_current_snapshot()::text, pg_snapshot_xmin(pg_current_snapshot())::text,
  (extract(epoch FROM clock_timestamp()) * 1000)::bigint, s.update_seq, s.boot, s.boot_seq, ${WAL}`
const READ_MOMENT = { name: 'read_moment', text: `SELECT ${MOMENT} FROM store s` }
/** Transactions do not become visible in the order of their numbers: those count that the last look has not seen. */
const READ_CHANGES = {
  name: 'read_changes',
  text: `SELECT ${MOMENT}, c.changes FROM store s LEFT JOIN (
    SELECT changes FROM catalog_change WHERE xid >= pg_snapshot_xmin($1::pg_snapshot)
      AND NOT pg_visible_in_snapshot(xid, $1::pg_snapshot) AND node <> $2 AND changes IS NOT NULL
    LIMIT ${MAX_ROWS + 1}) c ON true`,
}
/** A call that must not be stored may begin as late as a frozen server is thawed, or a network that was cut holds its bytes. */
const SWEEP = {
  name: 'sweep_changes',
  text: `DELETE FROM catalog_change WHERE token IN (
    SELECT token FROM catalog_change WHERE xid < $1::xid8 AND (changes IS NOT NULL OR at < now() - interval '1 day')
      ORDER BY xid LIMIT ${SWEPT_ROWS} FOR UPDATE SKIP LOCKED)
    RETURNING 1`,
}

/** A look at the store. */
interface Moment {
  readonly timeline: string
  readonly snapshot: string
  /** All transactions below this number have ended. */
  readonly xmin: string
  /** The clock of PostgreSQL, in ms, and that of this process, in ms of `performance.now()`. */
  readonly at: number
  readonly seenAt: number
}

type MomentRow = readonly [
  timeline: string,
  snapshot: string,
  xmin: string,
  at: number,
  updateSeq: number,
  boot: string,
  bootSeq: number,
  wal: number,
]

/** Hears where the store is. @returns when it may be used as it is */
export type OnPosition = (position: Omit<StorePosition, 'at'>) => Promise<void>

const ANY: readonly CatalogChange[] = [{ type: 'any' }]

export class CatalogChanges {
  readonly #connections: Connections
  readonly #node: string
  #last: Moment | null = null
  /** What lets old rows be removed: the oldest comes first. */
  #past: readonly Moment[] = []
  #onPosition: OnPosition | null = null

  /** @param node whose own changes are not read */
  constructor(connections: Connections, node: string) {
    this.#connections = connections
    this.#node = node
  }

  /**
   * Changes count from now on.
   * @param onPosition is told with each look where the store is
   * @throws as `Connections.read`
   */
  async begin(onPosition: OnPosition): Promise<void> {
    this.#onPosition = onPosition
    const [row] = await this.#connections.read<MomentRow>({ ...READ_MOMENT, values: [] })
    this.#last = momentOf(row as MomentRow)
    this.#past = [this.#last]
  }

  /**
   * Reads what has changed since the last call.
   * @returns `any` if changes may have been missed
   * @throws as `Connections.read`; the next call reads it again
   */
  async read(): Promise<readonly CatalogChange[]> {
    const last = this.#last
    if (last === null) return []
    const rows = await this.#connections.read<readonly [...MomentRow, changes: string | null]>({
      ...READ_CHANGES,
      values: [last.snapshot, this.#node],
      isBackground: true,
    })
    const [first] = rows
    if (first === undefined) return ANY
    const [timeline, , , , updateSeq, boot, bootSeq, wal] = first
    // The newest epoch may have no number yet, and then it may go.
    await this.#onPosition?.({ updateSeq, epoch: updateSeq >= bootSeq ? boot : null, wal })
    const now = momentOf(first)
    this.#last = now
    if (now.seenAt - (this.#past.at(-1)?.seenAt ?? 0) > SWEEP_MS / 2) this.#past = [...this.#past, now]
    if (timeline !== last.timeline) this.#past = [now]
    const awayMs = Math.max(now.at - last.at, now.seenAt - last.seenAt)
    const isMissing = timeline !== last.timeline || awayMs > MAX_AWAY_MS || now.at < last.at
    if (isMissing || rows.length > MAX_ROWS) return ANY
    return rows.flatMap(([, , , , , , , , changes]) =>
      changes === null ? [] : (JSON.parse(changes) as CatalogChange[]),
    )
  }

  /** Removes rows that every node has seen, or is too late for. @throws as `Connections.write` */
  async sweep(): Promise<void> {
    const seenBefore = performance.now() - KEEP_MS
    const past = this.#past.findLast(({ seenAt }) => seenAt < seenBefore)
    if (past === undefined) return
    for (;;) {
      const removed = await this.#connections.write({
        ...SWEEP,
        values: [past.xmin],
        isBackground: true,
      })
      if (removed.length < SWEPT_ROWS) break
    }
    this.#past = this.#past.filter(({ seenAt }) => seenAt >= past.seenAt)
  }
}

function momentOf([timeline, snapshot, xmin, at]: readonly [...MomentRow, ...unknown[]]): Moment {
  return { timeline, snapshot, xmin, at, seenAt: performance.now() }
}
