/** A bounded cache of records that several openers share. */
import t from 'tap'
import { RecordCache } from '../../src/storage/record-cache.ts'
import type { RecordWrite } from '../../src/storage/records.ts'
import { MemoryRecords, sharedRecords } from './memory/records.ts'

const write = (key: string, value: string | null): RecordWrite[] => [{ kind: 'k', key, value }]
const cacheOver = (records: MemoryRecords, max = 10) =>
  new RecordCache({ records, kind: 'k', max, parse: (text) => ({ text }) })

t.test('a value is read once, until its record changes here or elsewhere', async (t) => {
  const [here, there] = sharedRecords(2) as [MemoryRecords, MemoryRecords]
  const cache = cacheOver(here)
  t.equal(cache.known('a'), undefined)
  t.same(await cache.get('a'), { text: null })
  const known = cache.known('a')
  t.same(known, { text: null })
  t.equal(cache.get('a'), known, 'no promise for what is known')
  await here.writeRecords([{ kind: 'other', key: 'a', value: '0' }])
  t.equal(cache.known('a'), known)
  await here.writeRecords(write('a', '1'))
  t.equal(cache.known('a'), undefined)
  t.same(await cache.get('a'), { text: '1' })
  await there.writeRecords(write('a', '2'))
  await new Promise((resolve) => setImmediate(resolve))
  t.same(await cache.get('a'), { text: '2' })
  here.tell({ type: 'any' })
  t.equal(cache.known('a'), undefined)
  await cache.get('a')
  cache.close()
  await here.writeRecords(write('a', '3'))
  t.same(cache.known('a'), { text: '2' }, 'closed')
})

t.test('a read that a change overtakes is not remembered', async (t) => {
  const records = new MemoryRecords()
  let reads = 0
  const held = Promise.withResolvers<void>()
  const slow = Object.assign(Object.create(records) as MemoryRecords, {
    readRecords: async (kind: string, keys: readonly string[]) => {
      const values = await records.readRecords(kind, keys)
      if (reads++ === 0) await held.promise
      return values
    },
    watchCatalog: records.watchCatalog.bind(records),
  })
  const cache = cacheOver(slow)
  const early = cache.get('a')
  t.equal(cache.get('a'), early, 'calls for one key share a read')
  await records.writeRecords(write('a', '1'))
  t.same(await cache.get('a'), { text: '1' }, 'read again')
  held.resolve()
  t.same(await early, { text: null })
  t.same(cache.known('a'), { text: '1' })
})

t.test('the least recently used are forgotten, and a failed read is tried again', async (t) => {
  const records = new MemoryRecords()
  const cache = cacheOver(records, 2)
  for (const key of ['a', 'b', 'c']) await cache.get(key)
  t.strictSame(
    ['a', 'b', 'c'].map((key) => cache.known(key) !== undefined),
    [false, true, true],
  )
  let isBroken = true
  const failing = new RecordCache({
    records,
    kind: 'k',
    max: 2,
    parse: () => {
      if (isBroken) throw new Error('damaged')
      return {}
    },
  })
  await t.rejects(async () => failing.get('a'), { message: 'damaged' })
  isBroken = false
  t.same(await failing.get('a'), {})
})
