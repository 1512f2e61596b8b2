import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { OpenStores } from '../../src/threads/open-stores.ts'

function deferred<T = void>() {
  let resolve: (value: T) => void = () => undefined
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

interface FakeStore {
  readonly name: string
  readonly incarnation: number
  isOpen: boolean
  close(): Promise<void>
}

/** Stores that record their events. Closing waits for `gate`, if there is one. */
function fakes(max: number, faults: { open?: () => void; close?: () => void } = {}) {
  const events: string[] = []
  const gates: { close?: Promise<void> } = {}
  const stores = new OpenStores<FakeStore>(max, async (name, incarnation) => {
    faults.open?.()
    events.push(`open ${name}${incarnation}`)
    const store = {
      name,
      incarnation,
      isOpen: true,
      close: async () => {
        store.isOpen = false
        events.push(`closing ${name}`)
        await gates.close
        faults.close?.()
        events.push(`closed ${name}`)
      },
    }
    return store
  })
  const touch = (name: string, incarnation = 1) => stores.use(name, incarnation, async (store) => store)
  return { stores, events, gates, touch }
}

t.test('a database is opened once for many concurrent uses', async (t) => {
  const { events, touch } = fakes(2)
  const [a, b] = await Promise.all([touch('a'), touch('a')])
  t.equal(a, b)
  t.equal(await touch('a'), a)
  t.same(events, ['open a1'])
})

t.test('the least recently used database is closed when too many are open', async (t) => {
  const { events, touch } = fakes(2)
  for (const name of ['a', 'b', 'a', 'c']) await touch(name)
  await turn()
  t.same(events, ['open a1', 'open b1', 'open c1', 'closing b', 'closed b'])
})

t.test('a database in use is not closed until its use ends', async (t) => {
  const { stores, events, touch } = fakes(1)
  const gate = deferred()
  const using = stores.use('a', 1, async (store) => {
    await gate.promise
    return store.isOpen
  })
  for (const name of ['b', 'c']) await touch(name)
  await turn()
  t.notOk(events.includes('closing a'))
  gate.resolve()
  t.equal(await using, true)
  await touch('d')
  await turn()
  t.ok(events.includes('closed a'))
})

t.test('a database is reopened only after it is closed', async (t) => {
  const { events, gates, touch } = fakes(1)
  const gate = deferred()
  gates.close = gate.promise
  await touch('a')
  await touch('b')
  const again = touch('a')
  await turn()
  t.same(events, ['open a1', 'open b1', 'closing a'])
  gate.resolve()
  await again
  t.same(events.slice(3, 5), ['closed a', 'open a1'])
})

t.test('a failed close does not prevent reopening', async (t) => {
  const { touch } = fakes(1, {
    close: () => {
      throw new Error('the disk')
    },
  })
  for (const name of ['a', 'b', 'a']) t.match(await touch(name), { name, isOpen: true })
})

t.test(
  'a later incarnation takes the place of an open database, and an earlier one is not found',
  async (t) => {
    const { events, touch } = fakes(2)
    await touch('a', 2)
    await t.rejects(touch('a', 1), { code: 'no_database' })
    t.match(await touch('a', 2), { incarnation: 2 })
    t.match(await touch('a', 3), { incarnation: 3 })
    t.same(events, ['open a2', 'closing a', 'closed a', 'open a3'])
  },
)

t.test('a failed open fails all waiting calls, and the next call tries again', async (t) => {
  let isBroken = true
  const { touch, events } = fakes(2, {
    open: () => {
      if (isBroken) throw new Error('damaged')
    },
  })
  const results = await Promise.allSettled([touch('a'), touch('a')])
  t.match(results, [{ reason: { message: 'damaged' } }, { reason: { message: 'damaged' } }])
  isBroken = false
  await touch('a')
  t.same(events, ['open a1'])
})

t.test('a dropped database is closed at once, and its requests fail with no_database', async (t) => {
  const { stores, events, touch } = fakes(2)
  const gate = deferred()
  const using = stores.use('a', 1, async (store) => {
    await gate.promise
    if (!store.isOpen) throw new Error('it is closed')
    return 'done'
  })
  await turn()
  await stores.drop('a')
  t.same(events, ['open a1', 'closing a', 'closed a'])
  gate.resolve()
  await t.rejects(using, { code: 'no_database' })
  t.match(await touch('a', 2), { incarnation: 2 })
})

t.test('waiting until a database is unused, within a time limit', async (t) => {
  const { stores, events } = fakes(2)
  const gate = deferred()
  const using = stores.use('a', 1, () => gate.promise)
  await turn()
  await stores.waitForRequests('a', 20)
  const settled = stores.waitForRequests('a', 100_000).then(() => events.push('settled'))
  gate.resolve()
  await Promise.all([using, settled])
  t.same(events, ['open a1', 'settled'])
  await stores.waitForRequests('a', 100_000)
  await stores.waitForRequests('never opened', 100_000)
})

t.test('work that ended before the drop keeps its result', async (t) => {
  const { stores } = fakes(2)
  const gate = deferred()
  const using = stores.use('a', 1, async () => {
    await gate.promise
    return 'written'
  })
  await turn()
  const dropped = stores.drop('a')
  gate.resolve()
  await dropped
  t.equal(await using, 'written')
})

t.test('a drop waits for a close or open under way', async (t) => {
  const { stores, gates, touch, events } = fakes(1)
  const gate = deferred()
  gates.close = gate.promise
  await touch('a')
  await touch('b')
  let isDropped = false
  const dropping = stores.drop('a').then(() => {
    isDropped = true
  })
  await turn()
  t.equal(isDropped, false)
  gate.resolve()
  await dropping
  const opening = touch('c')
  await stores.drop('c')
  t.ok(events.includes('closed c'))
  t.match(await opening, { name: 'c' })
  await stores.drop('never opened')
})

t.test('a database that cannot be opened can be dropped', async (t) => {
  const { stores, touch } = fakes(1, {
    open: () => {
      throw new Error('damaged')
    },
  })
  const opening = touch('a')
  await t.resolves(stores.drop('a'))
  await t.rejects(opening)
})

t.test('closing everything waits for work under way, and refuses new work', async (t) => {
  const { stores, events, touch } = fakes(5)
  const gate = deferred()
  const using = stores.use('a', 1, async (store) => {
    await gate.promise
    return store.isOpen
  })
  await touch('b')
  const closing = stores.closeAll()
  await turn()
  t.same(events.slice(2), ['closing b', 'closed b'])
  await t.rejects(touch('c'), { code: 'unavailable' })
  await t.rejects(touch('b'), { code: 'unavailable' })
  gate.resolve()
  t.equal(await using, true, 'it was open until the end')
  await closing
  t.ok(events.includes('closed a'))
})

t.test('a background task keeps a database open when too many are open', async (t) => {
  const { stores, events, touch } = fakes(1)
  const gate = deferred()
  const working = stores.keepOpen('a', 1, async (store) => {
    await gate.promise
    return store.isOpen
  })
  for (const name of ['b', 'c']) await touch(name)
  await turn()
  t.notOk(events.includes('closing a'))
  gate.resolve()
  t.equal(await working, true)
  await touch('d')
  await turn()
  t.ok(events.includes('closed a'))
})

t.test('a background task does not prevent a drop or the final close', async (t) => {
  for (const end of ['drop', 'closeAll'] as const) {
    const { stores, events } = fakes(2)
    const gate = deferred()
    const working = stores.keepOpen('a', 1, async (store) => {
      await gate.promise
      if (!store.isOpen) throw new Error('it is closed')
    })
    const outcome = working.catch((error: unknown) => error)
    await turn()
    await (end === 'drop' ? stores.drop('a') : stores.closeAll())
    t.same(events, ['open a1', 'closing a', 'closed a'])
    gate.resolve()
    t.match(await outcome, end === 'drop' ? { code: 'no_database' } : { message: 'it is closed' })
  }
})
