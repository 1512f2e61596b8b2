import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { GroupQueue, type QueuedWrite } from '../../../src/storage/postgres/group-queue.ts'

/** A queue whose groups end when a test says so. */
function heldQueue() {
  const groups: { readonly ids: readonly string[]; readonly end: () => void }[] = []
  const queue = new GroupQueue<QueuedWrite>({
    commit: (group) =>
      new Promise((resolve) => groups.push({ ids: group.map(({ id }) => id), end: resolve })),
  })
  /** @param calls the ids of each call's writes */
  const add = async (...calls: (readonly string[])[]) => {
    for (const ids of calls) queue.add(ids.map((id) => ({ id, bytes: 1, failed: () => undefined })))
    await nextTurn()
    await nextTurn()
  }
  const end = async (at: number) => {
    groups[at]?.end()
    await nextTurn()
  }
  const sizes = () => groups.map(({ ids }) => ids.length)
  return { queue, groups, add, end, sizes }
}

const named = (name: string, count: number) => Array.from({ length: count }, (_, n) => `${name}${n}`)

t.test('while a group is under way others gather, and a large one is sent besides', async (t) => {
  const { queue, add, end, sizes } = heldQueue()
  await add(['a'])
  await add(...named('few', 63).map((id) => [id]))
  t.same(sizes(), [1])
  await add(['one more'])
  t.same(sizes(), [1, 64])
  await add(...named('many', 300).map((id) => [id]))
  t.same(sizes(), [1, 64], 'no more than two at once')
  await end(1)
  t.same(sizes(), [1, 64, 256])
  await end(0)
  t.same(sizes(), [1, 64, 256], 'the rest is not large')
  await end(2)
  t.same(sizes(), [1, 64, 256, 44])
  await end(3)
  await queue.drained()
})

t.test('a second write of a document waits for the first, and with it its call', async (t) => {
  const { queue, groups, add, end } = heldQueue()
  await add(named('x', 100))
  await add(named('y', 70), ['z', 'x5', ...named('z', 70)])
  t.same(groups[1]?.ids, named('y', 70))
  await end(1)
  t.equal(groups[2]?.ids.length, 1)
  await end(0)
  await end(2)
  t.same(groups[3]?.ids, ['x5', ...named('z', 70)])
  await end(3)
  await queue.drained()
})

t.test('no two groups have writes of the same call, and a group ends with a call where it can', async (t) => {
  const { queue, groups, add, end, sizes } = heldQueue()
  await add(named('a', 600), named('b', 100), named('c', 100), named('d', 100))
  t.same(sizes(), [256])
  await end(0)
  t.same(sizes(), [256, 256])
  await end(1)
  t.same(sizes(), [256, 256, 188, 200], 'the rest of the first call and the second')
  t.same(groups[3]?.ids, [...named('c', 100), ...named('d', 100)])
  await end(2)
  await end(3)
  await queue.drained()
})
