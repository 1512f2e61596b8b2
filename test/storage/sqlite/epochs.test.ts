/** When an epoch of sequence numbers continues over a reopening of the file, and when another begins. */
import { copyFile, rename } from 'node:fs/promises'
import t, { type Test } from 'tap'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import { epochIn, sequenceToken } from '../../../src/storage/sequence.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { put } from '../conformance/edits.ts'

async function open(t: Test) {
  const dataDir = t.testdir()
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  return { dataDir, engine, catalog, path: `${dataDir}/databases/notes.sqlite` }
}

/** Writes documents. @returns the token of the last */
async function write(store: VersionedStore, ...ids: string[]): Promise<string> {
  await store.updateDocs(ids.map((id) => put(id)))
  const { epochs, updateSeq } = await store.view()
  return sequenceToken(epochs, updateSeq)
}

function epochOf(token: string): string {
  return epochIn(token.slice(token.indexOf('-') + 1))
}

t.test('an engine that reopens a database continues its epoch', async (t) => {
  const { engine } = await open(t)
  const epochs = new Set<string>()
  for (const id of ['a', 'b', 'c']) {
    const store = await engine.openDatabase('notes')
    epochs.add(epochOf(await write(store, id)))
    await store.close()
    // An opening without a write changes nothing.
    await (await engine.openDatabase('notes')).close()
  }
  t.equal(epochs.size, 1)
})

t.test('another engine begins an epoch, and so does the first after it', async (t) => {
  const { engine, dataDir } = await open(t)
  const other = sqliteEngine({ dataDir })
  t.teardown(() => other.close())
  const epochs = []
  for (const by of [engine, other, engine]) {
    const store = await by.openDatabase('notes')
    epochs.push(epochOf(await write(store, `doc${epochs.length}`)))
    await store.close()
  }
  t.equal(new Set(epochs).size, 3)
})

t.test('a file that was put back while it was closed begins an epoch', async (t) => {
  const { engine, path } = await open(t)
  const first = await engine.openDatabase('notes')
  const old = await write(first, 'a')
  await first.close()
  await copyFile(path, `${path}.old`)
  const second = await engine.openDatabase('notes')
  const lost = await write(second, 'b')
  t.equal(epochOf(lost), epochOf(old))
  await second.close()
  await rename(`${path}.old`, path)
  const third = await engine.openDatabase('notes')
  t.not(await write(third, 'c'), lost, 'its number means another document now')
  t.equal((await third.view()).updateSeq, 2)
})

t.test('a database that is treated as restored begins an epoch', async (t) => {
  const { engine, catalog } = await open(t)
  const store = await engine.openDatabase('notes')
  const before = await write(store, 'a')
  await store.close()
  await catalog.replace('notes', null)
  t.not(epochOf(await write(await engine.openDatabase('notes'), 'b')), epochOf(before))
})
