/** The name of the one node there is; protocol.md 12.1, 15. */
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'

/** Names by which clients and guides call a node that is in no cluster, whatever its own name is. */
const ALIASES = ['_local', 'nonode@nohost', 'couchdb@127.0.0.1']

/** @returns the name that the node tells: `settee/node_name`, which `NODENAME` sets as in CouchDB's image */
export function nodeName(config: Config): string {
  return config.get('settee', 'node_name') || 'nonode@nohost'
}

/** @throws no_such_node */
export function checkNodeName(config: Config, name: string): void {
  if (name === nodeName(config) || ALIASES.includes(name)) return
  throw new CouchError('no_such_node', `no such node: ${name}`)
}
