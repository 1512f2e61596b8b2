/** The tables of CouchDB's protocol, on two nodes behind nginx. */
import t from 'tap'
import { testOverNodes } from '../../helpers/over-nodes.ts'

testOverNodes(t)
for (const name of ['documents', 'database', 'attachments', 'changes', 'rights']) {
  await import(`../../surface/${name}.test.ts`)
}
