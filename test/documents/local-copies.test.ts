/** `_local` documents of a copy of another server's database. */
import t from 'tap'
import { ADMIN, ANNA, openDatabase } from './helpers.ts'

const checkpoint = (rev: string, last: number | string) =>
  JSON.stringify({
    _id: '_local/push',
    _rev: rev,
    session_id: 's1',
    last_seq: last,
    version: 1,
    replicator: 'pouchdb',
    history: [{ session_id: 's1', last_seq: last }],
  })

t.test('copies keep their revisions and numbers, replace one another, and are removed', async (t) => {
  const { database, get } = await openDatabase()
  const settings = '{"_id":"_local/settings","_rev":"0-7","n":9007199254740993}'
  await database.copyLocals(ADMIN, [settings, checkpoint('0-2', 40)], [])
  const { json } = await database.open(ADMIN, '_local/settings', {})
  t.equal(Buffer.from(json).toString().trim(), settings)
  t.equal((await get('_local/push')).last_seq, 40)
  await database.copyLocals(ADMIN, [checkpoint('0-1', 3)], ['_local/settings'])
  t.hasStrict(await get('_local/push'), { _rev: '0-1', last_seq: 3 })
  await t.rejects(get('_local/settings'), { code: 'not_found' })
})

t.test('the first checkpoint that a device writes to a copy is refused, and the next accepted', async (t) => {
  const { database, put } = await openDatabase()
  await database.copyLocals(ADMIN, [checkpoint('0-2', 40)], [])
  const pushed = JSON.parse(checkpoint('0-2', 45)) as Record<string, unknown>
  await t.rejects(put('_local/push', pushed), { code: 'unavailable' })
  t.equal(await put('_local/push', pushed), '0-3')
})

t.test(
  "checkpoints of pulls are accepted: their tokens are the copy's own, or have been copied",
  async (t) => {
    const { database, put } = await openDatabase()
    for (const id of ['a', 'b']) await put(id, {})
    await database.copyLocals(ADMIN, [], [])
    await database.rememberTokens([{ token: '90-abcdefghijkl', seq: 1 }])
    const pull = (last: string) => JSON.parse(checkpoint('0-0', last)) as Record<string, unknown>
    const { update_seq } = await database.info(ADMIN)
    const history = ['90-abcdefghijkl', '7-abcdefghijkl', update_seq].map((last_seq) => ({
      session_id: 's',
      last_seq,
    }))
    t.equal(await put('_local/pull', { ...pull(update_seq), history }), '0-1')
    await t.rejects(put('_local/newer', pull('91-abcdefghijkl')), { code: 'unavailable' })
    await t.rejects(put('_local/other', pull('7-ABCDEFGHIJKL')), { code: 'unavailable' })
    await database.rememberTokens([{ token: '90', seq: 1 }])
    await t.rejects(put('_local/number', pull('7')), { code: 'unavailable' })
  },
)

t.test('nothing is stored of a list with another document, or for somebody else', async (t) => {
  const { database, get } = await openDatabase()
  await t.rejects(database.copyLocals(ADMIN, [checkpoint('0-1', 1), '{"_id":"a"}'], []), {
    code: 'illegal_docid',
  })
  await t.rejects(database.copyLocals(ADMIN, [checkpoint('1-b', 1)], []), { code: 'invalid_rev' })
  await t.rejects(database.copyLocals(ANNA, [checkpoint('0-1', 1)], []), { code: 'not_server_admin' })
  await t.rejects(get('_local/push'), { code: 'not_found' })
})

t.test('validate functions do not judge what another server has accepted', async (t) => {
  const { database, get, put } = await openDatabase()
  await put('_design/own', { validate_doc_update: 'function () { throw { forbidden: "not from you" } }' })
  const docs = [{ _id: 'a', _rev: '1-a' }]
  const body = { bytes: Buffer.from(JSON.stringify({ new_edits: false, docs })) }
  const answer: Uint8Array[] = []
  for await (const chunk of database.bulkDocs(ADMIN, body)) answer.push(chunk)
  t.match(Buffer.concat(answer).toString(), 'not from you')
  for await (const chunk of database.bulkDocs({ ...ADMIN, isCopying: true }, body)) answer.push(chunk)
  t.equal((await get('a'))._rev, '1-a')
})
