/** The pool's watchdog for its threads, seen from a client in the test. */
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { SandboxNotice } from '../../../src/sandbox/messages.ts'
import { SandboxPool, type SandboxPoolOptions } from '../../../src/sandbox/sandbox-pool.ts'
import { type Slot, SlotTable } from '../../../src/sandbox/slot-table.ts'
import { until } from '../../helpers/until.ts'

const ENTRY = new URL('../../helpers/sandbox-thread.mjs', import.meta.url)
/** A call with a limit of 1 ms is too long after this additional time. */
const TOO_LONG_MS = 2000
/** After so long, a call no longer counts as one that a thread is about to end. */
const LONG_MS = 250
const LIMITS = { timeoutMs: 1, memory: 67_108_864 }

function serve(t: Test, options: Partial<SandboxPoolOptions> = {}) {
  const faults: unknown[] = []
  const notices: SandboxNotice[] = []
  const onFault = (fault: unknown) => faults.push(fault)
  const pool = new SandboxPool({ entry: ENTRY, execArgv: [], limits: LIMITS, onFault, ...options })
  t.teardown(() => pool.close())
  const { access, need, leave } = pool.join((notice, ...ports) => {
    notices.push(notice)
    for (const port of ports) port.close()
  })
  return {
    pool,
    faults,
    notices,
    need,
    leave,
    client: access.client,
    slotTable: new SlotTable(access.slotTable),
  }
}

/** The slot of a thread that was started. */
async function thread({ notices, need }: Pick<ReturnType<typeof serve>, 'notices' | 'need'>): Promise<Slot> {
  need()
  for (;;) {
    const [first] = notices
    if (first?.type === 'thread') return first.slot
    await sleep(5)
  }
}

/** The messages about ended threads; a spare one may have started meanwhile. */
function lost({ notices }: Pick<ReturnType<typeof serve>, 'notices'>): SandboxNotice[] {
  return notices.filter(({ type }) => type === 'lost')
}

t.test('a thread whose call takes too long is ended and replaced', async (t) => {
  const pool = serve(t)
  const slot = await thread(pool)
  const begun = performance.now()
  pool.slotTable.claim(slot, pool.client)
  await until(() => lost(pool).length > 0)
  t.ok(performance.now() - begun > TOO_LONG_MS)
  t.same(lost(pool), [{ type: 'lost', slot, reason: 'timeout' }])
  t.notOk(pool.slotTable.claim(slot, pool.client))
  pool.need()
  await until(() => pool.notices.some((notice) => notice.type === 'thread' && notice.slot.thread > 1))
  t.same(pool.faults, [])
})

t.test('idle time does not count for the call that has just claimed the thread', async (t) => {
  const pool = serve(t)
  const slot = await thread(pool)
  const { hrtime } = process
  const long = 60
  // The state between the claim and its mark.
  const captured = t.capture(process, 'hrtime', (() => {
    const [seconds, nanoseconds] = hrtime()
    return [seconds - long, nanoseconds]
  }) as typeof hrtime)
  t.ok(pool.slotTable.claim(slot, pool.client))
  captured.restore()
  t.ok(pool.slotTable.busyMs(slot) > TOO_LONG_MS)
  await sleep(300)
  t.same(lost(pool), [], 'it was looked at, and not ended')
  pool.slotTable.begin(slot)
  pool.slotTable.release(slot, pool.client)
  t.ok(pool.slotTable.isFree(slot))
})

t.test(
  'a call that has begun just before its thread was ended for the last one is tried again',
  async (t) => {
    const pool = serve(t)
    const slot = await thread(pool)
    const { close } = SlotTable.prototype
    const captured = t.capture(SlotTable.prototype, 'close', function (this: SlotTable, given: Slot) {
      captured.restore()
      // Another call, between the check of the thread and its end.
      this.begin(given)
      close.call(this, given)
    } as typeof close)
    pool.slotTable.claim(slot, pool.client)
    await until(() => lost(pool).length > 0)
    t.same(lost(pool), [{ type: 'lost', slot, reason: 'ended' }])
  },
)

t.test('threads claimed by a dead database thread become free again', async (t) => {
  const pool = serve(t)
  const slot = await thread(pool)
  pool.slotTable.claim(slot, pool.client)
  pool.slotTable.wait(pool.client)
  await sleep(50)
  t.ok(pool.slotTable.overtakes(pool.client + 1))
  pool.leave()
  t.notOk(pool.slotTable.overtakes(pool.client + 1), 'no client waits behind a dead one')
  await until(() => !pool.slotTable.claim(slot, pool.client) && pool.slotTable.callOf(slot) === undefined)
})

t.test('after a failed start, the next one is tried only after a while', async (t) => {
  for (const entry of [
    // Fails before there is a thread, as at the system's limit of threads.
    new URL('https://localhost/worker.js'),
    new URL('./no-such-file.mjs', import.meta.url),
  ]) {
    const { need, notices, faults, pool } = serve(t, { entry })
    const end = performance.now() + 500
    while (performance.now() < end || notices.length === 0) {
      need()
      await sleep(10)
    }
    t.match(notices, [{ type: 'failed', cause: String }])
    t.equal(notices.length, 1, entry.href)
    t.equal(faults.length, 1)
    t.equal(pool.size, 0)
    await until(() => {
      need()
      return notices.length === 2
    })
  }
})

t.test('there are no more threads than the memory allows, and those beyond a lower limit end', async (t) => {
  const limits = { ...LIMITS, timeoutMs: 600_000 }
  const pool = serve(t, { limits, maxThreads: 3 })
  const started = () => pool.notices.flatMap((notice) => (notice.type === 'thread' ? [notice.slot] : []))
  const claimed = new Set<number>()
  // Of a free thread none is started, so each is claimed for a long call.
  const fill = async (count: number) => {
    await until(`${count} threads`, () => {
      pool.need()
      for (const slot of started()) if (pool.slotTable.claim(slot, pool.client)) claimed.add(slot.thread)
      return claimed.size === count
    })
    await sleep(LONG_MS)
    for (let n = 0; n < 10; n++) {
      pool.need()
      await sleep(20)
    }
  }
  await fill(3)
  t.equal(pool.pool.size, 3, 'the pool has three threads, although all are in a long call')
  pool.pool.setLimits(limits, 4)
  await fill(4)
  t.equal(pool.pool.size, 4)
  pool.pool.setLimits(limits, 3)
  pool.slotTable.release(started().at(-1) as Slot, pool.client)
  await until('one has ended', () => pool.pool.size === 3)
  t.match(lost(pool), [{ reason: 'ended' }])
})
