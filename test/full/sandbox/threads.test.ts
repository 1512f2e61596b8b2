/** Sandbox threads: when they start, and functions on them. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { filterOf, functionAt } from '../../sandbox/functions.ts'
import { LIMITS, serveSandbox } from '../../sandbox/served.ts'

const SPIN = 'function (doc) { var end = Date.now() + doc.ms; while (Date.now() < end); return true }'

t.test('no thread starts before a function runs, and one serves consecutive calls', async (t) => {
  const { sandbox, pool } = serveSandbox(t)
  await sleep(50)
  t.equal(pool.size, 0)
  const fn = filterOf(SPIN)
  for (let i = 0; i < 20; i += 1) await sandbox.filter(fn, ['{"ms":1}'], '{}')
  t.ok(pool.size <= 2, 'on a busy machine a first call may look like a long one')
})

t.test('another thread starts when work waits for a long time', async (t) => {
  const { sandbox, pool } = serveSandbox(t)
  const docs = Array.from({ length: 60 }, () => '{"ms":20}')
  const all = [1, 2, 3].map((database) => sandbox.filter({ ...filterOf(SPIN), database }, docs, '{}'))
  await Promise.all(all)
  t.ok(pool.size >= 2)
})

t.test('a spare thread starts while all are in long calls, up to the number of slots', async (t) => {
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

const PASS = 'function (doc) { return doc.v }'
const HANG = 'function () { for (;;); }'
/** QuickJS checks whether to stop once in ten thousand iterations. */
const UNSTOPPABLE = `function () { for (;;) 'abc'.repeat(1000000) }`

const inDatabase = (database: number, text: string) => ({ ...filterOf(text), database })

t.test('a thread is started when a function is first run', async (t) => {
  const { sandbox, faults } = serveSandbox(t)
  t.same(await sandbox.filter(filterOf(PASS), ['{"v":1}', '{"v":0}'], '{}'), [true, false])
  t.same(await sandbox.map(functionAt(['views', 'v', 'map'], 'doc => emit(doc.v)'), ['{"v":1}']), [
    '[[1,null]]',
  ])
  t.same(faults, [])
})

t.test('errors cross with their code and reason', async (t) => {
  const { sandbox } = serveSandbox(t)
  await t.rejects(sandbox.compile(filterOf('function (')), {
    code: 'compilation_error',
    reason: /SyntaxError/,
  })
  await t.rejects(sandbox.filter(filterOf('function () { throw "no" }'), ['{}'], '{}'), {
    code: 'function_error',
    reason: 'no',
  })
  const absent = { ...filterOf(PASS), path: ['filters', 'g'] }
  await t.rejects(sandbox.filter(absent, ['{}'], '{}'), { code: 'not_found', reason: 'missing json key: g' })
})

t.test('more calls than fit into one piece', async (t) => {
  const { sandbox } = serveSandbox(t)
  const docs = Array.from({ length: 5000 }, (_, i) =>
    JSON.stringify({ v: i % 3 === 0, text: 'x'.repeat(1000) }),
  )
  const passes = await sandbox.filter(filterOf(PASS), docs, '{}')
  t.same(
    passes,
    docs.map((_, i) => i % 3 === 0),
  )
  const large = await sandbox.map(
    functionAt(['views', 'v', 'map'], `function (doc) { emit('y'.repeat(500000)) }`),
    docs.slice(0, 50),
  )
  t.same(
    large.map((rows) => rows.length),
    Array.from({ length: 50 }, () => 500_011),
  )
})

t.test('many functions of many databases and of several database threads at once', async (t) => {
  const { client, join } = serveSandbox(t)
  const clients = [client, join(), join()]
  const calls = Array.from({ length: 120 }, async (_, i) => {
    const { sandbox } = clients[i % 3] as typeof client
    const fn = inDatabase(i % 10, `function (doc) { return doc.i === ${i % 40} }`)
    const passes = await sandbox.filter(fn, [`{"i":${i % 40}}`, '{"i":-1}'], '{}')
    return passes.join() === 'true,false'
  })
  t.ok((await Promise.all(calls)).every(Boolean))
})

t.test('an endless function delays no other database', async (t) => {
  const { sandbox, join } = serveSandbox(t, { limits: { ...LIMITS, timeoutMs: 6000 } })
  const other = join().sandbox
  const fn = inDatabase(3, PASS)
  await other.filter(fn, ['{"v":1}'], '{}')
  const hanging = Promise.all(
    [1, 1, 1, 2].map((database) =>
      t.rejects(sandbox.filter(inDatabase(database, HANG), ['{}'], '{}'), { code: 'function_timeout' }),
    ),
  )
  const waits: number[] = []
  for (let i = 0; i < 200; i += 1) {
    const started = performance.now()
    t.same(await other.filter(fn, ['{"v":1}'], '{}'), [true])
    waits.push(performance.now() - started)
    await sleep(5)
  }
  // At first, further threads must be started.
  const later = waits.slice(100).sort((a, b) => a - b)
  const [median = 0, p98 = 0] = [later[50], later[97]]
  const longest = Math.max(...waits)
  t.comment(`ms: median ${median.toFixed(2)}, p98 ${p98.toFixed(1)}, longest ${longest.toFixed(0)}`)
  t.ok(longest < 5500, 'nobody waits for a function to end')
  t.ok(p98 < 150, `p98 ${p98}`)
  await hanging
})

