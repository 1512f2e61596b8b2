/**
 * Ten clients read, write and delete five documents through four nodes at the same time, while nodes and PostgreSQL are
 * killed, and nodes are frozen and cut off. Each document is a single register (test/faults/linear/register.ts).
 *
 *     SETTEE_HISTORIES=200 npx tap --timeout=0 test/full/nodes/linearizability.test.ts     the long form
 */
import t from 'tap'
import { Client } from '../../faults/kill/client.ts'
import { History } from '../../faults/linear/history.ts'
import { isLinearizable } from '../../faults/linear/register.ts'
import { Cluster, type Fault } from '../../faults/nodes/cluster.ts'

const HISTORIES = Number(process.env.SETTEE_HISTORIES ?? 10)
/** What happens at the same time, in turn. */
const FAULTS: readonly (readonly Fault[])[] = [
  ['node killed'],
  ['PostgreSQL killed'],
  ['cut off', 'node killed'],
  ['frozen', 'PostgreSQL killed'],
  ['answers lost', 'connections reset', 'node killed'],
]

t.setTimeout(120_000 + HISTORIES * 30_000)

t.test(`${HISTORIES} histories over four nodes`, async (t) => {
  const cluster = await Cluster.start(t)
  const client = new Client(cluster.url, { isOfNodes: true })
  t.teardown(() => client.close())
  await client.succeed('PUT', '/notes')
  const totals: Record<string, number> = { reads: 0, done: 0, refused: 0, unknown: 0 }
  for (let round = 0; round < HISTORIES; round++) {
    const history = new History(client, round)
    const faults = FAULTS[round % FAULTS.length] ?? []
    await history.run(() => Promise.all(faults.map((fault) => cluster.suffer(fault))))
    await cluster.untilWell('notes')
    for (const [id, operations] of history.byDocument) {
      if (!isLinearizable(operations)) t.fail(`${id}, ${faults}: ${JSON.stringify(operations)}`)
      for (const { action } of operations) {
        const kind = action.type === 'read' ? 'reads' : action.outcome
        totals[kind] = (totals[kind] ?? 0) + 1
      }
    }
  }
  t.ok((totals.unknown ?? 0) > 0, 'some have no answer')
  t.ok((totals.refused ?? 0) > 0, 'some are refused')
  t.comment(JSON.stringify({ ...totals, ...cluster.count }))
})
