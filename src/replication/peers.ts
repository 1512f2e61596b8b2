/** Connects replications to their peers, and finds their ids, which depend on the peers. */
import { isServerAdmin, requireServerAdmin } from '../auth/accounts.ts'
import type { Policy } from '../auth/policy.ts'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { LOCAL_PREFIX } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import type { UserCtx } from '../core/types.ts'
import { databaseProperties } from '../threads/database-properties.ts'
import type { Databases } from '../threads/databases.ts'
import { LocalPeer } from './local-peer.ts'
import { LocalTurns } from './local-turns.ts'
import type { Peer } from './peer.ts'
import { withRefusals } from './peer-error.ts'
import { RemotePeer } from './remote/remote-peer.ts'
import type { RemoteConnections } from './remote/remote-requests.ts'
import { couchCheckpointId, type Endpoint } from './replication-id.ts'
import type { ReplicationEndpoint, ReplicationRequest } from './requests/replication-request.ts'

export interface PeersOptions {
  readonly databases: Databases
  readonly policy: Policy
  readonly config: Config
}

export class Peers {
  readonly #options: PeersOptions
  /** Made at the first replication, since undici would delay every start of the server. */
  #connections: RemoteConnections | null = null

  constructor(options: PeersOptions) {
    this.#options = options
  }

  /** Makes connections to remote peers possible. */
  async load(): Promise<void> {
    if (this.#connections !== null) return
    const { RemoteConnections } = await import('./remote/remote-requests.ts')
    this.#connections ??= new RemoteConnections(() =>
      this.#options.config.integer('replicator', 'http_connections'),
    )
  }

  async close(): Promise<void> {
    await this.#connections?.close()
  }

  /** @throws forbidden for a proxy, unless the user is a server admin */
  of(request: ReplicationRequest, user: UserCtx): { readonly source: Peer; readonly target: Peer } {
    const { source, target, options } = request
    return {
      source: this.#peer(source, user, options.sourceProxy, options.timeout),
      target: this.#peer(target, user, options.targetProxy, options.timeout),
    }
  }

  #peer(endpoint: ReplicationEndpoint, user: UserCtx, proxy: string | undefined, timeoutMs: number): Peer {
    if (endpoint.type === 'local') return this.#localPeer(endpoint.name, user)
    if (proxy !== undefined && !isServerAdmin(user)) {
      throw new CouchError('forbidden', 'Only server admins may replicate through a proxy.')
    }
    if (this.#connections === null) throw new Error('no connections for a remote endpoint')
    return new RemotePeer(endpoint, this.#connections, {
      mayBePrivate: isServerAdmin(user),
      proxy,
      timeoutMs,
      verifiesCertificates: this.#options.config.boolean('replicator', 'verify_ssl_certificates'),
    })
  }

  /** The address of an endpoint for people and for the log, without credentials. */
  shown(endpoint: ReplicationEndpoint): string {
    if (endpoint.type !== 'local') return endpoint.shown
    return localUrl(endpoint.name, this.#options.config.integer('chttpd', 'port'))
  }

  #localPeer(name: string, user: UserCtx): Peer {
    const { databases, policy } = this.#options
    return new LocalPeer({
      databases,
      name,
      user,
      address: this.shown({ type: 'local', name }),
      turns: new LocalTurns(policy, name, user),
      create: async (params) => {
        // A tenant makes databases of its own.
        if (policy.tenantOf(user) === null) requireServerAdmin(user)
        await policy.createDatabase(name, user, undefined, databaseProperties(params))
      },
    })
  }

  /**
   * The id of a job: CouchDB's id of its checkpoints, and what makes it another job.
   * @throws not_found without the filter at the source, and what keeps it from being read; the errors of
   *   `compileSelector`
   */
  async idOf(request: ReplicationRequest, user: UserCtx): Promise<string> {
    const { source, target, options } = request
    const { docIds, selector, filter, queryParams } = options.filter
    const found = filter === undefined ? undefined : await this.#filterOf(request, filter, user)
    const normal = selector && (await this.#options.databases.normalSelector(selector))
    const winningRevsOnly = options.isWinningRevsOnly
    const base = couchCheckpointId({
      serverUuid: this.#options.databases.serverUuid,
      source: endpointOf(source),
      target: endpointOf(target),
      ...(docIds && { docIds }),
      ...(normal && { selector: normal }),
      ...(found !== undefined && { filter: found, queryParams: queryParams ?? {} }),
      winningRevsOnly,
    }).slice(LOCAL_PREFIX.length)
    const { isContinuous, createsTarget } = options
    return `${base}${isContinuous ? '+continuous' : ''}${createsTarget ? '+create_target' : ''}`
  }

  /** The text of a filter function belongs to the id, so that a replication with another text begins anew. */
  async #filterOf(
    request: ReplicationRequest,
    filter: string,
    user: UserCtx,
  ): Promise<{ readonly code: string } | { readonly name: string }> {
    if (filter.startsWith('_')) return { name: filter }
    const [ddoc = '', name = ''] = filter.split('/', 2)
    const { source } = this.of(request, user)
    const doc = await withRefusals(() =>
      source.readDocument(`_design/${ddoc}`, AbortSignal.timeout(request.options.timeout)),
    )
    const filters = isJsonObject(doc) ? doc.filters : undefined
    const code = isJsonObject(filters) ? filters[name] : undefined
    if (typeof code === 'string') return { code }
    throw new CouchError('not_found', `The source has no filter ${filter}.`)
  }
}

/** @returns the id of the checkpoints of a job, with `_local/` */
export function checkpointIdOf(jobId: string): string {
  return LOCAL_PREFIX + (jobId.split('+', 1)[0] as string)
}

/** The port of local databases in ids, which must not depend on the address of the server. */
const ID_PORT = 5984

function localUrl(name: string, port: number): string {
  return `http://127.0.0.1:${port}/${encodeURIComponent(name)}/`
}

function endpointOf(endpoint: ReplicationEndpoint): Endpoint {
  return endpoint.type === 'local'
    ? { url: localUrl(endpoint.name, ID_PORT), user: null, headers: {} }
    : endpoint
}
