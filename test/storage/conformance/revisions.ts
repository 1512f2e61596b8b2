import type { DocWrite } from '../../../src/storage/engine.ts'
import { audit } from './audit.ts'
import { attachment, put, readOne, write } from './edits.ts'
import { only, openNotes, type StorageCases } from './setup.ts'

const content = (body: string) => ({ body, attachments: [] })

/** A first revision `1-a`, superseded by `2-b`. */
const FIRST: DocWrite = {
  rev: '1-a',
  deleted: false,
  sequenced: true,
  revisions: [{ rev: '1-a', deleted: false, ancestry: ['a'], content: content('{"at":"1-a"}') }],
}
const SECOND: DocWrite = {
  rev: '2-b',
  deleted: false,
  sequenced: true,
  revisions: [
    { rev: '1-a', deleted: false, ancestry: null },
    { rev: '2-b', deleted: false, ancestry: ['b', 'a'], content: content('{"at":"2-b"}') },
  ],
}

/** Rows of revisions: leaves and superseded ones. */
export const revisionCases: StorageCases = {
  'a superseded revision keeps its row and its body, and is no leaf': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    await store.updateDocs([write('doc', FIRST), write('doc', SECOND)])
    const wanted = {
      branches: [{ rev: '2-b', pos: 2, leaf: 'b', ids: ['b', 'a'], deleted: false }],
      revisions: [
        { rev: '1-a', deleted: false, leaf: false, body: '{"at":"1-a"}', attachments: [] },
        { rev: '2-b', deleted: false, leaf: true, body: '{"at":"2-b"}', attachments: [] },
      ],
    }
    t.hasStrict(await readOne(store, 'doc'), wanted)
    t.hasStrict(await readOne((await reopen()).store, 'doc'), wanted)
  },

  'a revision that is not stored has no body and no attachments': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([write('doc', FIRST), write('doc', SECOND), write('other', FIRST)])
    const unknown = ['1-b', '2-a', '3-c', '', 'a', '1-']
    const read = await store.readDocs(['doc'], (doc) =>
      unknown.map((rev) => [doc?.body(rev), doc?.attachments(rev)]),
    )
    t.strictSame(read, [unknown.map(() => [null, []])])
    const others = await store.readDocs(['other'], (doc) => doc?.body('2-b'))
    t.strictSame(others, [null], 'a revision of another document is not one of this')
  },

  'a superseded revision turns into a leaf again with new content': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([write('doc', FIRST), write('doc', SECOND)])
    const again = { rev: '1-a', deleted: false, ancestry: ['a'], content: content('{"again":1}') }
    await only(
      store.updateDocs([write('doc', { rev: '2-b', deleted: false, sequenced: true, revisions: [again] })]),
    )
    const found = await readOne(store, 'doc')
    t.same(
      found?.branches.map(({ rev }) => rev),
      ['1-a', '2-b'],
    )
    t.same(
      found?.revisions.map(({ body }) => body),
      ['{"again":1}', '{"at":"2-b"}'],
    )
    await audit(t, store, 'afterwards')
  },

  'a superseded revision turns into a leaf again with the content that is stored': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const attachments = [attachment('x', Buffer.from('kept'))]
    await store.updateDocs([put('doc', '{"n":1}', { attachments }), put('doc', '{"n":2}')])
    const before = await readOne(store, 'doc')
    const old = before?.revisions.find(({ leaf }) => !leaf)
    if (old === undefined) {
      t.fail('a superseded row is kept')
      return
    }
    const revisions = [{ rev: old.rev, deleted: false, ancestry: [old.rev.slice(2)] }]
    await store.updateDocs([
      write('doc', { rev: before?.rev ?? '', deleted: false, sequenced: true, revisions }),
    ])
    const found = await readOne(store, 'doc')
    t.strictSame(
      found?.revisions.find(({ rev }) => rev === old.rev),
      { ...old, leaf: true },
    )
    await audit(t, store, 'afterwards')
  },

  'a write with content for a revision that has a row takes the place of what was stored': async (
    t,
    makeEngine,
  ) => {
    const { store } = await openNotes(t, makeEngine)
    const attachments = [attachment('x', Buffer.from('1')), attachment('y', Buffer.from('22'))]
    const rev = await only(store.updateDocs([put('doc', '{"n":1}', { attachments })]))
    const ancestry = [rev.slice(2)]
    const change = {
      rev,
      deleted: true,
      ancestry,
      content: { body: '{}', attachments: attachments.slice(1) },
    }
    await only(store.updateDocs([write('doc', { rev, deleted: true, sequenced: true, revisions: [change] })]))
    const found = await readOne(store, 'doc')
    t.hasStrict(found, {
      rev,
      deleted: true,
      seq: 2,
      revisions: [{ deleted: true, leaf: true, body: '{}' }],
    })
    t.same(
      found?.revisions[0]?.attachments.map(({ name }) => name),
      ['y'],
    )
    t.equal((await audit(t, store, 'afterwards')).length, 1)
  },

  'every leaf of a document with conflicts is a branch with its own ancestry': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const leaf = (rev: string, deleted: boolean, ancestry: string[]): DocWrite => ({
      rev: '3-e',
      deleted: false,
      sequenced: true,
      revisions: [{ rev, deleted, ancestry, content: content(`{"at":"${rev}"}`) }],
    })
    await store.updateDocs([
      write('doc', leaf('3-e', false, ['e', 'b', 'a'])),
      write('doc', leaf('2-c', false, ['c', 'a'])),
      write('doc', leaf('12-f', true, ['f'])),
    ])
    const wanted = [
      { rev: '12-f', pos: 12, leaf: 'f', ids: ['f'], deleted: true },
      { rev: '2-c', pos: 2, leaf: 'c', ids: ['c', 'a'], deleted: false },
      { rev: '3-e', pos: 3, leaf: 'e', ids: ['e', 'b', 'a'], deleted: false },
    ]
    t.strictSame((await readOne(store, 'doc'))?.branches, wanted)
    t.hasStrict(await readOne(store, 'doc'), { rev: '3-e', deleted: false, seq: 3 })
    t.strictSame((await readOne((await reopen()).store, 'doc'))?.branches, wanted)
  },

  'a write that changes several rows changes all of them': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    await store.updateDocs([write('doc', FIRST), write('doc', SECOND)])
    await only(
      store.updateDocs([
        write('doc', {
          rev: '4-d',
          deleted: true,
          sequenced: true,
          revisions: [
            { rev: '2-b', deleted: false, ancestry: null },
            { rev: '4-d', deleted: true, ancestry: ['d', 'c', 'b', 'a'], content: content('{}') },
            { rev: '3-x', deleted: true, ancestry: ['x'], content: content('{"x":1}') },
          ],
        }),
      ]),
    )
    const found = await readOne(store, 'doc')
    t.same(
      found?.revisions.map(({ rev, leaf, deleted }) => [rev, leaf, deleted]),
      [
        ['1-a', false, false],
        ['2-b', false, false],
        ['3-x', true, true],
        ['4-d', true, true],
      ],
    )
    t.hasStrict(await store.view(), { docCount: 0, deletedCount: 1, updateSeq: 3 })
    await audit(t, store, 'afterwards')
  },

  'a long ancestry comes back whole': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const ancestry = Array.from({ length: 1000 }, (_, i) =>
      i % 10 === 0 ? `odd-${i}` : `${i}`.padStart(32, 'a'),
    )
    const rev = `2000-${ancestry[0]}`
    const revisions = [{ rev, deleted: false, ancestry, content: content('{}') }]
    await only(store.updateDocs([write('doc', { rev, deleted: false, sequenced: true, revisions })]))
    t.strictSame((await readOne(store, 'doc'))?.branches[0]?.ids, ancestry)
  },
}
