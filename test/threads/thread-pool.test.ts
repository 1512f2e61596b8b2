/** Which thread serves a database. */
import t from 'tap'
import { idsOf, put, serve } from './served.ts'

t.test('the names of databases divide them among the threads, and each stays with its own', async (t) => {
  const { databases } = await serve(t, { threads: 3, maxOpen: 30 })
  const names = Array.from({ length: 30 }, (_, n) => `db${n}`)
  const opened = async () =>
    (await databases.stats()).threads.map(({ stats }) => stats?.openDatabases ?? 0).sort((a, b) => a - b)
  for (const name of names) {
    await databases.create(name)
    await put(await databases.get(name), 'x')
  }
  const counts = await opened()
  t.equal(counts.length, 4, 'three, and the one of the catalog')
  t.ok(
    counts.every((count) => count <= 10),
    `each opens its part of max_dbs_open at most: ${counts}`,
  )
  t.ok(
    counts.slice(1).every((count) => count >= 5),
    `each has some: ${counts}`,
  )
  for (const name of names) t.same(await idsOf(await databases.get(name)), ['x'])
})

t.test('one thread serves all databases of users if there is only one', async (t) => {
  const { databases } = await serve(t)
  for (const name of ['a', 'd']) {
    await databases.create(name)
    await put(await databases.get(name), 'x')
  }
  t.match((await databases.stats()).threads, [{}, { stats: { openDatabases: 2 } }])
})

t.test('threads start with the first call to one of their databases', async (t) => {
  const { databases } = await serve(t, { threads: 8 })
  const count = async () => (await databases.stats()).threads.length
  t.equal(await count(), 1)
  await databases.create('a')
  t.equal(await count(), 1)
  await put(await databases.get('a'), 'x')
  t.equal(await count(), 2)
})
