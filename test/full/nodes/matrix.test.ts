/**
 * Who may do what, on two nodes behind nginx: by default on a hosted server, which has the most callers.
 *
 *     SETTEE_MATRIX=open,secured,hosted node test/full/nodes/matrix.test.ts     the long form
 */
import t from 'tap'
import { testOverNodes } from '../../helpers/over-nodes.ts'

process.env.SETTEE_MATRIX ??= 'hosted'
testOverNodes(t)
await import('../../http/matrix.test.ts')
t.setTimeout(900_000)
