/** When sandbox threads are started. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { filterOf } from './functions.ts'
import { LIMITS, serveSandbox } from './served.ts'

const SPIN = 'function (doc) { var end = Date.now() + doc.ms; while (Date.now() < end); return true }'

t.test('none before a function is run, and one for calls one after the other', async (t) => {
  const { sandbox, pool } = serveSandbox(t)
  await sleep(50)
  t.equal(pool.size, 0)
  const fn = filterOf(SPIN)
  for (let i = 0; i < 20; i += 1) await sandbox.filter(fn, ['{"ms":1}'], '{}')
  t.ok(pool.size <= 2, 'on a busy machine a first call may look like a long one')
})

t.test('another when work waits for long', async (t) => {
  const { sandbox, pool } = serveSandbox(t)
  const docs = Array.from({ length: 60 }, () => '{"ms":20}')
  const all = [1, 2, 3].map((database) => sandbox.filter({ ...filterOf(SPIN), database }, docs, '{}'))
  await Promise.all(all)
  t.ok(pool.size >= 2)
})

t.test('a spare one while all are held, and never more than there are places', async (t) => {
  const { sandbox, pool } = serveSandbox(t, { limits: { ...LIMITS, timeoutMs: 60_000 } })
  const held = Array.from({ length: 12 }, (_, database) =>
    sandbox
      .filter({ ...filterOf('function () { for (;;); }'), database }, ['{}'], '{}')
      .catch(() => undefined),
  )
  while (pool.size < 8) await sleep(20)
  await sleep(300)
  t.equal(pool.size, 8)
  await pool.close()
  t.equal(pool.size, 0)
  held.length = 0
})
