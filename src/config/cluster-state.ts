import type { Values } from './member-view.ts'

/** How far the setup has come, in CouchDB's words (protocol.md 15). */
export type ClusterState =
  | 'cluster_disabled'
  | 'cluster_enabled'
  | 'cluster_finished'
  | 'single_node_disabled'
  | 'single_node_enabled'

export interface SetupFacts {
  readonly hasAdmin: boolean
  /** Whether the databases are there that the setup is to make. */
  readonly hasDatabases: boolean
}

/**
 * What `GET /_cluster_setup` tells, by CouchDB's rules (setup_httpd.erl): a server that was told to be a single node
 * is asked whether it is set up as one; any other whether it could be part of a cluster.
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
