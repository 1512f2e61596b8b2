/** The leaves that are known to be damaged, until they are written again. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import type { CouchError } from '../../../src/core/errors.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { attachment, put, write } from '../conformance/edits.ts'

const ATTACHED = { attachments: [attachment('picture', Buffer.from('the bytes of a picture'))] }

/** The revision of a document, and its known damaged leaves. */
async function known(store: DatabaseStore, id: string) {
  const [found] = await store.readDocs([id], (doc) => ({
    rev: doc?.rev,
    leaves: [...(doc?.damagedLeaves ?? [])],
  }))
  return found as { rev: string; leaves: string[] }
}

/** Writes a leaf again, as a device that has it does. */
async function again(store: DatabaseStore, id: string) {
  const { rev } = await known(store, id)
  const content = { body: '{"again":true}', attachments: [] }
  const revisions = [{ rev, deleted: false, ancestry: [rev.slice(2)], content }]
  const [outcome] = await store.updateDocs([write(id, { rev, deleted: false, sequenced: true, revisions })])
  return outcome
}

t.test('damaged leaves are kept over a restart until they are written again', async (t) => {
  const dataDir = await temporaryFolder(t)
  const events: unknown[] = []
  let fails = false
  const open = async () => {
    const engine = sqliteEngine({
      dataDir,
      onOperation: (operation) => {
        if (fails && operation === 'COMMIT') throw new Error('no commit')
      },
      watch: {
        onDamagedLeaf: (database) => events.push(['damaged', database]),
        onRestored: (database, leaves, rest) => events.push(['restored', database, leaves, rest]),
      },
    })
    const catalog = await engine.openCatalog()
    t.teardown(() => engine.close())
    return { engine, catalog }
  }
  const first = await open()
  await first.catalog.create('notes')
  const filled = await first.engine.openDatabase('notes')
  t.equal(filled.needsDevices, false)
  await filled.updateDocs([
    put('a', '{"text":"a"}'),
    put('b', '{"text":"b"}'),
    put('c', '{"text":"c"}', ATTACHED),
  ])
  await first.engine.close()
  const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'))
  file.exec(`UPDATE revision SET body = replace(body, 'text', 'test') WHERE attachments = 0`)
  file.exec('UPDATE chunk SET data = zeroblob(length(data))')
  file.close()

  const second = await open()
  const damaged = await second.engine.openDatabase('notes')
  for (const id of ['a', 'b']) {
    t.same((await known(damaged, id)).leaves, [], 'nothing is known before it is read')
    await t.rejects(
      damaged.readDocs([id], (doc) => doc?.body(doc.rev)),
      { code: 'damaged_document' },
    )
    const { rev, leaves } = await known(damaged, id)
    t.same(leaves, [rev])
  }
  const [blob] = await damaged.readDocs(['c'], (doc) => doc?.attachments(doc.rev)[0]?.blob)
  await t.rejects(damaged.readBlob(blob as number, 0, 10), { code: 'damaged_document' })
  t.equal((await known(damaged, 'c')).leaves.length, 1, 'as is a leaf whose attachment is damaged')
  await t.rejects(
    damaged.readDocs(['a'], (doc) => doc?.body(doc.rev)),
    { code: 'damaged_document' },
  )
  await damaged.updateSettings(() => ({ result: null }))
  t.same(events.splice(0), Array(3).fill(['damaged', 'notes']), 'each is told once')
  await second.engine.close()

  const third = await open()
  const opened = await third.engine.openDatabase('notes')
  t.equal(opened.needsDevices, true, 'devices were not asked for them')
  for (const id of ['a', 'b', 'c']) t.equal((await known(opened, id)).leaves.length, 1)
  fails = true
  t.match(await again(opened, 'a'), { error: Error })
  fails = false
  t.equal((await known(opened, 'a')).leaves.length, 1, 'a write that failed has restored nothing')
  t.match(await again(opened, 'a'), { result: null })
  t.same((await known(opened, 'a')).leaves, [])
  t.same(await opened.readDocs(['a'], (doc) => doc?.body(doc.rev)), ['{"again":true}'])
  t.same(events.splice(0), [['restored', 'notes', 1, 2]])
  await opened.close()
  await third.catalog.replace('notes', null)
  const fourth = await third.engine.openDatabase('notes')
  t.equal(fourth.needsDevices, false, 'devices compare after a restore')
  t.equal((await known(fourth, 'b')).leaves.length, 1)
})

t.test(
  'a write that corrects whether a revision is a tombstone does not hide that its body is damaged',
  async (t) => {
    const dataDir = await temporaryFolder(t)
    const change = async (work: (store: DatabaseStore) => Promise<unknown>, isNew = false) => {
      const engine = sqliteEngine({ dataDir })
      const catalog = await engine.openCatalog()
      if (isNew) await catalog.create('notes')
      await work(await engine.openDatabase('notes'))
      await engine.close()
    }
    const ids = ['damaged', 'whole']
    await change((store) => store.updateDocs(ids.map((id) => put(id, '{"text":"a"}'))), true)
    const file = new Sqlite(join(dataDir, 'databases', 'notes.sqlite'))
    file.exec('UPDATE revision SET deleted = 1')
    file.exec(`UPDATE revision SET body = replace(body, 'text', 'test') WHERE num = 1`)
    file.close()
    await change(async (store) => {
      for (const id of ids) {
        const { rev } = await known(store, id)
        const revisions = [{ rev, deleted: false, ancestry: [rev.slice(2)] }]
        await store.updateDocs([write(id, { rev, deleted: false, sequenced: true, revisions })])
      }
    })
    await change(async (store) => {
      const bodies = await store.readDocs(ids, (doc) => {
        try {
          return doc?.body(doc.rev)
        } catch (error) {
          return (error as CouchError).error
        }
      })
      t.same(bodies, ['file_corruption', '{"text":"a"}'])
    })
  },
)
