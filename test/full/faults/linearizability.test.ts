/**
 * Ten clients read, write and delete five documents at the same time, through kills of the server and deaths of the
 * database's thread. Their view of each document is that of a single register (linear/register.ts): no update is lost,
 * only one of two edits of the same revision succeeds, no read returns a value that was replaced before the read began,
 * and a write without an answer happened once or never.
 *
 *     SETTEE_HISTORIES=500 npx tap --timeout=0 test/full/faults/linearizability.test.ts     the long form
 */
import t from 'tap'
import { builtServer } from '../../faults/built-server.ts'
import { Client } from '../../faults/kill/client.ts'
import { DOCUMENTS, History } from '../../faults/linear/history.ts'
import { isLinearizable, type Operation } from '../../faults/linear/register.ts'

/** Each history has one fault in the middle. */
const HISTORIES = Number(process.env.SETTEE_HISTORIES ?? 8)

t.setTimeout(120_000 + HISTORIES * 20_000)

t.test(`${HISTORIES} histories`, async (t) => {
  const server = await builtServer(t, {
    threadEntry: new URL('../../faults/mortal-thread.mjs', import.meta.url),
  })
  await server.start()
  const client = new Client(server.url)
  t.teardown(() => client.close())
  await client.succeed('PUT', '/notes')
  const kill = async () => {
    server.strike()
    await server.gone()
    await server.start()
  }
  // A document alone may be read on the HTTP thread.
  const killThread = () => client.ask('GET', '/notes/deadly?revs_info=true')
  const totals = { operations: 0, done: 0, refused: 0, unknown: 0 }
  for (let round = 0; round < HISTORIES; round++) {
    const history = new History(client, round)
    await history.run(round % 2 === 0 ? kill : killThread)
    for (const [id, operations] of history.byDocument) {
      if (!isLinearizable(operations)) t.fail(`${id}: ${JSON.stringify(operations)}`)
      count(operations, totals)
    }
  }
  t.ok(totals.unknown > 0, 'some have no answer')
  t.ok(totals.refused > 0, 'some are refused')
  t.comment(
    `${HISTORIES * DOCUMENTS} documents, ${totals.operations} operations: ${totals.done} writes done, ` +
      `${totals.refused} refused, ${totals.unknown} without an answer`,
  )
})

function count(operations: readonly Operation[], totals: Record<string, number>): void {
  for (const { action } of operations) {
    totals.operations = (totals.operations ?? 0) + 1
    if (action.type === 'write') totals[action.outcome] = (totals[action.outcome] ?? 0) + 1
  }
}
