import type { SettingsChange } from '../../../src/storage/engine.ts'
import { attachment, put } from './edits.ts'
import { openNotes, type StorageCases } from './setup.ts'

/** What a database keeps about itself. */
export const settingsCases: StorageCases = {
  'settings that were changed are seen in every view, also after a restart': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const security = { admins: { names: ['é'], roles: [] }, own: { z: [1, null], a: '\u{1F600}' } }
    const result = await store.updateSettings(() => ({ result: 'done', write: { security, revsLimit: 7 } }))
    t.equal(result, 'done')
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.hasStrict(await from.view(), { security, revsLimit: 7 })
      t.hasStrict(await from.info(), { security, revsLimit: 7 })
      t.same(await from.readDocs(['a'], (_doc, _id, view) => view.revsLimit), [7])
    }
  },

  'a database has the shards that it was created with, also after a restart': async (t, makeEngine) => {
    const { engine, reopen } = await makeEngine(t)
    const catalog = await engine.openCatalog()
    await catalog.create('usual')
    await catalog.create('sharded', { shards: 8 })
    t.equal((await engine.openDatabase('usual')).shards, 1)
    t.equal((await engine.openDatabase('sharded')).shards, 8)
    const again = await reopen()
    await again.openCatalog()
    t.hasStrict(await again.openDatabase('sharded'), { shards: 8, partitioned: false })
  },

  'a setting that is not named stays': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateSettings(() => ({ result: 0, write: { security: { x: 1 } } }))
    await store.updateSettings(() => ({ result: 0, write: { revsLimit: 3 } }))
    t.hasStrict(await store.view(), { security: { x: 1 }, revsLimit: 3 })
    await store.updateSettings(() => ({ result: 0, write: { security: {} } }))
    const { security, revsLimit } = await store.view()
    t.strictSame([security, revsLimit], [{}, 3], 'an empty security object is stored')
  },

  'a decision without a write changes nothing and gets its result': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const before = await store.view()
    t.strictSame(await store.updateSettings((view) => ({ result: view.updateSeq })), 1)
    t.same(await store.updateSettings(() => ({ result: 2, write: {} })), 2)
    t.same(await store.view(), before)
  },

  'a throw of decide rejects and changes nothing': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const before = await store.view()
    const thrown = new Error('not allowed')
    const error: unknown = await store
      .updateSettings(() => {
        throw thrown
      })
      .catch((caught: unknown) => caught)
    t.equal(error, thrown)
    t.same(await store.view(), before)
  },

  'changes of settings at the same time each see the one before': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateSettings(() => ({ result: 0, write: { revsLimit: 1 } }))
    const raise = () =>
      store.updateSettings(({ revsLimit }) => ({ result: 0, write: { revsLimit: revsLimit + 1 } }))
    await Promise.all(Array.from({ length: 20 }, raise))
    t.equal((await store.view()).revsLimit, 21)
  },

  'a database that becomes a copy remembers which checkpoints it has refused, also after a restart': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const meet = (from: typeof store) =>
      from.updateLocals([
        {
          id: '_local/a',
          decide: (_doc, { wasRestored }, wasChecked) => ({
            result: [wasRestored, wasChecked],
            checked: true,
          }),
        },
      ])
    t.same(await meet(store), [{ result: [false, false] }])
    await store.updateSettings(() => ({ result: 0, write: { wasRestored: true } }))
    t.same(await meet(store), [{ result: [true, false] }])
    t.same(await meet((await reopen()).store), [{ result: [true, true] }])
  },

  'a thousand purges are remembered unless a setting says otherwise': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    t.equal((await store.view()).purgedInfosLimit, 1000)
    await store.updateSettings(() => ({ result: 0, write: { purgedInfosLimit: 3 } }))
    t.hasStrict(await store.view(), { purgedInfosLimit: 3, revsLimit: 1000 })
    t.equal((await (await reopen()).store.view()).purgedInfosLimit, 3)
  },

  'the design version grows by one with each write of a design document, and with no other': async (
    t,
    makeEngine,
  ) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const version = async () => (await store.view()).designVersion
    t.equal(await version(), 0)
    await store.updateDocs([put('a'), put('_design/x', '{}', { design: true }), put('b')])
    t.equal(await version(), 1)
    await store.updateDocs([
      put('_design/x', '{"n":2}', { design: true }),
      put('_design/x', '{}', { design: true, deleted: true }),
    ])
    await store.updateSettings(() => ({ result: 0, write: { revsLimit: 5 } }))
    t.equal(await version(), 3)
    const seen = await store.updateDocs([{ id: 'a', bytes: 1, decide: (_doc, view) => ({ result: view }) }])
    t.hasStrict(seen, [{ result: { designVersion: 3 } }])
    t.equal((await (await reopen()).store.view()).designVersion, 3)
  },

  'the design version does not move with a write that is rejected': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const content = { blob: 99 }
    const gone = { ...attachment('x', Buffer.from('gone')), content }
    const outcomes = await store.updateDocs([
      put('_design/x', '{}', { design: true, attachments: [gone] }),
      put('_design/y', '{}', { design: true }),
    ])
    t.same(
      outcomes.map((outcome) => 'error' in outcome),
      [true, false],
    )
    t.hasStrict(await store.view(), { designVersion: 1, docCount: 1, updateSeq: 1 })
  },

  'the settings version grows with each change of a setting, a design document or the epochs, and with nothing else':
    async (t, makeEngine) => {
      const { store, reopen } = await openNotes(t, makeEngine)
      let last = 0
      const grows = async (from: typeof store, what: string, isGrowth = true) => {
        const { settingsVersion } = await from.view()
        if (isGrowth) t.ok(settingsVersion > last, `${what} is a change`)
        else t.equal(settingsVersion, last, `${what} is none`)
        last = settingsVersion
      }
      last = (await store.view()).settingsVersion
      const { epochs } = await store.view()
      await store.updateDocs([put('a')])
      await grows(store, 'the first write', (await store.view()).epochs.length > epochs.length)
      await store.updateDocs([put('a', '{"n":1}'), put('b')])
      await store.purgeDocs([{ id: 'b', decide: () => ({ result: 0 }) }])
      await store.updateLocals([
        { id: '_local/a', decide: () => ({ result: 0, write: { rev: 1, body: '{}' } }) },
      ])
      await store.updateSettings(() => ({ result: 0, write: {} }))
      await grows(store, 'what writes documents', false)
      const changes: SettingsChange[] = [
        { security: { x: 1 } },
        { revsLimit: 5 },
        { purgedInfosLimit: 5 },
        { wasRestored: true },
      ]
      for (const write of changes) {
        await store.updateSettings(() => ({ result: 0, write }))
        await grows(store, Object.keys(write).join())
      }
      await store.updateDocs([put('_design/x', '{}', { design: true })])
      await grows(store, 'a design document')
      const again = (await reopen()).store
      await grows(again, 'a restart', false)
      const before = await again.view()
      await again.updateDocs([put('c')])
      const after = await again.view()
      await grows(again, 'a write after it', after.epochs.length > before.epochs.length)
    },

  'a database that is marked as restored has a greater settings version': async (t, makeEngine) => {
    const { store, catalog, engine } = await openNotes(t, makeEngine)
    await store.updateSettings(() => ({ result: 0, write: { revsLimit: 5 } }))
    const { settingsVersion } = await store.view()
    await store.close()
    await catalog.replace('notes', null)
    const restored = await engine.openDatabase('notes')
    t.ok((await restored.view()).settingsVersion > settingsVersion)
  },

  'settings take no sequence number': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a')])
    const { updateSeq, epochs } = await store.view()
    await store.updateSettings(() => ({ result: 0, write: { security: { x: 1 }, revsLimit: 5 } }))
    t.hasStrict(await store.view(), { updateSeq, epochs })
  },
}
