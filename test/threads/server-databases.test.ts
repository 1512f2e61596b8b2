import { readdirSync } from 'node:fs'
import t from 'tap'
import { DEFAULT_LIMITS } from '../../src/core/types.ts'
import { ADMIN, body, jsonOf, text } from '../documents/helpers.ts'
import { eventsOf, idsOf, openFiles, put, serve, until } from './served.ts'

const isLinux = process.platform === 'linux'

t.test('databases are made, listed in byte order, and removed with their files', async (t) => {
  const { databases, dataDir } = await serve(t)
  t.match(databases.serverUuid, /^[0-9a-f]{32}$/)
  for (const name of ['b', 'a', 'a/b', '_users']) await databases.create(name)
  t.same(databases.names(), ['_users', 'a', 'a/b', 'b'])
  await t.rejects(databases.create('a'), { code: 'file_exists' })
  t.throws(() => databases.create('A'), { code: 'illegal_database_name' })
  t.throws(() => databases.get('no'), { code: 'no_database' })
  await put(databases.get('a/b'), 'x')
  await databases.delete('a/b')
  t.same(databases.names(), ['_users', 'a', 'b'])
  t.throws(() => databases.get('a/b'), { code: 'no_database' })
  await t.rejects(databases.delete('a/b'), { code: 'no_database' })
  t.same(
    readdirSync(`${dataDir}/databases`).filter((file) => file.startsWith('a%2F')),
    [],
  )
})

t.test('every method answers over the port as it does beside the store', async (t) => {
  const { databases } = await serve(t)
  await databases.create('notes')
  const notes = databases.get('notes')
  const rev = await put(notes, 'x', '{"n":1.0,"_attachments":{"a":{"data":"aGVsbG8="}}}')
  const opened = await notes.open(ADMIN, 'x', {})
  t.equal(opened.etag, `"${rev}"`)
  t.match(Buffer.from(opened.json).toString(), '"n":1.0,')
  t.match(await notes.info(ADMIN), { db_name: 'notes', doc_count: 1 })
  const { blob } = await notes.openAttachment(ADMIN, 'x', 'a', undefined)
  t.equal(await text(notes.readAttachment(blob, 0, 5)), 'hello')
  t.match(await jsonOf(notes.bulkDocs(ADMIN, body({ docs: [{ _id: 'y' }, { _id: 'x' }] }))), [
    { id: 'y' },
    { error: 'conflict' },
  ])
  t.equal(Buffer.from(await notes.revsDiff(ADMIN, body({ x: [rev] }))).toString(), '{}\n')
  await t.rejects(notes.put(ADMIN, 'x', body({}), {}), {
    code: 'conflict',
    reason: 'Document update conflict.',
  })
  await t.rejects(
    jsonOf(notes.bulkDocs(ADMIN, body('{'))),
    { code: 'invalid_json' },
    'before the first chunk',
  )
  await notes.setRevsLimit(ADMIN, 5)
  t.equal(await notes.revsLimit(ADMIN), 5)
})

t.test('a body’s bytes are not taken from a caller whose Buffer is pooled', async (t) => {
  const { databases } = await serve(t)
  await databases.create('notes')
  const bytes = Buffer.from('{"n":1}')
  await databases.get('notes').put(ADMIN, 'x', { bytes }, {})
  t.equal(bytes.toString(), '{"n":1}')
})

t.test('whoever watches hears of commits and security, and of the end', async (t) => {
  const { databases } = await serve(t)
  for (const name of ['a', 'b']) await databases.create(name)
  const [a, b] = [databases.get('a'), databases.get('b')]
  const [ofA, ofB] = [eventsOf(a), eventsOf(b)]
  const stopped: unknown[] = []
  const stop = a.watch((event) => stopped.push(event))
  await put(a, 'x')
  stop()
  await a.setSecurity(ADMIN, { members: {} })
  await put(a, '_local/x')
  await put(a, 'y')
  await until(() => ofA.length === 3)
  t.same(ofA, [
    { type: 'committed', updateSeq: 1 },
    { type: 'secured', security: { members: {} } },
    { type: 'committed', updateSeq: 2 },
  ])
  t.equal(stopped.length, 1)
  t.same(ofB, [])
  await databases.delete('a')
  databases.endFeeds()
  t.same([ofA.at(-1), ofA.length, ofB], [{ type: 'gone' }, 4, [{ type: 'gone' }]])
})

