/** The rights matrix: `/_settee/`, with device tokens and the accounts of hosted mode. */
import {
  absent,
  accounts,
  anybody,
  type Columns,
  databaseAdmins,
  everybody,
  members,
  metricsReaders,
  onlyHosted,
  type Rows,
  type Statuses,
  serverAdmins,
} from './matrix.ts'

/** About `m`'s tokens. Without an admin, no caller has a name, and every caller may give any name. */
function ofM(status: number, others: number): Statuses {
  const columns: Columns = [401, others, status, others, status]
  return { open: everybody(status), secured: columns, hosted: columns }
}

/** A database that does not exist: in single mode only a server admin makes one. */
const ownVaults: Statuses = {
  open: everybody(201),
  secured: [401, 403, 403, 403, 201],
  hosted: [401, 201, 201, 201, 201],
}

const allTokens: Statuses = {
  open: everybody(200),
  secured: [401, 403, 403, 403, 200],
  hosted: [401, 403, 403, 403, 200],
}

/** For admins of `_users`, which here is only the server admin; refused to others. */
const users = (status: number): Statuses => ({
  open: everybody(status),
  secured: [401, 403, 403, 403, status],
  hosted: [401, 403, 403, 403, status],
})

/** A server in hosted mode has no standby. */
const singleOnly: Statuses = { ...serverAdmins(200), hosted: serverAdmins(404).hosted }

