/** Records in PostgreSQL: storage/records.ts. */
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import { agrees, rowChecksum } from '../checksum.ts'
import { endOfPrefix, isMadeAnew, type RecordRange, type RecordWrite, type ServerRecord } from '../records.ts'
import type { Connections, Query } from './connections.ts'
import { refuseLongRecord, storedText, textOf } from './stored-text.ts'

const READ = {
  name: 'read_records',
  text: 'SELECT key, value, checksum FROM record WHERE kind = $1 AND key = ANY($2::text[])',
}
const WRITE = {
  name: 'store_records',
  // The last three values of a call of the catalog come before the checksums.
  text: 'SELECT store_records($1, $2, $3, $4, $5, $7, $8, $9, $6)',
}

/** Lists with one lower bound, since PostgreSQL would read all keys between two. */
const LISTS = new Map(
  [false, true].flatMap((isAfter) =>
    [false, true].map((hasEnd) => {
      const text =
        `SELECT key, value, checksum FROM record WHERE kind = $1 AND key ${isAfter ? '>' : '>='} $2` +
        `${hasEnd ? ' AND key < $4' : ''} ORDER BY key LIMIT $3`
      const name = `list_records${isAfter ? '_after' : ''}${hasEnd ? '_prefix' : ''}`
      return [name, { name, text }] as const
    }),
  ),
)

/** A row of {@link readQuery} or {@link listQuery}. */
export type RecordRow = readonly [key: string, value: string, checksum: number | null]

export function readQuery(kind: string, keys: readonly string[]): Query {
  return { ...READ, values: [storedText(kind), [...new Set(keys)].map(storedText)] }
}

/** @returns the values in the order of the keys; null for a key without a record @throws damaged_server_file */
export function valuesOf(
  kind: string,
  rows: readonly RecordRow[],
  keys: readonly string[],
): (string | null)[] {
  const values = new Map(recordsOf(kind, rows).map(({ key, value }) => [key, value]))
  return keys.map((key) => values.get(key) ?? null)
}

export function listQuery(kind: string, { prefix = '', after }: RecordRange, limit: number): Query {
  const low = storedText(prefix)
  const end = endOfPrefix(low)
  const isAfter = after !== undefined && Buffer.compare(Buffer.from(after), Buffer.from(prefix)) >= 0
  const list = LISTS.get(`list_records${isAfter ? '_after' : ''}${end === null ? '' : '_prefix'}`) as Query
  const values = [storedText(kind), isAfter ? storedText(after) : low, limit]
  return { ...list, values: end === null ? values : [...values, end] }
}

/** The records, without damaged ones that are made anew. @throws damaged_server_file */
export function recordsOf(kind: string, rows: readonly RecordRow[]): ServerRecord[] {
  return rows.flatMap(([key, value, checksum]) => {
    const record = { kind, key: textOf(key), value: textOf(value) }
    if (agrees(checksum, recordSum(record), true)) return record
    if (isMadeAnew(kind)) return []
    throw new CouchError('damaged_server_file', DAMAGED)
  })
}

const DAMAGED =
  "A part of the server's own data is damaged: the disk of PostgreSQL has changed what was stored. " +
  'Restore PostgreSQL from its backup.'

function recordSum({ kind, key, value }: ServerRecord): number {
  return rowChecksum(kind, key, value)
}

const READ_LACKS = { name: 'read_unsummed_records', text: 'SELECT unsummed_records FROM store' }
/** Records that one statement reads. */
const LACKING = 200
const LOOK = {
  name: 'look_at_records',
  text: `SELECT kind, key, value FROM record WHERE (kind, key) > ($1, $2) AND checksum IS NULL
    ORDER BY kind, key LIMIT ${LACKING}`,
}
const NOTE = { name: 'note_record_checksums', text: 'SELECT note_record_checksums($1, $2, $3, $4)' }
const NOTHING_LACKS = {
  name: 'nothing_unsummed_records',
  text: 'UPDATE store SET unsummed_records = 0 WHERE unsummed_records IS NOT DISTINCT FROM $1',
}
/** After each statement it pauses for as long as that took, in ms at most. */
const MAX_PAUSE_MS = 50

/**
 * Notes the checksums of records of before, and of older nodes: what they say then counts as what was written.
 * @throws as `Connections.read` and `Connections.write`
 */
export async function noteRecordChecksums(connections: Pick<Connections, 'read' | 'write'>): Promise<void> {
  const background = { isBackground: true } as const
  const [row] = await connections.read<[number | null]>({ ...READ_LACKS, ...background, values: [] })
  if (row === undefined || row[0] === 0) return
  let last: readonly string[] | undefined = ['', '']
  while (last !== undefined) {
    const began = performance.now()
    const values: readonly string[] = last
    type LackingRow = readonly [kind: string, key: string, value: string]
    const rows: LackingRow[] = await connections.read<LackingRow>({ ...LOOK, ...background, values })
    const column = (at: 0 | 1 | 2) => rows.map((each) => each[at])
    const sums = rows.map(([kind, key, value]) =>
      recordSum({ kind: textOf(kind), key: textOf(key), value: textOf(value) }),
    )
    const noted = [column(0), column(1), column(2), sums]
    if (rows.length > 0) await connections.write({ ...NOTE, ...background, values: noted })
    last = rows.length < LACKING ? undefined : rows.at(-1)?.slice(0, 2)
    await sleep(Math.min(performance.now() - began, MAX_PAUSE_MS), undefined, { ref: false })
  }
  await connections.write({ ...NOTHING_LACKS, ...background, values: [row[0]] })
}

/** One record of a write: of several values of a key, the last counts, and all that are expected must be there. */
interface Merged {
  readonly kind: string
  readonly key: string
  readonly value: string | null
  readonly expected?: string | null
}

/**
 * What a call of `store_records` does.
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
      merged.map(({ kind, key, value }) => (value === null ? null : recordSum({ kind, key, value }))),
    ],
  }
}