t.test('the copy of the security object follows what is stored', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const a = databases.get('a')
  t.equal(await a.securityCopy(), null)
  await a.setSecurity(ADMIN, { members: { names: ['anna'] } })
  t.same(await a.securityCopy(), { members: { names: ['anna'] } }, 'as soon as the writer has his answer')
})

t.test('new limits count from the next request on', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  await put(databases.get('a'), 'x', { text: 'a'.repeat(100) })
  databases.setLimits({ ...DEFAULT_LIMITS, maxDocumentSize: 50 })
  await t.rejects(put(databases.get('a'), 'y', { text: 'a'.repeat(100) }), { code: 'document_too_large' })
  for (let n = 0; n < 10; n += 1) await databases.create(`b${n}`)
  for (let n = 0; n < 10; n += 1) {
    await t.rejects(put(databases.get(`b${n}`), 'y', { text: 'a'.repeat(100) }), {
      code: 'document_too_large',
    })
  }
})

t.test('nothing asked of a deleted database reaches the one of its name that follows', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const old = databases.get('a')
  for (let n = 0; n < 30; n += 1) await put(old, `before${n}`, { text: 'a'.repeat(30_000) })
  const unread = old.bulkDocs(ADMIN, body({ docs: [{ _id: 'unread' }] }))
  const reading = old.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
  await reading.next()
  const inFlight = Array.from({ length: 50 }, (_, n) => put(old, `flight${n}`))
  const bulk = jsonOf(old.bulkDocs(ADMIN, body({ docs: Array.from({ length: 900 }, () => ({})) })))
  const settled = Promise.allSettled([...inFlight, bulk])
  const deleted = databases.delete('a')
  const made = databases.create('a')
  const late = put(old, 'late')
  await t.rejects(late, { code: 'no_database' })
  await deleted
  await made
  const fresh = databases.get('a')
  t.not(fresh.incarnation, old.incarnation)
  const written = put(fresh, 'fresh')
  await t.rejects(put(old, 'later'), { code: 'no_database' })
  await t.rejects(text(unread), { code: 'no_database' })
  await t.rejects(old.info(ADMIN), { code: 'no_database' })
  await written
  for (const result of await settled) {
    if (result.status === 'rejected') t.equal(result.reason.code, 'no_database')
  }
  const rest = async () => {
    while (!(await reading.next()).done);
  }
  await t.rejects(rest(), { code: 'no_database' }, 'a stream that is broken off does not seem to end')
  t.same(await idsOf(fresh), ['fresh'])
  t.match(await fresh.info(ADMIN), { doc_count: 1, update_seq: /^1-/ })
})

t.test('making and deleting again and again', async (t) => {
  const { databases } = await serve(t)
  const incarnations = new Set<number>()
  for (let n = 0; n < 10; n += 1) {
    const acts = [databases.create('a'), databases.delete('a'), databases.create('a')]
    await Promise.all(acts)
    const handle = databases.get('a')
    incarnations.add(handle.incarnation)
    const writes = [put(handle, 'x'), put(handle, 'y')]
    const settled = Promise.allSettled(writes)
    await databases.delete('a')
    await settled
  }
  t.equal(incarnations.size, 10)
  t.same(databases.names(), [])
})

t.test('of two who make one database one succeeds, and of two who delete it', async (t) => {
  const { databases } = await serve(t)
  const results = await Promise.allSettled([databases.create('a'), databases.create('a')])
  t.match(results, [{ status: 'fulfilled' }, { reason: { code: 'file_exists' } }])
  t.match(await Promise.allSettled([databases.delete('a'), databases.delete('a')]), [
    { status: 'fulfilled' },
    { reason: { code: 'no_database' } },
  ])
})

