/** What is seen of a document before and after compaction: protocol.md 4.6, 6.2. */
import t from 'tap'
import { ENGINES } from './engines.ts'
import { ADMIN, ANNA, body, jsonOf, NOBODY, type Opened, openDatabase, openOn, text } from './helpers.ts'

/** Begins as a client does, and waits until it is done. */
async function compact({ database, store }: Opened): Promise<void> {
  await database.compact(ADMIN)
  await store.compact()
}

async function edited({ put }: Opened, id: string, times: number): Promise<string[]> {
  const revs: string[] = []
  for (let n = 0; n < times; n++) {
    const _attachments = {
      file: { content_type: 'text/plain', data: Buffer.from(`${n}`).toString('base64') },
    }
    revs.push(await put(id, { n, _attachments, ...(n > 0 && { _rev: revs.at(-1) }) }))
  }
  return revs
}

for (const [name, make] of Object.entries(ENGINES)) {
  t.test(`superseded revisions are missing, but known (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { database, get, updateSeq } = opened
    const revs = await edited(opened, 'x', 4)
    const [first = '', , , last = ''] = revs
    const whole = await get('x', { revs: true, attachments: true })
    t.match(await get('x', { rev: first }), { n: 0 })
    const seq = await updateSeq()
    await compact(opened)
    t.equal(await updateSeq(), seq)
    t.same(await get('x', { revs: true, attachments: true }), whole)
    t.same(
      (await get('x', { revsInfo: true }))._revs_info.map(({ status }: { status: string }) => status),
      ['available', 'missing', 'missing', 'missing'],
    )
    for (const rev of revs.slice(0, -1)) {
      await t.rejects(get('x', { rev }), { code: 'not_found', reason: 'missing' })
      await t.rejects(database.openAttachment(ADMIN, 'x', 'file', rev), { code: 'not_found' })
    }
    t.match(await get('x', { rev: first, latest: true }), { _rev: last })
    const open = (given: string[]) => jsonOf(database.openRevs(ADMIN, 'x', given, {}))
    t.match(await open([last]), [{ ok: { _rev: last } }])
    t.same(await open([first]), [{ missing: first }])
    const bulk = await jsonOf(database.bulkGet(ADMIN, body({ docs: [{ id: 'x', rev: first }] }), {}))
    t.match(bulk.results[0].docs[0], { error: { id: 'x', rev: first, error: 'not_found' } })
    t.equal(Buffer.from(await database.revsDiff(ADMIN, body({ x: revs }))).toString(), '{}\n')
    await t.rejects(
      database.copy(ADMIN, { id: 'x', rev: first }, { id: 'y' }),
      { code: 'not_found' },
      'nor is there anything to copy',
    )
  })

  t.test(`what is written after it is as if there had been none (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { put, get, replicate, database } = opened
    const [, second = ''] = await edited(opened, 'x', 2)
    await compact(opened)
    const third = await put('x', { _rev: second, n: 2, _attachments: { file: { stub: true } } })
    t.match(await get('x', { attachments: true }), { n: 2, _attachments: { file: { data: 'MQ==' } } })
    await database.remove(ADMIN, 'x', third)
    await compact(opened)
    await t.rejects(get('x'), { code: 'deleted' })
    await put('x', { n: 'again' })
    t.match(await get('x'), { _rev: /^5-/ })
    await replicate('x', { start: 3, ids: ['branch', second.slice(2)], doc: { n: 'other' } })
    t.match(await get('x', { conflicts: true }), { _conflicts: ['3-branch'] })
    await compact(opened)
    t.match(await get('x', { rev: '3-branch' }), { n: 'other' }, 'every leaf stays')
    await replicate('x', { start: 2, ids: [second.slice(2)], doc: { n: 'late' } })
    await t.rejects(get('x', { rev: second }), { code: 'not_found' }, 'an inner revision gets no body again')
  })

  t.test(`a download that is under way is not cut off (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { database, put } = opened
    const bytes = Buffer.alloc(700_000, 'settee')
    const rev = await put('x', { _attachments: { file: { data: bytes.toString('base64') } } })
    const found = await database.openAttachment(ADMIN, 'x', 'file', undefined)
    const reading = database.readAttachment(found, 0, found.storedLength)[Symbol.asyncIterator]()
    const chunks = [(await reading.next()).value]
    await put('x', { _rev: rev })
    await compact(opened)
    for (let next = await reading.next(); !next.done; next = await reading.next()) chunks.push(next.value)
    t.equal(Buffer.concat(chunks).length, found.storedLength)
    await compact(opened)
    await t.rejects(text(database.readAttachment(found, 0, 1)), { code: 'no_attachment' })
  })

  t.test(`the information object tells when it is at work (${name})`, async (t) => {
    const opened = await openOn(await make(t))
    const { database, store } = opened
    await edited(opened, 'x', 3)
    await database.compact(ADMIN)
    t.match(await database.info(ADMIN), { compact_running: true })
    await store.compact()
    t.match(await database.info(ADMIN), { compact_running: false })
  })
}

t.test('it is for admins of the database, and begins for nobody else', async (t) => {
  const opened = await openDatabase()
  const { database, store } = opened
  const refusal = 'You are not a server or db admin.'
  await t.rejects(database.compact(ANNA), { code: 'forbidden' })
  await t.rejects(database.compact(NOBODY), { code: 'unauthorized' })
  await database.setSecurity(ADMIN, { admins: { names: ['root'] }, members: { names: ['anna'] } })
  await t.rejects(database.compact(ANNA), { code: 'unauthorized', reason: refusal })
  await database.setSecurity(ADMIN, { members: { names: [], roles: [] } })
  await t.rejects(database.compact(NOBODY), { code: 'unauthorized', reason: refusal })
  t.equal((await store.info()).compacting, false)
  await database.setSecurity(ADMIN, { admins: { names: ['anna'] } })
  await database.compact(ANNA)
  t.equal((await store.info()).compacting, true)
  await store.compact()
})
