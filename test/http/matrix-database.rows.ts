/** The rights matrix: calls about databases and about many documents. */
import {
  absent,
  databaseAdmins,
  hostedIs,
  maintainers,
  members,
  owners,
  type Row,
  type Rows,
  serverAdmins,
  tenants,
} from './matrix.ts'

const NOTHING = { json: {} }
/** A security object that keeps access for `d` and `m`. */
const SECURITY = { json: { admins: { names: ['d'] }, members: { names: ['m'] } } }
const REVISIONS = { json: { doc: ['1-x'] } }

function list(path: string): Rows {
  return {
    [`/:db/${path}`]: [
      [`GET /{db}/${path}`, members(200)],
      [`POST /{db}/${path}`, members(200), NOTHING],
    ],
    [`/:db/${path}/queries`]: [[`POST /{db}/${path}/queries`, members(200), { json: { queries: [{}] } }]],
  }
}

/** Calls of a function that the design document does not have. */
function functionOf(path: string): readonly Row[] {
  const statuses = hostedIs(members, { status: 404, hosted: 403 })
  return [
    [`POST /{db}/_design/d/${path}`, statuses, NOTHING],
    ...['GET', 'PUT', 'DELETE', 'COPY'].map((method): Row => [`${method} /{db}/_design/d/${path}`, statuses]),
  ]
}

/** @param hosted the status in hosted mode */
function listed(path: string, hosted: number): readonly Row[] {
  return [
    [`GET /{db}/_design/d/${path}`, hostedIs(members, { status: 404, hosted })],
    [`POST /{db}/_design/d/${path}`, hostedIs(members, { status: 404, hosted }), NOTHING],
  ]
}

function anyMethod(path: string, status = 400): readonly Row[] {
  return ['GET', 'POST', 'PUT', 'COPY', 'DELETE'].map((method) => [`${method} ${path}`, members(status)])
}

/** For rows with another body than the others. */
const feeds: readonly Row[] = ['normal', 'longpoll', 'continuous', 'eventsource'].map((feed) => [
  `GET /{db}/_changes?feed=${feed}&timeout=0`,
  members(200),
])

