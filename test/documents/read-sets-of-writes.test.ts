/** What writes declare of the stored documents: no usual write misses anything. */
import t from 'tap'
import { DEFAULT_LIMITS, DEFAULT_RULES, type UserCtx } from '../../src/core/types.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { Misses, strictDocuments } from '../storage/memory/strict.ts'
import { ADMIN, body, openDatabase, openOn, text } from './helpers.ts'

const STUB = { note: { stub: true } }
const CONTENT = { note: { content_type: 'text/plain', data: 'eA==' } }

async function openStrict() {
  const misses = new Misses()
  const opened = await openDatabase({}, { withDocument: strictDocuments(misses) })
  return { ...opened, misses }
}

t.test('an edit of one document', async (t) => {
  const { put, replicate, database, misses } = await openStrict()
  let _rev = await put('a', { n: 1 })
  for (let n = 2; n < 6; n++) _rev = await put('a', { _rev, n })
  await t.rejects(put('a', { n: 7 }), { code: 'conflict' })
  await t.rejects(put('a', { _rev: '1-a', n: 7 }), { code: 'conflict' })
  await put('a', { _rev, _deleted: true })
  await put('a', { n: 8 })
  t.same(misses.take(), [], 'edits, refused edits, a tombstone, a recreated document')

  _rev = await put('b', { _attachments: CONTENT })
  _rev = await put('b', { _rev, _attachments: STUB })
  await t.rejects(put('b', { _rev, _attachments: { other: { stub: true } } }), { code: 'missing_stub' })
  t.same(misses.take(), [], 'stubs')

  const options = { type: 'text/plain', encoding: null, rev: _rev }
  const { rev } = await database.putAttachment(ADMIN, 'b', 'file', body('text'), options)
  await database.removeAttachment(ADMIN, 'b', 'file', rev)
  t.same(misses.take(), [], 'an attachment that comes and goes')

  await replicate('c', { start: 2, ids: ['b', 'a'] }, { start: 2, ids: ['x', 'a'] })
  await put('c', { _rev: '2-b', _deleted: true })
  await put('c', { _rev: '2-x', n: 1 })
  t.same(misses.take(), [], 'a conflict that is resolved')

  await put('_design/d', { views: { v: { map: 'function (doc) { emit(doc._id) }' } } })
  t.same(misses.take(), [], 'a design document')
})

t.test('replicated revisions', async (t) => {
  const { replicate, bulk, misses } = await openStrict()
  await replicate('a', { start: 1, ids: ['a'] })
  await replicate('a', { start: 2, ids: ['b', 'a'] })
  await replicate('a', { start: 2, ids: ['b', 'a'] })
  await replicate('a', { start: 1, ids: ['a'] })
  await replicate('a', { start: 5, ids: ['e', 'd', 'c', 'b', 'a'] })
  await replicate('a', { start: 6, ids: ['f', 'e'] })
  t.same(misses.take(), [], 'one branch')
  await replicate('a', { start: 3, ids: ['z', 'b', 'a'] })
  await replicate('a', { start: 4, ids: ['y', 'z', 'b', 'a'] }, { start: 7, ids: ['g', 'f'], deleted: true })
  await replicate('a', { start: 2, ids: ['other', 'root'] })
  t.same(misses.take(), [], 'conflicts, with and without a common ancestor')
  const doc = { _attachments: { note: { ...CONTENT.note, revpos: 1 } } }
  await replicate('b', { start: 1, ids: ['a'], doc })
  const stubbed = { _attachments: { note: { stub: true, revpos: 1 } } }
  await replicate('b', { start: 3, ids: ['c', 'b', 'a'], doc: stubbed })
  t.same(misses.take(), [], 'stubs of an ancestor')
  const docs = Array.from({ length: 300 }, (_, n) => ({ _id: `n${n}`, _rev: '1-a', n }))
  await bulk({ new_edits: false, docs })
  t.same(misses.take(), [], 'new documents')
})

t.test('bulk requests', async (t) => {
  const { bulk, misses } = await openStrict()
  const ids = Array.from({ length: 300 }, (_, n) => `doc-${n}`)
  const first = await bulk({ docs: ids.map((_id) => ({ _id, _attachments: CONTENT })) })
  const revOf = (n: number) => first[n].rev as string
  await bulk({ docs: ids.map((_id, n) => ({ _id, _rev: revOf(n), _attachments: STUB })) })
  await bulk({ docs: ids.map((_id, n) => ({ _id, _rev: revOf(n), n })) })
  await bulk({ docs: [{ _id: 'x' }, { _id: 'x', n: 2 }, { _id: 'y' }, { _id: '_local/z' }] })
  t.same(misses.take(), [])
})

t.test('writes that functions check', async (t) => {
  const misses = new Misses()
  const { bulk, put, replicate } = await openOn(memoryEngine({ withDocument: strictDocuments(misses) }))
  await put('_design/rules', {
    validate_doc_update:
      'function (doc, old) { if (old && old.locked && !doc._deleted) throw { forbidden: "locked" } }',
  })
  const _rev = await put('a', { locked: true, _attachments: CONTENT })
  await t.rejects(put('a', { _rev, _attachments: STUB }), { code: 'forbidden' })
  await replicate('b', { start: 1, ids: ['a'] }, { start: 3, ids: ['c', 'b', 'a'] })
  await bulk({ docs: [{ _id: 'a', _rev, _deleted: true }, { _id: 'c' }, { _id: 'c' }] })
  t.same(misses.take(), [])
})

t.test('writes near a quota, and on a full disk', async (t) => {
  const misses = new Misses()
  const engine = memoryEngine({ withDocument: strictDocuments(misses) })
  const { incarnation } = await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  const space = { free: Number.POSITIVE_INFINITY, floor: 1 }
  const database = storeDatabase(store, {
    ...{ name: 'notes', incarnation, sandbox: localSandbox() },
    limits: () => DEFAULT_LIMITS,
    rules: () => DEFAULT_RULES,
    onSecured: () => undefined,
    startCompaction: async () => undefined,
    space: () => space,
  })
  const put = async (user: UserCtx, id: string, doc: object) =>
    (await database.put(user, id, body(doc), {})).rev
  const [whole = '', left = ''] = [
    await put(ADMIN, 'a', {}),
    await put(ADMIN, 'b', { long: 'x'.repeat(5000) }),
  ]
  const owner: UserCtx = {
    ...ADMIN,
    allowance: {
      bytes: { limit: 5000, others: 0, here: 5000 },
      documents: { limit: 3, others: 0 },
      indexes: { limit: 1, others: 0 },
      maxDocumentSize: 10_000,
    },
  }
  await t.rejects(put(owner, 'a', { _rev: whole, n: 1 }), { code: 'forbidden' })
  await put(owner, 'a', { _rev: whole, _deleted: true })
  const tombstone = { _id: 'b', _rev: left, _deleted: true, long: 'x'.repeat(3000) }
  await text(database.bulkDocs(owner, body({ docs: [tombstone] })))
  space.free = 0
  await t.rejects(put(ADMIN, 'c', { n: 1 }), { code: 'insufficient_storage' })
  t.same(misses.take(), [])
})
