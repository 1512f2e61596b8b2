/** Who gets what of `_users`: protocol.md 11.7. */
import {
  type Columns,
  everybody,
  type Row,
  type Rows,
  type Sent,
  type Statuses,
  serverAdmins,
} from './matrix.ts'

const OF_M = '/_users/org.couchdb.user:m'
const SECURITY = { json: { members: { names: [], roles: [] } } }
const NO_DOCS = { json: { docs: [] } }

function user(name: string): Sent {
  const doc = { _id: `org.couchdb.user:${name}`, name, type: 'user', roles: [], password: 'x' }
  return { json: doc }
}

function bulk(name: string): Sent {
  return { json: { docs: [user(name).json] } }
}

function copyTo(target: string): Sent {
  return { headers: { Destination: target } }
}

function secured(columns: Columns): Statuses {
  return { open: everybody(columns[4]), secured: columns, hosted: columns }
}

/** As it stands after the start nobody but server admins is a member. */
const insiders = (status: number) => secured([401, 403, 403, 403, status])

export const usersRows: Rows = {
  '/:db': [
    ['GET /_users', insiders(200)],
    ['POST /_users', insiders(201), user('post-{n}')],
    ['PUT /_users', { ...serverAdmins(412), hosted: [401, 403, 403, 403, 412] }],
    // This is not how a database is deleted; nobody else comes as far as to be told.
    ['DELETE /_users?rev=1-x', { ...serverAdmins(400), hosted: [401, 403, 403, 403, 400] }],
  ],
  '/:db/:docid': [
    [`GET ${OF_M}`, insiders(200)],
    ['PUT /_users/org.couchdb.user:put-{n}', insiders(201), user('put-{n}')],
    [`DELETE ${OF_M}?rev=1-x`, insiders(409)],
    // The copy would be of another name than its id.
    [`COPY ${OF_M}`, insiders(403), copyTo('org.couchdb.user:copy-{n}')],
  ],
  '/:db/_design/:ddoc': [['GET /_users/_design/_auth', insiders(200)]],
  '/:db/_security': [
    ['GET /_users/_security', insiders(200)],
    // Unless couchdb/users_db_security_editable says otherwise.
    ['PUT /_users/_security', insiders(403), SECURITY],
  ],
  '/:db/_all_docs': [['GET /_users/_all_docs', serverAdmins(200)]],
  '/:db/_find': [['POST /_users/_find', insiders(200), { json: { selector: {} } }]],
  '/:db/_explain': [['POST /_users/_explain', insiders(200), { json: { selector: {} } }]],
  '/:db/_index': [
    ['GET /_users/_index', insiders(200)],
    ['POST /_users/_index', insiders(200), { json: { index: { fields: ['a'] } } }],
  ],
  '/:db/_changes': [['GET /_users/_changes', serverAdmins(200)]],
  '/:db/_bulk_docs': [['POST /_users/_bulk_docs', insiders(201), bulk('bulk-{n}')]],
  '/:db/_bulk_get': [['POST /_users/_bulk_get', insiders(200), NO_DOCS]],
  '/:db/_purge': [['POST /_users/_purge', serverAdmins(201), { json: {} }]],
}

/** `m` and server admins; to others there is no such thing. */
const ofM = (status: number) => secured([404, 404, status, 404, status])
/** In a database whose members are everybody. */
const databaseAdmins = (status: number) => secured([401, 403, 403, 403, status])

/** Where an admin has made everybody a member: each account has its own document and knows of no other. */
export const openedUsersRows: readonly Row[] = [
  ['GET /_users', secured(everybody(200))],
  [`GET ${OF_M}`, ofM(200)],
  [`GET ${OF_M}?open_revs=all`, ofM(200)],
  [`PUT ${OF_M}`, secured([409, 404, 409, 404, 409]), user('m')],
  [`DELETE ${OF_M}?rev=1-x`, secured([409, 404, 409, 404, 409])],
  // Anybody may make an account, but for those who have one.
  ['PUT /_users/org.couchdb.user:put-{n}', secured([201, 404, 404, 404, 201]), user('put-{n}')],
  ['PUT /_users/_local/l-{n}', secured([404, 404, 404, 404, 201]), { body: '{}' }],
  ['GET /_users/_design/_auth', secured([403, 403, 403, 403, 200])],
  ['GET /_users/_security', secured(everybody(200))],
  ['PUT /_users/_security', databaseAdmins(200), SECURITY],
  ['PUT /_users/_revs_limit', databaseAdmins(200), { body: '999' }],
  ['POST /_users/_compact', secured([401, 401, 401, 401, 202]), { json: {} }],
  ['GET /_users/_purged_infos', databaseAdmins(200)],
  ['GET /_users/_all_docs', serverAdmins(200)],
  ['POST /_users/_all_docs/queries', serverAdmins(200), { json: { queries: [{}] } }],
  ['GET /_users/_local_docs', serverAdmins(200)],
  ['GET /_users/_changes', serverAdmins(200)],
  ['POST /_users/_revs_diff', databaseAdmins(200), { json: {} }],
  ['POST /_users/_purge', serverAdmins(201), { json: {} }],
]
