/** The slot table, which threads share. */
import t from 'tap'
import { type Slot, SlotTable } from '../../src/sandbox/slot-table.ts'

const slot: Slot = { index: 3, thread: 7 }

t.test('one thread reads what another writes', async (t) => {
  const slotTable = new SlotTable()
  const other = new SlotTable(slotTable.memory)
  slotTable.limits = { timeoutMs: 5000, memory: 67_108_864 }
  t.same(other.limits, { timeoutMs: 5000, memory: 67_108_864 })
  slotTable.limits = { timeoutMs: 86_400_000, memory: 2 ** 32 }
  t.same(other.limits, { timeoutMs: 86_400_000, memory: 2 ** 32 })
})

t.test('a thread is claimed by one client at a time, and only while it is in the table', async (t) => {
  const slotTable = new SlotTable()
  t.notOk(slotTable.claim(slot, 1), 'it is not in the table')
  slotTable.open(slot)
  t.notOk(slotTable.claim({ ...slot, thread: 6 }, 1), 'another thread is in the slot')
  t.ok(slotTable.claim(slot, 1))
  t.notOk(slotTable.claim(slot, 2))
  slotTable.release(slot, 2)
  t.notOk(slotTable.claim(slot, 2), 'another client released it')
  slotTable.release(slot, 1)
  t.ok(slotTable.claim(slot, 2))
  slotTable.close(slot)
  slotTable.release(slot, 2)
  t.notOk(slotTable.claim(slot, 1), 'it was closed while it was claimed')
})

t.test('only a free thread can be closed as idle', async (t) => {
  const slotTable = new SlotTable()
  slotTable.open(slot)
  slotTable.claim(slot, 1)
  t.notOk(slotTable.closeIfFree(slot))
  slotTable.release(slot, 1)
  t.ok(slotTable.closeIfFree(slot))
  t.notOk(slotTable.claim(slot, 1))
})

t.test('the table tells how long a thread is busy or idle', async (t) => {
  const slotTable = new SlotTable()
  const at = (ms: number) =>
    t.capture(process, 'hrtime', (() => [Math.floor(ms / 1000), (ms % 1000) * 1e6]) as never)
  // The 32-bit clock overflows in between.
  at(2 ** 31 - 10)
  slotTable.open(slot)
  at(2 ** 31 + 20)
  t.equal(slotTable.idleMs(slot), 30)
  t.equal(slotTable.busyMs(slot), 0)
  slotTable.claim(slot, 1)
  at(2 ** 31 + 40)
  t.equal(slotTable.busyMs(slot), 20)
  slotTable.begin(slot)
  at(2 ** 31 + 41)
  t.equal(slotTable.busyMs(slot), 1)
  t.equal(slotTable.idleMs(slot), 0)
})

t.test('waiting threads learn when a sandbox thread becomes free', async (t) => {
  // Atomics.waitAsync does not keep the process alive.
  const alive = setInterval(() => undefined, 60_000)
  t.teardown(() => clearInterval(alive))
  const slotTable = new SlotTable()
  const other = new SlotTable(slotTable.memory)
  const waiting = slotTable.whenFreed(slotTable.freed, 60_000)
  other.open(slot)
  t.ok(await waiting)
  const { freed } = slotTable
  other.claim(slot, 1)
  other.release(slot, 1)
  t.ok(await slotTable.whenFreed(freed, 60_000), 'it is already free')
  t.notOk(await slotTable.whenFreed(slotTable.freed, 1), 'the wait ends after its time limit')
})

t.test('the thread that has waited longest goes first', async (t) => {
  const slotTable = new SlotTable()
  const other = new SlotTable(slotTable.memory)
  let ms = 2 ** 31 - 15
  t.capture(process, 'hrtime', (() => [Math.floor(ms / 1000), (ms % 1000) * 1e6]) as never)
  t.notOk(slotTable.overtakes(1), 'a client overtakes nobody if nobody waits')
  other.wait(2)
  ms += 10
  t.notOk(slotTable.overtakes(1), 'the difference is too small')
  ms += 20
  t.ok(slotTable.overtakes(1), 'even after the clock overflows')
  t.notOk(other.overtakes(2), 'a client does not overtake itself')
  slotTable.wait(1)
  ms += 1000
  other.wait(2)
  t.ok(slotTable.overtakes(1), 'the wait counts from its own start')
  t.notOk(other.overtakes(2))
  other.stopWaiting(2)
  t.notOk(slotTable.overtakes(1))
  other.wait(2)
  t.ok(other.overtakes(2), 'the wait starts again after a turn')
})
