import { pino } from 'pino'
import t from 'tap'
import { Growth } from '../../src/metrics/growth.ts'
import type { CatalogUpdate } from '../../src/storage/catalog.ts'
import type { Epochs } from '../../src/storage/sequence.ts'
import { claimsOfOne } from '../../src/threads/claims.ts'
import type { DatabaseHandle } from '../../src/threads/databases.ts'
import { MemoryRecords } from '../storage/memory/records.ts'

const DAY = 24 * 60 * 60 * 1000
const EPOCHS: Epochs = [{ id: 'e', firstSeq: 0 }]

/** Databases that count how often each is asked for its size. */
function stage() {
  const records = new MemoryRecords()
  const updates: CatalogUpdate[] = []
  const counts = new Map<string, number>()
  const asked: string[] = []
  let lastSeq = 0
  const note = (name: string, type: CatalogUpdate['type']) => {
    const at = updates.findIndex((each) => each.name === name && each.type === type)
    if (at !== -1) updates.splice(at, 1)
    updates.push({ seq: ++lastSeq, name, type })
  }
  const databases = Object.assign(records, {
    get: async (name: string) =>
      ({
        name,
        incarnation: 1,
        info: async () => {
          asked.push(name)
          const doc_count = counts.get(name) ?? 0
          return {
            doc_count,
            doc_del_count: 0,
            sizes: { file: 4096 + doc_count, active: doc_count, external: 0 },
          }
        },
      }) as unknown as DatabaseHandle,
    updates: async ({ since }: { since: number }, limit: number) => ({
      rows: updates.filter(({ seq }) => seq > since).slice(0, limit),
      lastSeq,
      epochs: EPOCHS,
    }),
    watchUpdates: () => () => undefined,
  })
  const write = (name: string, documents: number) => {
    counts.set(name, documents)
    note(name, 'updated')
  }
  const duty = claimsOfOne().duty('upkeep')
  return { databases, duty, records, asked, note, write, logger: pino({ level: 'silent' }) }
}

t.test('growth is recorded by day, and kept over a restart', async (t) => {
  const { databases, duty, logger, note, write, asked, records } = stage()
  let now = Date.parse('2025-03-01T12:00:00Z')
  const open = () => Growth.open({ databases, duty, logger, now: () => now })
  write('before', 9)
  const growth = await open()
  write('notes', 1)
  await growth.measure()
  write('notes', 2)
  await growth.measure()
  const notes = { name: 'notes', incarnation: 1 }
  const first = { date: '2025-03-01', doc_count: 2, doc_del_count: 0, file: 4098, active: 2 }
  t.strictSame(await growth.of(notes), [first], 'the last size of the day counts')
  t.same(await growth.of({ name: 'before', incarnation: 1 }), [])
  now += DAY
  await growth.measure()
  t.strictSame(asked, ['notes', 'notes'], 'only what was written to is opened')
  write('notes', 5)
  await growth.measure()
  const second = { date: '2025-03-02', doc_count: 5, doc_del_count: 0, file: 4101, active: 5 }
  t.strictSame(await growth.of(notes), [first, second])
  await growth.close()

  await records.writeRecords([
    { kind: 'growth', key: 'bad', value: '{"incarnation":1,"days":[[1]]}' },
    { kind: 'growth', key: 'worse', value: '{' },
  ])
  const again = await open()
  t.strictSame(await again.of(notes), [first, second])
  t.same(await again.of({ name: 'bad', incarnation: 1 }), [])
  t.same(await again.of({ name: 'notes', incarnation: 2 }), [], 'nothing of an earlier database of the name')
  now += 30 * DAY
  t.strictSame(await again.of(notes), [second], 'a month is shown')
  note('notes', 'deleted')
  await again.measure()
  t.same(await again.of(notes), [])
  await again.close()
  t.same(await records.readRecords('growth', ['notes']), [null])
})

t.test('the databases that were written to last are remembered', async (t) => {
  const { databases, duty, logger, write, records } = stage()
  const growth = await Growth.open({ databases, duty, logger })
  for (let n = 0; n < 2100; n++) write(`d${n}`, n)
  for (let round = 0; round < 5; round++) await growth.measure()
  t.equal((await growth.of({ name: 'd99', incarnation: 1 })).length, 0)
  t.equal((await growth.of({ name: 'd100', incarnation: 1 })).length, 1)
  await growth.close()
  t.equal(records.all('growth').length, 2000)
})

t.test(
  'a node without the duty shows what the other has recorded, and goes on when it takes over',
  async (t) => {
    const { databases, duty, logger, write, asked } = stage()
    const listeners = new Set<() => void>()
    const waiting = {
      isHeld: false,
      onChange: (listener: () => void) => {
        listeners.add(listener)
        return () => listeners.delete(listener)
      },
    }
    const first = await Growth.open({ databases, duty, logger })
    const second = await Growth.open({ databases, duty: waiting, logger })
    write('notes', 1)
    await Promise.all([first.measure(), second.measure()])
    t.equal(asked.length, 1)
    await first.close()
    const notes = { name: 'notes', incarnation: 1 }
    t.match(await second.of(notes), [{ doc_count: 1 }])
    waiting.isHeld = true
    for (const listener of listeners) listener()
    await second.measure()
    write('notes', 7)
    await second.measure()
    t.match(await second.of(notes), [{ doc_count: 7 }])
    await second.close()
  },
)
