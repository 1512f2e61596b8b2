import { randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import type { Test } from 'tap'
import { LEASE_GRACE_MS, LEASE_MS } from '../../../src/storage/blob-leases.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import type { DatabaseStore, DocUpdate } from '../../../src/storage/engine.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import type { CatalogChange } from '../../../src/storage/records.ts'
import { epochAt, readSequence, sequenceToken } from '../../../src/storage/sequence.ts'
import type { StorageEngine } from '../../../src/storage/storage-engine.ts'
import { FOREIGN_EVENT_MS, type StoreEvent } from '../../../src/storage/store-events.ts'
import { audit } from './audit.ts'
import { counting } from './concurrency.ts'
import { put, readOne, successor } from './edits.ts'
import { type EngineOptions, type KeptContents, only, rejectsWith } from './setup.ts'
import { naming, stageOf } from './uploads.ts'

/** Data that several engines open at the same time. */
export interface SharedData {
  open(): StorageEngine
  /** Ends an engine as a kill of its process would. */
  kill(engine: StorageEngine): void
  /** What the database `notes` keeps. */
  keptContents(): Promise<KeptContents>
}

/** Makes data without a database, and closes all engines with the test's teardown. */
export type MakeSharedData = (t: Test, options?: EngineOptions) => Promise<SharedData>

interface Opener {
  readonly engine: StorageEngine
  readonly store: VersionedStore
  readonly events: StoreEvent[]
}

async function openBoth(t: Test, makeData: MakeSharedData, options?: EngineOptions) {
  const data = await makeData(t, options)
  const catalog = await data.open().openCatalog()
  const { incarnation } = await catalog.create('notes')
  const openOne = async (): Promise<Opener> => {
    const engine = data.open()
    const store = await engine.openDatabase('notes')
    const events: StoreEvent[] = []
    store.onEvent((event) => events.push(event))
    return { engine, store, events }
  }
  return { data, catalog, incarnation, openOne, first: await openOne(), second: await openOne() }
}

/** Waits for an event for as long as the contract allows, and a little more under load. */
async function told(
  events: readonly StoreEvent[],
  isMeant: (event: StoreEvent) => boolean,
): Promise<boolean> {
  for (let waited = 0; waited < 2 * FOREIGN_EVENT_MS; waited += 5) {
    if (events.some(isMeant)) return true
    await rest(5)
  }
  return false
}

async function newestToken(store: DatabaseStore): Promise<string> {
  const { epochs, updateSeq } = await store.view()
  return sequenceToken(epochs, updateSeq)
}

/** Several openers of the same databases. */
export const openerCases: Record<string, (t: Test, makeData: MakeSharedData) => Promise<void>> = {
  'what one commits, the other reads once it is answered': async (t, makeData) => {
    const { first, second } = await openBoth(t, makeData)
    for (let round = 0; round < 20; round++) {
      const [writer, reader] = round % 2 === 0 ? [first, second] : [second, first]
      const rev = await only(writer.store.updateDocs([put('a', `{"n":${round}}`)]))
      t.equal((await readOne(reader.store, 'a'))?.rev, rev)
      t.equal((await reader.store.view()).updateSeq, round + 1)
    }
  },

  'changes of a catalog are told to others, notes of writes too': async (t, makeData) => {
    const data = await makeData(t)
    const one = await data.open().openCatalog()
    const two = await data.open().openCatalog()
    const heard: CatalogChange[] = []
    const own: CatalogChange[] = []
    two.watch((change) => heard.push(change))
    const hears = async (isMeant: (change: CatalogChange) => boolean) => {
      for (let waited = 0; waited < 2 * FOREIGN_EVENT_MS; waited += 5) {
        if (heard.splice(0).some((change) => change.type === 'any' || isMeant(change))) return true
        await rest(5)
      }
      return false
    }
    await one.writeRecords([{ kind: 'token', key: 'a', value: '1' }])
    t.ok(await hears((change) => change.type === 'records' && change.keys.includes('a')))
    await one.create('notes')
    t.ok(await hears((change) => change.type === 'databases' && change.names.includes('notes')))
    one.watch((change) => own.push(change))
    await one.noteUpdated(['notes'])
    t.ok(await hears(({ type }) => type === 'updates'))
    t.match((await two.readUpdates({ since: 0 }, 10)).rows, [{ type: 'created' }, { type: 'updated' }])
    t.same(own, [], 'the opener that has noted updates is not told of them')
    await one.adoptUuid('85fb71bf-700c-4f5e-8f4c-9f4b1d2e3c4d')
    for (let waited = 0; waited < 2 * FOREIGN_EVENT_MS; waited += 5) {
      if (two.serverUuid === one.serverUuid) break
      await rest(5)
    }
    t.equal(two.serverUuid, '85fb71bf-700c-4f5e-8f4c-9f4b1d2e3c4d')
  },

  'of two that make or delete the same database at once, one does': async (t, makeData) => {
    const data = await makeData(t)
    const catalogs = [await data.open().openCatalog(), await data.open().openCatalog()]
    const both = async (work: (catalog: Catalog) => Promise<unknown>) =>
      (await Promise.allSettled(catalogs.map(work))).filter(({ status }) => status === 'fulfilled').length
    for (let round = 1; round <= 5; round++) {
      t.equal(await both((catalog) => catalog.create('notes')), 1)
      t.same(await Promise.all(catalogs.map((catalog) => catalog.count())), [1, 1])
      t.equal(await both((catalog) => catalog.delete('notes')), 1)
      t.same(await Promise.all(catalogs.map((catalog) => catalog.find('notes'))), [null, null])
    }
    t.equal((await catalogs[0]?.readUpdates({ since: 0 }, 10))?.lastSeq, 10, 'each is noted once')
  },

  'each decides on the writes of the other': async (t, makeData) => {
    const { first, second } = await openBoth(t, makeData)
    const calls = Array.from({ length: 60 }, (_, n) =>
      only((n % 2 === 0 ? first : second).store.updateDocs([counting('n')])),
    )
    const results = await Promise.all(calls)
    t.same(
      results.sort((a, b) => a - b),
      Array.from({ length: 60 }, (_, n) => n + 1),
    )
    await audit(t, second.store, 'afterwards')
  },

  'a decision that depends on the counts sees those that it commits on': async (t, makeData) => {
    const { first, second } = await openBoth(t, makeData)
    const putUpTo = (most: number, id: string): DocUpdate<string> => ({
      ...put(id),
      decide: (doc, { docCount }) => {
        if (docCount >= most) return { result: 'full' }
        return { result: 'stored', write: successor(doc, '{}'), dependsOnCounts: true }
      },
    })
    for (let round = 1; round <= 20; round++) {
      await Promise.all([
        first.store.updateDocs([putUpTo(round, `a${round}`)]),
        second.store.updateDocs([putUpTo(round, `b${round}`)]),
      ])
      t.equal((await first.store.view()).docCount, round)
    }
  },

  'a decision sees the settings that it commits on': async (t, makeData) => {
    const { first, second } = await openBoth(t, makeData)
    const putUnlessClosed = (id: string): DocUpdate<string> => ({
      ...put(id),
      decide: (doc, { security }) =>
        security?.closed ? { result: 'closed' } : { result: 'stored', write: successor(doc, '{}') },
    })
    const setClosed = (closed: boolean) =>
      second.store.updateSettings(({ updateSeq }) => ({ result: updateSeq, write: { security: { closed } } }))
    for (let round = 0; round < 20; round++) {
      const [, closedAt] = await Promise.all([
        first.store.updateDocs([putUnlessClosed(`doc${round}`)]),
        setClosed(true),
      ])
      t.equal((await second.store.view()).updateSeq, closedAt, 'nothing was stored afterwards')
      await setClosed(false)
    }
  },

  'both write into one epoch, and no number is given out twice': async (t, makeData) => {
    const { first, second, openOne } = await openBoth(t, makeData)
    const tokens: string[] = []
    for (const { store } of [first, second, first, await openOne(), second]) {
      await store.updateDocs([put('a')])
      tokens.push(await newestToken(store))
    }
    const read = tokens.map((token) => token.split('-'))
    t.same(
      read.map(([number]) => number),
      ['1', '2', '3', '4', '5'],
    )
    const { epochs } = await second.store.view()
    t.equal(new Set([1, 2, 3, 4, 5].map((seq) => epochAt(epochs, seq))).size, 1)
  },

  'commits of both are told to both, and numbers never fall': async (t, makeData) => {
    const { first, second } = await openBoth(t, makeData)
    for (let round = 0; round < 15; round++) {
      await Promise.all([
        first.store.updateDocs([put(`a${round}`), put(`b${round}`)]),
        second.store.updateDocs([put(`c${round}`)]),
      ])
    }
    for (const { events } of [first, second]) {
      t.ok(await told(events, (event) => event.type === 'committed' && event.updateSeq === 45), 'the last')
    }
    const { epochs } = await first.store.view()
    for (const [{ events }, own] of [
      [first, 30],
      [second, 15],
    ] as const) {
      const commits = events.flatMap((event) => (event.type === 'committed' ? event : []))
      const numbers = commits.map(({ updateSeq }) => updateSeq)
      t.same(
        numbers,
        numbers.toSorted((a, b) => a - b),
      )
      t.equal(
        commits.reduce((sum, { updates }) => sum + updates, 0),
        own,
        'only own updates count',
      )
      t.ok(commits.every(({ epoch, updateSeq }) => epochAt(epochs, updateSeq) === epoch))
    }
  },

  'settings are told to others, and to nobody else': async (t, makeData) => {
    const { first, second } = await openBoth(t, makeData)
    const security = { members: { names: ['ann'], roles: [] } }
    await first.store.updateSettings(() => ({ result: null, write: { security } }))
    t.ok(await told(second.events, ({ type }) => type === 'settings'))
    t.same(second.events, [{ type: 'settings', security }])
    await second.store.updateSettings(() => ({ result: null, write: { revsLimit: 5 } }))
    t.ok(await told(first.events, ({ type }) => type === 'settings'))
    t.same(first.events, [{ type: 'settings', security }])
    t.equal(second.events.length, 1)
  },

  'a deletion is told, and its successor is another database': async (t, makeData) => {
    const { catalog, incarnation, first, second } = await openBoth(t, makeData)
    await first.store.updateDocs([put('a')])
    await first.store.close()
    await catalog.delete('notes')
    t.ok(await told(second.events, ({ type }) => type === 'deleted'))
    await rejectsWith(t, second.store.view(), 'no_database')
    await rejectsWith(t, second.store.updateDocs([put('b')]), 'no_database')
    const made = await catalog.create('notes')
    await rejectsWith(t, second.store.view(), 'no_database')
    await rejectsWith(t, second.engine.openDatabase('notes', { incarnation }), 'no_database')
    const store = await second.engine.openDatabase('notes', { incarnation: made.incarnation })
    t.hasStrict(await store.view(), { docCount: 0, updateSeq: 0 })
    t.equal(second.events.filter(({ type }) => type === 'deleted').length, 1)
  },

  'a restore by another ends the database for its stores, and begins an epoch': async (t, makeData) => {
    const { catalog, first, second } = await openBoth(t, makeData)
    await second.store.updateDocs([put('a'), put('b')])
    const before = await newestToken(first.store)
    await first.store.close()
    await catalog.replace('notes', null)
    t.ok(await told(second.events, ({ type }) => type === 'deleted'))
    await rejectsWith(t, second.store.updateDocs([put('c')]), 'no_database')
    const restored = await second.engine.openDatabase('notes')
    await restored.updateDocs([put('c')])
    const { epochs, updateSeq } = await restored.view()
    t.same(readSequence(epochs, updateSeq, before), { seq: 2, unknownEpoch: false })
    t.not((await newestToken(restored)).slice(2), before.slice(2))
  },

  'an opening or a compaction leaves what another opener has uploaded or reads': async (t, makeData) => {
    const { data, first, second, openOne } = await openBoth(t, makeData)
    const uploaded = await stageOf(first.store, [randomBytes(300_000)])
    const begun = await first.store.uploadBlob()
    await begun.append(randomBytes(300_000))
    const named = await stageOf(first.store, [randomBytes(300_000)])
    const rev = await only(first.store.updateDocs([naming('read', named.staged)]))
    await named.stage.release()
    const reading = await first.store.referenceBlob(named.staged.blob)
    await second.store.purgeDocs([
      {
        id: 'read',
        decide: () => ({ result: null, write: { purged: [rev], removed: [rev], rest: null } }),
      },
    ])
    await second.store.compact()
    await (await openOne()).store.compact()
    t.equal((await first.store.readBlob(named.staged.blob, 0, 9))?.length, 9, 'it is still read')
    await only(first.store.updateDocs([naming('a', uploaded.staged), naming('b', await begun.finish())]))
    await Promise.all([uploaded.stage.release(), begun.release()])
    reading?.release()
    await second.store.compact()
    t.same(await data.keptContents(), { blobs: 2, bytes: 600_000 })
  },

  'what a dead opener has left goes after its lease and the grace time': async (t, makeData) => {
    let now = 1_000_000
    const { data, first, second, openOne } = await openBoth(t, makeData, { now: () => now })
    await stageOf(first.store, [randomBytes(1000)])
    const begun = await first.store.uploadBlob()
    await begun.append(randomBytes(300_000))
    data.kill(first.engine)
    now += LEASE_MS + LEASE_GRACE_MS - 1
    await second.store.compact()
    await openOne()
    t.equal((await data.keptContents()).blobs, 2)
    now += 1
    await openOne()
    for (let waited = 0; waited < 2000 && (await data.keptContents()).blobs > 0; waited += 5) await rest(5)
    t.same(await data.keptContents(), { blobs: 0, bytes: 0 })
    await rejectsWith(t, begun.append(randomBytes(300_000)), 'unavailable')
  },
}
