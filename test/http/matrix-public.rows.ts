/** Who gets what of a database whose members are everybody, of one that nobody has opened, and of what is not there. */
import {
  absent,
  type Columns,
  everybody,
  type Rows,
  type Sent,
  type Statuses,
  serverAdmins,
} from './matrix.ts'

const NOTHING = { json: {} }
const DOCUMENT: Sent = { body: '{}' }
const SECURITY = { json: { admins: { names: ['d'] }, members: { names: [], roles: [] } } }

function both(columns: Columns): Statuses {
  return { open: everybody(columns[4]), secured: columns, hosted: columns }
}

const anybody = (status: number) => both(everybody(status))
const admins = (status: number) => both([401, 403, 403, status, status])
const maintainers = (status: number) => both([401, 401, 401, status, status])
/** Nobody's, or a tenant's who has taken away all names. */
const insiders = (status: number): Statuses => ({
  ...both([401, 403, 403, 403, status]),
  hosted: [401, 404, 404, 404, status],
})

export const publicRows: Rows = {
  '/:db': [
    ['GET /{public}', anybody(200)],
    ['POST /{public}', anybody(201), NOTHING],
    ['DELETE /{public}?rev=1-x', { ...serverAdmins(400), hosted: [401, 403, 403, 400, 400] }],
    ['GET /{closed}', insiders(200)],
    ['DELETE /{closed}', { ...serverAdmins(200), hosted: [401, 404, 404, 404, 200] }],
    ['GET /missing', absent],
    ['POST /missing', absent, NOTHING],
    // A path of the server's that is not there; protocol.md 11.4.
    ['GET /_nothing', serverAdmins(404)],
    ['POST /_restart', serverAdmins(404), NOTHING],
  ],
  '/:db/_security': [
    ['GET /{public}/_security', anybody(200)],
    ['PUT /{public}/_security', admins(200), SECURITY],
    ['PUT /{closed}/_security', insiders(200), SECURITY],
  ],
  '/:db/_revs_limit': [['PUT /{public}/_revs_limit', admins(200), { body: '999' }]],
  '/:db/_compact': [['POST /{public}/_compact', maintainers(202), NOTHING]],
  '/:db/_view_cleanup': [['POST /{public}/_view_cleanup', maintainers(202)]],
  '/:db/_purge': [['POST /{public}/_purge', serverAdmins(201), NOTHING]],
  '/:db/_purged_infos_limit': [['GET /{public}/_purged_infos_limit', serverAdmins(200)]],
  '/:db/_bulk_docs': [['POST /{public}/_bulk_docs', anybody(201), { json: { docs: [{}] } }]],
  '/:db/_changes': [['GET /{public}/_changes', anybody(200)]],
  '/:db/:docid': [
    ['PUT /{public}/put-{n}', anybody(201), DOCUMENT],
    ['PUT /{closed}/put-{n}', insiders(201), DOCUMENT],
    ['GET /missing/doc', absent],
    ['GET /_nothing/doc', serverAdmins(404)],
    ['GET /_nothing/index.html', serverAdmins(404)],
  ],
  '/:db/_local/:local': [['PUT /{public}/_local/put-{n}', anybody(201), DOCUMENT]],
  '/:db/_design/:ddoc': [
    ['GET /{public}/_design/d', anybody(404)],
    ['PUT /{public}/_design/put-{n}', { ...admins(201), hosted: admins(403).hosted }, DOCUMENT],
  ],
}
