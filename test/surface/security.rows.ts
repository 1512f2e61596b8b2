/** Rights and the reasons of refusals: protocol.md 4.8, and the rights of 4.1 to 4.9. For a server with users. */
import type { Answer } from './answers.ts'
import { type Ask, failed, put, type Row } from './table.ts'
import { SECURED, type User } from './users.ts'

const NOT_ADMIN = 'You are not a db or server admin.'
const NOT_SERVER_ADMIN: Answer = failed(401, 'unauthorized', 'You are not a server admin.')
const NOT_ALLOWED: Answer = failed(403, 'forbidden', 'You are not allowed to access this db.')
const NOT_AUTHORIZED: Answer = failed(401, 'unauthorized', 'You are not authorized to access this db.')
const OK: Answer = { json: { ok: true } }

const security = (json: unknown): Ask => ['PUT /{db}/_security', { json }]
const get = (path: string, as: User): Ask => [`GET /${path}`, { as }]
const post = (path: string, as: User, json: unknown = {}): Ask => [`POST /${path}`, { as, json }]
const write = (path: string, as: User, body = '{}'): Ask => [`PUT /${path}`, { as, body }]

const SECURITY: readonly Row[] = [
  {
    of: '4.8 GET default',
    says: 'only server admins may use a new database',
    steps: [
      ['GET /{db}/_security', { json: { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } } }],
      [get('{db}/_security', 'm'), NOT_ALLOWED],
      [get('{db}', 'anonymous'), NOT_AUTHORIZED],
    ],
  },
  {
    of: ['4.8 GET', '4.8 PUT', '4.8 unknown keys'],
    says: 'stored whole, with what is unknown of it',
    steps: [
      [
        security({ admins: { names: ['d'], x: 1 }, members: { names: ['m'], roles: [] }, y: { z: null } }),
        OK,
      ],
      [
        get('{db}/_security', 'm'),
        { json: { admins: { names: ['d'], x: 1 }, members: { names: ['m'], roles: [] }, y: { z: null } } },
      ],
      [security({}), OK],
      ['GET /{db}/_security', { json: {} }],
    ],
  },
  {
    of: '4.8 PUT rights',
    says: 'admins of the database',
    given: [SECURED],
    steps: [
      [write('{db}/_security', 'anonymous'), NOT_AUTHORIZED],
      [write('{db}/_security', 'o'), { status: 403 }],
      [write('{db}/_security', 'm'), failed(403, 'forbidden', NOT_ADMIN)],
      [write('{db}/_security', 'd'), OK],
    ],
  },
  {
    of: '4.8 readers',
    says: 'stands for members where there are none',
    steps: [
      [security({ readers: { names: ['o'] } }), OK],
      [get('{db}', 'o'), {}],
      [get('{db}', 'm'), NOT_ALLOWED],
      [security({ members: { names: ['m'] }, readers: { names: ['o'] } }), OK],
      [get('{db}', 'o'), NOT_ALLOWED],
    ],
  },
  {
    of: '4.8 bad shape',
    says: '400 with the reason, where CouchDB answers 500 (docs/compatibility.md)',
    steps: [
      [
        security({ members: { names: 'm' } }),
        failed(400, 'bad_request', 'names must be a JSON list of strings'),
      ],
      [
        security({ members: { names: [1] } }),
        failed(400, 'bad_request', 'names must be a JSON list of strings'),
      ],
      [
        security({ admins: { roles: {} } }),
        failed(400, 'bad_request', 'roles must be a JSON list of strings'),
      ],
      [
        security({ admins: [] }),
        failed(400, 'bad_request', 'admins or members must be a JSON list of strings'),
      ],
      [security([]), failed(400, 'bad_request', 'Request body must be a JSON object')],
      ['GET /{db}/_security', { json: { members: { roles: ['_admin'] }, admins: { roles: ['_admin'] } } }],
    ],
  },
  {
    of: '4.8 not versioned',
    says: 'leaves no trace in the feed',
    given: [SECURED],
    steps: [
      ['GET /{db}/_changes', { like: { results: [], last_seq: /^0-/ } }],
      ['GET /{db}', { like: { update_seq: /^0-/ } }],
    ],
  },
  {
    of: '4.8 public',
    says: 'members whose lists are empty: everybody is one, but no admin',
    given: [security({ members: { names: [], roles: [] } })],
    steps: [
      [write('{db}/x', 'anonymous'), { status: 201 }],
      [get('{db}/x', 'anonymous'), {}],
      [write('{db}/y', 'o'), { status: 201 }],
      [write('{db}/_design/d', 'anonymous'), failed(401, 'unauthorized', NOT_ADMIN)],
      [write('{db}/_design/d', 'o'), failed(403, 'forbidden', NOT_ADMIN)],
    ],
  },
  {
    of: '4.8 public',
    says: 'not where members are not spoken of at all (docs/compatibility.md)',
    given: [security({ admins: { names: ['d'] } })],
    steps: [
      [get('{db}', 'anonymous'), NOT_AUTHORIZED],
      [get('{db}', 'd'), {}],
    ],
  },
  {
    of: '4.8 rights of admins',
    says: 'design documents, security, revs_limit, compaction; they are members',
    given: [SECURED, put('x')],
    steps: [
      [get('{db}/x', 'd'), {}],
      [write('{db}/_design/d', 'd'), { status: 201 }],
      [write('{db}/_revs_limit', 'd', '100'), OK],
      [post('{db}/_compact', 'd'), { status: 202 }],
      [post('{db}/_compact/d', 'd'), { status: 202 }],
      [post('{db}/_view_cleanup', 'd'), { status: 202 }],
      [write('{db}/_security', 'd', '{"admins":{"names":["d"]}}'), OK],
      [post('{db}/_purge', 'd'), NOT_SERVER_ADMIN],
    ],
  },
  {
    of: '4.8 rights of members',
    says: 'reading, and writing ordinary documents and _local ones',
    given: [SECURED, put('_design/d')],
    steps: [
      [get('{db}/_design/d', 'm'), {}],
      [write('{db}/x', 'm'), { status: 201 }],
      [write('{db}/_local/l', 'm'), { status: 201 }],
      [post('{db}', 'm'), { status: 201 }],
      [get('{db}/_revs_limit', 'm'), {}],
      [get('{db}/_purged_infos', 'm'), {}],
      [post('{db}/_ensure_full_commit', 'm'), { status: 201 }],
      [write('{db}/_design/e', 'm'), failed(403, 'forbidden', NOT_ADMIN)],
      [write('{db}/_revs_limit', 'm', '5'), failed(403, 'forbidden', NOT_ADMIN)],
      [post('{db}/_purge', 'm'), NOT_SERVER_ADMIN],
      [get('{db}/_purged_infos_limit', 'm'), NOT_SERVER_ADMIN],
    ],
  },
  {
    of: '4.8 roles',
    says: 'open a database to who has one of them',
    steps: [
      [security({ members: { roles: ['staff'] } }), OK],
      [get('{db}', 'r'), {}],
      [write('{db}/_design/d', 'r'), failed(403, 'forbidden', NOT_ADMIN)],
      [security({ admins: { roles: ['staff'] }, members: { names: ['m'] } }), OK],
      [write('{db}/_design/d', 'r'), { status: 201 }],
    ],
  },
  {
    of: '4.8 _admin',
    says: 'a server admin may do everything, whatever the lists say',
    given: [SECURED],
    steps: [
      [write('{db}/_design/d', 's'), { status: 201 }],
      [get('{db}/_design/d', 's'), {}],
      [post('{db}/_purge', 's'), { status: 201 }],
    ],
  },
]

