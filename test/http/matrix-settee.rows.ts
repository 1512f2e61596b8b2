/** Who gets what below `/_settee/`: device tokens, and the accounts of hosted mode. */
import {
  accounts,
  anybody,
  type Columns,
  databaseAdmins,
  everybody,
  onlyHosted,
  type Rows,
  type Statuses,
  serverAdmins,
} from './matrix.ts'

/** About `m`'s tokens; where no admin is configured nobody has a name, and everybody may name any. */
function ofM(status: number, others: number): Statuses {
  const columns: Columns = [401, others, status, others, status]
  return { open: everybody(status), secured: columns, hosted: columns }
}

export const setteeRows: Rows = {
  '/_settee/tokens': [
    ['GET /_settee/tokens', accounts(200)],
    ['GET /_settee/tokens?account=m', ofM(200, 403)],
    [
      'POST /_settee/tokens',
      // A token belongs to an account, and there nobody has said which.
      { ...accounts(201), open: everybody(400) },
      { json: { name: 'token-{n}' } },
    ],
    ['POST /_settee/tokens?account=m', ofM(201, 403), { json: { name: 'token-{n}' } }],
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
  '/_settee/backups/:id/restore': [
    ['POST /_settee/backups/2026-01-01T00-00-00Z/restore', serverAdmins(404), { json: { database: 'x' } }],
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
