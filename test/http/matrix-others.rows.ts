/** Who gets what that is none of the five: accounts that are suspended, device tokens, a role of the server's. */
import type { Sent } from './matrix.ts'

/**
 * Beside the five: `suspended`, an account that owned a database, and the `cookie` of a session that it had begun;
 * `metrics`, one with the role `_metrics`; `e`, the admin of a database that `d` has made and is no member of; and
 * device tokens.
 */
export type Other =
  | 'd'
  | 'e'
  | 'metrics'
  | 'suspended'
  | 'cookie'
  | 'token of m'
  | 'token of d'
  | 'token of s'
  | 'admin token of s'

/** null: not asked there. */
export type OtherRow = readonly [
  who: Other,
  line: string,
  secured: number | null,
  hosted: number | null,
  sent?: Sent | undefined,
]

const NOTHING = { json: {} }
const DOCUMENT = { body: '{}' }
const SECURITY = { json: { admins: { names: ['e'] }, members: { names: ['m'] } } }
const NEW_TOKEN = { json: { name: 'token-{n}' } }
const VAULT = { json: { vault: 'vault-{n}', for: 'pouchdb' } }

/** A path for each access rule, and whatever does not look at who asks. */
const SUSPENDED: readonly (readonly [line: string, status: number, sent?: Sent | undefined])[] = [
  ['GET /_up', 200],
  ['GET /', 403],
  ['GET /_session', 403],
  ['GET /_settee/account', 403],
  ['POST /_settee/tokens', 403, NEW_TOKEN],
  ['GET /_node/_local/_config', 403],
  ['GET /notes-of-suspended', 403],
  ['GET /notes-of-suspended/_changes', 403],
  ['PUT /notes-of-suspended/put-{n}', 403, DOCUMENT],
  ['PUT /notes-of-suspended/_security', 403, SECURITY],
  ['POST /notes-of-suspended/_compact', 403, NOTHING],
  ['DELETE /notes-of-suspended', 403],
  ['PUT /made-{n}', 403],
  ['GET /_all_dbs', 403],
  ['GET /_node/_local/_prometheus', 403],
  ['GET /_membership', 403],
  ['PATCH /notes-of-suspended', 403],
]

export const otherRows: readonly OtherRow[] = [
  ...SUSPENDED.flatMap(([line, status, sent]): OtherRow[] => [
    ['suspended', line, null, status, sent],
    ['cookie', line, null, status, sent],
  ]),

  // A browser sends the cookie that it has, also to get another.
  ['cookie', 'DELETE /_session', null, 200],
  ['cookie', 'POST /_session', null, 200, { json: { name: 'm', password: 'm' } }],
  ['cookie', 'POST /_session', null, 403, { json: { name: 'suspended', password: 'suspended' } }],

  // Owning a database is not being in it, and the other way round.
  ['d', 'GET /{shared}', 403, 403],
  ['d', 'PUT /{shared}/_security', 403, 403, SECURITY],
  ['d', 'POST /_dbs_info', 401, 200, { json: { keys: ['{shared}'] } }],
  ['d', 'DELETE /{shared}', 401, 200],
  ['e', 'GET /{shared}', 200, 200],
  ['e', 'PUT /{shared}/_security', 200, 200, SECURITY],
  ['e', 'POST /{shared}/_compact', 202, 202, NOTHING],
  ['e', 'POST /{shared}/_purge', 401, 401, NOTHING],
  ['e', 'GET /{shared}/_purged_infos_limit', 401, 401],
  ['e', 'DELETE /{shared}', 401, 403],

  ['metrics', 'GET /_node/_local/_prometheus', 200, 200],
  ['metrics', 'GET /_node/_local/_stats', 200, 200],
  ['metrics', 'GET /_node/_local/_stats/couchdb', 200, 200],
  ['metrics', 'GET /_node/_local/_system', 200, 200],
  ['metrics', 'POST /_node/_local/_system', 405, 405],
  ['metrics', 'GET /_node/_local', 401, 401],
  ['metrics', 'GET /_membership', 401, 401],
  ['metrics', 'GET /_all_dbs', 401, 200],
  ['metrics', 'GET /{db}', 403, 404],
  ['metrics', 'GET /_settee/accounts', 401, 401],
  ['metrics', 'PUT /_node/_local/_config/matrix/key-{n}', 403, 403, { body: '"x"' }],

  // A token has the rights of its account, but for what would outlive it.
  ['token of m', 'GET /{db}/doc', 200, 200],
  ['token of m', 'PUT /{db}/put-{n}', 201, 201, DOCUMENT],
  ['token of m', 'PUT /{db}/_revs_limit', 403, 403, { body: '999' }],
  ['token of m', 'GET /_session', 200, 200],
  ['token of m', 'GET /_settee/tokens', 403, 403],
  ['token of m', 'POST /_settee/tokens', 403, 403, NEW_TOKEN],
  ['token of m', 'DELETE /_settee/tokens/{token}', 403, 403],
  ['token of m', 'POST /_settee/vaults', 403, 403, VAULT],
  ['token of m', 'GET /_users', 403, 403],
  ['token of m', 'GET /_users/org.couchdb.user:m', 403, 403],
  ['token of m', 'GET /_all_dbs', 401, 200],
  ['token of d', 'PUT /{db}/_revs_limit', 200, 200, { body: '999' }],
  ['token of d', 'GET /{db}/_security', 200, 200],
  ['token of d', 'PUT /{db}/_security', 403, 403, SECURITY],
  ['token of d', 'DELETE /{own}', 401, 200],
  ['token of s', 'GET /_membership', 401, 401],
  ['token of s', 'GET /_all_dbs', 401, 401],
  ['token of s', 'PUT /made-{n}', 401, 401],
  ['token of s', 'GET /{db}', 403, 403],
  ['token of s', 'DELETE /{own}', 401, 401],
  ['token of s', 'GET /_settee/accounts', 401, 401],
  ['token of s', 'PUT /_node/_local/_config/admins/admin-{n}', 403, 403, { body: '"x"' }],
  ['admin token of s', 'GET /_membership', 200, 200],
  ['admin token of s', 'GET /{db}', 200, 200],
  ['admin token of s', 'PUT /{shared}/_security', 200, 200, SECURITY],
  ['admin token of s', 'GET /_users/org.couchdb.user:m', 200, 200],
  ['admin token of s', 'GET /_settee/tokens', 403, 403],
  ['admin token of s', 'POST /_settee/tokens', 403, 403, NEW_TOKEN],
  ['admin token of s', 'DELETE /_settee/tokens/{token}', 403, 403],
  ['admin token of s', 'POST /_settee/vaults', 403, 403, VAULT],
]
