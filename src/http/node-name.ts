/** The name of the one node there is, as CouchDB calls one that is in no cluster; protocol.md 12.1, 15. */
export const NODE_NAME = 'nonode@nohost'
