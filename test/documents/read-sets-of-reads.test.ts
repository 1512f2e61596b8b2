/** What readers declare of the stored documents: no usual read misses anything. */
import t from 'tap'
import { changesPage } from '../../src/changes/filtered-page.ts'
import { type ChangesOptions, PLAIN_CHANGES } from '../../src/changes/rows.ts'
import { DEFAULT_LIMITS } from '../../src/core/types.ts'
import { exportLines } from '../../src/documents/export.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { Misses, strictDocuments } from '../storage/memory/strict.ts'
import { ADMIN, body, chunksOf, jsonOf, openOn, parse } from './helpers.ts'

const CONTENT = { note: { content_type: 'text/plain', data: 'eA==', revpos: 1 } }

/** `plain` with three revisions, `forked` with three leaves, one of them deleted, `gone` deleted, and a design document. */
async function openFilled() {
  const misses = new Misses()
  const opened = await openOn(memoryEngine({ withDocument: strictDocuments(misses) }))
  const { put, replicate } = opened
  const revs = [await put('plain', { n: 1, _attachments: CONTENT })]
  for (let n = 2; n < 4; n++) {
    revs.push(await put('plain', { n, _rev: revs.at(-1), _attachments: { note: { stub: true } } }))
  }
  await replicate(
    'forked',
    { start: 4, ids: ['d', 'c', 'b', 'a'], doc: { _attachments: CONTENT } },
    { start: 3, ids: ['y', 'b', 'a'] },
    { start: 3, ids: ['z', 'b', 'a'], deleted: true },
  )
  await put('gone', { _rev: await put('gone', {}), _deleted: true })
  await put('_design/d', {
    filters: {
      plain: 'function (doc) { return doc._id === "plain" }',
      all: 'function (doc) { return doc.n > 0 || JSON.stringify(doc).length > 0 }',
    },
    views: { v: { map: 'function (doc) { emit(doc._id) }' } },
  })
  misses.take()
  return { ...opened, misses, revs }
}

const LEAVES = ['4-d', '3-y', '3-z']

t.test('GET of a document', async (t) => {
  const { get, database, misses, revs } = await openFilled()
  const { openRevs, openParts, openAttachment } = database
  for (const id of ['plain', 'forked', '_design/d']) {
    const all = { revsInfo: true, conflicts: true, deletedConflicts: true, localSeq: true }
    for (const options of [{}, { revs: true }, { attachments: true }, all, { attsSince: ['1-a'] }]) {
      await get(id, options)
    }
    await chunksOf(openRevs(ADMIN, id, 'all', { revs: true }))
    await openParts(ADMIN, id, { attachments: true }, 'follows')
  }
  await t.rejects(get('gone'), { code: 'deleted' })
  await t.rejects(get('none'), { code: 'not_found' })
  t.same(misses.take(), [], 'the winner')

  for (const [id, rev = ''] of [
    ['plain', revs[2]],
    ['plain', revs[0]],
    ['forked', '4-d'],
    ['forked', '3-y'],
    ['forked', '3-z'],
  ] as const) {
    for (const options of [{}, { revs: true }, { attsSince: ['2-b'] }]) await get(id, { rev, ...options })
  }
  await get('plain', { rev: revs[0] as string, latest: true })
  await t.rejects(get('plain', { rev: '1-none' }), { code: 'not_found' })
  await t.rejects(get('forked', { rev: '2-b' }), { code: 'not_found' })
  await chunksOf(openRevs(ADMIN, 'forked', [...LEAVES, '2-b', '9-none'], { revs: true }))
  await chunksOf(openRevs(ADMIN, 'plain', [revs[0], revs[1]], { latest: true, revs: true }))
  await openAttachment(ADMIN, 'plain', 'note', undefined)
  await openAttachment(ADMIN, 'plain', 'note', revs[1])
  t.same(misses.take(), [], 'named revisions')
})

t.test('_bulk_get, _revs_diff and COPY', async (t) => {
  const { database, misses, revs } = await openFilled()
  const named = LEAVES.map((rev) => ({ id: 'forked', rev }))
  const docs = [{ id: 'plain' }, { id: 'plain', rev: revs[2] }, { id: 'forked' }, ...named, { id: 'none' }]
  for (const options of [
    {},
    { revs: true },
    { revs: true, latest: true },
    { revs: true, attachments: true },
  ]) {
    const { results } = await jsonOf(database.bulkGet(ADMIN, body({ docs }), options))
    t.equal(results.length, docs.length)
  }
  t.same(misses.take(), [], '_bulk_get')
  const asked = {
    plain: [revs[2], '4-new', '1-old'],
    forked: [...LEAVES, '2-b', '5-e'],
    gone: ['3-x'],
    none: ['1-a'],
  }
  parse(await database.revsDiff(ADMIN, body(asked)))
  parse(await database.revsDiff(ADMIN, body({ forked: Array.from({ length: 200 }, (_, n) => `${n + 1}-b`) })))
  t.same(misses.take(), [], '_revs_diff')
  await database.copy(ADMIN, { id: 'plain' }, { id: 'copy' })
  await database.copy(ADMIN, { id: 'forked', rev: '3-y' }, { id: 'copy-of-loser' })
  t.same(misses.take(), [], 'COPY')
})

t.test('lists of documents', async (t) => {
  const { database, store, misses } = await openFilled()
  for (const query of [
    {},
    { includeDocs: true, conflicts: true },
    { includeDocs: true, attachments: true },
  ]) {
    await jsonOf(database.allDocs(ADMIN, 'all', query, null))
    await jsonOf(
      database.allDocs(ADMIN, 'all', { ...query, keys: ['plain', 'forked', 'gone', 'none', 7] }, null),
    )
  }
  await database.conflicts(ADMIN, { limit: 10 })
  await chunksOf(exportLines(store, ADMIN, DEFAULT_LIMITS))
  t.same(misses.take(), [])
})

t.test('_changes', async (t) => {
  const { store, misses } = await openFilled()
  const context = { sandbox: localSandbox(), name: 'notes', incarnation: 1 }
  const filter = (name: string) =>
    ({ kind: 'function', ddoc: '_design/d', name, request: '{"query":{}}' }) as const
  const selector = (text: string) => ({ kind: 'selector', selector: text }) as const
  const asked: Partial<ChangesOptions>[] = [
    {},
    { docIds: ['plain', 'gone', 'none'] },
    { filter: { kind: 'design' } },
    { filter: selector('{"n":{"$gt":0}}') },
    { filter: selector('{"_conflicts":{"$exists":true}}') },
    { filter: filter('plain') },
    { filter: filter('all') },
    { filter: { kind: 'view', ddoc: '_design/d', name: 'v' } },
  ]
  for (const options of asked) {
    for (const style of ['main_only', 'all_docs'] as const) {
      for (const includeDocs of [false, true]) {
        const all = { ...PLAIN_CHANGES, framing: 'json', ...options, style, includeDocs } as const
        const more = { conflicts: includeDocs, attachments: includeDocs }
        const request = { options: { ...all, ...more }, since: 0, limit: 100 }
        await changesPage(store, ADMIN, request, context)
      }
    }
  }
  t.same(misses.take(), [])
})

t.test('the time machine', async (t) => {
  const { database, misses, revs } = await openFilled()
  parse(await database.history(ADMIN, 'plain', { limit: 10 }))
  parse(await database.overwritten(ADMIN, { limit: 10 }))
  await chunksOf(database.version(ADMIN, 'plain', { rev: revs[0] as string }, true))
  await chunksOf(database.version(ADMIN, 'plain', { at: Date.now() }, true))
  t.same(misses.take(), [])
})
