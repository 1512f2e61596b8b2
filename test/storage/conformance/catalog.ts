import { CouchError } from '../../../src/core/errors.ts'
import { put, readOne } from './edits.ts'
import { entriesOf, openNotes, rejectsWith, type StorageCases } from './setup.ts'

/** The list of databases, and what belongs to the server. */
export const catalogCases: StorageCases = {
  'the server uuid is 32 hex digits for the life of the data': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const { serverUuid } = await engine.openCatalog()
    t.match(serverUuid, /^[0-9a-f]{32}$/)
    t.equal((await (await reopen()).openCatalog()).serverUuid, serverUuid)
  },

  'an adopted uuid is shown from then on, and the one of the data stays': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    const { folderUuid } = catalog
    t.equal(catalog.serverUuid, folderUuid)
    const adopted = '85fb71bf-700c-4f5e-8f4c-9f4b1d2e3c4d'
    await catalog.adoptUuid(adopted)
    for (const bad of ['', 'a'.repeat(65), 'a/b', 'a\n']) {
      await rejectsWith(t, catalog.adoptUuid(bad), 'bad_request')
    }
    t.same([catalog.serverUuid, catalog.folderUuid], [adopted, folderUuid])
    const again = await (await reopen()).openCatalog()
    t.same([again.serverUuid, again.folderUuid], [adopted, folderUuid])
  },

  'without shared writers, the catalog has one holder at a time, and the error for a second one names it':
    async (t, makeEngine) => {
      const { engine, reopen } = await makeEngine(t)
      await engine.openCatalog()
      if (engine.capabilities.sharedWriters) return
      const error: unknown = await engine.openCatalog().catch((thrown: unknown) => thrown)
      if (!(error instanceof Error)) {
        t.fail('a second call must reject with an Error')
        return
      }
      t.notOk(error instanceof CouchError, 'a plain Error')
      t.match(error.message, /held|holds|in use|process/i)
      await (await reopen()).openCatalog()
    },

  'capabilities are booleans': async (t, makeEngine) => {
    const { capabilities } = (await makeEngine(t)).engine
    t.type(capabilities.durable, 'boolean')
    t.type(capabilities.sharedWriters, 'boolean')
  },

  'an engine without copies takes no draft for a database': async (t, makeEngine) => {
    const { engine, catalog, store } = await openNotes(t, makeEngine)
    await store.close()
    if (engine.copies === null) await rejectsWith(t, catalog.replace('notes', 'draft'), 'no_copies')
    else await t.rejects(catalog.replace('notes', 'no draft'))
    await (await engine.openDatabase('notes')).close()
  },

  'an engine and a store are closed twice without an error': async (t, makeEngine) => {
    const { engine, store } = await openNotes(t, makeEngine)
    await store.close()
    await store.close()
    await engine.close()
    await engine.close()
  },

  'closing an engine waits for the writes of its open databases': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const writing = store.updateDocs([put('a')])
    const again = await reopen()
    const [outcome] = await writing
    t.same(outcome, { result: (await readOne(again.store, 'a'))?.rev })
  },

  'a database that was made is listed, with the same incarnation after a restart': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    t.same(await entriesOf(catalog), [])
    const names = ['notes', 'notes/of-mine', 'a_$()+-/0', '_users', 'notes2']
    const made = []
    for (const name of names) made.push(await catalog.create(name))
    t.same(
      made.map(({ name }) => name),
      names,
    )
    const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1)
    t.same((await entriesOf(catalog)).sort(byName), made.sort(byName))
    const again = await (await reopen()).openCatalog()
    t.same((await entriesOf(again)).sort(byName), made)
  },

  'databases are found by their names, and listed in pages': async (t, makeEngine) => {
    const { engine } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    for (const name of ['b', 'a', 'a/b', 'a0', 'c']) await catalog.create(name)
    t.same(await catalog.find('no'), null)
    t.hasStrict(await catalog.find('a/b'), { name: 'a/b' })
    t.equal(await catalog.count(), 5)
    t.same(await catalog.names({}, 2), ['a', 'a/b'])
    t.same(await catalog.names({ after: 'a/b' }, 2), ['a0', 'b'])
    t.same(await catalog.names({ from: 'a0' }, 2), ['a0', 'b'])
    t.same(await catalog.names({ prefix: 'a', after: 'a' }, 9), ['a/b', 'a0'])
    t.same(await catalog.names({ prefix: 'b', from: 'a' }, 9), ['b'])
    t.same(await catalog.names({ descending: true }, 2), ['c', 'b'])
    t.same(await catalog.names({ descending: true, from: 'bb', after: 'b' }, 9), ['a0', 'a/b', 'a'])
    t.same(await catalog.names({ descending: true, prefix: 'a', after: 'a0' }, 9), ['a/b', 'a'])
    t.same(await catalog.names({}, 0), [])
    await catalog.delete('a0')
    t.same([await catalog.count(), await catalog.find('a0')], [4, null])
    t.same(await catalog.names({ prefix: 'a' }, 9), ['a', 'a/b'])
  },

  'a name is given once: file_exists': async (t, makeEngine) => {
    const { catalog, store, reopen } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    await rejectsWith(t, catalog.create('notes'), 'file_exists')
    t.ok(await readOne(store, 'a'), 'the database keeps its documents')
    await rejectsWith(t, (await reopen()).catalog.create('notes'), 'file_exists')
  },

  'of two that make the same database at once, one does': async (t, makeEngine) => {
    const { engine } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    const both = await Promise.allSettled([catalog.create('notes'), catalog.create('notes')])
    t.same(both.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
    t.equal((await entriesOf(catalog)).length, 1)
  },

  'a new database is empty': async (t, makeEngine) => {
    const before = Math.floor(Date.now() / 1000)
    const { store, reopen } = await openNotes(t, makeEngine)
    const info = await store.info()
    t.hasStrict(info, { name: 'notes', updateSeq: 0, docCount: 0, deletedCount: 0, purgeSeq: 0 })
    t.ok(info.createdAt >= before && info.createdAt <= Date.now() / 1000, 'made just now')
    t.equal(info.security, null)
    t.ok(info.revsLimit >= 1)
    t.equal(info.epochs[0].firstSeq, 0, 'every number has an owner')
    t.equal(info.sizes.external, 0)
    t.equal((await (await reopen()).store.info()).createdAt, info.createdAt)
  },

  'databases share no documents': async (t, makeEngine) => {
    const { engine, catalog, store } = await openNotes(t, makeEngine)
    await catalog.create('other')
    const other = await engine.openDatabase('other')
    await Promise.all([store.updateDocs([put('a'), put('b')]), other.updateDocs([put('a', '{"other":1}')])])
    t.equal((await store.view()).docCount, 2)
    t.equal((await other.view()).docCount, 1)
    t.equal((await other.info()).name, 'other')
    t.equal((await readOne(other, 'a'))?.revisions[0]?.body, '{"other":1}')
  },

  'a database that is not there is neither opened nor deleted: no_database': async (t, makeEngine) => {
    const { engine, catalog } = await openNotes(t, makeEngine)
    await rejectsWith(t, engine.openDatabase('other'), 'no_database')
    await rejectsWith(t, catalog.delete('other'), 'no_database')
    t.equal((await entriesOf(catalog)).length, 1, 'the failed attempt creates no entry')
  },

  'a deleted database is gone, also after a restart': async (t, makeEngine) => {
    const { engine, catalog, store, reopenEngine } = await openNotes(t, makeEngine)
    await store.close()
    await catalog.delete('notes')
    t.same(await entriesOf(catalog), [])
    await rejectsWith(t, engine.openDatabase('notes'), 'no_database')
    await rejectsWith(t, catalog.delete('notes'), 'no_database')
    const again = await reopenEngine()
    t.same(await entriesOf(await again.openCatalog()), [])
    await rejectsWith(t, again.openDatabase('notes'), 'no_database')
  },

  'a database made under a deleted one’s name is empty': async (t, makeEngine) => {
    const { engine, catalog, store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    await store.updateLocals([
      { id: '_local/l', decide: () => ({ result: 0, write: { rev: 1, body: '{}' } }) },
    ])
    await store.updateSettings(() => ({ result: 0, write: { security: { x: 1 } } }))
    const [old] = (await store.view()).epochs.slice(-1)
    await store.close()
    await catalog.delete('notes')
    await catalog.create('notes')
    const later = await engine.openDatabase('notes')
    t.hasStrict(await later.view(), { updateSeq: 0, docCount: 0, deletedCount: 0, security: null })
    t.same(await later.readLocals(['_local/l']), [null])
    t.notOk(
      (await later.view()).epochs.some(({ id }) => id === old?.id),
      'tokens of the old one mean nothing',
    )
  },

  'an incarnation is never given twice': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const given: number[] = []
    const make = async (catalog: Awaited<ReturnType<typeof engine.openCatalog>>, name: string) => {
      given.push((await catalog.create(name)).incarnation)
    }
    const catalog = await engine.openCatalog()
    await make(catalog, 'a')
    await make(catalog, 'b')
    await catalog.delete('b')
    await make(catalog, 'b')
    await catalog.delete('b')
    await catalog.delete('a')
    const again = await (await reopen()).openCatalog()
    await make(again, 'a')
    await make(again, 'b')
    t.equal(new Set(given).size, given.length, `all of ${given} differ`)
  },
}
