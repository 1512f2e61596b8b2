import { randomBytes } from 'node:crypto'
import { setImmediate as turn } from 'node:timers/promises'
import type { Test } from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import type { CompactionProgress } from '../../../src/storage/upkeep.ts'
import { audit } from './audit.ts'
import { attachment, put, readFeed, readOne, remove } from './edits.ts'
import { FaultHook } from './fault-hook.ts'
import { isStorageFault } from './faults.ts'
import { type MakeEngine, onCommit, only, openNotes, type StorageCases } from './setup.ts'

/** What must be the same before and after a compaction: everything but superseded bodies. */
async function leavesOf(store: DatabaseStore) {
  const { updateSeq, epochs, docCount, deletedCount } = await store.view()
  const docs = (await readFeed(store)).map(({ revisions, ...doc }) => ({
    ...doc,
    leaves: revisions.filter(({ leaf }) => leaf),
  }))
  return { updateSeq, epochs, docCount, deletedCount, docs, external: (await store.info()).sizes.external }
}

async function rowCount(store: DatabaseStore): Promise<number> {
  return (await readFeed(store)).reduce((sum, { revisions }) => sum + revisions.length, 0)
}

/** Some documents with histories, tombstones and attachments; and the blob that only a superseded one names. */
async function fill(store: DatabaseStore): Promise<{ blob: number; old: string }> {
  const files = [attachment('kept', Buffer.from('kept')), attachment('shared', Buffer.from('shared'))]
  const old = await only(
    store.updateDocs([
      put('a', '{"n":1}', { attachments: [...files, attachment('old', randomBytes(3000))] }),
    ]),
  )
  await store.updateDocs([put('a', '{"n":2}'), put('a', '{"n":3}', { attachments: files })])
  await store.updateDocs([put('b', '{}', { attachments: [attachment('shared', Buffer.from('shared'))] })])
  await store.updateDocs([put('b', '{"n":2}'), put('c'), remove('c'), put('d')])
  const blobs = await store.readDocs(['a'], (doc) => doc?.attachments(old).map(({ blob }) => blob) ?? [])
  return { blob: blobs[0]?.at(-1) ?? -1, old }
}

async function blobIsStored(store: DatabaseStore, blob: number): Promise<boolean> {
  return (await store.readBlob(blob, 0, 1)) !== null
}

