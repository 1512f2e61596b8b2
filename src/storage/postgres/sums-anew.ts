/**
 * Counts the sums of bytes, the documents and the rows of the feed of a database anew where they lack something: its rows are older than the
 * sums, a node of the version before has written some (WHOLE_SUMS in schema.ts), or a check has found damaged counters.
 *
 * Each write changes a sum by as much as its rows, so what a sum lacks stays the same whatever is written meanwhile. It
 * is found out in a snapshot, in which short statements add up all rows, and added at the end. Nobody waits for that.
 */
import type pg from 'pg'
import type { Query } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import { countersOf, sumRows } from './stored-sizes.ts'

const READ_COUNTERS = {
  name: 'read_counters',
  text: `SELECT uncounted, leaf_bytes - coalesce(octet_length(security), 0), superseded_bytes, retained_bytes, doc_count, deleted_count
    FROM database WHERE db = $1`,
}
type CounterRow = readonly [
  uncounted: number | null,
  leaf: number,
  superseded: number,
  retained: number,
  docs: number,
  deleted: number,
]

/** Rows that one statement reads, or changes. */
const ROWS = 2000

const FEED = {
  name: 'count_feed',
  text: `SELECT seq >> 10, count(*), count(*) FILTER (WHERE deleted), max(seq)
    FROM (SELECT seq, deleted FROM doc WHERE db = $1 AND seq > $2 ORDER BY seq LIMIT ${ROWS}) AS page GROUP BY 1 ORDER BY 1`,
}
const STRETCHES = {
  name: 'read_feed_counts',
  text: `SELECT stretch, rows::bigint FROM feed_count WHERE db = $1 AND stretch > $2 ORDER BY stretch LIMIT ${ROWS}`,
}
const ADD_ROWS = {
  name: 'add_missing_rows',
  text: `INSERT INTO feed_count AS f (db, stretch, rows) SELECT $1::bigint, w.stretch, w.rows FROM unnest($2::bigint[], $3::bigint[]) AS w (stretch, rows)
    ON CONFLICT (db, stretch) DO UPDATE SET rows = f.rows + excluded.rows`,
}

/** The statement by which a check that has found damaged counters has them counted anew. */
export const NOTE_UNCOUNTED = {
  name: 'note_uncounted',
  text: 'UPDATE database SET uncounted = writes + 1 WHERE db = $1 AND uncounted = 0',
}

const ADD_MISSING = {
  name: 'add_missing_bytes',
  text: `UPDATE database SET uncounted = 0, leaf_bytes = leaf_bytes + $3, superseded_bytes = superseded_bytes + $4,
    retained_bytes = retained_bytes + $5, doc_count = doc_count + $6, deleted_count = deleted_count + $7 WHERE db = $1 AND uncounted IS NOT DISTINCT FROM $2`,
}

/** How a compaction lets its parts work. */
export interface StepMeans {
  /** Called after each statement with its time in ms. */
  pause(worked: number): Promise<void>
  /** Runs a statement that writes. */
  step(query: Query): Promise<unknown>
}

/** @throws what `pause` and `step` throw; the error of pg */
export async function countSumsAnew(
  { connections, db }: OpenDatabase,
  { pause, step }: StepMeans,
): Promise<void> {
  const [known] = await connections.read<CounterRow>({ ...READ_COUNTERS, values: [db] })
  if (known === undefined || known[0] === 0) return
  const client = await connections.dedicated()
  try {
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    const [row] = await rowsOf<CounterRow>(client, { ...READ_COUNTERS, values: [db] })
    if (row === undefined) return
    const [uncounted, leaf, superseded, retained, docs, deleted] = row
    const read = async <R extends Row>(query: Query) => {
      const began = performance.now()
      const rows = await rowsOf<R>(client, query)
      await pause(performance.now() - began)
      return rows
    }
    const sums = await sumRows(db, read)
    const feed = await countFeed(db, read)
    const counted = countersOf(sums)
    const missing = [counted.leaf - leaf, counted.superseded - superseded, counted.retained - retained]
    missing.push(feed.docs - feed.deleted - docs, feed.deleted - deleted)
    const stretches = [...feed.missing].filter(([, rows]) => rows !== 0)
    for (let at = 0; at < stretches.length; at += ROWS) {
      const some = stretches.slice(at, at + ROWS)
      await step({
        ...ADD_ROWS,
        values: [db, some.map(([stretch]) => stretch), some.map(([, rows]) => rows)],
      })
    }
    await step({ ...ADD_MISSING, values: [db, uncounted, ...missing] })
  } finally {
    await client.end().catch(() => undefined)
  }
}

type Read = <R extends Row>(query: Query) => Promise<R[]>

/** Counts the documents. `missing`: by how much the counted rows of each stretch exceed what is noted. */
async function countFeed(db: number, read: Read) {
  const missing = new Map<number, number>()
  const add = (stretch: number, rows: number) => missing.set(stretch, (missing.get(stretch) ?? 0) + rows)
  let [docs, deleted] = [0, 0]
  for (let [after, found] = [-1, ROWS]; found === ROWS; ) {
    const values = [db, after]
    const page = await read<readonly [number, number, number, number]>({ ...FEED, values })
    found = 0
    for (const [stretch, rows, tombstones, last] of page) {
      add(stretch, rows)
      found += rows
      deleted += tombstones
      after = last
    }
    docs += found
  }
  for (let [after, found] = [-1, ROWS]; found === ROWS; ) {
    const values = [db, after]
    const page = await read<readonly [number, number]>({ ...STRETCHES, values })
    for (const [stretch, rows] of page) add(stretch, -rows)
    found = page.length
    after = page.at(-1)?.[0] ?? after
  }
  return { docs, deleted, missing }
}

async function rowsOf<R extends Row>(client: pg.Client, { name, text, values }: Query): Promise<R[]> {
  const { rows } = await client.query({ name, text, values: values as unknown[], rowMode: 'array' })
  return rows as unknown as R[]
}
