/** What the file of a database knows of itself, and its list of purges: what the disk has changed is made anew, or counts as lost. */
import { copyFileSync, mkdirSync, rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import type { DocState } from '../../../src/storage/engine.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import { isRolledBack } from '../../../src/storage/sequence.ts'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import { Meta } from '../../../src/storage/sqlite/meta.ts'
import { repairMeta } from '../../../src/storage/sqlite/meta-repair.ts'
import { checkCopy } from '../../../src/storage/sqlite/snapshot.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { attachment, put, remove } from '../conformance/edits.ts'
import { only } from '../conformance/setup.ts'

const folder = await mkdtemp(join(tmpdir(), 'settee-counters-'))
t.teardown(() => rmSync(folder, { recursive: true, force: true }))

async function opened(name: string) {
  const dataDir = join(folder, name)
  mkdirSync(join(dataDir, 'databases'), { recursive: true })
  const engine = sqliteEngine({ dataDir })
  const catalog = await engine.openCatalog()
  return { engine, catalog, path: join(dataDir, 'databases', 'notes.sqlite') }
}

async function purge(store: VersionedStore, id: string): Promise<void> {
  const decide = (doc: DocState | null) => {
    const revs = doc?.revisions().map(({ rev }) => rev) ?? []
    return { result: 0, write: { purged: [doc?.rev ?? ''], removed: revs, rest: null } }
  }
  await only(store.purgeDocs([{ id, readSet: { branches: true, revisions: true }, decide }]))
}

async function read(store: VersionedStore) {
  const { createdAt, sizes, compacting: _, epochs, settingsVersion, ...info } = await store.info()
  return {
    same: { ...info, external: sizes.external, partitioned: store.partitioned },
    createdAt,
    epochs,
    settingsVersion,
    purges: await store.readPurges(),
    garbage: (await store.garbage()).supersededBytes,
  }
}

/** Values that clients know, or that nothing else tells. */
const LOST: Readonly<Record<string, readonly string[]>> = {
  update_seq: ['wasRestored'],
  epochs: ['wasRestored'],
  created_at: ['wasRestored'],
  restored_at: ['wasRestored'],
  revs_limit: ['revsLimit'],
  purged_infos_limit: ['purgedInfosLimit'],
  design_version: ['designVersion'],
}

t.test('each value', async (t) => {
  const first = await opened('first')
  await first.catalog.create('notes', { partitioned: true })
  const store = await first.engine.openDatabase('notes')
  const ids = Array.from({ length: 20 }, (_, n) => `p:${n}`)
  await store.updateDocs(ids.map((id) => put(id, '{"text":"first"}')))
  await store.updateDocs(ids.slice(0, 9).map((id) => put(id, '{"text":"second"}')))
  await store.updateDocs([
    remove('p:1'),
    put('p:2', '{}', { attachments: [attachment('a', Buffer.alloc(99))] }),
  ])
  await store.updateSettings(() => ({ result: null, write: { revsLimit: 50, purgedInfosLimit: 500 } }))
  for (const id of ['p:3', 'p:4']) await purge(store, id)
  // The newest number is of a document that is gone.
  await store.updateDocs([put('p:new')])
  const { updateSeq, epochs } = await store.view()
  await purge(store, 'p:new')
  const truth = await read(store)
  const lastKnown = { epoch: epochs.at(-1)?.id as string, updateSeq }
  await first.engine.close()
  const file = new Sqlite(first.path, { readonly: true })
  const keys = file.prepare('SELECT key FROM meta').pluck().all() as string[]
  file.close()
  t.ok(keys.length > 12, keys.join())

  const changes = [
    "value = CASE typeof(value) WHEN 'text' THEN value || ' ' ELSE value + 1 END",
    "key = 'x' || key",
    'checksum = NULL',
  ]
  for (const key of keys) {
    for (const [n, change] of changes.entries()) {
      const again = await opened(`${key}-${n}`)
      copyFileSync(first.path, again.path)
      const outside = new Sqlite(again.path)
      outside.prepare(`UPDATE meta SET ${change} WHERE key = ?`).run(key)
      outside.close()
      const what = `${key}: ${change}`
      t.match(checkCopy(again.path).damage?.parts, [{ kind: 'counters' }], `${what}: a check finds it`)
      const mended = await again.engine.openDatabase('notes', { lastKnown })
      t.match(mended.damageAtOpening, { code: 'damaged_document', message: /Counters or settings/ }, what)
      const found = await read(mended)
      const isHidden = n === 1
      const names = isHidden ? Object.values(LOST).flat() : (LOST[key] ?? [])
      const without = (all: Record<string, unknown>) =>
        Object.fromEntries(Object.entries(all).filter(([name]) => !names.includes(name)))
      t.same(without(found.same), without(truth.same), `${what}: the same`)
      t.same(found.purges, truth.purges)
      t.equal(found.garbage, truth.garbage)
      t.ok(found.settingsVersion >= truth.settingsVersion)
      const isRestored = isHidden || names.includes('wasRestored')
      t.equal(found.same.wasRestored, isRestored)
      if (isRestored) {
        t.ok(found.createdAt > truth.createdAt, `${what}: it counts as restored`)
        t.ok(found.epochs.at(-1)?.restoredAt)
        t.ok(found.same.updateSeq >= updateSeq, `${what}: no number is given out twice`)
      } else t.notOk(isRolledBack({ epochs: found.epochs, updateSeq }, lastKnown))
      await mended.close()
      const whole = await again.engine.openDatabase('notes')
      t.equal(whole.damageAtOpening, null, `${what}: it is mended once`)
      await again.engine.close()
      t.equal(checkCopy(again.path).damage, null)
    }
  }
})

t.test('a damaged purge is as if it had been forgotten, and a check finds it', async (t) => {
  const { engine, path } = await opened('update_seq-2')
  const store = await engine.openDatabase('notes')
  t.same(
    (await store.readPurges()).map(({ seq }) => seq),
    [1, 2, 3],
  )
  await store.close()
  const outside = new Sqlite(path)
  outside.exec("UPDATE purge SET id = 'other' WHERE seq = 2")
  outside.close()
  const again = await engine.openDatabase('notes')
  t.same(
    (await again.readPurges()).map(({ seq }) => seq),
    [1, 3],
  )
  await engine.close()
  t.match(checkCopy(path).damage?.parts, [{ kind: 'purges' }])
})

t.test('a value that the disk returns wrong once is read again', async (t) => {
  const { engine, catalog, path } = await opened('lies')
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  await store.updateSettings(() => ({ result: null, write: { revsLimit: 50 } }))
  await engine.close()
  const connection = new Connection(path)
  t.teardown(() => connection.close())
  const changed = (sound: boolean) =>
    connection.prepare(`UPDATE meta SET value = ${sound ? 50 : 51} WHERE key = 'revs_limit'`).run()
  changed(false)
  const read = connection.pragma.bind(connection)
  connection.pragma = (text: string) => {
    if (text === 'shrink_memory') changed(true)
    return read(text)
  }
  t.notOk(repairMeta(connection, { now: Date.now() }))
  t.equal(new Meta(connection).get('revs_limit'), 50)
})