export const databaseRows: Rows = {
  '/:db': [
    ['GET /{db}', members(200)],
    ['GET /userdb-6f', absent],
    ['POST /{db}', members(201), NOTHING],
    ['PUT /made-{n}', tenants(201)],
    ['PUT /{db}', tenants(412)],
    ['PUT /_made', tenants(400)],
    // One of the names with `_` that there may be; only one can make it.
    [
      'PUT /_global_changes',
      { open: null, secured: serverAdmins(201).secured, hosted: [401, 403, 403, 403, 201] },
    ],
    // For others a server admin alone makes databases; in single mode they have no owners.
    ['PUT /made-{n}?owner=m', { ...tenants(201), hosted: [401, 403, 201, 403, 201] }],
    ['DELETE /{own}', owners(200)],
    ['DELETE /none', { ...owners(404), hosted: [401, 404, 404, 404, 404] }],
  ],
  '/:db/_security': [
    ['GET /{db}/_security', members(200)],
    ['GET /none/_security', absent],
    ['PUT /none/_security', absent, SECURITY],
    ['PUT /{db}/_security', databaseAdmins(200), SECURITY],
  ],
  '/:db/_revs_limit': [
    ['GET /{db}/_revs_limit', members(200)],
    ['PUT /{db}/_revs_limit', databaseAdmins(200), { body: '999' }],
  ],
  '/:db/_ensure_full_commit': [['POST /{db}/_ensure_full_commit', members(201), NOTHING]],
  '/:db/_compact': [['POST /{own}/_compact', maintainers(202), NOTHING]],
  '/:db/_compact/:ddoc': [
    ['POST /{db}/_compact/d', hostedIs(maintainers, { status: 202, hosted: 404 }), NOTHING],
  ],
  '/:db/_view_cleanup': [['POST /{db}/_view_cleanup', maintainers(202)]],
  '/:db/_purge': [['POST /{db}/_purge', serverAdmins(201), { json: { '{doc}': ['{rev}'] } }]],
  '/:db/_purged_infos': [['GET /{db}/_purged_infos', members(200)]],
  '/:db/_purged_infos_limit': [
    ['GET /{db}/_purged_infos_limit', serverAdmins(200)],
    ['PUT /{db}/_purged_infos_limit', serverAdmins(200), { body: '999' }],
  ],
  '/:db/_bulk_docs': [
    ['POST /{db}/_bulk_docs', members(201), { json: { docs: [{ _id: 'bulk-{n}' }] } }],
    [
      'POST /{db}/_bulk_docs',
      members(201),
      { json: { new_edits: false, docs: [{ _id: 'bulk-{n}', _rev: '1-x' }, { _id: '_local/bulk-{n}' }] } },
    ],
  ],
  '/:db/_bulk_get': [['POST /{db}/_bulk_get', members(200), { json: { docs: [{ id: 'doc' }] } }]],
  '/:db/_revs_diff': [['POST /{db}/_revs_diff', members(200), REVISIONS]],
  '/:db/_missing_revs': [['POST /{db}/_missing_revs', members(200), REVISIONS]],
  ...list('_all_docs'),
  ...list('_design_docs'),
  ...list('_local_docs'),
  '/:db/_changes': [
    ...feeds,
    ['GET /{db}/_changes?include_docs=true&attachments=true', members(200)],
    ['GET /{db}/_changes?filter=d/all', hostedIs(members, { status: 200, hosted: 403 })],
    ['POST /{db}/_changes?filter=_doc_ids', members(200), { json: { doc_ids: ['doc'] } }],
  ],
  '/:db/_find': [['POST /{db}/_find', members(200), { json: { selector: {} } }]],
  '/:db/_explain': [['POST /{db}/_explain', members(200), { json: { selector: {} } }]],
  '/:db/_index': [
    ['GET /{db}/_index', members(200)],
    ['POST /{own}/_index', databaseAdmins(200), { json: { index: { fields: ['a'] } } }],
  ],
  '/:db/_index/_bulk_delete': [
    ['POST /{own}/_index/_bulk_delete', databaseAdmins(200), { json: { docids: ['x'] } }],
  ],
  '/:db/_index/:ddoc/:type/:name': [['DELETE /{own}/_index/x/json/y', databaseAdmins(404)]],
  '/:db/_index/_design/:ddoc/:type/:name': [['DELETE /{own}/_index/_design/x/json/y', databaseAdmins(404)]],
  '/:db/_temp_view': [['POST /{db}/_temp_view', members(410), NOTHING]],
  '/:db/_design/:ddoc/_view/:view': [
    ['GET /{db}/_design/d/_view/v', hostedIs(members, { status: 200, hosted: 403 })],
    ['POST /{db}/_design/d/_view/v', hostedIs(members, { status: 200, hosted: 403 }), NOTHING],
  ],
  '/:db/_design/:ddoc/_view/:view/queries': [
    [
      'POST /{db}/_design/d/_view/v/queries',
      hostedIs(members, { status: 200, hosted: 403 }),
      { json: { queries: [{}] } },
    ],
  ],
  ...Object.fromEntries(
    ['_show', '_update'].map((kind) => [
      `/:db/_design/:ddoc/${kind}`,
      anyMethod(`/{db}/_design/d/${kind}`, 404),
    ]),
  ),
  '/:db/_design/:ddoc/_show/:fn': functionOf('_show/x'),
  '/:db/_design/:ddoc/_show/:fn/*': functionOf('_show/x/doc'),
  '/:db/_design/:ddoc/_update/:fn': functionOf('_update/x'),
  '/:db/_design/:ddoc/_update/:fn/*': functionOf('_update/x/doc'),
  '/:db/_design/:ddoc/_rewrite': functionOf('_rewrite'),
  '/:db/_design/:ddoc/_rewrite/*': functionOf('_rewrite/x'),
  '/:db/_design/:ddoc/_list': listed('_list', 404),
  '/:db/_design/:ddoc/_list/:fn': listed('_list/x', 404),
  '/:db/_design/:ddoc/_list/:fn/:view': listed('_list/x/v', 403),
  '/:db/_design/:ddoc/_list/:fn/:other/:view': listed('_list/x/d/v', 403),
  '/:db/_design/:ddoc/_list/:fn/:other/:view/*': listed('_list/x/d/v/y', 404),
  // The database is not partitioned: who may not read it is refused before.
  '/:db/_partition': anyMethod('/{db}/_partition'),
  '/:db/_partition/:partition': [['GET /{db}/_partition/p', members(400)]],
  '/:db/_partition/:partition/*': anyMethod('/{db}/_partition/p/_nothing'),
  '/:db/_partition/:partition/_all_docs': [
    ['GET /{db}/_partition/p/_all_docs', members(400)],
    ['POST /{db}/_partition/p/_all_docs', members(400), NOTHING],
  ],
  '/:db/_partition/:partition/_all_docs/queries': [
    ['POST /{db}/_partition/p/_all_docs/queries', members(400), { json: { queries: [{}] } }],
  ],
  '/:db/_partition/:partition/_find': [
    ['POST /{db}/_partition/p/_find', members(400), { json: { selector: {} } }],
  ],
  '/:db/_partition/:partition/_explain': [
    ['POST /{db}/_partition/p/_explain', members(400), { json: { selector: {} } }],
  ],
  '/:db/_partition/:partition/_design/:ddoc/_view/:view': [
    ['GET /{db}/_partition/p/_design/d/_view/v', members(400)],
    ['POST /{db}/_partition/p/_design/d/_view/v', members(400), NOTHING],
  ],
  '/:db/_partition/:partition/_design/:ddoc/_view/:view/queries': [
    ['POST /{db}/_partition/p/_design/d/_view/v/queries', members(400), { json: { queries: [{}] } }],
  ],
  '/:db/_partition/:partition/_design/:ddoc/_info': [
    ['GET /{db}/_partition/p/_design/d/_info', members(400)],
  ],
  '/:db/_design/:ddoc/_info': [
    ['GET /{db}/_design/d/_info', hostedIs(members, { status: 200, hosted: 403 })],
  ],
}
