/** How many databases are open, for how long, and how they are closed. */
import t from 'tap'
import { ADMIN, text } from '../../documents/helpers.ts'
import { eventsOf, idsOf, openFiles, put, serve, until } from '../../threads/served.ts'

const isLinux = process.platform === 'linux'

t.test('of many databases on few threads, only a few are open', { skip: !isLinux }, async (t) => {
  const { databases, dataDir } = await serve(t, { maxOpen: 1 })
  const names = Array.from({ length: 40 }, (_, n) => `d${n}`)
  for (const name of names) await databases.create(name)
  await Promise.all(names.map(async (name) => put(await databases.get(name), name)))
  await Promise.all(names.map(async (name) => put(await databases.get(name), 'second')))
  for (const name of names) t.same(await idsOf(await databases.get(name)), [name, 'second'].sort())
  await until(() => openFiles(dataDir).length <= 8)
  t.pass('what is not used is closed')
})

t.test('a stream keeps its database open until it ends or is canceled', { skip: !isLinux }, async (t) => {
  const { databases, dataDir } = await serve(t, { maxOpen: 1 })
  const others = Array.from({ length: 20 }, (_, n) => `d${n}`)
  for (const name of ['a', ...others]) await databases.create(name)
  const a = await databases.get('a')
  for (let n = 0; n < 30; n += 1) await put(a, `x${n}`, { text: 'a'.repeat(100_000) })
  const touchOthers = () => Promise.all(others.map(async (name) => (await databases.get(name)).info(ADMIN)))
  const reader = a.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
  await reader.next()
  await touchOthers()
  t.ok(openFiles(dataDir).includes('a'))
  await reader.return?.()
  await touchOthers()
  await until(() => !openFiles(dataDir).includes('a'))
  t.equal((await idsOf(a)).length, 30, 'the next call opens it again')
})

t.test('many readers at different speeds get all of their streams', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const a = await databases.get('a')
  for (let n = 0; n < 20; n += 1) await put(a, `x${n}`, { text: 'a'.repeat(60_000) })
  const read = async (slowness: number) => {
    let count = 0
    let bytes = ''
    for await (const chunk of a.allDocs(ADMIN, 'all', { includeDocs: true }, null)) {
      bytes += Buffer.from(chunk).toString()
      count += 1
      for (let n = 0; n < slowness; n += 1) await a.revsLimit(ADMIN)
    }
    t.ok(count > 3)
    return JSON.parse(bytes).rows.length
  }
  t.same(await Promise.all([0, 1, 5].map(read)), [20, 20, 20])
})

t.test('closing finishes the writes under way, and all answered writes survive', async (t) => {
  const { databases, dataDir } = await serve(t)
  await databases.create('a')
  const a = await databases.get('a')
  const events = eventsOf(a)
  const writes = Array.from({ length: 100 }, (_, n) => put(a, `x${n}`))
  const closing = databases.close()
  t.equal(databases.close(), closing, 'a second call returns the same promise')
  await t.resolves(Promise.all(writes))
  await closing
  await databases.close()
  t.ok(events.some(({ type }) => type === 'closed'))
  await t.rejects(a.info(ADMIN), { code: 'unavailable' })
  await t.rejects(text(a.allDocs(ADMIN, 'all', {}, null)), { code: 'unavailable' })
  await t.rejects(databases.create('b'), { code: 'unavailable' })
  if (isLinux) t.same(openFiles(dataDir), [])
  const next = await serve(t, { dataDir })
  t.equal(next.databases.serverUuid, databases.serverUuid)
  t.equal((await idsOf(await next.databases.get('a'))).length, 100)
})

t.test('closing fails streams, so that they do not look complete', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const a = await databases.get('a')
  for (let n = 0; n < 20; n += 1) await put(a, `x${n}`, { text: 'a'.repeat(60_000) })
  const reader = a.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
  await reader.next()
  await databases.close()
  const rest = async () => {
    while (!(await reader.next()).done);
  }
  await t.rejects(rest(), { code: 'unavailable' })
})

t.test(
  'a second server on one data folder is refused with the reason, and the first keeps running',
  async (t) => {
    const { databases, dataDir } = await serve(t)
    await t.rejects(serve(t, { dataDir }), {
      message: `the data folder ${dataDir} is in use by another settee process`,
      code: undefined,
    })
    await databases.create('a')
    await put(await databases.get('a'), 'x')
    await databases.close()
    await t.resolves(serve(t, { dataDir }))
  },
)

t.test('an unusable folder or thread gives a one-line message', async (t) => {
  const onto = async (options: Parameters<typeof serve>[1]) => {
    const error = await serve(t, options).catch((thrown: unknown) => thrown)
    t.type(error, Error)
    t.notMatch((error as Error).message, '\n')
    return (error as Error).message
  }
  t.match(await onto({ dataDir: '/dev/null' }), /\/dev\/null/)
  t.match(await onto({ threadEntry: new URL('./no-such-file.mjs', import.meta.url) }), /no-such-file/)
})
