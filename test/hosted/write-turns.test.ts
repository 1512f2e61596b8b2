/** Writes to several databases of one account: side by side while they cannot pass a limit together, else in turn. */
import t from 'tap'
import type { Quota } from '../../src/hosted/usage.ts'
import { maxSizeOf, WriteTurns } from '../../src/hosted/write-turns.ts'

const NOTHING = { bytes: 0, documents: 0 }

/** An account with the databases `a` and `b`, each of which has so many documents as were written and looked at. */
function start(limit: number) {
  const counts = new Map([
    ['a', 0],
    ['b', 0],
  ])
  let sum = 0
  const unseen = new Map<string, number>()
  const log: string[] = []
  const turns = new WriteTurns({
    owners: { databasesOf: () => new Set(counts.keys()) },
    usage: {
      sumOf: () => ({ bytes: 0, documents: sum }),
      unmeasured: (name) => (unseen.has(name) ? { bytes: 0, documents: unseen.get(name)! } : null),
      wrote: (name, { documents }) => unseen.set(name, (unseen.get(name) ?? 0) + documents),
      measureAll: async (names) => {
        log.push(`look at ${names.join()}`)
        for (const name of names) unseen.delete(name)
        sum = counts.get('a')! + counts.get('b')!
      },
    },
  })
  const quota = { bytes: Infinity, documents: limit } as Quota
  const write = (database: string, documents: number) => {
    const { promise, resolve } = Promise.withResolvers<void>()
    const most = { ...NOTHING, documents }
    const done = turns.run('anna', { database, most }, quota, async () => {
      log.push(`${database} begins`)
      await promise
      counts.set(database, counts.get(database)! + documents)
      log.push(`${database} ends`)
    })
    return { done, end: resolve }
  }
  return { write, log }
}

const settled = () => new Promise((resolve) => setImmediate(resolve))

t.test('far from the limit writes go at once', async (t) => {
  const { write, log } = start(100)
  const writes = [write('a', 30), write('b', 30), write('a', 30)]
  await settled()
  t.strictSame(log, ['a begins', 'b begins', 'a begins'])
  for (const { end } of writes) end()
  await Promise.all(writes.map(({ done }) => done))
})

t.test('near the limit one waits for the other database, whose count is then looked at', async (t) => {
  const { write, log } = start(50)
  const writes = [write('a', 40), write('a', 40), write('b', 40), write('a', 1)]
  await settled()
  t.strictSame(log, ['a begins', 'a begins'], 'the last would overtake b')
  for (const { end } of writes) end()
  await Promise.all(writes.map(({ done }) => done))
  t.strictSame(log.slice(2, 7), ['a ends', 'a ends', 'look at a', 'b begins', 'b ends'])
  t.strictSame(log.slice(7), ['look at b', 'a begins', 'a ends'])
})

t.test('what a body may bring at the most', async (t) => {
  t.strictSame(maxSizeOf(9, true), { documents: 3, bytes: 27 + 3 * 1024 })
  t.strictSame(maxSizeOf(9, false), { documents: 1, bytes: 27 + 1024 })
})
