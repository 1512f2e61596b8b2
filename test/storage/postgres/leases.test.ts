import { mock } from 'node:test'
import t from 'tap'
import { LEASE_RENEWAL_MS } from '../../../src/storage/blob-leases.ts'
import { SWEEP_MS, Uploads } from '../../../src/storage/postgres/blob-uploads.ts'
import type { Query } from '../../../src/storage/postgres/connections.ts'
import { Leases } from '../../../src/storage/postgres/leases.ts'
import type { OpenDatabase } from '../../../src/storage/postgres/open-database.ts'

/** Leases whose statements are noted instead of sent. */
function leasesAt(now: () => number) {
  const sent: Query[] = []
  const state = { isDown: false }
  const write = async (query: Query) => {
    sent.push(query)
    if (state.isDown) throw new Error('the store cannot be reached')
    return [[[7]]]
  }
  const database = { connections: { write }, db: 3, now } as unknown as OpenDatabase
  return { leases: new Leases(database), sent, state }
}

t.beforeEach(() => mock.timers.enable({ apis: ['setInterval'] }))
t.afterEach(() => mock.timers.reset())

t.test('leases are renewed while they are held, also after the store could not be reached', async (t) => {
  let now = 1000
  const { leases, sent, state } = leasesAt(() => now)
  const [first, second] = [leases.begin(), leases.begin()]
  now = 21_000
  mock.timers.tick(LEASE_RENEWAL_MS)
  t.match(sent, [{ name: 'renew_leases', values: [3, [first, second], 21_000], isBackground: true }])
  state.isDown = true
  mock.timers.tick(LEASE_RENEWAL_MS)
  state.isDown = false
  t.same(await leases.end(first), [7], 'the blobs that no revision has named')
  mock.timers.tick(LEASE_RENEWAL_MS)
  t.match(sent.at(-1)?.values, [3, [second], 21_000])
  await leases.end(second)
  const statements = sent.length
  mock.timers.tick(10 * LEASE_RENEWAL_MS)
  t.equal(sent.length, statements, 'nothing is renewed when nothing is held')
})

t.test('a lease that could not be ended is not renewed, and a closed store holds none', async (t) => {
  const { leases, sent, state } = leasesAt(() => 1000)
  const lost = leases.begin()
  const held = leases.begin()
  state.isDown = true
  t.same(await leases.end(lost), [])
  state.isDown = false
  mock.timers.tick(LEASE_RENEWAL_MS)
  t.match(sent.at(-1)?.values, [3, [held], 1000])
  await leases.close()
  const statements = sent.length
  mock.timers.tick(LEASE_RENEWAL_MS)
  t.equal(sent.length, statements)
  t.throws(() => leases.begin(), { code: 'unavailable' })
})

t.test(
  'what ended uploads have left is looked for at the opening and from time to time, until the closing',
  async (t) => {
    let looks = 0
    const read = async () => {
      looks += 1
      if (looks === 2) throw new Error('the store cannot be reached')
      return []
    }
    const uploads = new Uploads({ connections: { read }, db: 3, now: Date.now } as unknown as OpenDatabase)
    uploads.startSweeping()
    t.equal(looks, 1)
    for (const expected of [2, 3]) {
      await new Promise(setImmediate)
      mock.timers.tick(SWEEP_MS)
      t.equal(looks, expected)
    }
    await uploads.close()
    mock.timers.tick(SWEEP_MS)
    t.equal(looks, 3)
  },
)
