/** Which databases were written to: many writes, one note. */
import t from 'tap'
import { UpdateNotes } from '../../src/threads/update-notes.ts'
import { until } from './served.ts'

t.test('the writes of a while are one note, and writes during it are the next', async (t) => {
  const noted: string[][] = []
  const notes = new UpdateNotes({ note: async (names) => noted.push([...names].sort()), delay: 5 })
  for (let i = 0; i < 100; i++) notes.add(`db${i % 3}`)
  notes.remove('db1')
  t.same(noted, [])
  await until(() => noted.length > 0)
  notes.add('later')
  await until(() => noted.length > 1)
  t.same(noted, [['db0', 'db2'], ['later']])
  await notes.close()
  t.equal(noted.length, 2, 'there was nothing left')
})

t.test('a failed note is tried again', async (t) => {
  const tried: string[][] = []
  const note = async (names: readonly string[]) => {
    tried.push([...names])
    if (tried.length < 3) throw new Error('the disk is full')
  }
  const notes = new UpdateNotes({ note, delay: 1 })
  notes.add('a')
  await until(() => tried.length >= 3)
  t.same(tried, [['a'], ['a'], ['a']])
  await notes.close()
  t.equal(tried.length, 3)
})

t.test('closing notes the rest at once, in bounded batches', async (t) => {
  const sizes: number[] = []
  const notes = new UpdateNotes({ note: async (names) => sizes.push(names.length), delay: 1e6 })
  for (let i = 0; i < 1200; i++) notes.add(`db${i}`)
  await notes.close()
  t.same(sizes, [500, 500, 200])
  notes.add('late')
  await notes.close()
  t.same(sizes, [500, 500, 200, 1], 'also what came after a first closing')
})
