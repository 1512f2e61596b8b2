/** The engine in memory that shows only what is declared: what it loads, counts and refuses. */
import t from 'tap'
import type { DocState } from '../../src/storage/engine.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { put } from './conformance/edits.ts'
import { Misses, strictDocuments } from './memory/strict.ts'

async function openStrict() {
  const misses = new Misses()
  const engine = memoryEngine({ withDocument: strictDocuments(misses) })
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  await store.updateDocs([put('a', '{"n":1}')])
  misses.take()
  return { store, misses }
}

const content = (doc: DocState | null) =>
  doc && [doc.body(doc.rev), doc.attachments(doc.rev), doc.branches.map(({ ids }) => ids.length)]

t.test('what was not declared is loaded, and counted once', async (t) => {
  const { store, misses } = await openStrict()
  const [read] = await store.readDocs(['a'], content)
  t.same(read, ['{"n":1}', [], [1]])
  t.equal(misses.total, 4)
  const kinds = misses.take().map((site) => /x (\w+):/.exec(site)?.[1])
  t.same(kinds.sort(), ['ancestry', 'attachments', 'branches', 'content'])
  const readSet = { body: true, branches: true, ancestry: 'winner' } as const
  t.same(await store.readDocs(['a'], content, readSet), [read])
  t.same((await store.readRange({}, { limit: 1, readSet }, content)).rows, [read])
  t.same(misses.take(), [])
  const declared = { ...readSet, of: () => ({ revs: ['1-other'] }) }
  await store.readDocs(['a'], (doc) => [content(doc), doc?.body('1-other')], declared)
  t.same(misses.take(), [])
})

t.test('a callback that gives another answer when it is called again is found', async (t) => {
  const { store } = await openStrict()
  let calls = 0
  await t.rejects(
    store.readDocs(['a'], () => ++calls),
    /not repeatable/,
  )
  const [outcome] = await store.updateDocs([{ id: 'a', bytes: 1, decide: () => ({ result: ++calls }) }])
  t.match(outcome, { error: /not repeatable/ })
})
