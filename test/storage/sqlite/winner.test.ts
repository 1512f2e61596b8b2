/** `doc.winner` names the row of the document's winner, whatever was written, purged or compacted. */
import { mkdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { decidePurge } from '../../../src/documents/purge.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { writeOldFile } from '../../helpers/old-files.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { audit } from '../conformance/audit.ts'
import { put, readFeed, readOne, remove, snapshot } from '../conformance/edits.ts'
import { type Command, plan } from '../conformance/model.ts'
import { only } from '../conformance/setup.ts'

async function notes(t: Test) {
  const dataDir = await temporaryFolder(t)
  mkdirSync(join(dataDir, 'databases'), { recursive: true })
  const engine = sqliteEngine({ dataDir })
  t.teardown(() => engine.close())
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  return { store, file: join(dataDir, 'databases', 'notes.sqlite'), open: () => engine.openDatabase('notes') }
}

/** The documents whose `winner` is not the row of their revision, and with `noted` also those that have none. */
function wrongWinners(file: string, noted: boolean): unknown[] {
  const db = new Sqlite(file, { readonly: true })
  const row = '(SELECT r.num FROM revision AS r WHERE r.doc = d.num AND r.rev = d.rev AND r.leaf)'
  const isWrong = noted ? 'd.winner IS NOT' : 'd.winner <>'
  const wrong = db.prepare(`SELECT d.id, d.rev, d.winner FROM doc AS d WHERE ${isWrong} ${row}`).all()
  db.close()
  return wrong
}

type Step =
  | { readonly kind: 'write'; readonly id: string; readonly command: Command }
  | { readonly kind: 'purge'; readonly id: string; readonly leaf: number }
  | { readonly kind: 'compact' }

const id = fc.constantFrom('a', 'b', 'c')
const index = fc.nat(4)
const deleted = fc.boolean()
const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('edit' as const), leaf: index, deleted, keep: deleted }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('graft' as const),
      pos: fc.integer({ min: 1, max: 9 }),
      deleted,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('grow' as const), leaf: index }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('revive' as const), row: index, rewrite: deleted }) },
)
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('write' as const), id, command }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('purge' as const), id, leaf: index }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('compact' as const) }) },
)

/** Steps that follow one another at once share a group. */
async function carryOut(store: DatabaseStore, step: Step, mark: string): Promise<void> {
  if (step.kind === 'compact') return store.compact()
  if (step.kind === 'purge') {
    const { id, leaf } = step
    const decide: Parameters<DatabaseStore['purgeDocs']>[0][0]['decide'] = (doc) => {
      const revs = doc?.revisions().flatMap((row) => (row.leaf ? row.rev : [])) ?? []
      return decidePurge(
        doc,
        revs.filter((_, at) => at === leaf % revs.length),
      )
    }
    await only(store.purgeDocs([{ id, decide }]))
    return
  }
  await store.updateDocs([
    {
      id: step.id,
      bytes: 10,
      decide: (doc) => {
        const write = plan(doc && snapshot(doc), step.command, mark)
        return write === null ? { result: null } : { result: null, write }
      },
    },
  ])
}

t.test('random histories, with purges and compactions', async (t) => {
  let mark = 0
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 30 }), fc.nat(3), async (steps, together) => {
      const { store, file } = await notes(t)
      for (let at = 0; at < steps.length; at += together + 1) {
        const some = steps.slice(at, at + together + 1)
        await Promise.all(some.map((one) => carryOut(store, one, `m${++mark}`)))
        const wrong = wrongWinners(file, true)
        if (wrong.length > 0) throw new Error(`wrong winners: ${JSON.stringify(wrong)}`)
      }
      await audit(t, store, 'in the end', { purged: true })
      await store.close()
    }),
    { numRuns: 40 },
  )
})

/** A document with the leaves 2-b and 2-a over 1-r; 2-b wins. */
async function fork(store: DatabaseStore, id: string, deleted: boolean): Promise<void> {
  const content = (text: string) => ({ body: JSON.stringify({ text }), attachments: [] })
  const revisions = [
    { rev: '1-r', deleted: false, ancestry: null, content: content('root') },
    { rev: '2-a', deleted, ancestry: ['a', 'r'], content: content('a') },
    { rev: '2-b', deleted, ancestry: ['b', 'r'], content: content('b') },
  ]
  const write = { rev: '2-b', deleted, sequenced: true, revisions }
  await store.updateDocs([{ id, bytes: 100, decide: () => ({ result: null, write }) }])
}

t.test(
  'a file of version 3 shows the same, and notes the winner of what is written from then on',
  async (t) => {
    const { store, file, open } = await notes(t)
    const ids = Array.from({ length: 40 }, (_, n) => `plain${n}`)
    await store.updateDocs(ids.map((id) => put(id, `{"n":"${id}"}`)))
    await store.updateDocs(['edited', 'edited', 'gone'].map((id, n) => put(id, `{"n":${n}}`)))
    await store.updateDocs([remove('gone')])
    await fork(store, 'forked', false)
    await fork(store, 'buried', true)
    const before = await readFeed(store)
    await store.close()
    renameSync(file, `${file}.newest`)
    writeOldFile(file, `${file}.newest`, 3)

    const again = await open()
    t.same(await readFeed(again), before, 'the feed')
    const readSet = { body: true, branches: true, ancestry: 'winner' } as const
    const all = before.map((doc) => doc.id)
    t.same(
      await again.readDocs(all, (doc) => doc && snapshot(doc), readSet),
      before,
      'with the bodies at once',
    )
    const live = before.filter((doc) => !doc.deleted)
    const page = await again.readRange({}, { limit: 100, readSet }, snapshot)
    t.equal(page.rows.length, live.length, 'the range')
    await again.updateDocs([
      put('plain0', '{"n":2}'),
      put('edited', '{"n":3}'),
      put('forked', '{"n":4}'),
      put('new'),
    ])
    await only(again.purgeDocs([{ id: 'buried', decide: (doc) => decidePurge(doc, ['2-b']) }]))
    t.same(wrongWinners(file, false), [])
    t.same((await readOne(again, 'buried'))?.rev, '2-a')
    const db = new Sqlite(file, { readonly: true })
    t.same(
      db.prepare('SELECT id FROM doc WHERE winner IS NOT NULL ORDER BY id').pluck().all(),
      ['buried', 'edited', 'forked', 'new', 'plain0'],
      'documents that were written since have the column',
    )
    db.close()
    await audit(t, again, 'in the end', { purged: true })
  },
)
