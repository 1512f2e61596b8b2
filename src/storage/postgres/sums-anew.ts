/**
 * Counts the sums of bytes of a database anew where they lack something: its rows are older than the sums, or a node of the
 * version before has written some (WHOLE_SUMS in schema.ts).
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
  text: `SELECT uncounted, leaf_bytes - coalesce(octet_length(security), 0), superseded_bytes, retained_bytes
    FROM database WHERE db = $1`,
}
type CounterRow = readonly [uncounted: number | null, leaf: number, superseded: number, retained: number]

const ADD_MISSING = {
  name: 'add_missing_bytes',
  text: `UPDATE database SET uncounted = 0, leaf_bytes = leaf_bytes + $3, superseded_bytes = superseded_bytes + $4,
    retained_bytes = retained_bytes + $5 WHERE db = $1 AND uncounted IS NOT DISTINCT FROM $2`,
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
    const [uncounted, leaf, superseded, retained] = row
    const sums = await sumRows(db, async <R extends Row>(query: Query) => {
      const began = performance.now()
      const rows = await rowsOf<R>(client, query)
      await pause(performance.now() - began)
      return rows
    })
    const counted = countersOf(sums)
    const missing = [counted.leaf - leaf, counted.superseded - superseded, counted.retained - retained]
    await step({ ...ADD_MISSING, values: [db, uncounted, ...missing] })
  } finally {
    await client.end().catch(() => undefined)
  }
}

async function rowsOf<R extends Row>(client: pg.Client, { name, text, values }: Query): Promise<R[]> {
  const { rows } = await client.query({ name, text, values: values as unknown[], rowMode: 'array' })
  return rows as unknown as R[]
}
