/**
 * Version 4 of server.sqlite: records are found by their keys, so that no server needs all of a kind in memory. The
 * migration adds the records by which others are found to those that an older settee wrote.
 */
import { type KeyStretches, type Migration, STRETCH } from './schema.ts'

/**
 * Processes the records of a kind in stretches.
 * @param sql statements with the keys above `?1` up to `?2`
 */
export function recordsOf(kind: string, sql: readonly string[]): KeyStretches {
  const page = `SELECT key FROM record WHERE kind = '${kind}' AND key > ? ORDER BY key LIMIT ${STRETCH}`
  return { next: `SELECT max(key) AS last FROM (${page})`, sql }
}

export const RECORD_KEYS: Migration = { stretches: [], end: '' }
