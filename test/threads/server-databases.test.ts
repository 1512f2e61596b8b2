/** Databases are created, deleted and called over their threads. */
import { readdirSync } from 'node:fs'
import { setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import { PLAIN_CHANGES } from '../../src/changes/rows.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import { ADMIN, body, jsonOf, text } from '../documents/helpers.ts'
import { eventsOf, idsOf, openFiles, put, serve, until } from './served.ts'

t.test('databases are created, listed in byte order, and removed with their files', async (t) => {
  const { databases, dataDir } = await serve(t)
  t.match(databases.serverUuid, /^[0-9a-f]{32}$/)
  for (const name of ['b', 'a', 'a/b', '_users']) await databases.create(name)
  t.same(await Array.fromAsync(databases.allNames()), ['_users', 'a', 'a/b', 'b'])
  await t.rejects(databases.create('a'), { code: 'file_exists' })
  await t.rejects(databases.create('A'), { code: 'illegal_database_name' })
  await t.rejects(databases.get('no'), { code: 'no_database' })
  await put(await databases.get('a/b'), 'x')
  await databases.delete('a/b')
  t.same(await Array.fromAsync(databases.allNames()), ['_users', 'a', 'b'])
  await t.rejects(databases.get('a/b'), { code: 'no_database' })
  await t.rejects(databases.delete('a/b'), { code: 'no_database' })
  t.same(
    readdirSync(`${dataDir}/databases`).filter((file) => file.startsWith('a%2F')),
    [],
  )
})

t.test(
  'a database that is first called while they close gets no thread, which nobody would end',
  async (t) => {
    for (let turns = 0; turns < 8; turns++) {
      const { databases, dataDir } = await serve(t)
      await databases.create('notes')
      const handle = await databases.get('notes')
      const closing = databases.close()
      for (let n = 0; n < turns; n++) await turn()
      const outcome = await handle.info(ADMIN).catch((error: unknown) => error)
      if (outcome instanceof Error) t.match(outcome, { code: 'unavailable' })
      await closing
      t.same(openFiles(dataDir), [])
    }
  },
)

t.test('an adopted uuid and remembered tokens count at once, and after a restart', async (t) => {
  const { databases, dataDir } = await serve(t)
  const own = databases.serverUuid
  await databases.create('notes')
  await put(await databases.get('notes'), 'a')
  await (await databases.get('notes')).rememberTokens([{ token: '70-abcdefghijkl', seq: 1 }])
  await databases.adoptUuid('of-the-old-server')
  await t.rejects(databases.adoptUuid('no uuid'), { code: 'bad_request' })
  const check = async (each: typeof databases) => {
    t.same([each.serverUuid, each.folderUuid], ['of-the-old-server', own])
    const options = { ...PLAIN_CHANGES, framing: 'json' } as const
    const page = await (await each.get('notes')).changes(ADMIN, {
      options,
      since: '71-abcdefghijkl',
      limit: 9,
    })
    t.same([page.rows, page.lastSeq, page.unknownEpoch], [0, 1, false])
  }
  await check(databases)
  await databases.close()
  await check((await serve(t, { dataDir })).databases)
})

t.test('every method gives the same answer over the port as on the thread of the store', async (t) => {
  const { databases } = await serve(t)
  await databases.create('notes')
  const notes = await databases.get('notes')
  const rev = await put(notes, 'x', '{"n":1.0,"_attachments":{"a":{"data":"aGVsbG8="}}}')
  const opened = await notes.open(ADMIN, 'x', {})
  t.equal(opened.etag, `"${rev}"`)
  t.match(Buffer.from(opened.json).toString(), '"n":1.0,')
  t.match(await notes.info(ADMIN), { db_name: 'notes', doc_count: 1 })
  const found = await notes.openAttachment(ADMIN, 'x', 'a', undefined)
  t.equal(await text(notes.readAttachment(found, 0, 5)), 'hello')
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

t.test('the caller keeps the bytes of a pooled Buffer', async (t) => {
  const { databases } = await serve(t)
  await databases.create('notes')
  const bytes = Buffer.from('{"n":1}')
  await (await databases.get('notes')).put(ADMIN, 'x', { bytes }, {})
  t.equal(bytes.toString(), '{"n":1}')
})

t.test('watchers get commits, security changes and the end of the database', async (t) => {
  const { databases } = await serve(t)
  for (const name of ['a', 'b']) await databases.create(name)
  const [a, b] = [await databases.get('a'), await databases.get('b')]
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
  t.equal(databases.documentsWritten, 2)
  t.same(ofB, [])
  await databases.delete('a')
  databases.endFeeds()
  t.same([ofA.at(-1), ofA.length, ofB], [{ type: 'closed' }, 4, [{ type: 'closed' }]])
})

t.test('the copy of the security object follows the stored one', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const a = await databases.get('a')
  t.equal(await a.securityCopy(), null)
  await a.setSecurity(ADMIN, { members: { names: ['anna'] } })
  t.same(await a.securityCopy(), { members: { names: ['anna'] } }, 'as soon as the writer has the answer')
})

t.test('new limits apply from the next request on', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  await put(await databases.get('a'), 'x', { text: 'a'.repeat(100) })
  databases.setSettings({ limits: { ...DEFAULT_LIMITS, maxDocumentSize: 50 }, rules: DEFAULT_RULES })
  await t.rejects(put(await databases.get('a'), 'y', { text: 'a'.repeat(100) }), {
    code: 'document_too_large',
  })
  for (let n = 0; n < 10; n += 1) await databases.create(`b${n}`)
  for (let n = 0; n < 10; n += 1) {
    await t.rejects(put(await databases.get(`b${n}`), 'y', { text: 'a'.repeat(100) }), {
      code: 'document_too_large',
    })
  }
})

t.test('no call to a deleted database reaches the next one with its name', async (t) => {
  const { databases } = await serve(t)
  await databases.create('a')
  const old = await databases.get('a')
  for (let n = 0; n < 30; n += 1) await put(old, `before${n}`, { text: 'a'.repeat(30_000) })
  const unread = old.bulkDocs(ADMIN, body({ docs: [{ _id: 'unread' }] }))
  const reading = old.allDocs(ADMIN, 'all', { includeDocs: true }, null)[Symbol.asyncIterator]()
  await reading.next()
  const callsUnderWay = Array.from({ length: 50 }, (_, n) => put(old, `x${n}`))
  const bulk = jsonOf(old.bulkDocs(ADMIN, body({ docs: Array.from({ length: 900 }, () => ({})) })))
  const deleted = databases.delete('a')
  const made = databases.create('a')
  const settled = Promise.allSettled([...callsUnderWay, bulk, put(old, 'late')])
  await deleted
  await made
  const fresh = await databases.get('a')
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
  await t.rejects(rest(), { code: 'no_database' }, 'a broken stream does not look complete')
  t.same(await idsOf(fresh), ['fresh'])
  t.match(await fresh.info(ADMIN), { doc_count: 1, update_seq: /^1-/ })
})

t.test('calls before a deletion are completed first', async (t) => {
  const { databases } = await serve(t)
  for (let n = 0; n < 10; n += 1) {
    await databases.create('a')
    const handle = await databases.get('a')
    const writes = [put(handle, 'x'), jsonOf(handle.bulkDocs(ADMIN, body({ docs: [{}, {}] })))]
    await Promise.all([...writes, databases.delete('a')])
  }
})

t.test('a database can be created and deleted repeatedly', async (t) => {
  const { databases } = await serve(t)
  const incarnations = new Set<number>()
  for (let n = 0; n < 10; n += 1) {
    const acts = [databases.create('a'), databases.delete('a'), databases.create('a')]
    await Promise.all(acts)
    const handle = await databases.get('a')
    incarnations.add(handle.incarnation)
    const writes = [put(handle, 'x'), put(handle, 'y')]
    const settled = Promise.allSettled(writes)
    await databases.delete('a')
    await settled
  }
  t.equal(incarnations.size, 10)
  t.same(await Array.fromAsync(databases.allNames()), [])
})

t.test('of two concurrent creations or deletions, one succeeds', async (t) => {
  const { databases } = await serve(t)
  const results = await Promise.allSettled([databases.create('a'), databases.create('a')])
  t.match(results, [{ status: 'fulfilled' }, { reason: { code: 'file_exists' } }])
  t.match(await Promise.allSettled([databases.delete('a'), databases.delete('a')]), [
    { status: 'fulfilled' },
    { reason: { code: 'no_database' } },
  ])
})
