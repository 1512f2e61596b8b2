/**
 * Makes the damaged values of `meta` anew: counters from the rows that they count, and what nothing else says so that no client
 * takes it for what was written.
 */
import { longCall } from '../../core/event-loop.ts'
import { firstEpochs, type LastKnownSequence } from '../sequence.ts'
import type { Connection } from './connection.ts'
import { DEFAULT_REVS_LIMIT, garbageKeys } from './garbage.ts'
import {
  type MetaValue,
  type MetaValues,
  putMeta,
  RESTORED_KEY,
  readMeta,
  SETTINGS_VERSION_KEY,
  SUMMED_META_VERSION,
} from './meta.ts'
import { restoreInTransaction } from './restored-mark.ts'

interface RepairOptions {
  /** As for `markRestoredIfRolledBack`. */
  readonly lastKnown?: LastKnownSequence | undefined
  /** ms since 1970. */
  readonly now: number
}

/** How often the values are read before they count as damaged: a disk may return a wrong byte once. */
const READINGS = 3

/** Values by which clients tell one state of the database from another. */
const IDENTITY = ['update_seq', 'epochs', 'created_at', RESTORED_KEY]

/**
 * Repairs the values of a file, in one transaction. If one of them told clients what they have seen, the database counts as
 * restored.
 * @returns whether there was damage
 * @throws SqliteError
 */
export function repairMeta(connection: Connection, { lastKnown, now }: RepairOptions): boolean {
  if ((connection.pragma('user_version') as number) < SUMMED_META_VERSION) return false
  let values = readMeta(connection)
  for (let readings = 1; readings < READINGS && !areWhole(values); readings++) {
    // Otherwise SQLite would return the page that it has.
    connection.pragma('shrink_memory')
    values = readMeta(connection)
  }
  if (areWhole(values)) return false
  const { sound, damaged } = values
  const made = valuesMadeAnew(connection, sound, { lastKnown, now })
  // A damaged key hides which value it is of.
  const isHidden = damaged.length === 0 || damaged.some((key) => !made.has(key as string))
  const lost = [...made.keys()].filter((key) => damaged.includes(key) || (isHidden && !sound.has(key)))
  connection.exec('BEGIN IMMEDIATE')
  try {
    connection.exec('DELETE FROM meta')
    for (const [key, value] of sound) putMeta(connection, key, value)
    for (const key of lost) {
      const value = made.get(key)?.()
      if (value !== undefined && value !== null) putMeta(connection, key, value)
    }
    if (isHidden || IDENTITY.some((key) => lost.includes(key))) restoreInTransaction(connection, now, [])
    connection.exec('COMMIT')
  } catch (error) {
    connection.rollback(error)
    throw error
  }
  return true
}

function areWhole({ sound, damaged }: MetaValues): boolean {
  return damaged.length === 0 && sound.has('epochs') && sound.has('created_at')
}

/** How each value is made; null: it is absent then. */
function valuesMadeAnew(
  connection: Connection,
  sound: ReadonlyMap<string, MetaValue>,
  { lastKnown, now }: RepairOptions,
): ReadonlyMap<string, () => MetaValue | null> {
  const number = (sql: string) => longCall(() => connection.prepare<{ n: number }>(sql).get()?.n ?? 0)
  const superseded = (what: string, kept: 0 | 1) => () =>
    number(`SELECT ${what} AS n FROM superseded WHERE kept = ${kept}`)
  const longest = Number(sound.get(garbageKeys.longestAncestry) ?? 0)
  return new Map<string, () => MetaValue | null>([
    ['created_at', () => Math.floor(now / 1000)],
    ['epochs', () => JSON.stringify(firstEpochs(now))],
    [RESTORED_KEY, () => now],
    // The newest document may have been purged since it was written.
    [
      'update_seq',
      () => Math.max(number('SELECT coalesce(max(seq), 0) AS n FROM doc'), lastKnown?.updateSeq ?? 0),
    ],
    ['doc_count', () => number('SELECT count(*) AS n FROM doc WHERE NOT deleted')],
    ['deleted_count', () => number('SELECT count(*) AS n FROM doc WHERE deleted')],
    ['external_bytes', () => number('SELECT coalesce(sum(size), 0) AS n FROM revision WHERE leaf')],
    ['purge_seq', () => number('SELECT coalesce(max(seq), 0) AS n FROM purge')],
    // Caches compare these with what they know.
    ['design_version', () => now],
    [SETTINGS_VERSION_KEY, () => now],
    // Nothing is cut that a greater limit had allowed.
    [
      'revs_limit',
      () => (longest > DEFAULT_REVS_LIMIT && longest < Number.MAX_SAFE_INTEGER ? longest : null),
    ],
    ['purged_infos_limit', () => null],
    ['partitioned', () => (number(PARTITIONED) > 0 && number(NOT_PARTITIONED) === 0 ? 1 : null)],
    ['shards', () => null],
    // What happened until now is not known to be complete.
    ['timed_since', () => now],
    [garbageKeys.historySince, () => now],
    ['damaged_leaves', () => null],
    [garbageKeys.supersededRows, superseded('count(*)', 0)],
    [garbageKeys.supersededBytes, superseded('coalesce(sum(bytes), 0)', 0)],
    [garbageKeys.retainedRows, superseded('count(*)', 1)],
    [garbageKeys.retainedBytes, superseded('coalesce(sum(bytes), 0)', 1)],
    [garbageKeys.oldestRetained, superseded('coalesce(min(at), 0)', 1)],
    [garbageKeys.maybeUnreferencedBytes, () => 0],
    // The next compaction finds what these say.
    [garbageKeys.compactedAt, () => 0],
    [garbageKeys.compactedPurge, () => 0],
    [garbageKeys.longestAncestry, () => Number.MAX_SAFE_INTEGER],
    [garbageKeys.unsummed, () => 1],
  ])
}

/** Documents of a partition, and of none. */
const PARTITIONED = "SELECT count(*) AS n FROM (SELECT 1 FROM doc WHERE id LIKE '%:%' LIMIT 1)"
const NOT_PARTITIONED =
  "SELECT count(*) AS n FROM (SELECT 1 FROM doc WHERE id NOT LIKE '%:%' AND id NOT LIKE '\\_design/%' ESCAPE '\\' LIMIT 1)"
