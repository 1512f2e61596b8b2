import { CouchError } from '../core/errors.ts'

/** The name of the one node there is, as CouchDB calls one that is in no cluster; protocol.md 12.1, 15. */
export const NODE_NAME = 'nonode@nohost'

/** The names by which clients call it; the first is the one it tells (protocol.md 12.1). */
const NODE_NAMES = [NODE_NAME, '_local', 'couchdb@127.0.0.1']

/** @throws no_such_node */
export function checkNodeName(name: string): void {
  if (!NODE_NAMES.includes(name)) throw new CouchError('no_such_node', `no such node: ${name}`)
}
