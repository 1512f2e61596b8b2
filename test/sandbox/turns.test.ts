/** Several database threads wait for the same sandbox thread, simulated by the test. */
import { once } from 'node:events'
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import t, { type Test } from 'tap'
import type { RunRequest } from '../../src/sandbox/messages.ts'
import { SandboxClient } from '../../src/sandbox/sandbox-client.ts'
import { type Slot, SlotTable } from '../../src/sandbox/slot-table.ts'
import { filterOf } from './functions.ts'

const slot: Slot = { index: 0, thread: 1 }
const LONG_MS = 100

/** Database threads 1 and 2. A client simulates the first one. */
function serve(t: Test) {
  const slotTable = new SlotTable()
  slotTable.limits = { timeoutMs: 5000, memory: 67_108_864 }
  slotTable.open(slot)
  const client = new SandboxClient({ slotTable: slotTable.memory, client: 1 }, () => undefined)
  const { port1, port2 } = new MessageChannel()
  t.teardown(() => {
    client.close()
    port1.close()
  })
  client.notice({ type: 'thread', slot, port: port2 })
  return { slotTable, port: port1, ask: () => client.sandbox.filter(filterOf('f'), ['{}'], '{}') }
}

/** Does one piece of work like a sandbox thread. */
async function work(slotTable: SlotTable, port: MessagePort): Promise<void> {
  const [{ job }] = (await once(port, 'message')) as [RunRequest]
  port.postMessage({ job, outcome: { type: 'done', results: ['true'] } })
  slotTable.release(slot, 1)
}

/** Makes the other thread wait since long ago. */
function waitLong(t: Test, slotTable: SlotTable): void {
  const [seconds, nanoseconds] = process.hrtime()
  const captured = t.capture(process, 'hrtime', (() => [seconds - LONG_MS / 1000, nanoseconds]) as never)
  slotTable.wait(2)
  captured.restore()
}

t.test('a free thread is left to the client that has waited longer', async (t) => {
  const { slotTable, port, ask } = serve(t)
  waitLong(t, slotTable)
  const answer = ask()
  t.ok(slotTable.claim(slot, 2), 'the first client left it free')
  slotTable.stopWaiting(2)
  slotTable.release(slot, 2)
  await work(slotTable, port)
  t.same(await answer, [true])
})

t.test('a free thread is not left for long to a client that does not claim it', async (t) => {
  const { slotTable, port, ask } = serve(t)
  waitLong(t, slotTable)
  for (let turn = 0; turn < 3; turn += 1) {
    const startedAt = performance.now()
    const answer = ask()
    await work(slotTable, port)
    t.same(await answer, [true])
    t.ok(performance.now() - startedAt < 1000)
  }
})

t.test('a client that is served does not count as waiting', async (t) => {
  const { slotTable, port, ask } = serve(t)
  t.ok(slotTable.claim(slot, 2))
  const answer = ask()
  const [seconds, nanoseconds] = process.hrtime()
  const captured = t.capture(process, 'hrtime', (() => [seconds + 60, nanoseconds]) as never)
  t.ok(slotTable.overtakes(2), 'it waits')
  captured.restore()
  slotTable.release(slot, 2)
  await work(slotTable, port)
  t.same(await answer, [true])
  t.capture(process, 'hrtime', (() => [seconds + 60, nanoseconds]) as never)
  t.notOk(slotTable.overtakes(2))
})
