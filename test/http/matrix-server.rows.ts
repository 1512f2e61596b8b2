/** The rights matrix: calls about the server. */
import {
  accounts,
  anybody,
  everybody,
  metricsReaders,
  type Row,
  type Rows,
  serverAdmins,
  tenants,
} from './matrix.ts'

const LOGIN = { json: { name: 'o', password: 'o' } }

/** An account sees only the configuration that concerns it, and may not change it. */
const readersOfOne = { ...serverAdmins(200), ...columns([401, 404, 404, 404, 200]) }
const configWriters = { ...serverAdmins(200), ...columns([401, 403, 403, 403, 200]) }

/** Everybody who has logged in; in hosted mode the server's admins. The replication is unknown. */
const replicators = {
  ...serverAdmins(404),
  secured: [401, 404, 404, 404, 404] as const,
  hosted: [401, 403, 403, 403, 404] as const,
}

function columns(both: readonly [number, number, number, number, number]) {
  return { secured: both, hosted: both }
}

function anyMethod(path: string, status: number): readonly Row[] {
  return ['GET', 'POST', 'PUT', 'COPY', 'DELETE'].map((method) => [`${method} ${path}`, serverAdmins(status)])
}

function config(base: string, path: string): Rows {
  return {
    [base]: [[`GET ${path}`, accounts(200)]],
    [`${base}/_reload`]: [[`POST ${path}/_reload`, serverAdmins(200)]],
    [`${base}/:section`]: [
      [`GET ${path}/admins`, accounts(200)],
      [`GET ${path}/quota`, accounts(200)],
    ],
    [`${base}/:section/:key`]: [
      [`GET ${path}/log/level`, readersOfOne],
      [`GET ${path}/chttpd_auth/secret`, readersOfOne],
      [`PUT ${path}/matrix/key-{n}`, configWriters, { body: '"x"' }],
      [`DELETE ${path}/matrix/{key}`, configWriters],
      // What is in effect already.
      [`PUT ${path}/chttpd/require_valid_user`, accounts(200), { body: '"false"' }],
      // Where there is no admin it would make one.
      [`PUT ${path}/admins/admin-{n}`, { ...configWriters, open: null }, { body: '"x"' }],
      [`PUT ${path}/quota/bytes`, configWriters, { body: '"infinity"' }],
      [`PUT ${path}/settee/mode`, configWriters, { body: '"single"' }],
    ],
  }
}

export const serverRows: Rows = {
  '/': [['GET /', anybody(200)]],
  '/_up': [['GET /_up', anybody(200)]],
  '/_utils': [['GET /_utils', anybody(301)]],
  '/_utils/*': [['GET /_utils/none.js', anybody(404)]],
  '/_uuids': [['GET /_uuids', anybody(200)]],
  '/_session': [
    ['GET /_session', anybody(200)],
    ['POST /_session', anybody(200), LOGIN],
    ['DELETE /_session', anybody(200)],
  ],
  '/_all_dbs': [['GET /_all_dbs', tenants(200)]],
  '/_dbs_info': [
    ['GET /_dbs_info', tenants(200)],
    ['POST /_dbs_info', tenants(200), { json: { keys: ['{db}', 'none'] } }],
  ],
  '/_db_updates': [
    ['GET /_db_updates', tenants(200)],
    ['GET /_db_updates?feed=continuous&timeout=0', tenants(200)],
  ],
  '/_active_tasks': [['GET /_active_tasks', tenants(200)]],
  '/_replicate': [['POST /_replicate', replicators, { json: { cancel: true, id: 'x' } }]],
  '/_scheduler/jobs': [['GET /_scheduler/jobs', serverAdmins(200)]],
  '/_scheduler/jobs/:id': [['GET /_scheduler/jobs/x', serverAdmins(404)]],
  '/_scheduler/docs': [['GET /_scheduler/docs', serverAdmins(200)]],
  '/_scheduler/docs/*': [['GET /_scheduler/docs/_replicator', serverAdmins(404)]],
  '/_membership': [['GET /_membership', serverAdmins(200)]],
  '/_cluster_setup': [
    ['GET /_cluster_setup', serverAdmins(200)],
    [
      'POST /_cluster_setup',
      serverAdmins(201),
      { json: { action: 'finish_cluster', ensure_dbs_exist: ['made-{n}'] } },
    ],
    [
      'POST /_cluster_setup',
      { ...serverAdmins(201), open: everybody(400) },
      { json: { action: 'enable_single_node' } },
    ],
  ],
  '/_node': anyMethod('/_node', 400),
  '/_node/:node': [['GET /_node/_local', serverAdmins(200)]],
  '/_node/:node/*': anyMethod('/_node/_local/_restart', 404),
  '/_node/:node/_prometheus': [['GET /_node/_local/_prometheus', metricsReaders(200)]],
  '/_node/:node/_stats': [['GET /_node/_local/_stats', metricsReaders(200)]],
  '/_node/:node/_stats/*': [['GET /_node/_local/_stats/couchdb', metricsReaders(200)]],
  '/_node/:node/_system': [['GET /_node/_local/_system', metricsReaders(200)]],
  ...config('/_node/:node/_config', '/_node/_local/_config'),
  ...config('/_config', '/_config'),
}
