import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { FairQueue } from '../../src/threads/fair-queue.ts'

/** Keeps the thread busy for `ms` milliseconds. */
function work(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end; );
}

/** A queue that records the started pieces. Each piece keeps the thread busy for `ms` milliseconds. */
function recordingQueue(ms = 0) {
  const started: string[] = []
  const queue = new FairQueue<string>((piece) => {
    started.push(piece)
    work(ms)
  })
  return { started, queue }
}

t.test('work of one database starts in order', async (t) => {
  const { started, queue } = recordingQueue()
  for (const piece of ['1', '2', '3']) queue.add('a', piece)
  t.same(started, [], 'nothing starts before the queue runs')
  queue.run()
  while (started.length < 3) await turn()
  t.same(started, ['1', '2', '3'])
})

t.test('databases take turns, one piece each', async (t) => {
  const { started, queue } = recordingQueue()
  for (const piece of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) queue.add(piece[0] as string, piece)
  queue.run()
  while (started.length < 6) await turn()
  t.same(started, ['a1', 'b1', 'c1', 'a2', 'c2', 'a3'])
})

t.test('slow work of one database does not delay another over several turns of the loop', async (t) => {
  const { started, queue } = recordingQueue(7)
  for (const piece of ['a1', 'a2', 'a3', 'a4']) queue.add('a', piece)
  queue.run()
  t.same(started, ['a1'], 'one turn of the loop is limited')
  queue.add('b', 'b1')
  queue.run()
  while (started.length < 5) await turn()
  t.ok(started.indexOf('b1') <= 2, started.join())
})

t.test('remaining work starts in later turns by itself', async (t) => {
  const { started, queue } = recordingQueue(7)
  for (let n = 0; n < 5; n += 1) queue.add(`d${n}`, `${n}`)
  queue.run()
  while (started.length < 5) await turn()
  t.same(started, ['0', '1', '2', '3', '4'])
})

t.test('removed work does not start', async (t) => {
  const { started, queue } = recordingQueue()
  for (const piece of ['a1', 'b1', 'a2']) queue.add(piece[0] as string, piece)
  t.same(queue.take('a'), ['a1', 'a2'])
  t.same(queue.take('a'), [])
  queue.run()
  t.same(started, ['b1'])
})

t.test('all work can be started at once', async (t) => {
  const { started, queue } = recordingQueue(3)
  for (let n = 0; n < 6; n += 1) queue.add(`d${n % 2}`, `${n}`)
  queue.runAll()
  t.equal(started.length, 6)
})

t.test('work can add work', async (t) => {
  const started: string[] = []
  const queue = new FairQueue<string>((piece) => {
    started.push(piece)
    if (piece === '1') queue.add('a', '2')
  })
  queue.add('a', '1')
  queue.run()
  while (started.length < 2) await turn()
  t.same(started, ['1', '2'])
})

t.test('a long piece ends the turn of the loop, so finished answers can be sent', async (t) => {
  const started: string[] = []
  const queue = new FairQueue<string>((piece) => started.push(piece), {
    isLong: (piece) => piece.startsWith('long'),
    canWait: () => false,
  })
  for (const piece of ['short 1', 'short 2', 'long 1', 'long 2', 'short 3']) queue.add('a', piece)
  queue.run()
  t.same(started, ['short 1', 'short 2', 'long 1'])
  queue.run()
  t.equal(started.length, 3, 'work that arrives in the meantime waits, too')
  await turn()
  t.same(started.slice(3), ['long 2'])
  await turn()
  t.same(started.slice(4), ['short 3'])
})

t.test('work that arrives in the turn of a long piece waits', async (t) => {
  const started: string[] = []
  const queue = new FairQueue<string>((piece) => started.push(piece), {
    isLong: () => true,
    canWait: () => false,
  })
  for (const piece of ['1', '2', '3']) {
    queue.add(piece, piece)
    queue.run()
  }
  t.same(started, ['1'])
  await turn()
  t.same(started, ['1', '2'])
  await turn()
  t.same(started, ['1', '2', '3'])
})

t.test(
  'work that arrives piece by piece takes no more of a turn than work that arrives together',
  async (t) => {
    const { started, queue } = recordingQueue(2)
    for (let n = 0; n < 10; n += 1) {
      queue.add('a', `${n}`)
      queue.run()
    }
    t.ok(started.length <= 3, started.join())
    while (started.length < 10) await turn()
  },
)

/** A queue in which pieces named `page` can wait. */
function waitingQueue() {
  const started: string[] = []
  const queue = new FairQueue<string>((piece) => started.push(piece), {
    isLong: () => false,
    canWait: (piece) => piece.startsWith('page'),
  })
  return { started, queue }
}

t.test('work that can wait starts after other work of its database, in order', async (t) => {
  const { started, queue } = waitingQueue()
  for (const piece of ['page 1', 'page 2', 'save 1', 'page 3', 'save 2']) queue.add('a', piece)
  queue.run()
  while (started.length < 5) await turn()
  t.same(started, ['save 1', 'save 2', 'page 1', 'page 2', 'page 3'])
})

t.test('work that can wait starts after a limited number of other pieces', async (t) => {
  const { started, queue } = waitingQueue()
  queue.add('a', 'page 1')
  for (let n = 0; n < 20; n++) queue.add('a', `save ${n}`)
  queue.add('a', 'page 2')
  queue.run()
  while (started.length < 22) await turn()
  t.equal(started.indexOf('page 1'), 8)
  t.equal(started.indexOf('page 2'), 17)
  t.equal(started.length, 22)
})

t.test('removing the work of a database removes both kinds', async (t) => {
  const { queue } = waitingQueue()
  for (const piece of ['page 1', 'save 1']) queue.add('a', piece)
  t.equal(queue.size, 2)
  t.same(queue.take('a'), ['save 1', 'page 1'])
  t.equal(queue.size, 0)
})
