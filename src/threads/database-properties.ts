/** What `PUT /{db}` says of a new database; protocol.md 4.2. */
import { CouchError } from '../core/errors.ts'
import type { DatabaseProperties } from '../storage/catalog.ts'

/** Of the column that holds it. */
const MAX_SHARDS = 2 ** 31 - 1

/**
 * @param params `q`, `n` and `partitioned`, as texts or as JSON values; others are ignored. `n` has no effect: CouchDB on
 *   one node makes one copy, too
 * @throws bad_request with CouchDB's texts
 */
export function databaseProperties(params: Readonly<Record<string, unknown>>): DatabaseProperties {
  const { q, n, partitioned = 'false' } = params
  if (n !== undefined) positive('n', n)
  const isPartitioned = String(partitioned)
  if (isPartitioned !== 'true' && isPartitioned !== 'false') {
    throw new CouchError('bad_request', 'Invalid `partitioned` parameter')
  }
  return { partitioned: isPartitioned === 'true', ...(q !== undefined && { shards: positive('q', q) }) }
}

function positive(name: string, value: unknown): number {
  const number = /^\+?\d+$/.test(String(value)) ? Number(value) : 0
  if (number >= 1 && number <= MAX_SHARDS) return number
  throw new CouchError('bad_request', `The \`${name}\` value should be a positive integer.`)
}
