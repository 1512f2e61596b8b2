import t from 'tap'
import { testOverNodes } from '../../helpers/over-nodes.ts'

testOverNodes(t)
await import('../protocol/couchbackup.test.ts')
