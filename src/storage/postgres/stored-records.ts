/** Records in PostgreSQL: storage/records.ts. */
import { endOfPrefix, type RecordRange, type RecordWrite, type ServerRecord } from '../records.ts'
import type { Query } from './connections.ts'
import { refuseLongRecord, storedText, textOf } from './stored-text.ts'

const READ = {
  name: 'read_records',
  text: 'SELECT key, value FROM record WHERE kind = $1 AND key = ANY($2::text[])',
}
const WRITE = {
  name: 'write_records',
  text: 'SELECT write_records($1, $2, $3, $4, $5, $6, $7, $8)',
}

/** Lists with one lower bound, since PostgreSQL would read all keys between two. */
const LISTS = new Map(
  [false, true].flatMap((isAfter) =>
    [false, true].map((hasEnd) => {
      const text =
        `SELECT key, value FROM record WHERE kind = $1 AND key ${isAfter ? '>' : '>='} $2` +
        `${hasEnd ? ' AND key < $4' : ''} ORDER BY key LIMIT $3`
      const name = `list_records${isAfter ? '_after' : ''}${hasEnd ? '_prefix' : ''}`
      return [name, { name, text }] as const
    }),
  ),
)

/** A row of {@link readQuery} or {@link listQuery}. */
export type RecordRow = readonly [key: string, value: string]

export function readQuery(kind: string, keys: readonly string[]): Query {
  return { ...READ, values: [storedText(kind), [...new Set(keys)].map(storedText)] }
}

/** @returns the values in the order of the keys; null for a key without a record */
export function valuesOf(rows: readonly RecordRow[], keys: readonly string[]): (string | null)[] {
  const values = new Map(rows)
  return keys.map((key) => {
    const value = values.get(storedText(key))
    return value === undefined ? null : textOf(value)
  })
}

export function listQuery(kind: string, { prefix = '', after }: RecordRange, limit: number): Query {
  const low = storedText(prefix)
  const end = endOfPrefix(low)
  const isAfter = after !== undefined && Buffer.compare(Buffer.from(after), Buffer.from(prefix)) >= 0
  const list = LISTS.get(`list_records${isAfter ? '_after' : ''}${end === null ? '' : '_prefix'}`) as Query
  const values = [storedText(kind), isAfter ? storedText(after) : low, limit]
  return { ...list, values: end === null ? values : [...values, end] }
}

export function recordOf(kind: string, [key, value]: RecordRow): ServerRecord {
  return { kind, key: textOf(key), value: textOf(value) }
}

/** One record of a write: of several values of a key, the last counts, and all that are expected must be there. */
interface Merged {
  readonly kind: string
  readonly key: string
  readonly value: string | null
  readonly expected?: string | null
}

/**
 * What a call of `write_records` does.
 * @returns null if the write expects two different values of one key, so that it cannot be done
 * @throws bad_request for a key that is too long
 */
export function writeCall(
  writes: readonly RecordWrite[],
): { readonly statement: typeof WRITE; readonly values: readonly unknown[] } | null {
  const byPlace = new Map<string, Merged>()
  for (const { kind, key, value, expected } of writes) {
    refuseLongRecord(kind, key)
    const place = JSON.stringify([kind, key])
    const before = byPlace.get(place)
    if (expected !== undefined && before?.expected !== undefined && before.expected !== expected) return null
    const wanted = expected === undefined ? before?.expected : expected
    byPlace.set(place, { kind, key, value, ...(wanted !== undefined && { expected: wanted }) })
  }
  // All nodes lock them in one order, so that none waits for another in a circle.
  const merged = [...byPlace].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, record]) => record)
  const text = (value: string | null | undefined) => (typeof value === 'string' ? storedText(value) : null)
  return {
    statement: WRITE,
    values: [
      merged.map(({ kind }) => storedText(kind)),
      merged.map(({ key }) => storedText(key)),
      merged.map(({ value }) => text(value)),
      merged.map(({ expected }) => expected !== undefined),
      merged.map(({ expected }) => text(expected)),
    ],
  }
}
