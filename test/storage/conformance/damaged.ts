/** Rows that a disk has changed: each is the error of those who ask for it, and everything else goes on. */
import type { Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { ONLY_ADMINS } from '../../../src/storage/damage.ts'
import type { DatabaseStore, DocState, LocalDoc } from '../../../src/storage/engine.ts'
import { attachment, put, readOne, snapshot, write } from './edits.ts'
import {
  ALL,
  type DamagedRow,
  errorOf,
  type MakeEngine,
  type OpenStore,
  only,
  openNotes,
  rejectsWith,
  type StorageCases,
} from './setup.ts'

const IDS = ['a', 'b', 'c']
const READ_SET = { body: true, branches: true, ancestry: 'leaves' } as const

/** Three documents, of which b is damaged; null for an engine without checksums. */
async function withDamage(
  t: Test,
  makeEngine: MakeEngine,
  row: DamagedRow,
  prepare: (store: DatabaseStore) => Promise<unknown> = async () => undefined,
): Promise<OpenStore | null> {
  const opened = await openNotes(t, makeEngine)
  const { store, damage } = opened
  if (damage === null) {
    t.pass('the engine has no checksums')
    return null
  }
  await store.updateDocs(IDS.map((id) => put(id, `{"text":"true ${id}"}`)))
  await prepare(store)
  await damage?.(row, 'b')
  return opened.reopen()
}

/** What a reader in a list makes of a document: its id, and whether `of` has thrown damaged_document. */
function lenient(of: (doc: DocState) => unknown) {
  return (doc: DocState | null): string => {
    if (doc === null) return 'missing'
    try {
      of(doc)
      return doc.id
    } catch (error) {
      if (error instanceof CouchError && error.code === 'damaged_document') return `${doc.id} damaged`
      throw error
    }
  }
}

/** Reads all documents in each way. */
async function readInAll(store: DatabaseStore, of: (doc: DocState) => unknown) {
  const read = lenient(of)
  const paging = { ...ALL, readSet: READ_SET }
  return {
    plain: await store.readDocs(IDS, read),
    declared: await store.readDocs(IDS, read, READ_SET),
    range: (await store.readRange({}, paging, read)).rows,
    feed: (await store.readChanges({ since: 0 }, paging, read)).rows.toSorted(),
  }
}

const everywhere = (b: string) => ({
  ...{ plain: ['a', b, 'c'], declared: ['a', b, 'c'] },
  ...{ range: ['a', b, 'c'], feed: ['a', b, 'c'] },
})

const bodyOf = (doc: DocState) => doc.body(doc.rev)
const idsOf = (doc: DocState) => doc.branches.map(({ ids }) => [...ids])
const attachmentsOf = (doc: DocState) => doc.attachments(doc.rev)

const REV = (letter: string) => `1-${letter.repeat(32)}`

/** A leaf beside the winner. */
async function fork(store: DatabaseStore, id: string): Promise<void> {
  const [winner] = await store.readDocs([id], (doc) => doc && { rev: doc.rev, deleted: doc.deleted })
  if (winner == null) throw new Error(`${id} is missing`)
  const content = { body: '{"text":"true, of another leaf"}', attachments: [] }
  const other = { rev: REV('0'), deleted: false, ancestry: ['0'.repeat(32)], content }
  await only(store.updateDocs([write(id, { ...winner, sequenced: true, revisions: [other] })]))
}

interface PagedRow {
  readonly id: string
  readonly seq: number
}

/** The ids of all pages. @param read the page after a row @throws Error for an empty page that is not the last */
async function readPages(
  read: (
    last: PagedRow | undefined,
  ) => Promise<{ readonly rows: readonly PagedRow[]; readonly more: boolean }>,
): Promise<string[]> {
  const rows: PagedRow[] = []
  for (;;) {
    const page = await read(rows.at(-1))
    rows.push(...page.rows)
    if (!page.more) return rows.map(({ id }) => id)
    if (page.rows.length === 0) throw new Error('a page is empty')
  }
}

const PICTURE = { attachments: [attachment('a.png', Buffer.from('a picture'))] }

export const damageCases: StorageCases = {
  'what was not damaged is read as before, whatever a document has': async (t, makeEngine) => {
    const opened = await withDamage(t, makeEngine, 'body', async (store) => {
      await store.updateDocs([put('a', '{"text":"2"}', PICTURE), put('c', '{"text":"2"}', { deleted: true })])
      await fork(store, 'c')
      await store.updateDocs([put('a', '{"text":"3"}', PICTURE)])
    })
    if (opened === null) return
    t.hasStrict(await readOne(opened.store, 'a'), { revisions: [{}, {}, { body: '{"text":"3"}' }] })
    t.equal((await readOne(opened.store, 'c'))?.branches.length, 2)
  },

  'a damaged text is an error, and lists go on with it': async (t, makeEngine) => {
    const opened = await withDamage(t, makeEngine, 'body')
    if (opened === null) return
    const { store } = opened
    t.same(await readInAll(store, bodyOf), everywhere('b damaged'))
    t.same(await readInAll(store, (doc) => [doc.rev, idsOf(doc)]), everywhere('b'), 'all else of it is read')
    await rejectsWith(
      t,
      store.readDocs(['b'], (doc) => doc && bodyOf(doc)),
      'damaged_document',
    )
    await rejectsWith(
      t,
      store.history.readDocs(['b'], (doc) => doc?.body(doc.rev)),
      'damaged_document',
    )
  },

  'a document with a damaged text can be saved again, and the damaged revision stays an error': async (
    t,
    makeEngine,
  ) => {
    const opened = await withDamage(t, makeEngine, 'body')
    if (opened === null) return
    const { store } = opened
    const [old] = await store.readDocs(['b'], (doc) => doc?.rev ?? '')
    await only(store.updateDocs([put('b', '{"text":"again"}')]))
    t.same(await readInAll(store, bodyOf), everywhere('b'))
    t.same(await store.readDocs(['b'], (doc) => doc && bodyOf(doc)), ['{"text":"again"}'])
    await rejectsWith(
      t,
      store.readDocs(['b'], (doc) => doc?.body(old ?? '')),
      'damaged_document',
    )
  },

  'a damaged text moves with its revision, whichever leaf wins': async (t, makeEngine) => {
    const opened = await withDamage(t, makeEngine, 'body', (store) => fork(store, 'b'))
    if (opened === null) return
    const { store } = opened
    const [winner] = await store.readDocs(['b'], (doc) => doc?.rev ?? '')
    const tombstone = { rev: REV('f'), deleted: true, ancestry: ['f'.repeat(32), winner?.slice(2) ?? ''] }
    const revisions = [
      { rev: winner ?? '', deleted: false, ancestry: null },
      { ...tombstone, rev: `2-${'f'.repeat(32)}`, content: { body: '{}', attachments: [] } },
    ]
    await only(store.updateDocs([write('b', { rev: REV('0'), deleted: false, sequenced: true, revisions })]))
    t.same(await readInAll(store, bodyOf), everywhere('b'), 'the other leaf is sound')
    await rejectsWith(
      t,
      store.readDocs(['b'], (doc) => doc?.body(winner ?? '')),
      'damaged_document',
    )
  },

  'a document whose row is damaged is an error, and lists go on without it': async (t, makeEngine) => {
    const opened = await withDamage(t, makeEngine, 'row')
    if (opened === null) return
    const { store } = opened
    for (const member of [bodyOf, idsOf, ({ rev }: DocState) => rev, ({ seq }: DocState) => seq]) {
      const without = { range: ['a', 'c'], feed: ['a', 'c'] }
      t.same(await readInAll(store, member), { ...everywhere('b damaged'), ...without })
    }
    t.equal((await store.readRange({}, ALL, ({ id }) => id)).damaged, 1)
    t.equal((await store.readChanges({ since: 0 }, ALL, ({ id }) => id)).damaged, 1)
    t.same((await store.readForked(0, ALL, ({ id }) => id)).rows, [])
    await rejectsWith(
      t,
      store.readDocs(['b'], (doc) => doc && snapshot(doc)),
      'damaged_document',
    )
    const [saved] = await store.updateDocs([put('b', '{}'), put('c', '{}')])
    t.match(errorOf(saved), { code: 'damaged_document' }, 'nothing is built on it')
  },

  'a list in pages goes on behind a damaged row, and behind many': async (t, makeEngine) => {
    const ids = Array.from({ length: 40 }, (_, n) => `n${String(n).padStart(2, '0')}`)
    const damaged = ids.slice(3, 30)
    const opened = await openNotes(t, makeEngine)
    await opened.store.updateDocs(ids.map((id) => put(id)))
    for (const id of damaged) await opened.damage?.('row', id)
    const { store } = await opened.reopen()
    const sound = ids.filter((id) => opened.damage === null || !damaged.includes(id))
    for (const paging of [{ limit: 1 }, { limit: 4 }, { limit: 100, chars: 1, readSet: { body: true } }]) {
      const row = (doc: DocState) => ({ id: doc.id, seq: doc.seq, body: doc.body(doc.rev) })
      const inRange = await readPages((last) => {
        const range = last === undefined ? {} : { start: { id: last.id, inclusive: false } }
        return store.readRange(range, paging, row)
      })
      t.same(inRange, sound)
      t.same(await readPages((last) => store.readChanges({ since: last?.seq ?? 0 }, paging, row)), sound)
    }
  },

  'a damaged ancestry is an error, and the text beside it is read': async (t, makeEngine) => {
    const opened = await withDamage(t, makeEngine, 'ancestry', (store) =>
      store.updateDocs([put('b', '{"text":"2"}'), put('b', '{"text":"3"}')]),
    )
    if (opened === null) return
    t.same(await readInAll(opened.store, idsOf), everywhere('b damaged'))
    t.same(await readInAll(opened.store, bodyOf), everywhere('b'))
    await opened.store.updateSettings(() => ({ result: null, write: { revsLimit: 1 } }))
    await opened.store.compact()
    t.same(await readInAll(opened.store, idsOf), everywhere('b damaged'), 'a compaction leaves it as it is')
  },

  'a damaged local document counts as missing, and is written again': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const { damage } = opened
    const ids = ['_local/a', '_local/b', '_local/c']
    const putLocal = (id: string, body: string) => ({
      id,
      decide: (doc: LocalDoc | null) => ({
        result: doc?.rev ?? 0,
        write: { rev: (doc?.rev ?? 0) + 1, body },
      }),
    })
    await opened.store.updateLocals(ids.map((id) => putLocal(id, '{"a":"true"}')))
    const before = (await opened.store.info()).sizes.active
    if (damage === null) {
      t.pass('the engine has no checksums')
      return
    }
    await damage?.('local', '_local/b')
    const { store } = await opened.reopen()
    const listed = async () => (await store.readLocalRange({}, ALL)).rows.map(({ id }) => id)
    t.same(await listed(), ['_local/a', '_local/c'])
    t.hasStrict(await store.readLocals(ids), [{ rev: 1 }, null, { rev: 1 }])
    t.equal((await store.readLocalRange({}, { limit: 1 })).rows.length, 1)
    t.same(await only(store.updateLocals([putLocal('_local/b', '{"a":"true"}')])), 0)
    t.same(await listed(), ids)
    t.equal((await store.info()).sizes.active, before, 'its bytes are counted once')
  },

  'a damaged content is an error, and whoever stores it again mends it': async (t, makeEngine) => {
    const bytes = Buffer.from('pictures '.repeat(70_000))
    const upload = async (store: DatabaseStore) => {
      const stage = await store.uploadBlob()
      await stage.append(bytes)
      const { blob } = await stage.finish()
      await stage.release()
      return blob
    }
    const inline = { attachments: [attachment('b.png', bytes)] }
    const opened = await withDamage(t, makeEngine, 'content', (store) =>
      store.updateDocs([put('b', '{"text":"with a picture"}', inline)]),
    )
    if (opened === null) return
    const found = async ({ store }: OpenStore) => {
      const [blob] = await store.readDocs(['b'], (doc) => doc?.attachments(doc.rev)[0]?.blob ?? -1)
      const parts: Buffer[] = []
      for (let at = 0; at < bytes.length; at += parts.at(-1)?.length ?? 0)
        parts.push(Buffer.from((await store.readBlob(blob ?? -1, at, 200_000)) ?? []))
      return { blob, isRight: Buffer.concat(parts).equals(bytes) }
    }
    await rejectsWith(t, found(opened), 'damaged_document')
    t.equal((await opened.store.readDocs(['b'], lenient(bodyOf)))[0], 'b', 'its document is read')
    const blob = await upload(opened.store)
    t.strictSame(await found(opened), { blob, isRight: true }, 'an upload restores the content')
    await opened.damage?.('content', 'b')
    const again = await opened.reopen()
    await rejectsWith(t, found(again), 'damaged_document')
    await only(again.store.updateDocs([put('d', '{}', inline)]))
    t.strictSame(await found(again), { blob, isRight: true }, 'a document restores the content')
  },

  'a damaged security object lets only server admins in, until it is set again': async (t, makeEngine) => {
    const security = (name: string) => ({ members: { names: [name], roles: [] } })
    const set = (name: string) => () => ({ result: null, write: { security: security(name) } })
    const opened = await withDamage(t, makeEngine, 'security', (store) => store.updateSettings(set('true')))
    if (opened === null) return
    t.same((await opened.store.view()).security, ONLY_ADMINS)
    await opened.store.updateSettings(set('ben'))
    t.same((await opened.store.view()).security, security('ben'))
    t.same((await (await opened.reopen()).store.view()).security, security('ben'))
  },

  'a damaged list of attachments is an error': async (t, makeEngine) => {
    const opened = await withDamage(t, makeEngine, 'attachment', (store) =>
      store.updateDocs(IDS.map((id) => put(id, `{"text":"${id}"}`, PICTURE))),
    )
    if (opened === null) return
    t.same(await readInAll(opened.store, attachmentsOf), everywhere('b damaged'))
    const { rev } = await only(opened.store.updateDocs([put('b', '{"text":"again"}')])).then((rev) => ({
      rev,
    }))
    t.equal((await readOne(opened.store, 'a'))?.revisions.at(-1)?.attachments.length, 1)
    t.same(await opened.store.readDocs(['b'], (doc) => doc?.attachments(rev)), [[]])
  },
}
