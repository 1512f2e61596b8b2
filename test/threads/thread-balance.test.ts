/** Users' databases share a thread until it is busy; then some of them move. */
import t from 'tap'
import { LoadMeter, planMove, Settled, type ThreadLoad } from '../../src/threads/thread-balance.ts'
import { ADMIN } from '../documents/helpers.ts'
import { eventsOf, idsOf, put, serve, until } from './served.ts'

function load(busy: number, calls: Record<string, number> = {}): ThreadLoad {
  return { busy, calls: new Map(Object.entries(calls)) }
}

const ANY = () => true

t.test('databases with up to half of a busy thread’s calls move', async (t) => {
  const busy = load(0.9, { a: 50, b: 30, c: 15, d: 5 })
  t.same(planMove([busy], 4, ANY), { from: 0, to: 1, databases: ['b', 'c', 'd'] })
  t.same(
    planMove([busy, load(0.2)], 4, ANY),
    { from: 0, to: 1, databases: ['b', 'c', 'd'] },
    'to an idle thread',
  )
  t.same(planMove([load(0.7), busy, load(0.65)], 4, ANY)?.to, 3, 'to a new thread if all are busy')
  t.same(planMove([load(1, { a: 40, b: 35, c: 30 })], 4, ANY)?.databases, ['b'])
})

t.test('no database moves without need or use', async (t) => {
  t.equal(planMove([], 4, ANY), null)
  t.equal(planMove([load(0.5, { a: 1, b: 1 })], 4, ANY), null, 'the thread is not busy')
  t.equal(planMove([load(1, { a: 9 })], 4, ANY), null, 'one database keeps it busy')
  t.equal(planMove([load(1, { a: 1, b: 1 })], 1, ANY), null, 'there may be no other thread')
  t.equal(planMove([load(0.8, { a: 1, b: 1 }), load(0.7)], 2, ANY), null, 'the other one is busy, too')
})

t.test('a database that may not move stays, and others move instead', async (t) => {
  const busy = [load(1, { a: 50, b: 30 })]
  t.same(planMove(busy, 4, (name) => name !== 'b')?.databases, ['a'])
  t.equal(
    planMove(busy, 4, () => false),
    null,
  )
})

t.test('a thread with 1,000 databases takes no more', async (t) => {
  const meter = new LoadMeter(() => 0)
  t.ok(meter.mayTakeMore(999))
  t.notOk(meter.mayTakeMore(1000))
})

t.test('a load is the average of some seconds', async (t) => {
  let now = 0
  let seconds = 0
  const meter = new LoadMeter(() => now)
  const second = (busy: number) => {
    now += 1000
    seconds += busy
    return meter.sample(seconds)
  }
  meter.note('a')
  meter.note('a')
  t.ok(second(1))
  t.same([...meter.calls], [['a', 2]])
  for (let n = 0; n < 2; n += 1) t.notOk(second(1), 'no calls')
  t.ok(meter.mayTakeMore(2), 'a short burst is no load')
  second(1)
  t.notOk(meter.mayTakeMore(2))
  seconds = 0
  second(0.1)
  t.ok(meter.mayTakeMore(2), 'the thread was replaced')
})

t.test('a database stays for ten minutes after a move', async (t) => {
  let now = 0
  const settled = new Settled(() => now)
  settled.add('a')
  now = 599_000
  settled.add('b')
  t.ok(settled.has('a'))
  now = 600_000
  t.notOk(settled.has('a'))
  t.ok(settled.has('b'))
})

/** Saves documents without a pause until it is told to stop. @returns the ids of those that were saved */
function hammer(save: (id: string) => Promise<unknown>, isOver: () => boolean): Promise<string[]> {
  const saved: string[] = []
  let count = 0
  const writer = async () => {
    while (!isOver()) {
      const id = `x${String(count++).padStart(6, '0')}`
      await save(id)
      saved.push(id)
    }
  }
  return Promise.all(Array.from({ length: 8 }, writer)).then(() => saved.sort())
}

t.test(
  'under load, a database moves to another thread: no call fails, and no save or event is lost',
  async (t) => {
    const { databases, faults } = await serve(t, { balanceMs: 50, maxThreads: 2 })
    const names = ['a', 'b']
    for (const name of names) await databases.create(name)
    const handles = await Promise.all(names.map((name) => databases.get(name)))
    const events = handles.map(eventsOf)
    const counts = async () => (await databases.stats()).threads.map((thread) => thread.databases)
    for (const handle of handles) await put(handle, 'first')
    t.same(await counts(), [0, 2], 'beside the thread of the system databases')
    let isOver = false
    const saving = handles.map((handle) =>
      hammer(
        (id) => put(handle, id),
        () => isOver,
      ),
    )
    await until(async () => (await counts()).join() === '0,1,1')
    // Each goes on after the move.
    const sizes = await Promise.all(handles.map(async (handle) => (await handle.info(ADMIN)).doc_count))
    await until(async () => {
      const now = await Promise.all(handles.map(async (handle) => (await handle.info(ADMIN)).doc_count))
      return now.every((count, at) => count > (sizes[at] as number) + 20)
    })
    isOver = true
    for (const [at, handle] of handles.entries()) {
      const saved = ['first', ...((await saving[at]) as string[])]
      t.same(await idsOf(handle), saved)
      t.notMatch(events[at], [{ type: 'closed' }], 'feeds go on')
      const last = events[at]?.findLast((event) => event.type === 'committed')
      t.match(last, { updateSeq: saved.length })
    }
    t.same(faults, [])
  },
)

t.test('a database that is being read stays where it is', async (t) => {
  const { databases } = await serve(t, { balanceMs: 50, maxThreads: 2 })
  for (const name of ['a', 'b']) await databases.create(name)
  const [a, b] = [await databases.get('a'), await databases.get('b')]
  for (const handle of [a, b]) {
    for (let n = 0; n < 30; n += 1) await put(handle, `x${n}`, { text: 'a'.repeat(100_000) })
  }
  const readers = [a, b].map((handle) =>
    handle.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator](),
  )
  for (const reader of readers) await reader.next()
  let isOver = false
  const saving = [a, b].map((handle) =>
    hammer(
      (id) => put(handle, id),
      () => isOver,
    ),
  )
  await until(async () => (await databases.stats()).threads.length === 3)
  isOver = true
  await Promise.all(saving)
  const rest = async (reader: AsyncIterator<Uint8Array>) => {
    let bytes = ''
    for (let next = await reader.next(); !next.done; next = await reader.next())
      bytes += Buffer.from(next.value).toString()
    return bytes
  }
  for (const reader of readers) t.match(await rest(reader), /\]\}\s*$/, 'whole')
})