export const setteeRows: Rows = {
  '/_settee/tokens': [
    ['GET /_settee/tokens', accounts(200)],
    ['GET /_settee/tokens?account=m', ofM(200, 403)],
    ['GET /_settee/tokens?all=true&positions=true', allTokens],
    [
      'POST /_settee/tokens',
      // A token belongs to an account, and there nobody has said which.
      { ...accounts(201), open: everybody(400) },
      { json: { name: 'token-{n}' } },
    ],
    ['POST /_settee/tokens?account=m', ofM(201, 403), { json: { name: 'token-{n}' } }],
  ],
  '/_settee/client': [['GET /_settee/client', anybody(200)]],
  '/_settee/configuration': [['GET /_settee/configuration', serverAdmins(200)]],
  '/_settee/samples': [['GET /_settee/samples', metricsReaders(200)]],
  '/_settee/standby': [['GET /_settee/standby', singleOnly]],
  '/_settee/moves': [
    ['GET /_settee/moves', serverAdmins(200)],
    ['POST /_settee/moves', serverAdmins(400), { json: { source: 'nowhere' } }],
  ],
  '/_settee/moves/:id': [
    ['GET /_settee/moves/x', serverAdmins(404)],
    ['DELETE /_settee/moves/x', serverAdmins(404)],
  ],
  '/_settee/moves/:id/databases': [['GET /_settee/moves/x/databases', serverAdmins(404)]],
  '/_settee/databases/:db/indexes': [['GET /_settee/databases/{db}/indexes', members(200)]],
  '/_settee/vaults': [
    ['POST /_settee/vaults', ownVaults, { json: { vault: 'vault-{n}', for: 'pouchdb', device: 'd-{n}' } }],
    [
      'POST /_settee/vaults',
      { open: everybody(201), secured: [401, 403, 201, 403, 201], hosted: [401, 403, 201, 403, 201] },
      { json: { vault: '{own}', for: 'pouchdb', account: 'm', device: 'd-{n}' } },
    ],
  ],
  '/_settee/log': [['GET /_settee/log?limit=1', serverAdmins(200)]],
  '/_settee/standby/settings': [['GET /_settee/standby/settings', singleOnly]],
  '/_settee/standby/tokens': [['GET /_settee/standby/tokens', singleOnly]],
  '/_settee/alarms': [['GET /_settee/alarms', serverAdmins(200)]],
  '/_settee/alarms/:alarm': [['DELETE /_settee/alarms/x', serverAdmins(404)]],
  '/_settee/databases': [['GET /_settee/databases?limit=2', accounts(200)]],
  '/_settee/databases/:db': [
    ['GET /_settee/databases/{db}', members(200)],
    ['GET /_settee/databases/none', absent],
  ],
  '/_settee/databases/:db/growth': [['GET /_settee/databases/{db}/growth', members(200)]],
  '/_settee/databases/:db/conflicts': [
    ['GET /_settee/databases/{db}/conflicts', members(200)],
    ['GET /_settee/databases/_users/conflicts', users(200)],
  ],
  '/_settee/databases/:db/alarms': [['GET /_settee/databases/{db}/alarms', databaseAdmins(200)]],
  '/_settee/databases/:db/alarms/:alarm': [['DELETE /_settee/databases/{db}/alarms/x', databaseAdmins(404)]],
  '/_settee/databases/:db/history': [
    ['GET /_settee/databases/{db}/history', databaseAdmins(200)],
    ['GET /_settee/databases/{db}/history?id=doc', databaseAdmins(200)],
    ['GET /_settee/databases/_users/history', users(200)],
  ],
  '/_settee/databases/:db/version': [
    ['GET /_settee/databases/{db}/version?id=doc&at=1', databaseAdmins(404)],
  ],
  '/_settee/databases/:db/rewind': [
    [
      'POST /_settee/databases/{db}/rewind',
      databaseAdmins(200),
      { json: { at: 1, ids: ['none'], dry_run: true } },
    ],
    ['POST /_settee/databases/{db}/rewind', databaseAdmins(400), { json: { at: 1, dry_run: true } }],
    ['POST /_settee/databases/_users/rewind', users(200), { json: { at: 1, ids: ['none'], dry_run: true } }],
  ],
  '/_settee/tokens/:id': [['DELETE /_settee/tokens/{token}', ofM(200, 404)]],
  '/_settee/databases/:db/size': [['GET /_settee/databases/{db}/size', databaseAdmins(200)]],
  '/_settee/backups': [
    ['GET /_settee/backups', serverAdmins(200)],
    ['POST /_settee/backups', serverAdmins(404), { json: { databases: ['no-such-database'] } }],
  ],
  '/_settee/backups/:id': [
    ['GET /_settee/backups/2026-01-01T00-00-00Z', serverAdmins(404)],
    ['DELETE /_settee/backups/2026-01-01T00-00-00Z', serverAdmins(404)],
  ],
  '/_settee/backups/:id/verify': [
    ['POST /_settee/backups/2026-01-01T00-00-00Z/verify', serverAdmins(404), { json: {} }],
  ],
  '/_settee/backups/:id/restore': [
    ['POST /_settee/backups/2026-01-01T00-00-00Z/restore', serverAdmins(404), { json: { database: 'x' } }],
  ],
  '/_settee/check': [
    ['GET /_settee/check', serverAdmins(200)],
    ['POST /_settee/check', serverAdmins(404), { json: { databases: ['no-such-database'] } }],
  ],
  '/_settee/check/give-up': [
    ['POST /_settee/check/give-up', serverAdmins(404), { json: { database: 'no-such-database', id: 'x' } }],
  ],
  '/_settee/accounts': [
    ['GET /_settee/accounts', onlyHosted(serverAdmins, 200)],
    ['POST /_settee/accounts', onlyHosted(serverAdmins, 201), { json: { name: 'made-{n}', password: 'x' } }],
  ],
  '/_settee/accounts/:name': [
    ['GET /_settee/accounts/o', onlyHosted(serverAdmins, 200)],
    ['GET /_settee/accounts/d', onlyHosted(serverAdmins, 200)],
    [
      'PUT /_settee/accounts/{account}',
      onlyHosted(serverAdmins, 200),
      { json: { suspended: true, quota: { bytes: 1 } } },
    ],
    ['DELETE /_settee/accounts/{account}', onlyHosted(serverAdmins, 200)],
  ],
  '/_settee/owners/:name': [
    ['GET /_settee/owners/{db}', onlyHosted(serverAdmins, 200)],
    ['PUT /_settee/owners/{own}', onlyHosted(serverAdmins, 200), { json: { owner: 'o' } }],
  ],
  // The server's admin is no account of this kind.
  '/_settee/account': [['GET /_settee/account', { ...accounts(404), hosted: [401, 200, 200, 200, 404] }]],
  '/_settee/sign-up': [
    ['POST /_settee/sign-up', onlyHosted(anybody, 403), { json: { name: 'made-{n}', password: 'x' } }],
  ],
}
