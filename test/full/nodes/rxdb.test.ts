import t from 'tap'
import { testOverNodes } from '../../helpers/over-nodes.ts'

testOverNodes(t)
await import('../../protocol/rxdb.test.ts')