const RIGHTS: readonly Row[] = [
  {
    of: '4.3 read rights',
    says: 'are enough',
    given: [SECURED],
    steps: ['_revs_diff', '_missing_revs'].flatMap((call) => [
      [post(`{db}/${call}`, 'm'), {}] as const,
      [post(`{db}/${call}`, 'o'), NOT_ALLOWED] as const,
    ]),
  },
  {
    of: ['4.4 PUT refusals', '4.4 DELETE refusals'],
    says: 'for server admins, whatever the name',
    given: [SECURED],
    steps: (['anonymous', 'm', 'd'] as const).flatMap((as) => [
      [['PUT /{db}-a', { as }], NOT_SERVER_ADMIN] as const,
      [['PUT /{db}', { as }], NOT_SERVER_ADMIN] as const,
      [['PUT /Illegal', { as }], NOT_SERVER_ADMIN] as const,
      [['DELETE /{db}', { as }], NOT_SERVER_ADMIN] as const,
      [['DELETE /{db}-none', { as }], NOT_SERVER_ADMIN] as const,
    ]),
  },
  {
    of: '4.4 _all_dbs rights',
    says: 'only server admins may read it, as with _dbs_info',
    steps: (['anonymous', 'd'] as const).flatMap((as) => [
      [get('_all_dbs', as), NOT_SERVER_ADMIN] as const,
      [get('_dbs_info', as), NOT_SERVER_ADMIN] as const,
      [post('_dbs_info', as, { keys: [] }), NOT_SERVER_ADMIN] as const,
    ]),
  },
  {
    of: '8.3 _users and _replicator',
    says: 'are listed by server admins only, and everybody else is told so with 401',
    steps: ['_users', '_replicator'].flatMap((name) => [
      [`PUT /${name}`, { status: 201 }] as const,
      [get(`${name}/_all_docs`, 'm'), NOT_SERVER_ADMIN] as const,
      [get(`${name}/_all_docs`, 'anonymous'), NOT_SERVER_ADMIN] as const,
      [get(`${name}/_changes`, 'm'), NOT_SERVER_ADMIN] as const,
      [get(`${name}/_design_docs`, 'm'), NOT_ALLOWED] as const,
      [get(`${name}/_design_docs`, 'anonymous'), NOT_AUTHORIZED] as const,
      [`GET /${name}/_all_docs`, { like: { offset: 0 } }] as const,
      [`DELETE /${name}`, OK] as const,
    ]),
  },
  {
    of: '4.6 _compact rights',
    says: '401 for who is no admin of the database, logged in or not',
    given: [SECURED],
    steps: ['_compact', '_compact/d', '_view_cleanup'].flatMap((call) => [
      [post(`{db}/${call}`, 'm'), failed(401, 'unauthorized', 'You are not a server or db admin.')] as const,
      [post(`{db}/${call}`, 'o'), NOT_ALLOWED] as const,
      [post(`{db}/${call}`, 'anonymous'), { status: 401 }] as const,
    ]),
  },
  {
    of: '4.7 rights',
    says: 'only server admins may use it',
    given: [SECURED],
    steps: (['anonymous', 'o', 'm', 'd'] as const).map((as) => [post('{db}/_purge', as), NOT_SERVER_ADMIN]),
  },
  {
    of: '4.9 rights',
    says: 'only server admins may use it',
    steps: [
      [get('_db_updates', 'anonymous'), NOT_SERVER_ADMIN],
      [get('_db_updates', 'd'), NOT_SERVER_ADMIN],
      [get('_db_updates', 's'), {}],
    ],
  },
  {
    of: '3.9 X-CouchDB-WWW-Authenticate',
    says: 'sets the challenge of a 401',
    ask: ['GET /{db}', { as: 'anonymous', headers: { 'x-couchdb-www-authenticate': 'Cookie' } }],
    answer: { status: 401, headers: { 'www-authenticate': 'Cookie' } },
  },
  {
    of: '4.1 row design rights',
    says: 'design documents are for admins of the database: a row for others',
    given: [SECURED],
    steps: [
      [
        post('{db}/_bulk_docs', 'm', { docs: [{ _id: 'x' }, { _id: '_design/d' }] }),
        {
          status: 201,
          json: [
            { ok: true, id: 'x', rev: /^1-/ },
            { id: '_design/d', error: 'forbidden', reason: NOT_ADMIN },
          ],
        },
      ],
      [
        post('{db}/_bulk_docs', 'd', { docs: [{ _id: '_design/d' }] }),
        { status: 201, json: [{ ok: true, id: '_design/d', rev: /^1-/ }] },
      ],
    ],
  },
  {
    of: '4.1 row design rights',
    says: 'unauthorized for who has not said who he is',
    given: [security({ members: { names: [], roles: [] } })],
    ask: post('{db}/_bulk_docs', 'anonymous', { docs: [{ _id: '_design/d' }] }),
    answer: { status: 201, json: [{ id: '_design/d', error: 'unauthorized', reason: NOT_ADMIN }] },
  },
]

const WRONG = { headers: { authorization: `Basic ${Buffer.from('o:wrong').toString('base64')}` } }

const LOCKOUT: readonly Row[] = [
  {
    of: '19.8 #16',
    says: 'wrong passwords lock nobody out (docs/compatibility.md)',
    given: [SECURED],
    steps: [
      ...[1, 2, 3, 4, 5].map(
        () => [['GET /{db}', WRONG], failed(401, 'unauthorized', 'Name or password is incorrect.')] as const,
      ),
      [get('{db}', 'o'), NOT_ALLOWED],
      [get('', 'o'), {}],
    ],
  },
]

export const SECURITY_AND_RIGHTS: readonly Row[] = [...SECURITY, ...RIGHTS, ...LOCKOUT]
