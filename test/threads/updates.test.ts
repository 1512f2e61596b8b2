/** What happens to databases, told by the threads that it happens in. */
import t from 'tap'
import type { Databases } from '../../src/threads/databases.ts'
import { ADMIN } from '../documents/helpers.ts'
import { DEADLY_ENTRY, put, serve } from './served.ts'

async function told(databases: Databases): Promise<string[]> {
  const { rows } = await databases.updates({ since: 0 }, 100)
  return rows.map(({ seq, name, type }) => `${seq} ${name} ${type}`)
}

/** Waits until what was told fits, looking again whenever a listener would. */
async function untilTold(
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
      const rows = await told(databases)
      if (fits(rows)) return rows
      await woken
    }
  } finally {
    forget()
  }
}

t.test('many writes to several databases are few notes, and listeners are called', async (t) => {
  const { databases } = await serve(t)
  let heard = 0
  const forget = databases.watchUpdates(() => {
    heard += 1
  })
  for (const name of ['a', 'b', 'c']) await databases.create(name)
  t.equal(heard, 3)
  const writes = ['a', 'b'].flatMap((name) =>
    Array.from({ length: 50 }, (_, n) => put(databases.get(name), `x${n}`)),
  )
  await Promise.all([...writes, put(databases.get('c'), '_local/x')])
  await databases.delete('c')
  const rows = await untilTold(databases, ({ length }) => length === 6)
  t.same(rows.map((row) => row.replace(/^\d+ /, '')).sort(), [
    'a created',
    'a updated',
    'b created',
    'b updated',
    'c created',
    'c deleted',
  ])
  t.ok(heard < 20, `${heard} notes of 100 writes`)
  forget()
  const before = heard
  await databases.create('d')
  t.equal(heard, before)
})

t.test('closing notes the last writes', async (t) => {
  const { databases, dataDir } = await serve(t)
  await databases.create('a')
  await put(databases.get('a'), 'x')
  await databases.close()
  t.same(await told((await serve(t, { dataDir })).databases), ['1 a created', '2 a updated'])
})

t.test('the databases of a dead thread count as written to', async (t) => {
  const { databases } = await serve(t, { threadEntry: DEADLY_ENTRY })
  await databases.create('a')
  await t.rejects(databases.get('a').open(ADMIN, 'deadly', {}), { code: 'unavailable' })
  const rows = await untilTold(databases, ({ length }) => length === 2)
  t.match(rows, ['1 a created', /^\d+ a updated$/])
})
