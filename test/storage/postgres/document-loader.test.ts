import t from 'tap'
import { DocumentLoader } from '../../../src/storage/postgres/document-loader.ts'
import type { LoadedDocument } from '../../../src/storage/postgres/loaded-document.ts'
import type { ReadSet } from '../../../src/storage/read-set.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { type Filled, openFilled } from './filled-database.ts'

const ATTACHMENT = {
  ...{ name: 'x\u0000', type: 'text/plain', revpos: 1, digest: 'md5-x', length: 3, encoding: null },
  ...{ storedLength: 3, blob: 5 },
}
const LONG = Array.from({ length: 300 }, (_, n) => `${n}`.padStart(32, 'a'))

async function fill({ put }: Filled): Promise<void> {
  await put('plain', { rev: '2-b', body: '{"n":2}', ancestry: ['b', 'a'] }, { rev: '1-a', body: '{"n":1}' })
  await put(
    'forked\u0000',
    { rev: '300-z', body: '{"\u0000":"é"}', ancestry: ['z', ...LONG], attachments: [ATTACHMENT] },
    { rev: '2-y', ancestry: ['y', 'a'], body: '{"y":1}', attachments: [ATTACHMENT] },
    { rev: '3-w', ancestry: ['w'], deleted: true },
    { rev: '1-a', body: '{"old":1}', attachments: [ATTACHMENT] },
    { rev: '1-k', body: '{"kept":1}', retained: true },
  )
}

/** All that a document shows, whatever was declared. */
function all(doc: LoadedDocument | null) {
  if (doc === null) return null
  const revs = doc.revisions().map(({ rev }) => rev)
  return {
    ...{ id: doc.id, seq: doc.seq, rev: doc.rev, deleted: doc.deleted, one: doc.hasOneLeaf },
    branches: doc.branches.map(({ pos, leaf, ids, deleted }) => [pos, leaf, ids, deleted]).sort(),
    revisions: doc.revisions().toSorted((a, b) => (a.rev < b.rev ? -1 : 1)),
    retained: doc.retained(),
    contents: [...revs, ...doc.retained(), '7-none']
      .toSorted()
      .map((rev) => [rev, doc.body(rev), doc.isDeleted(rev), doc.attachments(rev)]),
  }
}

t.test('documents that are loaded', async (t) => {
  const server = await startPostgres(t)
  const filled = await openFilled(t, server)
  await fill(filled)
  const loader = new DocumentLoader(filled.database)
  const ids = ['plain', 'none', 'forked\u0000']

  t.test('show the same whatever was declared, one by one and together', async (t) => {
    const { outcomes, view } = await loader.decide(
      ids.map((id) => ({ id })),
      all,
    )
    t.hasStrict(view, { updateSeq: 2, docCount: 2, deletedCount: 0 })
    const [plain, none, forked] = outcomes.map((outcome) => 'result' in outcome && outcome.result)
    t.equal(none, null)
    t.strictSame(plain, {
      ...{ id: 'plain', seq: 1, rev: '2-b', deleted: false, one: true },
      branches: [[2, 'b', ['b', 'a'], false]],
      revisions: [
        { rev: '1-a', deleted: false, leaf: false },
        { rev: '2-b', deleted: false, leaf: true },
      ],
      retained: [],
      contents: [
        ['1-a', '{"n":1}', false, []],
        ['2-b', '{"n":2}', false, []],
        ['7-none', null, null, []],
      ],
    })
    t.strictSame(forked, {
      ...{ id: 'forked\u0000', seq: 2, rev: '300-z', deleted: false, one: false },
      branches: [
        [2, 'y', ['y', 'a'], false],
        [3, 'w', ['w'], true],
        [300, 'z', ['z', ...LONG], false],
      ],
      revisions: [
        { rev: '1-a', deleted: false, leaf: false },
        { rev: '2-y', deleted: false, leaf: true },
        { rev: '3-w', deleted: true, leaf: true },
        { rev: '300-z', deleted: false, leaf: true },
      ],
      retained: ['1-k'],
      contents: [
        ['1-a', '{"old":1}', false, [ATTACHMENT]],
        ['1-k', null, null, []],
        ['2-y', '{"y":1}', false, [ATTACHMENT]],
        ['3-w', '{}', true, []],
        ['300-z', '{"\u0000":"é"}', false, [ATTACHMENT]],
        ['7-none', null, null, []],
      ],
    })
    const declared: ReadSet[] = [
      { body: true },
      { branches: true },
      { body: true, branches: true },
      { body: true, ancestry: 'winner' },
      { bodies: true, branches: true, ancestry: 'leaves' },
      { branches: true, ancestryOf: ['2-y', '2-b'], ancestryFrom: 3 },
      { branches: true, ancestryOf: ['2-y'] },
      { revs: ['1-a', '9-none'], attachments: ['2-y'], nearest: [{ pos: 2, ids: ['b', 'a'] }] },
      { attachments: ['1-a', '300-z'] },
      { revisions: true, retained: true },
      { retained: true, bodies: true },
    ]
    for (const readSet of declared) {
      const together = await loader.decide(
        ids.map((id) => ({ id, readSet })),
        all,
      )
      t.strictSame(together.outcomes, outcomes)
      for (const [n, id] of ids.entries()) {
        t.strictSame((await loader.decide([{ id, readSet }], all)).outcomes, [outcomes[n]])
      }
    }
  })
})