t.test('a slow function lets others run between two documents', async (t) => {
  const { sandbox } = serveSandbox(t)
  const slow = inDatabase(
    1,
    'function () { var end = Date.now() + 10; while (Date.now() < end); return true }',
  )
  const docs = Array.from({ length: 100 }, () => '{}')
  const order: string[] = []
  const all = [
    sandbox.filter(slow, docs, '{}').then(() => order.push('slow')),
    sandbox.filter(inDatabase(1, PASS), ['{}'], '{}').then(() => order.push('same database')),
    sandbox.filter(inDatabase(2, PASS), ['{}'], '{}').then(() => order.push('other database')),
  ]
  await Promise.all(all)
  t.equal(order[2], 'slow')
})

t.test('a thread that cannot be stopped is ended and replaced', async (t) => {
  const { sandbox, faults } = serveSandbox(t, { limits: { ...LIMITS, timeoutMs: 200 } })
  const started = performance.now()
  const stuck = t.rejects(sandbox.filter(inDatabase(1, UNSTOPPABLE), ['{}'], '{}'), {
    code: 'function_timeout',
  })
  t.same(await sandbox.filter(inDatabase(2, PASS), ['{"v":1}'], '{}'), [true])
  await stuck
  t.ok(performance.now() - started < 6000)
  t.same(await sandbox.filter(inDatabase(1, PASS), ['{"v":1}'], '{}'), [true])
  t.same(faults, [], 'a long call is no fault')
})

t.test('when a thread dies, its piece is tried once more', async (t) => {
  const { sandbox, faults } = serveSandbox(t, {
    entry: new URL('../../sandbox/deadly-thread.mjs', import.meta.url),
  })
  const fn = filterOf('function (doc) { return doc === "once" || doc === "other" }')
  t.same(await sandbox.filter(fn, ['"once"'], '{}'), [true])
  t.equal(faults.length, 1)
  await t.rejects(sandbox.filter(fn, ['"deadly"'], '{}'), { code: 'unavailable' })
  t.equal(faults.length, 3)
  t.match(faults, [{ message: 'a fault of the thread' }])
  t.same(await sandbox.filter(fn, ['"other"', '1'], '{}'), [true, false])
})

t.test('a thread that cannot start fails the waiting calls', async (t) => {
  const { sandbox, faults } = serveSandbox(t, { entry: new URL('./no-such-file.mjs', import.meta.url) })
  await t.rejects(sandbox.filter(filterOf(PASS), ['{}'], '{}'), { code: 'unavailable' })
  t.match(faults, [{ message: /no-such-file/ }])
  await t.rejects(sandbox.filter(filterOf(PASS), ['{}'], '{}'), { code: 'unavailable' })
})

t.test('idle threads end, and start again when needed', async (t) => {
  const { sandbox, pool } = serveSandbox(t, { idleMs: 100 })
  const fn = filterOf(PASS)
  t.same(await sandbox.filter(fn, ['{"v":1}'], '{}'), [true])
  t.ok(pool.size > 0)
  while (pool.size > 0) await sleep(20)
  t.same(await sandbox.filter(fn, ['{"v":1}'], '{}'), [true])
})

t.test('limits change while threads run', async (t) => {
  const { sandbox, pool } = serveSandbox(t)
  const hoard = filterOf(`function () { return 'x'.repeat(30000000).length > 0 }`)
  t.same(await sandbox.filter(hoard, ['{}'], '{}'), [true])
  pool.setLimits({ timeoutMs: 100, memory: 32 * 1_048_576 })
  await t.rejects(sandbox.filter(hoard, ['{}'], '{}'), { code: 'function_memory' })
  await t.rejects(sandbox.filter(filterOf(HANG), ['{}'], '{}'), { code: 'function_timeout' })
})

t.test('waiting work fails when its database thread closes', async (t) => {
  const { sandbox, client, pool } = serveSandbox(t)
  await sandbox.filter(filterOf(PASS), ['{}'], '{}')
  const waiting = Array.from({ length: 20 }, () =>
    t.rejects(sandbox.filter(filterOf(HANG), ['{}'], '{}'), { code: 'unavailable' }),
  )
  client.close()
  await Promise.all(waiting)
  await t.rejects(sandbox.filter(filterOf(PASS), ['{}'], '{}'), { code: 'unavailable' })
  await pool.close()
  client.close()
})

t.test('the waiting work is bounded', async (t) => {
  const { sandbox } = serveSandbox(t)
  const docs = Array.from({ length: 15_000 }, () => '{"v":1}')
  const first = sandbox.filter(filterOf(PASS), docs, '{}')
  await t.rejects(sandbox.filter(filterOf(PASS), docs, '{}'), { code: 'unavailable' })
  t.equal((await first).length, docs.length)
  t.equal((await sandbox.filter(filterOf(PASS), docs, '{}')).length, docs.length)
})
