/** Functions share nothing with other functions or databases, and some are kept compiled. */
import t from 'tap'
import type { UserFunction } from '../../src/sandbox/messages.ts'
import { Runner } from '../../src/sandbox/sandbox-worker.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { filterOf, mapOf } from './functions.ts'

const sandbox = localSandbox()

t.test('a function that changes its globals affects no other', async (t) => {
  const bending = filterOf(`function (doc) {
    Object.prototype.polluted = 1
    Array.prototype.toJSON = function () { return 'bent' }
    JSON.parse = JSON.stringify = String = undefined
    emit = isArray = require = undefined
    globalThis.left = 1
    return true
  }`)
  t.same(await sandbox.filter(bending, ['{}', '{}'], '{}'), [true, true])
  const clean = `function (doc) { emit(typeof doc.polluted + typeof left + toJSON([1]) + typeof require) }`
  const expected = ['[["undefinedundefined[1]function",null]]']
  t.same(await sandbox.map(mapOf(clean), ['{}']), expected)
  t.same(await sandbox.map({ ...mapOf(clean), database: 2 }, ['{}']), expected)
})

t.test('the same function of another database or revision is separate', async (t) => {
  const fn = filterOf(`(function () { var n = 0; return function () { throw String(n += 1) } })()`)
  const count = (database: number, rev = '1-a') =>
    sandbox.filter({ ...fn, database, rev }, ['{}'], '{}').catch((error) => error.reason)
  t.equal(await count(1), '1')
  t.equal(await count(1), '2')
  t.equal(await count(2), '1')
  t.equal(await count(1, '2-b'), '1')
  t.equal(await count(1), '3')
})

t.test('a map emits a list of pairs even if it changes built-in objects', async (t) => {
  const fn = mapOf(`function (doc) {
    Array.prototype.toJSON = Object.prototype.toJSON = function () { return 'bent' }
    String.prototype.toJSON = undefined
    emit('a', [1])
  }`)
  const [rows = ''] = await sandbox.map(fn, ['{}'])
  t.same(JSON.parse(rows), [['a', 'bent']])
})

t.test('a hundred functions can run in turn', async (t) => {
  const fns = Array.from({ length: 100 }, (_, i) => filterOf(`function (doc) { return doc.i === ${i} }`))
  for (let round = 0; round < 2; round += 1) {
    for (const [i, fn] of fns.entries()) {
      t.same(await sandbox.filter(fn, [`{"i":${i}}`, '{"i":-1}'], '{}'), [true, false])
    }
  }
})

t.test('a call can have many documents of different sizes', async (t) => {
  const docs = Array.from({ length: 3000 }, (_, i) =>
    JSON.stringify({ i, text: i === 1500 ? 'x'.repeat(2_000_000) : '' }),
  )
  const passes = await sandbox.filter(filterOf('function (doc) { return doc.i % 2 === 0 }'), docs, '{}')
  t.same(
    passes,
    docs.map((_, i) => i % 2 === 0),
  )
  t.same(await sandbox.filter(filterOf('function () {}'), [], '{}'), [])
})

const MB = 1_048_576
const LIMITS = { timeoutMs: 5000, memory: 64 * MB }
const STACK = 128 * 1024

function runnerOf(maxGrownBytes?: number) {
  const runner = new Runner({
    limits: () => LIMITS,
    stack: STACK,
    ...(maxGrownBytes !== undefined && { maxGrownBytes }),
  })
  const run = (fn: UserFunction, doc: string, source: string | null = null) =>
    runner.run({ kind: 'filter', fn, shared: '{}', calls: [doc] }, source)
  /** Compiles a function and keeps it ready. */
  const make = async (fn: UserFunction) => run(fn, '0', fn.source)
  const isReady = async (fn: UserFunction) => (await run(fn, '0')).type === 'done'
  return { run, make, isReady }
}

const plain = () => filterOf('function () { return true }')
const growing = () =>
  filterOf(`(function () { var kept = []; return function (mb) {
  for (var i = 0; i < mb; i++) kept.push(new Uint8Array(1048576).fill(1))
} })()`)

t.test('the 24 most recently used functions are kept ready', async (t) => {
  const { make, isReady } = runnerOf()
  const fns = Array.from({ length: 25 }, plain)
  for (const fn of fns.slice(0, 24)) await make(fn)
  t.ok(await isReady(fns[0]!), 'this use makes it the most recent one')
  await make(fns[24]!)
  t.notOk(await isReady(fns[1]!))
  for (const n of [0, 2, 23, 24]) t.ok(await isReady(fns[n]!), `${n}`)
})

t.test('fewer functions are kept when their memory grows', async (t) => {
  const { make, run, isReady } = runnerOf(40 * MB)
  const [small, first, second] = [plain(), growing(), growing()]
  for (const fn of [small, first, second]) await make(fn)
  for (const fn of [small, first, second]) t.ok(await isReady(fn))
  t.match(await run(first, '30'), { type: 'done' })
  for (const fn of [small, first, second]) t.ok(await isReady(fn))
  t.match(await run(second, '30'), { type: 'done' })
  t.notOk(await isReady(first), 'a call can evict others, not only a new function')
  t.ok(await isReady(small), 'one that has not grown frees nothing')
  t.ok(await isReady(second))
})

t.test('one function is kept, however large it is', async (t) => {
  const { make, run, isReady } = runnerOf(20 * MB)
  const fn = growing()
  await make(fn)
  t.match(await run(fn, '30'), { type: 'done' })
  t.ok(await isReady(fn))
  await make(plain())
  t.notOk(await isReady(fn))
})