export const compactionCases: StorageCases = {
  'superseded bodies go, and nothing else changes': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const { old } = await fill(store)
    const before = await leavesOf(store)
    const told: number[] = []
    onCommit(store, (updateSeq) => told.push(updateSeq))
    t.ok((await rowCount(store)) > before.docs.length)
    await store.compact()
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.same(await leavesOf(from), before)
      t.equal(await rowCount(from), before.docs.length, 'leaves only')
      const [gone] = await from.readDocs(['a'], (doc) => [doc?.body(old), doc?.attachments(old)])
      t.same(gone, [null, []])
      await audit(t, from, 'compacted')
    }
    t.same(told, [])
  },

  'blobs go that no revision names any more; one that some name stays': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const { blob } = await fill(store)
    await store.updateDocs([put('gone', '{}', { attachments: [attachment('x', Buffer.from('purged'))] })])
    const [purged] = (await readOne(store, 'gone'))?.revisions[0]?.attachments ?? []
    const forget = {
      id: 'gone',
      decide: () => ({ result: 0, write: { purged: ['1'], removed: [], rest: null } }),
    }
    await only(store.purgeDocs([forget]))
    t.ok(await blobIsStored(store, blob))
    await store.compact()
    for (const open of [async () => store, async () => (await reopen()).store]) {
      const from = await open()
      t.notOk(await blobIsStored(from, blob))
      t.notOk(await blobIsStored(from, purged?.blob ?? -1))
      const kept = (await readOne(from, 'a'))?.revisions.flatMap(({ attachments }) => attachments) ?? []
      t.equal(kept.length, 2)
      for (const { blob: other } of kept) t.ok(await blobIsStored(from, other))
    }
  },

  'a blob of many chunks goes whole': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([put('a', '{}', { attachments: [attachment('x', randomBytes(3_000_000))] })])
    const [file] = (await readOne(store, 'a'))?.revisions[0]?.attachments ?? []
    await store.updateDocs([put('a', '{"n":2}')])
    await store.compact()
    t.notOk(await blobIsStored(store, file?.blob ?? -1))
    t.ok((await store.info()).sizes.active < 1_000_000)
  },

  'the same content is stored again after it was removed': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const { blob, old } = await fill(store)
    const bytes = Buffer.from((await store.readBlob(blob, 0, 5000)) ?? [])
    await store.compact()
    await store.updateDocs([put('e', JSON.stringify({ old }), { attachments: [attachment('x', bytes)] })])
    const [file] = (await readOne(store, 'e'))?.revisions[0]?.attachments ?? []
    t.same(Buffer.from((await store.readBlob(file?.blob ?? -1, 0, 5000)) ?? []), bytes)
  },

  'a referenced blob stays, and the next compaction after its release removes it': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const { blob } = await fill(store)
    const pin = await store.referenceBlob(blob)
    await store.compact()
    t.ok(await blobIsStored(store, blob))
    pin?.release()
    await store.compact()
    t.notOk(await blobIsStored(store, blob))
  },

  'a content on its way in is left alone': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    const stage = await store.uploadBlob()
    await stage.append(Buffer.from('one '))
    await store.compact()
    await stage.append(Buffer.from('two'))
    const { blob, length, digest } = await stage.finish()
    await store.compact()
    const facts = { name: 'x', type: 'text/plain', revpos: 1, encoding: null, storedLength: length }
    await only(
      store.updateDocs([put('e', '{}', { attachments: [{ ...facts, digest, length, content: { blob } }] })]),
    )
    await stage.release()
    await store.compact()
    t.same(Buffer.from((await store.readBlob(blob, 0, 100)) ?? []), Buffer.from('one two'))
  },

  'it says that it is at work, and how far it is; a second call joins it': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await fill(store)
    const first: CompactionProgress[] = []
    const second: CompactionProgress[] = []
    t.equal((await store.info()).compacting, false)
    const compactions = [
      store.compact({ onProgress: (progress) => first.push(progress) }),
      store.compact({ onProgress: (progress) => second.push(progress) }),
      store.compact(),
    ]
    t.equal((await store.info()).compacting, true)
    await Promise.all(compactions)
    t.equal((await store.info()).compacting, false)
    for (const told of [first, second]) {
      const last = told.at(-1)
      t.ok(last !== undefined && last.done === last.total && last.total > 0)
      t.same(
        told.map(({ done }) => done),
        told.map(({ done }) => done).sort((a, b) => a - b),
      )
    }
    const third: CompactionProgress[] = []
    await store.compact({ onProgress: (progress) => third.push(progress) })
    t.ok(third.length > 0, 'a later call begins anew')
  },

  'a database without documents is compacted': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.compact()
    await audit(t, store, 'empty')
  },

  'others are served while it works': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    for (let round = 0; round < 4; round++) {
      await store.updateDocs(Array.from({ length: 200 }, (_, n) => put(`doc${n}`, `{"round":${round}}`)))
    }
    let isDone = false
    const compaction = store.compact().then(() => {
      isDone = true
    })
    let served = 0
    for (; !isDone; served++) {
      await only(store.updateDocs([put(`doc${served % 250}`, `{"during":${served}}`)]))
      t.equal((await readOne(store, 'doc7'))?.branches.length, 1)
      await turn()
    }
    await compaction
    t.ok(served > 0)
    const before = await leavesOf(store)
    await audit(t, store, 'after writes during it')
    await store.compact()
    t.equal(await rowCount(store), before.docs.length)
    t.same(await leavesOf((await reopen()).store), before)
  },

  'closing ends it, and what it has not done is done by the next': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    await fill(opened.store)
    const before = await leavesOf(opened.store)
    const outcome = opened.store.compact().catch((error: unknown) => error)
    const again = await opened.reopen()
    const ended = await outcome
    if (ended !== undefined) t.match(ended, { code: 'unavailable' })
    t.same(await leavesOf(again.store), before)
    await again.store.compact()
    t.same(await leavesOf(again.store), before)
    t.equal(await rowCount(again.store), before.docs.length)
    await again.store.close()
    await t.rejects(again.store.compact(), { code: 'unavailable' })
  },

  'an error at any operation is told, harms nothing, and the next compaction does the rest': (
    t,
    makeEngine,
  ) => faults(t, makeEngine),
}

/** Compacts while an operation fails, again and again in one store, with something new to clean up each time. */
async function faults(t: Test, makeEngine: MakeEngine): Promise<void> {
  const hook = new FaultHook()
  const opened = await openNotes(t, makeEngine, { onOperation: hook.onOperation })
  const { store } = opened
  const blobs: number[] = []
  for (const lasting of [false, true]) {
    for (let fired: string | null = '', failAt = 1; fired !== null; failAt++) {
      blobs.push(await supersede(store, failAt))
      const before = await leavesOf(store)
      hook.arm(failAt, lasting)
      const thrown = await store.compact().then(
        () => null,
        (error: unknown) => error,
      )
      fired = hook.disarm()
      const when = `failed at ${fired ?? 'nothing'}`
      if (fired === null) t.equal(thrown, null)
      const isOurs = isStorageFault(thrown)
      t.ok(thrown === null || isOurs, `${when}: ${String(thrown)}`)
      t.same(await leavesOf(store), before, when)
      t.equal((await store.info()).compacting, false)
      if (failAt % 3 > 0) continue
      await store.compact()
      t.same(await leavesOf(store), before, `${when}, and compacted after it`)
      t.equal(await rowCount(store), before.docs.length)
      for (const blob of blobs.splice(0)) t.notOk(await blobIsStored(store, blob), when)
    }
  }
  const before = await leavesOf(store)
  const { store: again } = await opened.reopen()
  await again.compact()
  t.same(await leavesOf(again), before, 'the leaves are the same after a restart')
  t.equal(await rowCount(again), before.docs.length)
  for (const blob of blobs) t.notOk(await blobIsStored(again, blob))
  await audit(t, again, 'the leaves are the same after a restart')
}

/** Makes superseded revisions. @returns a blob that only one of them names */
async function supersede(store: DatabaseStore, n: number): Promise<number> {
  const attachments = [attachment('old', randomBytes(3000))]
  await store.updateDocs([put('a', `{"n":${n}}`, { attachments }), put('b', `{"n":${n}}`)])
  const blob = (await readOne(store, 'a'))?.revisions.find(({ leaf }) => leaf)?.attachments[0]?.blob ?? -1
  await store.updateDocs([put('a', `{"n":${n + 0.5}}`)])
  return blob
}
