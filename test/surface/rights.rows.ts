/**
 * Who may do what: protocol.md 19.7, in its order. `d` is the admin of the row's database, `m` its member, `o`
 * neither, `s` the server's admin.
 */
import type { Answer } from './answers.ts'
import { type Ask, type AskMore, failed, put, type Row } from './table.ts'
import { SECURED, type User } from './users.ts'

const LOGIN: Answer = failed(401, 'unauthorized', 'You are not authorized to access this db.')
const STRANGER: Answer = failed(403, 'forbidden', 'You are not allowed to access this db.')
const NO_DB_ADMIN: Answer = failed(403, 'forbidden', 'You are not a db or server admin.')
const WRONG = `Basic ${Buffer.from('m:wrong').toString('base64')}`

/** The columns of the matrix: what `a` (anonymous), `o`, `m`, `d` and `s` get. */
type Columns = readonly [a: Answer, o: Answer, m: Answer, d: Answer, s: Answer]

const USERS: readonly User[] = ['anonymous', 'o', 'm', 'd', 's']

/** A line of the matrix. `WHO` is replaced by the caller, so that each creates a document of their own. */
function may(key: string, line: string, columns: Columns, more: AskMore = {}): Row {
  return {
    of: `19.7 ${key}`,
    says: line,
    given: [SECURED, put('doc')],
    steps: USERS.map((as, index): readonly [Ask, Answer] => [
      [line.replace('WHO', as), { ...more, as }],
      columns[index] as Answer,
    ]),
  }
}

const everybody: Columns = [{}, {}, {}, {}, {}]
const members = (good: Answer): Columns => [LOGIN, STRANGER, good, good, good]
const databaseAdmins = (good: Answer): Columns => [LOGIN, STRANGER, NO_DB_ADMIN, good, good]
const serverAdmins = (good: Answer): Columns => {
  const no = failed(401, 'unauthorized', 'You are not a server admin.')
  return [no, no, no, no, good]
}

const NO_CONFIG = failed(403, 'forbidden', 'Only a server admin may change the configuration.')
const UNKNOWN = failed(404, 'not_found', 'missing')
const CREATED: Answer = { status: 201 }
const SECURITY = { admins: { names: ['d'] }, members: { names: ['m'] } }
const JSON_TYPE = { headers: { 'Content-Type': 'application/json' } }

export const rows: readonly Row[] = [
  may('GET /db', 'GET /{db}', members({})),
  may('GET doc', 'GET /{db}/doc', members({})),
  may('PUT doc', 'PUT /{db}/new-WHO', members(CREATED), { json: {} }),
  may('_bulk_docs', 'POST /{db}/_bulk_docs', members(CREATED), { json: { docs: [{}] } }),
  may('_changes', 'GET /{db}/_changes', members({})),
  may('_changes', 'GET /{db}/_changes?feed=continuous&timeout=0', members({})),
  may('_find', 'POST /{db}/_find', members({}), { json: { selector: {} } }),
  may('_local', 'PUT /{db}/_local/WHO', members(CREATED), { json: {} }),
  may('attachments', 'PUT /{db}/of-WHO/a', members(CREATED), { body: 'text' }),
  may('PUT design document', 'PUT /{db}/_design/WHO', databaseAdmins(CREATED), { json: {} }),
  may('PUT design document', 'PUT /{db}/_design/of-WHO/a', databaseAdmins(CREATED), { body: 'text' }),
  may('PUT _security', 'PUT /{db}/_security', databaseAdmins({}), { json: SECURITY }),
  may('PUT _revs_limit', 'PUT /{db}/_revs_limit', databaseAdmins({}), { body: '1000' }),
  may(
    '_compact',
    'POST /{db}/_compact',
    [
      LOGIN,
      STRANGER,
      failed(401, 'unauthorized', 'You are not a server or db admin.'),
      { status: 202 },
      { status: 202 },
    ],
    JSON_TYPE,
  ),
  may('_purge', 'POST /{db}/_purge', serverAdmins(CREATED), { json: {} }),
  may('PUT /newdb', 'PUT /{db}-new', serverAdmins(CREATED)),
  may('DELETE /db', 'DELETE /{db}', serverAdmins({})),
  may('_all_dbs', 'GET /_all_dbs', serverAdmins({})),
  // Whoever has logged in sees what concerns him (docs/compatibility.md).
  may('_node', 'GET /_node/_local/_config', [serverAdmins({})[0], {}, {}, {}, {}]),
  may(
    '_node',
    'PUT /_node/_local/_config/a/WHO',
    [serverAdmins({})[0], NO_CONFIG, NO_CONFIG, NO_CONFIG, {}],
    {
      json: 'x',
    },
  ),
  may('_node', 'POST /_node/_local/_config/_reload', serverAdmins({})),
  may('_active_tasks', 'GET /_active_tasks', serverAdmins({})),
  may(
    '_replicate',
    'POST /_replicate',
    [failed(401, 'unauthorized', 'You are not an authenticated user'), UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN],
    { json: { cancel: true, id: 'x' } },
  ),
  may('welcome', 'GET /', everybody),
  may('_up', 'GET /_up', everybody),
  may('_uuids', 'GET /_uuids', everybody),
  {
    of: '19.7 wrong password',
    says: 'is refused wherever it is sent',
    given: [SECURED],
    steps: ['GET /', 'GET /_uuids', 'GET /{db}', 'PUT /{db}/doc', 'GET /{db}-none', 'GET /_all_dbs'].map(
      (line) => [
        [line, { headers: { authorization: WRONG } }],
        { status: 401, like: { error: 'unauthorized', reason: /^Name or password is incorrect\./ } },
      ],
    ),
  },
  {
    of: '19.7 wrong password',
    says: 'but by _up, which looks at none (docs/compatibility.md)',
    ask: ['GET /_up', { headers: { authorization: WRONG } }],
    answer: {},
  },
]
