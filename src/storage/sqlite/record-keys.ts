/**
 * Version 4 of server.sqlite: records are found by their keys, so that no server needs all of a kind in memory. The
 * migration adds the records by which others are found to those that an older settee wrote.
 */
import { type KeyStretches, type Migration, STRETCH } from './schema.ts'

/**
 * Processes the records of a kind in stretches.
 * @param sql statements with two parameters: they process the keys above the first up to the second
 */
function recordsOf(kind: string, sql: readonly string[]): KeyStretches {
  const page = `SELECT key FROM record WHERE kind = '${kind}' AND key > ? ORDER BY key LIMIT ${STRETCH}`
  return { next: `SELECT max(key) AS last FROM (${page})`, sql }
}

/** The databases of an account, and those that it deleted, by its name; hosted/ownership.ts. */
const OWNERS = `
INSERT OR REPLACE INTO record (kind, key, value)
SELECT iif(state = 'deleted', 'owner_former', 'owner_account'), account || '/' || key, iif(state = 'deleted', '0', state)
FROM (
  SELECT key, lower(hex(json_extract(value, '$.account'))) AS account,
    coalesce(json_extract(value, '$.state'), 'owned') AS state
  FROM record WHERE kind = 'owner' AND key > ? AND key <= ?
)`

const UNFINISHED_OWNERS = `
INSERT OR REPLACE INTO record (kind, key, value)
SELECT 'owner_unfinished', key, '' FROM record
WHERE kind = 'owner' AND key > ? AND key <= ? AND json_extract(value, '$.state') = 'making'`

const COUNTS = ['databases', 'bytes', 'documents', 'indexes']
const sumOfSizes = (name: string) => `'${name}', sum(coalesce(json_extract(size.value, '$.${name}'), 0))`
const added = (name: string) =>
  `'${name}', json_extract(record.value, '$.${name}') + json_extract(excluded.value, '$.${name}')`

/** What an account's databases have together; hosted/account-totals.ts. */
const TOTALS = `
INSERT INTO record (kind, key, value)
SELECT 'usage_account', json_extract(owner.value, '$.account'), json_object(
  'databases', sum(coalesce(json_extract(owner.value, '$.state'), 'owned') <> 'deleted'),
  ${COUNTS.slice(1).map(sumOfSizes).join(', ')})
FROM record AS owner LEFT JOIN record AS size ON size.kind = 'usage' AND size.key = owner.key
WHERE owner.kind = 'owner' AND owner.key > ? AND owner.key <= ?
GROUP BY 2
ON CONFLICT (kind, key) DO UPDATE SET value = json_object(${COUNTS.map(added).join(', ')})`

/** The rule is that of `rankKey` in hosted/account-totals.ts. */
const RANKS = `
INSERT OR REPLACE INTO record (kind, key, value)
SELECT 'usage_rank', (9999 - 100 * length(bytes) - cast(substr(bytes, 1, 2) AS INTEGER)) || '/' || lower(hex(key)), key
FROM (
  SELECT key, cast(json_extract(value, '$.bytes') AS TEXT) AS bytes
  FROM record WHERE kind = 'usage_account' AND key > ? AND key <= ?
)`

const LEAVING = `
INSERT OR REPLACE INTO record (kind, key, value)
SELECT 'tenant_leaving', key, '' FROM record
WHERE kind = 'tenant' AND key > ? AND key <= ? AND json_extract(value, '$.leaving')`

const TENANT_RECORDS: readonly KeyStretches[] = [
  recordsOf('owner', [OWNERS, UNFINISHED_OWNERS, TOTALS]),
  recordsOf('usage_account', [RANKS]),
  recordsOf('tenant', [LEAVING]),
]

/** A token that can be read (auth/token-record.ts); others stay as they are and give no access. */
const IS_TOKEN = `
  kind = 'token' AND key > ? AND key <= ? AND CASE WHEN json_valid(value) THEN
    json_type(value, '$.account') = 'text' AND json_type(value, '$.name') = 'text'
    AND json_type(value, '$.hash') = 'text' AND length(value ->> '$.hash') = 43
    AND json_type(value, '$.isAdmin') IN ('true', 'false') AND json_type(value, '$.created') IN ('integer', 'real')
  END`

const OWNER = "lower(hex(value ->> '$.account'))"

/** Tokens by secret and account, and their uses, which were a part of the token. */
const TOKENS = recordsOf('token', [
  `INSERT OR REPLACE INTO record
    SELECT 'token_secret', value ->> '$.hash', key FROM record WHERE ${IS_TOKEN}`,
  `INSERT OR REPLACE INTO record
    SELECT 'token_account', ${OWNER} || '/' || key, value ->> '$.name' FROM record WHERE ${IS_TOKEN}`,
  `INSERT OR REPLACE INTO record
    SELECT 'token_owner', ${OWNER}, max(key) FROM record WHERE ${IS_TOKEN} GROUP BY 2`,
  `INSERT OR REPLACE INTO record
    SELECT 'token_use', key, json_object(
      'lastUse', json(coalesce(value -> '$.lastUse', 'null')),
      'positions', json(coalesce(value -> '$.positions', '[]'))
    ) FROM record WHERE ${IS_TOKEN}`,
  `UPDATE record SET value = json_remove(value, '$.lastUse', '$.positions') WHERE ${IS_TOKEN}`,
])
const TOKEN_TOTAL = `
INSERT OR REPLACE INTO record
  SELECT 'token_total', 'all', count(*) FROM record WHERE kind = 'token_account' HAVING count(*) > 0;
`

export const RECORD_KEYS: Migration = { stretches: [...TENANT_RECORDS, TOKENS], end: TOKEN_TOTAL }
