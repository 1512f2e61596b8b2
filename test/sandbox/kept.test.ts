/** Functions that are kept ready, and how many. */
import t from 'tap'
import type { UserFunction } from '../../src/sandbox/messages.ts'
import { Runner } from '../../src/sandbox/sandbox-worker.ts'
import { filterOf } from './functions.ts'

const MB = 1_048_576
const LIMITS = { timeoutMs: 5000, memory: 64 * MB }
const STACK = 128 * 1024

function runnerOf(maxBytes?: number) {
  const runner = new Runner({
    limits: () => LIMITS,
    stack: STACK,
    ...(maxBytes !== undefined && { maxBytes }),
  })
  const run = (fn: UserFunction, doc: string, source: string | null = null) =>
    runner.run({ kind: 'filter', fn, shared: '{}', calls: [doc] }, source)
  /** Makes a function ready. */
  const make = async (fn: UserFunction) => run(fn, '0', fn.source)
  const isReady = async (fn: UserFunction) => (await run(fn, '0')).type === 'done'
  return { run, make, isReady }
}

const plain = () => filterOf('function () { return true }')
const growing = () =>
  filterOf(`(function () { var kept = []; return function (mb) {
  for (var i = 0; i < mb; i++) kept.push(new Uint8Array(1048576).fill(1))
} })()`)

t.test('the 24 used last', async (t) => {
  const { make, isReady } = runnerOf()
  const fns = Array.from({ length: 25 }, plain)
  for (const fn of fns.slice(0, 24)) await make(fn)
  t.ok(await isReady(fns[0]!), 'it is used, and so not the oldest')
  await make(fns[24]!)
  t.notOk(await isReady(fns[1]!))
  for (const n of [0, 2, 23, 24]) t.ok(await isReady(fns[n]!), `${n}`)
})

t.test('fewer when they have grown', async (t) => {
  const { make, run, isReady } = runnerOf(70 * MB)
  const [first, second, grown] = [plain(), plain(), growing()]
  for (const fn of [first, second, grown]) await make(fn)
  for (const fn of [first, second, grown]) t.ok(await isReady(fn))
  t.match(await run(grown, '30'), { type: 'done' })
  t.notOk(await isReady(first), 'by a call, and not only when another is made')
  t.ok(await isReady(second))
  t.ok(await isReady(grown))
})

t.test('one, however large', async (t) => {
  const { make, run, isReady } = runnerOf(20 * MB)
  const fn = growing()
  await make(fn)
  t.match(await run(fn, '30'), { type: 'done' })
  t.ok(await isReady(fn))
  await make(plain())
  t.notOk(await isReady(fn))
})
