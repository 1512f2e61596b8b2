import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { FairQueue } from '../../src/threads/fair-queue.ts'

/** Holds the thread longer than one turn may last. */
function work(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

/** FairQueue that note what is begun, each piece holding the thread for `ms`. */
function noting(ms = 0) {
  const begun: string[] = []
  const turns = new FairQueue<string>((piece) => {
    begun.push(piece)
    work(ms)
  })
  return { begun, turns }
}

t.test('work of one database starts in order', async (t) => {
  const { begun, turns } = noting()
  for (const piece of ['1', '2', '3']) turns.add('a', piece)
  t.same(begun, [], 'nothing before it is run')
  turns.run()
  t.same(begun, ['1', '2', '3'])
})

t.test('databases take turns, one piece each', async (t) => {
  const { begun, turns } = noting()
  for (const piece of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) turns.add(piece[0] as string, piece)
  turns.run()
  t.same(begun, ['a1', 'b1', 'c1', 'a2', 'c2', 'a3'])
})

t.test(
  'slow work of one database does not keep another waiting, over several turns of the loop',
  async (t) => {
    const { begun, turns } = noting(7)
    for (const piece of ['a1', 'a2', 'a3', 'a4']) turns.add('a', piece)
    turns.run()
    t.same(begun, ['a1'], 'one turn of the loop is bounded')
    turns.add('b', 'b1')
    turns.run()
    while (begun.length < 5) await turn()
    t.ok(begun.indexOf('b1') <= 2, begun.join())
  },
)

t.test('remaining work starts in later turns by itself', async (t) => {
  const { begun, turns } = noting(7)
  for (let n = 0; n < 5; n += 1) turns.add(`d${n}`, `${n}`)
  turns.run()
  while (begun.length < 5) await turn()
  t.same(begun, ['0', '1', '2', '3', '4'])
})

t.test('removed work does not start', async (t) => {
  const { begun, turns } = noting()
  for (const piece of ['a1', 'b1', 'a2']) turns.add(piece[0] as string, piece)
  t.same(turns.take('a'), ['a1', 'a2'])
  t.same(turns.take('a'), [])
  turns.run()
  t.same(begun, ['b1'])
})

t.test('all work can be started at once', async (t) => {
  const { begun, turns } = noting(3)
  for (let n = 0; n < 6; n += 1) turns.add(`d${n % 2}`, `${n}`)
  turns.runAll()
  t.equal(begun.length, 6)
})

t.test('work can add work', async (t) => {
  const begun: string[] = []
  const turns = new FairQueue<string>((piece) => {
    begun.push(piece)
    if (piece === '1') turns.add('a', '2')
  })
  turns.add('a', '1')
  turns.run()
  t.same(begun, ['1', '2'])
})

t.test('a long piece ends the turn of the loop, so that finished answers can go out', async (t) => {
  const begun: string[] = []
  const turns = new FairQueue<string>((piece) => begun.push(piece), {
    isLong: (piece) => piece.startsWith('long'),
    canWait: () => false,
  })
  for (const piece of ['short 1', 'short 2', 'long 1', 'long 2', 'short 3']) turns.add('a', piece)
  turns.run()
  t.same(begun, ['short 1', 'short 2', 'long 1'])
  turns.run()
  t.equal(begun.length, 3, 'what arrives meanwhile waits as well')
  await turn()
  t.same(begun.slice(3), ['long 2'])
  await turn()
  t.same(begun.slice(4), ['short 3'])
})

t.test('work that arrives in the turn of a long piece waits', async (t) => {
  const begun: string[] = []
  const turns = new FairQueue<string>((piece) => begun.push(piece), {
    isLong: () => true,
    canWait: () => false,
  })
  for (const piece of ['1', '2', '3']) {
    turns.add(piece, piece)
    turns.run()
  }
  t.same(begun, ['1'])
  await turn()
  t.same(begun, ['1', '2'])
  await turn()
  t.same(begun, ['1', '2', '3'])
})

t.test('work that arrives bit by bit takes no more of a turn than work that arrives at once', async (t) => {
  const { begun, turns } = noting(2)
  for (let n = 0; n < 10; n += 1) {
    turns.add('a', `${n}`)
    turns.run()
  }
  t.ok(begun.length <= 3, begun.join())
  while (begun.length < 10) await turn()
})

/** FairQueue in which pieces named `page` can wait. */
function patient() {
  const begun: string[] = []
  const turns = new FairQueue<string>((piece) => begun.push(piece), {
    isLong: () => false,
    canWait: (piece) => piece.startsWith('page'),
  })
  return { begun, turns }
}

t.test('work that can wait lets others of its database go first, and keeps its order', async (t) => {
  const { begun, turns } = patient()
  for (const piece of ['page 1', 'page 2', 'save 1', 'page 3', 'save 2']) turns.add('a', piece)
  turns.run()
  t.same(begun, ['save 1', 'save 2', 'page 1', 'page 2', 'page 3'])
})

t.test('work that can wait is served after a bounded number of others', async (t) => {
  const { begun, turns } = patient()
  turns.add('a', 'page 1')
  for (let n = 0; n < 20; n++) turns.add('a', `save ${n}`)
  turns.add('a', 'page 2')
  turns.run()
  t.equal(begun.indexOf('page 1'), 8)
  t.equal(begun.indexOf('page 2'), 17)
  t.equal(begun.length, 22)
})

t.test('removing the work of a database removes both kinds', async (t) => {
  const { turns } = patient()
  for (const piece of ['page 1', 'save 1']) turns.add('a', piece)
  t.equal(turns.size, 2)
  t.same(turns.take('a'), ['save 1', 'page 1'])
  t.equal(turns.size, 0)
})
