/**
 * Clients that were tested with one server, on two nodes behind nginx. Others of test/protocol/ run in the same way, but cost
 * more time: SETTEE_NODES_PROTOCOL=accounts,curl,replicator node test/full/nodes/protocol.test.ts
 */
import t from 'tap'
import { testOverNodes } from '../../helpers/over-nodes.ts'

const DEFAULT = 'pouchdb-sync,pouchdb-attachments,pouchdb-history,rxdb,nano,find-clients,queries'
const NAMES = process.env.SETTEE_NODES_PROTOCOL ?? DEFAULT

testOverNodes(t)
for (const name of NAMES.split(',')) await import(`../../protocol/${name}.test.ts`)
t.setTimeout(900_000)
