/**
 * CouchDB's setup of a new server, which setup scripts and Fauxton call; protocol.md 15. settee is a single node, so it sets
 * an admin and an address to listen on, and creates the databases that the server needs.
 */
import { isIP } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { isOpen, setAdmin } from '../../auth/admins.ts'
import { isHashed, verifyPassword } from '../../auth/password.ts'
import type { Config } from '../../config/config.ts'
import type { Values } from '../../config/member-view.ts'
import { checkSetting } from '../../config/values.ts'
import { CouchError } from '../../core/errors.ts'
import { checkDatabaseName } from '../../core/ids.ts'
import type { Databases } from '../../threads/databases.ts'
import { reauthorize } from '../plugins/revocation.ts'
import { sendJson } from '../replies.ts'
import { jsonParam, queryOf } from '../request-params.ts'
import { type Path, type Schema, shape } from '../route-table.ts'
import { LIST_BODY, readSmallJson } from '../transport/body-reader.ts'

export const clusterSetupRoutes: readonly Path[] = [
  {
    url: '/_cluster_setup',
    allow: 'GET,POST',
    access: 'server admin',
    methods: { GET: { handler: state }, POST: { handler: setUp, json: true } },
  },
]

const MAX_DATABASES = 100

const databaseNames = shape<readonly string[]>({
  type: 'array',
  items: { type: 'string', refusal: ['bad_request', '`ensure_dbs_exist` must be an array of strings.'] },
  refusal: ['bad_request', '`ensure_dbs_exist` must be an array of strings.'],
})

async function state(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const { config, databases } = request.server.services
  const named = jsonParam(queryOf(request), 'ensure_dbs_exist')
  const lacking = await missing(databases, databasesIn(named, [databases.usersDatabase]))
  const hasDatabases = lacking.length === 0
  return sendJson(reply, 200, { state: clusterState(config, { hasAdmin: !isOpen(config), hasDatabases }) })
}

interface Setup {
  readonly action?: string
  readonly username?: string
  readonly password?: string
  readonly password_hash?: string
  readonly bind_address?: string
  readonly port?: string | number
  readonly ensure_dbs_exist?: readonly string[]
}

const TEXT_MEMBERS = ['action', 'username', 'password', 'password_hash', 'bind_address'] as const

const setup = shape<Setup>({
  type: 'object',
  refusal: ['bad_request', "Missing JSON body'"],
  properties: Object.fromEntries(
    TEXT_MEMBERS.map((name): [string, Schema] => [
      name,
      { type: 'string', refusal: ['bad_request', `\`${name}\` must be a string.`] },
    ]),
  ),
})

async function setUp(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const asked = setup(await readSmallJson(request, LIST_BODY))
  const { logger } = request.server.services
  await act(request, asked)
  logger.info({ action: asked.action }, 'the server was set up')
  return sendJson(reply, 201, { ok: true })
}

function act(request: FastifyRequest, asked: Setup): Promise<void> {
  const { config, databases } = request.server.services
  switch (asked.action) {
    case 'enable_single_node':
      return enableSingleNode(config, databases, asked, () => reauthorize(request))
    case 'finish_cluster':
      return finishCluster(databases, asked)
    case 'enable_cluster':
    case 'add_node':
    case 'remove_node':
    case 'receive_cookie':
      throw new CouchError(
        'bad_request',
        'settee is a single node and cannot join a cluster: use enable_single_node.',
      )
    default:
      // CouchDB's words, with its quote.
      throw new CouchError('bad_request', "Invalid Action'")
  }
}

/**
 * Checks everything before it changes anything. A repeated call changes nothing, and answers the same. The caller's right
 * is checked again in the turn of the first write only: once there is an admin, the server is no longer open.
 */
async function enableSingleNode(
  config: Config,
  databases: Databases,
  asked: Setup,
  admit: () => Promise<void>,
): Promise<void> {
  const names = databasesIn(asked.ensure_dbs_exist, madeByDefault(databases))
  const settings = settingsIn(asked)
  const admin = adminIn(config, asked)
  const isMade = admin !== null && (await makeAdmin(config, admin, admit))
  for (const [section, key, value] of settings) {
    await config.set(section, key, value, isMade ? {} : { precondition: admit })
  }
  await makeDatabases(databases, await missing(databases, names))
}

