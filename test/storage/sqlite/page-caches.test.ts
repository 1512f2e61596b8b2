import { join } from 'node:path'
import t from 'tap'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import { PageCache, PageCaches } from '../../../src/storage/sqlite/page-caches.ts'
import { temporaryFolder } from '../../helpers/server.ts'

/** A cache whose file only notes what it is told. */
function noted(caches: PageCaches): { cache: PageCache; told: string[] } {
  const told: string[] = []
  return { cache: new PageCache({ pragma: (text) => told.push(text) }, caches), told }
}

t.test('one database at work has all, several have equal shares, however many there are', async (t) => {
  const caches = new PageCaches()
  const all = Array.from({ length: 200 }, () => noted(caches))
  const sizes = () => all.map(({ told }) => told.at(-1)).filter((size) => size !== undefined)
  all[0]?.cache.use()
  t.same(sizes(), ['cache_size = -16384'])
  all[1]?.cache.use()
  t.same(sizes(), Array(2).fill('cache_size = -8192'))
  all[2]?.cache.use()
  t.same(sizes(), Array(3).fill('cache_size = -4096'))
  for (const { cache } of all) cache.use()
  t.same(sizes(), Array(200).fill('cache_size = -256'), 'never less than it takes to find a document')
  for (const { cache } of all.slice(1)) cache.close()
  t.equal(all[0]?.told.at(-1), 'cache_size = -16384', 'what one leaves, the others have')
  all[0]?.cache.close()
})

t.test('what nobody used between two sweeps gives its pages back, and the others have more', async (t) => {
  const caches = new PageCaches()
  const [busy, rested] = [noted(caches), noted(caches)]
  busy.cache.use()
  rested.cache.use()
  caches.sweep()
  busy.cache.use()
  t.notOk(rested.told.includes('shrink_memory'))
  caches.sweep()
  t.same(rested.told.slice(1), ['shrink_memory'])
  t.equal(busy.told.at(-1), 'cache_size = -16384')
  rested.cache.use()
  t.equal(rested.told.at(-1), 'cache_size = -8192', 'and has its share again when it is used')
  busy.cache.close()
  caches.sweep()
  caches.sweep()
  t.notOk(busy.told.includes('shrink_memory'), 'a file that is closed is told nothing')
})

t.test('a file that cannot be asked harms nobody', async (t) => {
  const caches = new PageCaches()
  const pragma = () => {
    throw new Error('the disk fails')
  }
  new PageCache({ pragma }, caches).use()
  caches.sweep()
  t.doesNotThrow(() => caches.sweep())
})

t.test('SQLite takes both', async (t) => {
  const connection = new Connection(join(await temporaryFolder(t), 'x.sqlite'))
  t.teardown(() => connection.close())
  const caches = new PageCaches()
  const cache = new PageCache(connection, caches)
  cache.use()
  t.equal(connection.pragma('cache_size'), -16384)
  connection.exec('CREATE TABLE row (data BLOB)')
  connection.prepare('INSERT INTO row VALUES (zeroblob(1000000))').run()
  caches.sweep()
  caches.sweep()
  cache.use()
  t.equal(connection.prepare('SELECT length(data) AS n FROM row').get()?.n, 1_000_000)
})
