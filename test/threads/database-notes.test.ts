/** Notes of updated databases in the catalog: one note for many writes. */
import t from 'tap'
import { UpdateNotes } from '../../src/threads/database-notes.ts'
import type { Databases } from '../../src/threads/databases.ts'
import { ADMIN } from '../documents/helpers.ts'
import { DEADLY_ENTRY, put, serve, until } from './served.ts'

t.test('one note covers many writes, and writes during it are in the next one', async (t) => {
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
  t.equal(noted.length, 2, 'nothing was left')
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

t.test('closing notes the remaining names at once, in limited batches', async (t) => {
  const sizes: number[] = []
  const notes = new UpdateNotes({ note: async (names) => sizes.push(names.length), delay: 1e6 })
  for (let i = 0; i < 1200; i++) notes.add(`db${i}`)
  await notes.close()
  t.same(sizes, [500, 500, 200])
  notes.add('late')
  await notes.close()
  t.same(sizes, [500, 500, 200, 1], 'including writes after a first close')
})

async function updatesOf(databases: Databases): Promise<string[]> {
  const { rows } = await databases.updates({ since: 0 }, 100)
  return rows.map(({ seq, name, type }) => `${seq} ${name} ${type}`)
}

/** Waits until the updates meet a condition, and checks again after each notice. */
async function untilUpdates(
  databases: Databases,
  fits: (rows: readonly string[]) => boolean,
): Promise<string[]> {
  let wake = () => {}
  const forget = databases.watchUpdates(() => wake())
  try {
    for (;;) {
      const woken = new Promise<void>((resolve) => {
        wake = resolve
      })
      const rows = await updatesOf(databases)
      if (fits(rows)) return rows
      await woken
    }
  } finally {
    forget()
  }
}

t.test('many writes to several databases are few notes, and listeners are called', async (t) => {
  const { databases } = await serve(t)
  let notices = 0
  const forget = databases.watchUpdates(() => {
    notices += 1
  })
  for (const name of ['a', 'b', 'c']) await databases.create(name)
  t.equal(notices, 3)
  const writes = ['a', 'b'].flatMap((name) =>
    Array.from({ length: 50 }, async (_, n) => put(await databases.get(name), `x${n}`)),
  )
  await Promise.all([...writes, put(await databases.get('c'), '_local/x')])
  await databases.delete('c')
  const rows = await untilUpdates(databases, ({ length }) => length === 6)
  t.same(rows.map((row) => row.replace(/^\d+ /, '')).sort(), [
    'a created',
    'a updated',
    'b created',
    'b updated',
    'c created',
    'c deleted',
  ])
  t.ok(notices < 20, `${notices} notes of 100 writes`)
  forget()
  const before = notices
  await databases.create('d')
  t.equal(notices, before)
})

t.test('closing notes the last writes', async (t) => {
  const { databases, dataDir } = await serve(t)
  await databases.create('a')
  await put(await databases.get('a'), 'x')
  await databases.close()
  t.same(await updatesOf((await serve(t, { dataDir })).databases), ['1 a created', '2 a updated'])
})

t.test('the databases of a dead thread count as written to', async (t) => {
  const { databases } = await serve(t, { threadEntry: DEADLY_ENTRY })
  await databases.create('a')
  await t.rejects((await databases.get('a')).open(ADMIN, 'deadly', {}), { code: 'unavailable' })
  const rows = await untilUpdates(databases, ({ length }) => length === 2)
  t.match(rows, ['1 a created', /^\d+ a updated$/])
})
