/** nano, on two nodes behind nginx. */
import t from 'tap'
import { testOverNodes } from '../../helpers/over-nodes.ts'

testOverNodes(t)
await import('../../protocol/nano.test.ts')
