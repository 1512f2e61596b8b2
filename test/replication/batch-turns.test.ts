/** Batches take turns by remote and by job, and a slow remote leaves places to others. */
import t from 'tap'
import { BatchTurns } from '../../src/replication/jobs/batch-turns.ts'

interface Step {
  readonly name: string
  end(): Promise<void>
}

/** Runs batches that last until the test ends them. @returns those that run, in the order of their starts */
function stage(places: number) {
  const turns = new BatchTurns(places)
  const running: Step[] = []
  const add = (remote: string, job: string, count: number) => {
    for (let n = 0; n < count; n++) {
      const { promise, resolve } = Promise.withResolvers<void>()
      const done = turns.run(remote, job, () => {
        const end = async () => {
          resolve()
          await done
        }
        running.push({ name: `${remote}${job}`, end })
        return promise
      })
    }
  }
  const counts = () => {
    const names = running.map(({ name }) => name)
    return Object.fromEntries(names.map((name) => [name, names.filter((each) => each === name).length]))
  }
  return { add, running, counts, turn: () => new Promise(setImmediate) }
}

t.test('a remote alone has half of the places, and another finds some free', async (t) => {
  const { add, counts, turn } = stage(16)
  add('slow', '1', 20)
  await turn()
  t.strictSame(counts(), { slow1: 8 })
  add('other', '1', 20)
  await turn()
  t.strictSame(counts(), { slow1: 8, other1: 4 })
  add('third', '1', 20)
  await turn()
  t.strictSame(counts(), { slow1: 8, other1: 4, third1: 2 })
})

t.test('jobs of one remote take turns', async (t) => {
  const { add, running, turn } = stage(2)
  add('a', '1', 3)
  add('a', '2', 2)
  const order: string[] = []
  for (let n = 0; n < 5; n++) {
    await turn()
    t.equal(running.length, 1)
    const [step] = running.splice(0)
    order.push(step?.name ?? '')
    await step?.end()
  }
  t.strictSame(order, ['a1', 'a1', 'a2', 'a1', 'a2'])
})

t.test('the failure of a batch is its caller’s, and frees its place', async (t) => {
  const turns = new BatchTurns(2)
  const failing = turns.run('a', '1', () => Promise.reject(new Error('broken')))
  const next = turns.run('a', '1', () => Promise.resolve(7))
  await t.rejects(failing, /broken/)
  t.equal(await next, 7)
})