t.test('many databases on few threads, of which only a few are open', { skip: !isLinux }, async (t) => {
  const { databases, dataDir } = await serve(t, { maxOpen: 1 })
  const names = Array.from({ length: 40 }, (_, n) => `d${n}`)
  for (const name of names) await databases.create(name)
  await Promise.all(names.map((name) => put(databases.get(name), name)))
  await Promise.all(names.map((name) => put(databases.get(name), 'second')))
  for (const name of names) t.same(await idsOf(databases.get(name)), [name, 'second'].sort())
  await until(() => openFiles(dataDir).length <= 8)
  t.pass('what is not used is closed')
})

t.test(
  'a stream keeps its database open, and one that is given up lets it go',
  { skip: !isLinux },
  async (t) => {
    const { databases, dataDir } = await serve(t, { maxOpen: 1 })
    const others = Array.from({ length: 20 }, (_, n) => `d${n}`)
    for (const name of ['a', ...others]) await databases.create(name)
    const a = databases.get('a')
    for (let n = 0; n < 30; n += 1) await put(a, `x${n}`, { text: 'a'.repeat(100_000) })
    const touchOthers = () => Promise.all(others.map((name) => databases.get(name).info(ADMIN)))
    const reader = a.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
    await reader.next()
    await touchOthers()
    t.ok(openFiles(dataDir).includes('a'))
    await reader.return?.()
    await touchOthers()
    await until(() => !openFiles(dataDir).includes('a'))
    t.equal((await idsOf(a)).length, 30, 'and it is opened again for the next')
  },
)

t.test('many readers at different speeds get all of their streams', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const a = databases.get('a')
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

t.test(
  'closing finishes the writes under way, and what was answered is there at the next start',
  async (t) => {
    const { databases, dataDir } = await serve(t)
    await databases.create('a')
    const a = databases.get('a')
    const events = eventsOf(a)
    const writes = Array.from({ length: 100 }, (_, n) => put(a, `x${n}`))
    const closing = databases.close()
    t.equal(databases.close(), closing, 'twice is once')
    await t.resolves(Promise.all(writes))
    await closing
    await databases.close()
    t.ok(events.some(({ type }) => type === 'gone'))
    await t.rejects(a.info(ADMIN), { code: 'unavailable' })
    await t.rejects(text(a.allDocs(ADMIN, 'all', {}, null)), { code: 'unavailable' })
    await t.rejects(databases.create('b'), { code: 'unavailable' })
    if (isLinux) t.same(openFiles(dataDir), [])
    const next = await serve(t, { dataDir })
    t.equal(next.databases.serverUuid, databases.serverUuid)
    t.equal((await idsOf(next.databases.get('a'))).length, 100)
  },
)

t.test('closing breaks off streams, which do not seem to end', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const a = databases.get('a')
  for (let n = 0; n < 20; n += 1) await put(a, `x${n}`, { text: 'a'.repeat(60_000) })
  const reader = a.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
  await reader.next()
  await databases.close()
  const rest = async () => {
    while (!(await reader.next()).done);
  }
  await t.rejects(rest(), { code: 'unavailable' })
})

t.test('a second server on one data folder is told who holds it, and the first goes on', async (t) => {
  const { databases, dataDir } = await serve(t)
  await t.rejects(serve(t, { dataDir }), {
    message: `the data folder ${dataDir} is in use by another settee`,
    code: undefined,
  })
  await databases.create('a')
  await put(databases.get('a'), 'x')
  await databases.close()
  await t.resolves(serve(t, { dataDir }))
})

t.test('a folder that cannot be used, or a thread that cannot start, is one clear line', async (t) => {
  const onto = async (options: Parameters<typeof serve>[1]) => {
    const error = await serve(t, options).catch((thrown: unknown) => thrown)
    t.type(error, Error)
    t.notMatch((error as Error).message, '\n')
    return (error as Error).message
  }
  t.match(await onto({ dataDir: '/dev/null' }), /\/dev\/null/)
  t.match(await onto({ threadEntry: new URL('./no-such-file.mjs', import.meta.url) }), /no-such-file/)
})
