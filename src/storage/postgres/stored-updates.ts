/** What happened to databases, for `_db_updates`, and its epochs, which begin where the store may have gone back. */
import { randomBytes } from 'node:crypto'
import type { CatalogUpdate, CatalogUpdates, UpdatesRange } from '../catalog.ts'
import { beginEpoch, type Epochs, epochId } from '../sequence.ts'
import type { Query, Run } from './connections.ts'
import type { Row } from './prepared-query.ts'
import { isBehind, type StorePosition, WAL } from './store-memory.ts'
import { storedText } from './stored-text.ts'

const ROWS = `SELECT seq, name, type FROM catalog_update WHERE seq > $1 AND seq < $2`
/**
 * Nothing from before a database was last created. OFFSET makes PostgreSQL look for the rows of each name: a plan from when the
 * table was empty would read all updates.
 */
const ROWS_OF_NAMES = `
SELECT event.seq, event.name, event.type FROM unnest($4::text[]) AS wanted (name)
  CROSS JOIN LATERAL (
    SELECT u.seq FROM catalog_update u WHERE u.name = wanted.name AND u.type = 'created' OFFSET 0) AS creation
  CROSS JOIN LATERAL (
    SELECT u.seq, u.name, u.type FROM catalog_update u WHERE u.name = wanted.name OFFSET 0) AS event
  WHERE event.seq >= creation.seq AND event.seq > $1 AND event.seq < $2`

/** The store's row comes with every page, so that numbers and rows belong to one moment. */
function pageOf(name: string, rows: string, order: 'ASC' | 'DESC') {
  const text =
    `SELECT s.update_seq, s.epochs, u.seq, u.name, u.type FROM store s LEFT JOIN (` +
    `${rows} ORDER BY 1 ${order} LIMIT $3) u ON true ORDER BY u.seq ${order}`
  return { name, text }
}

const PAGES = {
  all: { up: pageOf('updates', ROWS, 'ASC'), down: pageOf('updates_down', ROWS, 'DESC') },
  named: {
    up: pageOf('updates_of', ROWS_OF_NAMES, 'ASC'),
    down: pageOf('updates_of_down', ROWS_OF_NAMES, 'DESC'),
  },
}

export type UpdateRow = readonly [
  lastSeq: number,
  epochs: string,
  seq: number | null,
  name: string,
  type: string,
]

export function updatesQuery(
  { since, descending = false, before = Number.MAX_SAFE_INTEGER, names }: UpdatesRange,
  limit: number,
): Query {
  const values = [since, before, Math.min(limit, Number.MAX_SAFE_INTEGER)]
  const pages = names === undefined ? PAGES.all : PAGES.named
  return {
    ...(descending ? pages.down : pages.up),
    values: names === undefined ? values : [...values, [...new Set(names)].map(storedText)],
  }
}

/** @param rows of {@link updatesQuery}; at least one */
export function updatesOf(rows: readonly UpdateRow[]): CatalogUpdates {
  const [lastSeq, epochs] = rows[0] as UpdateRow
  return {
    rows: rows.flatMap(([, , seq, name, type]) =>
      seq === null ? [] : [{ seq, name, type: type as CatalogUpdate['type'] }],
    ),
    lastSeq,
    epochs: JSON.parse(epochs) as Epochs,
  }
}

/** Incarnations that a lost part of the history may have given out. */
const LOST_INCARNATIONS = 1_000_000

const LOCK_STORE = {
  name: 'lock_store',
  text: `SELECT update_seq, epochs, timeline <> timeline(), generation, ${WAL} FROM store FOR UPDATE`,
}
const RENEW_STORE = {
  name: 'renew_store',
  text: `UPDATE store SET epochs = $1, boot = $2, boot_seq = update_seq + 1, last_db = last_db + $3,
    generation = coalesce($4, generation)`,
}
/** In a statement of its own, so that it sees the new generation. */
const SET_TIMELINE = { name: 'set_timeline', text: 'UPDATE store SET timeline = timeline()' }

export interface Renewal {
  /** Where the store was when this node saw it last; null: it does not know. */
  readonly remembered: StorePosition | null
  /** The node starts: what happened to the store meanwhile is not known, so that an epoch begins. */
  readonly isStart: boolean
  /** In ms since 1970. */
  readonly now: number
}

/**
 * Begins a generation if the store was restored, is behind what the node remembers, or another server has taken over: then
 * every database is restored when it is opened next. At a start it begins an epoch in any case. Part of the caller's transaction.
 */
export async function renewStore(run: Run, { remembered, isStart, now }: Renewal): Promise<void> {
  const [row] = await run<
    [updateSeq: number, epochs: string, isMoved: boolean, generation: string, wal: number]
  >({
    ...LOCK_STORE,
    values: [],
  })
  const [updateSeq, text, isMoved, generation, wal] = row as [number, string, boolean, string, number]
  const epochs = JSON.parse(text) as Epochs
  const isLost =
    isMoved || (remembered !== null && isBehind({ updateSeq, epochs, generation, wal }, remembered))
  if (!isLost && !isStart) return
  const id = epochId(randomBytes(9))
  const renewed = JSON.stringify(beginEpoch(epochs, id, updateSeq + 1))
  await run<Row>({
    ...RENEW_STORE,
    values: [renewed, id, isLost ? LOST_INCARNATIONS : 0, isLost ? `${now}-${id}` : null],
  })
  await run<Row>({ ...SET_TIMELINE, values: [] })
}

/** As {@link renewStore}, for a store that is being used: only what another server has taken over. */
export function renewMovedStore(now: number): (run: Run) => Promise<void> {
  return (run) => renewStore(run, { remembered: null, isStart: false, now })
}
