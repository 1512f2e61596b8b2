/** What comes between a rewind's look at documents and its writing of them. */
import { setTimeout as delay } from 'node:timers/promises'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { ENGINES } from './engines.ts'
import { ADMIN, body, type Json, type Opened, openOn, text } from './helpers.ts'

const FILE = { f: { content_type: 'text/plain', data: Buffer.from('what it was').toString('base64') } }

/** A database over the same store, with something else in the place of its `updateDocs`. */
function amended(opened: Opened, updateDocs: VersionedStore['updateDocs']) {
  const store = new Proxy(opened.store, {
    get: (target, name) => {
      if (name === 'updateDocs') return updateDocs
      const value: unknown = Reflect.get(target, name, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
  return storeDatabase(store, {
    name: 'notes',
    limits: () => DEFAULT_LIMITS,
    rules: () => DEFAULT_RULES,
    onSecured: () => undefined,
    sandbox: localSandbox(),
    incarnation: 1,
    startCompaction: () => undefined,
  })
}

async function linesOf(stream: AsyncIterable<Uint8Array>): Promise<Json[]> {
  const lines = (await text(stream)).trim().split('\n')
  return lines.map((line) => JSON.parse(line))
}

/** A time between what was done before and what will be done after. */
async function between(): Promise<number> {
  await delay(3)
  const time = Date.now()
  await delay(3)
  return time
}

for (const [name, makeEngine] of Object.entries(ENGINES)) {
  t.test(`${name}: a compaction takes away nothing that is about to be written`, async (t) => {
    const opened = await openOn(await makeEngine(t))
    const { store } = opened
    for (const ids of [undefined, ['a']]) {
      const was = await opened.get('a').catch(() => ({}))
      const rev = await opened.put('a', { ...was, n: 1, _attachments: FILE })
      const then = await between()
      await opened.put('a', { _rev: rev, n: 2 })
      const busy = amended(opened, async (updates) => {
        await store.compact()
        return store.updateDocs(updates)
      })
      const asked = { at: then, dryRun: false, ...(ids && { ids }) }
      const lines = await linesOf(busy.rewind(ADMIN, asked))
      t.match(lines.at(-1), { done: true, counts: { restored: 1 } })
      t.match(await opened.get('a', { attachments: true }), {
        n: 1,
        _attachments: { f: { data: FILE.f.data } },
      })
      await store.compact()
      t.match(await opened.get('a', { attachments: true }), { _attachments: { f: { data: FILE.f.data } } })
    }
  })

  t.test(`${name}: it breaks off where the store fails, and goes on when it is asked again`, async (t) => {
    const opened = await openOn(await makeEngine(t))
    const docs = Array.from({ length: 600 }, (_, n) => ({ _id: `d${String(n).padStart(3, '0')}`, n }))
    const made: { id: string; rev: string }[] = await opened.bulk({ docs })
    const then = await between()
    await opened.bulk({ docs: made.map(({ id, rev }) => ({ _id: id, _rev: rev, n: 'spoilt' })) })
    for (const code of ['disk_fault', 'damaged_file', 'insufficient_storage'] as const) {
      let calls = 0
      const broken = amended(opened, async (updates) => {
        calls += 1
        if (calls < 2) return opened.store.updateDocs(updates)
        return updates.map(() => ({ error: new CouchError(code) }))
      })
      const lines = await linesOf(broken.rewind(ADMIN, { at: then, dryRun: false }))
      t.match(lines.at(-1), { error: new CouchError(code).toBody().error, counts: { refused: 0 } })
      t.equal(lines.filter(({ done }) => done).length, 0)
    }
    const lines = await linesOf(opened.database.rewind(ADMIN, { at: then, dryRun: false }))
    t.match(lines.at(-1), { done: true, looked_at: 600 })
    for (const { _id, n } of docs) t.equal((await opened.get(_id)).n, n)
    const again = await linesOf(opened.database.rewind(ADMIN, { at: then, dryRun: false }))
    t.match(again.at(-1), { counts: { unchanged: 600 } })
  })

  t.test(`${name}: a document whose winner of then was purged is left alone`, async (t) => {
    const opened = await openOn(await makeEngine(t))
    const { database, replicate } = opened
    await replicate('a', { start: 1, ids: ['x'] })
    await delay(3)
    await replicate('a', { start: 2, ids: ['y', 'x'] })
    const then = await between()
    await replicate('a', { start: 2, ids: ['z', 'x'], doc: { n: 'later' } })
    await database.purge(ADMIN, body({ a: ['2-y'] }))
    const lines = await linesOf(database.rewind(ADMIN, { at: then, dryRun: false }))
    t.match(lines.at(-1), { counts: { deleted: 0, expired: 1 } })
    t.equal((await opened.get('a')).n, 'later')
  })
}
