/** Hosted mode never starts a sandbox thread, even if a database has functions from before. */
import t, { type Test } from 'tap'
import { HOSTED_POLICY } from '../../src/config/settings.ts'
import { DEFAULT_RULES, DEFAULT_SETTINGS } from '../../src/core/types.ts'
import { ADMIN, body, chunksOf } from '../documents/helpers.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { put, type Served, serve } from './served.ts'

const HOSTED = { ...DEFAULT_SETTINGS, rules: { ...DEFAULT_RULES, policy: HOSTED_POLICY } }
const NO_THREAD = new URL('./no-thread.mjs', import.meta.url)
const PAGE = {
  since: '0',
  limit: 10,
  options: {
    style: 'main_only',
    descending: false,
    includeDocs: false,
    conflicts: false,
    attachments: false,
    attEncodingInfo: false,
    seqInterval: 1,
    framing: 'json',
  },
} as const

/** Hosted mode on a database whose design document needs a sandbox thread for each operation. */
async function hostedAfter(t: Test): Promise<Served> {
  const dataDir = await temporaryFolder(t)
  const { databases } = await serve(t, { dataDir })
  await databases.create('notes')
  await put(await databases.get('notes'), '_design/d', {
    validate_doc_update: 'function () { throw { forbidden: "it has run" } }',
    filters: { plain: 'function (doc) { return true }', other: 'function (doc) { return !!doc.n }' },
    views: { v: { map: 'function (doc) { emit(doc._id) }' } },
  })
  await databases.close()
  return serve(t, { dataDir, settings: HOSTED, sandboxEntry: NO_THREAD })
}

t.test('writes are not validated, and views and filter functions are refused', async (t) => {
  const { databases, faults } = await hostedAfter(t)
  const notes = await databases.get('notes')
  await put(notes, 'a', { n: 1 })
  await chunksOf(notes.bulkDocs(ADMIN, body({ docs: [{ _id: 'b' }, { _id: 'c' }] })))
  t.equal((await notes.info(ADMIN)).doc_count, 4)
  const refused = { code: 'hosted_function', status: 403 }
  for (const filter of [
    { kind: 'function', ddoc: '_design/d', name: 'plain', request: '{}' },
    { kind: 'function', ddoc: '_design/d', name: 'other', request: '{}' },
    { kind: 'view', ddoc: '_design/d', name: 'v' },
  ] as const) {
    const options = { ...PAGE.options, filter }
    await t.rejects(notes.changes(ADMIN, { ...PAGE, options }), refused, filter.name)
  }
  await t.rejects(chunksOf(notes.view(ADMIN, '_design/d', 'v', [], null)), refused)
  await t.rejects(chunksOf(notes.viewQueries(ADMIN, '_design/d', 'v', body({ queries: [{}] }), [])), refused)
  await t.rejects(notes.viewInfo(ADMIN, '_design/d'), refused)
  await t.rejects(put(notes, '_design/e', { views: { v: { map: 'function () {}' } } }), {
    code: 'hosted_design',
  })
  t.same(faults, [], 'no sandbox thread was started')
})

t.test('the right to read is checked first', async (t) => {
  const { databases } = await hostedAfter(t)
  const notes = await databases.get('notes')
  const nobody = { name: null, roles: [] }
  const refused = { code: 'unauthorized' }
  await t.rejects(chunksOf(notes.view(nobody, '_design/d', 'v', [], null)), refused)
  await t.rejects(notes.viewInfo(nobody, '_design/d'), refused)
  const options = { ...PAGE.options, filter: { kind: 'view', ddoc: '_design/d', name: 'v' } as const }
  await t.rejects(notes.changes(nobody, { ...PAGE, since: 0, options }), refused)
  await t.rejects(notes.put(nobody, '_design/x', body({}), {}), refused)
})

t.test('in single mode, the same database starts a sandbox thread', async (t) => {
  const { databases, faults } = await serve(t, { sandboxEntry: NO_THREAD })
  await databases.create('notes')
  const notes = await databases.get('notes')
  await put(notes, '_design/d', { validate_doc_update: 'function () {}' })
  await t.rejects(put(notes, 'a'))
  t.ok(faults.length > 0)
})
