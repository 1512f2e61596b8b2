import fc from 'fast-check'
import t from 'tap'
import { type Claim, Claims } from '../../src/threads/claims.ts'
import { FakeClock, settled } from '../changes/helpers.ts'
import { MemoryRecords, SharedRecords } from '../storage/memory/records.ts'

/** Two nodes over one set of records. `skew`: how far the second one's clock is ahead, in ms. */
function setUp(skew = 0) {
  const shared = new SharedRecords()
  const clock = new FakeClock()
  const faults: unknown[] = []
  const node = (ahead: number) => {
    const records = new MemoryRecords(shared)
    const now = () => 1_700_000_000_000 + clock.now() + ahead
    const claims = new Claims({ records, clock, now, onFault: (fault) => void faults.push(fault) })
    return { records, claims }
  }
  return { shared, clock, faults, first: node(0), second: node(skew) }
}

t.test('a claim has one holder at a time, who renews it and may release it', async (t) => {
  const { clock, first, second } = setUp()
  const both = await Promise.all([first.claims.take('work'), second.claims.take('work')])
  t.equal(both.filter((claim) => claim !== null).length, 1, 'of two callers, one gets the claim')
  const [held] = both.filter((claim) => claim !== null)
  t.equal(await first.claims.take('work'), null)
  t.ok(await second.claims.take('other'), 'another claim is independent')
  await clock.pass(10 * 60_000)
  t.equal(held?.ended.aborted, false, 'it is renewed')
  t.equal(await first.claims.take('work'), null)
  t.equal(await second.claims.take('work'), null)
  await Promise.all([held?.release(), held?.release()])
  t.equal(held?.ended.aborted, true)
  t.ok(await second.claims.take('work'))
})

t.test('the claim of a node that died ends, and not before its holder has stopped', async (t) => {
  const { clock, faults, first, second } = setUp(9_000)
  const held = await first.claims.take('work')
  let isCut = true
  first.records.writeRecords = async () => {
    throw new Error('the store cannot be reached')
  }
  let stoppedAt = 0
  held?.ended.addEventListener('abort', () => {
    stoppedAt = clock.now()
    isCut = false
  })
  let taken = null
  while (taken === null && clock.now() < 120_000) {
    await clock.pass(500)
    taken = await second.claims.take('work')
  }
  t.notOk(isCut, 'the first one noticed by itself')
  t.ok(stoppedAt <= 25_000, `it stopped after ${stoppedAt} ms`)
  t.ok(clock.now() >= stoppedAt, `the second took it after ${clock.now()} ms`)
  t.ok(clock.now() <= 36_000)
  t.ok(faults.length > 0)
})

t.test('a renewal whose answer was lost, and a short outage, do not end a claim', async (t) => {
  const { clock, first, second } = setUp()
  const held = await first.claims.take('work')
  const write = first.records.writeRecords.bind(first.records)
  first.records.writeRecords = async (writes) => {
    await write(writes)
    throw new Error('the answer was lost')
  }
  await clock.pass(15_000)
  first.records.writeRecords = write
  await clock.pass(60_000)
  t.equal(held?.ended.aborted, false)
  t.equal(await second.claims.take('work'), null)
})

t.test('a duty passes to another node when its holder stops or dies', async (t) => {
  const { clock, first, second } = setUp()
  const duties = [first.claims.duty('upkeep'), second.claims.duty('upkeep')]
  t.equal(first.claims.duty('upkeep'), duties[0])
  const heldBy = () => duties.map(({ isHeld }) => isHeld)
  let changes = 0
  const stop = duties[1]?.onChange(() => (changes += 1))
  await settled()
  t.strictSame(heldBy(), [true, false])
  await clock.pass(60_000)
  t.strictSame(heldBy(), [true, false])
  await first.claims.close()
  await settled()
  t.strictSame(heldBy(), [false, true], 'the claim is free at once when its holder stops')
  t.equal(changes, 1)
  stop?.()
  second.records.writeRecords = async () => {
    throw new Error('the store cannot be reached')
  }
  await clock.pass(26_000)
  t.strictSame(heldBy(), [false, false])
  t.equal(changes, 1)
  await second.claims.close()
})

t.test('records of claims that ended long ago are removed', async (t) => {
  const { clock, first, second } = setUp()
  await first.claims.take('rewind 1')
  first.records.readRecords = async () => {
    throw new Error('the store cannot be reached')
  }
  await clock.pass(2 * 3_600_000)
  t.equal(second.records.all('claim').length, 1)
  t.ok(await second.claims.take('rewind 2'))
  await settled()
  t.same(
    second.records.all('claim').map(({ key }) => key),
    ['rewind 2'],
  )
  await second.claims.close()
})

t.test('a node alone holds everything without a record', async (t) => {
  const claims = new Claims({ records: null, onFault: (fault) => t.fail(String(fault)) })
  t.equal(claims.duty('upkeep').isHeld, true)
  const held = await claims.take('work')
  t.ok(held)
  t.equal(await claims.take('work'), null)
  await held?.release()
  t.ok(await claims.take('work'))
  await claims.close()
})

t.test('two nodes never hold a claim at once, whatever fails', async (t) => {
  const step = fc.record({
    ms: fc.integer({ min: 500, max: 4000 }),
    node: fc.nat(2),
    act: fc.constantFrom(...Array.from({ length: 8 }, () => 'take'), 'release', 'cut', 'lose', 'mend'),
  })
  const skews = fc.array(fc.integer({ min: 0, max: 9_900 }), { minLength: 3, maxLength: 3 })
  let held = 0
  await fc.assert(
    fc.asyncProperty(skews, fc.array(step, { minLength: 40, maxLength: 60 }), async (ahead, steps) => {
      const shared = new SharedRecords()
      const clock = new FakeClock()
      const nodes = ahead.map((skew) => {
        const records = new MemoryRecords(shared)
        const write = records.writeRecords.bind(records)
        const now = () => 1_700_000_000_000 + clock.now() + skew
        const claims = new Claims({ records, clock, now, onFault: () => {} })
        const node = { claims, fault: 'mend', claim: null as Claim | null }
        records.writeRecords = async (writes) => {
          if (node.fault === 'cut') throw new Error('the store cannot be reached')
          const isWritten = await write(writes)
          if (node.fault === 'lose') throw new Error('the answer was lost')
          return isWritten
        }
        return node
      })
      const holders = () => nodes.filter(({ claim }) => claim !== null && !claim.ended.aborted).length
      for (const { ms, node: at, act } of steps) {
        const node = nodes[at]!
        if (act === 'take') node.claim = (await node.claims.take('work').catch(() => null)) ?? node.claim
        else if (act === 'release') await node.claim?.release()
        else node.fault = act
        if (holders() > 1) return false
        held += holders()
        await clock.pass(ms)
      }
      await Promise.all(nodes.map(({ claims }) => claims.close()))
      return holders() === 0
    }),
    { numRuns: 60 },
  )
  t.ok(held > 300, `somebody holds it often: ${held}`)
})