/** @throws bad_request if there is nothing to do, as CouchDB does for a second call */
async function finishCluster(databases: Databases, asked: Setup): Promise<void> {
  const names = await missing(databases, databasesIn(asked.ensure_dbs_exist, madeByDefault(databases)))
  if (names.length === 0) throw new CouchError('bad_request', 'Cluster is already finished')
  await makeDatabases(databases, names)
}

type Setting = readonly [section: string, key: string, value: string]

/** A new address or port takes effect at the next start. */
function settingsIn({ bind_address: address, port }: Setup): readonly Setting[] {
  const settings: Setting[] = [['cluster', 'n', '1']]
  if (address !== undefined) {
    if (isIP(address) === 0) {
      throw new CouchError('bad_request', `Setup requires a valid IP bind_address. ${address} is invalid.`)
    }
    settings.push(['chttpd', 'bind_address', address])
  }
  if (port !== undefined) settings.push(['chttpd', 'port', String(port)])
  for (const setting of settings) checkSetting(...setting)
  return settings
}

interface Admin {
  readonly name: string
  readonly password: string
}

function adminIn(config: Config, { username, password, password_hash: hash }: Setup): Admin | null {
  const secret = hash ?? password
  if (username !== undefined && secret !== undefined) return { name: username, password: secret }
  if (username !== undefined || secret !== undefined) {
    throw new CouchError('bad_request', 'An admin needs both username and password.')
  }
  if (isOpen(config)) {
    throw new CouchError('bad_request', 'Cluster setup requires admin account to be configured')
  }
  return null
}

/**
 * Keeps a password that is in effect already, since another salt would end sessions for nothing.
 * @returns whether the admin was written
 */
async function makeAdmin(
  config: Config,
  { name, password }: Admin,
  admit: () => Promise<void>,
): Promise<boolean> {
  const stored = config.get('admins', name)
  if (stored !== undefined && !isHashed(password) && (await verifyPassword(password, stored))) return false
  await setAdmin(config, name, password, { precondition: admit })
  return true
}

/** @returns the databases that a call names, or the default */
function databasesIn(named: unknown, byDefault: readonly string[]): readonly string[] {
  if (named === undefined) return byDefault
  const names = databaseNames(named)
  if (names.length > MAX_DATABASES)
    throw new CouchError('bad_request', '`ensure_dbs_exist` names too many databases.')
  for (const name of names) checkDatabaseName(name)
  return names
}

/** As in CouchDB. A server without `_replicator` counts as set up, since it is made when somebody needs it. */
function madeByDefault({ usersDatabase }: Databases): readonly string[] {
  return [usersDatabase, '_replicator']
}

async function missing(databases: Databases, names: readonly string[]): Promise<readonly string[]> {
  const isThere = await Promise.all(names.map((name) => databases.has(name)))
  return names.filter((_, at) => !isThere[at])
}

async function makeDatabases(databases: Databases, names: readonly string[]): Promise<void> {
  for (const name of names) {
    await databases.create(name).catch((error: unknown) => {
      // Another call was faster.
      if (!(error instanceof CouchError) || error.code !== 'file_exists') throw error
    })
  }
}

/** The state of the setup, in CouchDB's words (protocol.md 15). */
type ClusterState =
  | 'cluster_disabled'
  | 'cluster_enabled'
  | 'cluster_finished'
  | 'single_node_disabled'
  | 'single_node_enabled'

interface SetupFacts {
  readonly hasAdmin: boolean
  /** Whether the databases of the setup exist. */
  readonly hasDatabases: boolean
}

/**
 * The state for `GET /_cluster_setup`, by CouchDB's rules (setup_httpd.erl): for a configured single node, whether it is
 * set up as one; for any other server, whether it could be part of a cluster.
 */
export function clusterState(
  config: Pick<Values, 'get'>,
  { hasAdmin, hasDatabases }: SetupFacts,
): ClusterState {
  if (config.get('couchdb', 'single_node') === 'true') return 'single_node_enabled'
  if (config.get('cluster', 'n') === '1') {
    return hasAdmin && hasDatabases ? 'single_node_enabled' : 'single_node_disabled'
  }
  if (config.get('chttpd', 'bind_address') === '127.0.0.1' || !hasAdmin) return 'cluster_disabled'
  return hasDatabases ? 'cluster_finished' : 'cluster_enabled'
}
