/** What a database takes while its disk is short of room. */
import t from 'tap'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { ENGINES } from './engines.ts'
import { ADMIN, ANNA, body, type Json, jsonOf, replicated } from './helpers.ts'

const REFUSED = { code: 'insufficient_storage', reason: /MB are free/ }
const ROW = { error: 'insufficient_storage', reason: /MB are free/ }

for (const [name, makeEngine] of Object.entries(ENGINES)) {
  t.test(name, async (t) => {
    const engine = await makeEngine(t)
    const { incarnation } = await (await engine.openCatalog()).create('notes')
    const store = await engine.openDatabase('notes')
    const disk = { free: 100, floor: 0 }
    const database = storeDatabase(store, {
      name: 'notes',
      limits: () => DEFAULT_LIMITS,
      rules: () => DEFAULT_RULES,
      space: () => disk,
      onSecured: () => undefined,
      sandbox: localSandbox(),
      incarnation,
      startCompaction: () => undefined,
    })
    const put = (id: string, doc: object = {}) => database.put(ADMIN, id, body(doc), {})
    const bulk = (request: object): Promise<Json> => jsonOf(database.bulkDocs(ADMIN, body(request)))
    const { rev } = await put('a', { text: 'a' })
    const b = await put('b')
    const c = await put('c')
    const file = { type: 'text/plain', encoding: null }
    const withFile = await database.putAttachment(ADMIN, 'd', 'file', body('content'), file)
    disk.floor = 1000

    t.test('what grows is refused', async (t) => {
      await t.rejects(put('new'), REFUSED)
      await t.rejects(put('a', { _rev: rev }), REFUSED)
      await t.rejects(database.post(ADMIN, body({})), REFUSED)
      await t.rejects(database.copy(ADMIN, { id: 'a' }, { id: 'copy' }), REFUSED)
      await t.rejects(database.putAttachment(ADMIN, 'a', 'file', body('x'), { ...file, rev }), REFUSED)
      await t.rejects(
        database.putAttachment(ADMIN, 'a', 'file', body('x'.repeat(1e6)), { ...file, rev }),
        REFUSED,
      )
      await t.rejects(
        put('a', { _rev: rev, _deleted: true, text: 'x'.repeat(5000) }),
        REFUSED,
        'a large tombstone',
      )
      await t.rejects(put('a', { _rev: '1-abc' }), { code: 'conflict' }, 'what is wrong anyway is told that')
    })

    t.test('who may not write is told that', async (t) => {
      await database.setSecurity(ADMIN, { members: { names: ['bob'] } })
      await t.rejects(database.put(ANNA, 'new', body({}), {}), { code: 'forbidden' })
      await database.setSecurity(ADMIN, {})
    })

    t.test('a bulk has a row for each, and a push fails as a whole when one was refused', async (t) => {
      const gone = { _id: 'b', _rev: b.rev, _deleted: true }
      t.match(await bulk({ docs: [{ _id: 'new' }, gone] }), [
        { id: 'new', ...ROW },
        { ok: true, id: 'b' },
      ])
      await t.rejects(bulk({ docs: [{ _id: 'new' }] }), REFUSED)
      const known = replicated('a', { start: 1, ids: [rev.slice(2)], doc: { text: 'a' } })
      const tombstone = replicated('c', { start: 2, ids: ['f'.repeat(32), c.rev.slice(2)], deleted: true })
      t.same(await bulk({ new_edits: false, docs: [known] }), [], 'what is stored already')
      await t.rejects(bulk({ new_edits: false, docs: [{ _id: 'new', _rev: '1-a' }, tombstone] }), REFUSED)
      await t.rejects(database.open(ADMIN, 'c', {}), { code: 'deleted' }, 'its deletions are stored')
    })

    t.test('what helps is taken', async (t) => {
      await t.resolves(database.removeAttachment(ADMIN, 'd', 'file', withFile.rev))
      await t.resolves(database.put(ADMIN, '_local/checkpoint', body({ last: 1 }), {}))
      await t.resolves(database.setRevsLimit(ADMIN, 10))
      await t.resolves(database.remove(ADMIN, 'a', rev))
      t.match(await jsonOf(database.allDocs(ADMIN, 'all', {}, null)), { total_rows: 1 })
      await t.resolves(database.compact(ADMIN))
    })

    t.test('when there is room again everything is taken', async (t) => {
      disk.floor = 0
      await t.resolves(put('new'))
      t.same(await bulk({ new_edits: false, docs: [{ _id: 'pushed', _rev: '1-a' }] }), [])
    })
  })
}
