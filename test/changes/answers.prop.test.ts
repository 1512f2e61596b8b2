/**
 * Random documents, with and without conflicts, are read in all ways. Each answer is the same as one that this file
 * builds in the simplest way. Each answer also stays the same, byte for byte, without the shortcuts for documents that
 * are known to have a single leaf.
 */
import { equal } from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { changesPage } from '../../src/changes/filtered-page.ts'
import type { Since } from '../../src/changes/page.ts'
import type { ChangesOptions } from '../../src/changes/rows.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../src/core/types.ts'
import type { Database } from '../../src/documents/database.ts'
import { storeDatabase } from '../../src/documents/store-database.ts'
import { leafRev, sortLeaves } from '../../src/revisions/branch.ts'
import type { DatabaseStore, DocState } from '../../src/storage/engine.ts'
import type { VersionedStore } from '../../src/storage/history-store.ts'
import { sequenceToken } from '../../src/storage/sequence.ts'
import { ENGINES } from '../documents/engines.ts'
import { body, type Opened, openOn, text } from '../documents/helpers.ts'
import { ADMIN, FILTER_CONTEXT, OPTIONS } from './helpers.ts'

const IDS = ['plain', 'quote"d', 'back\\slash', 'ü\u2028', '\u{1f600}', 'line\nfeed', '_design/d'] as const
/** Some have 32 hex digits, some do not. */
const REV_IDS = ['a'.repeat(32), 'f'.repeat(32), '0123456789abcdef'.repeat(2), 'b', 'quote"d', 'é']

const PATH = fc.record({
  start: fc.integer({ min: 1, max: 4 }),
  ids: fc.uniqueArray(fc.constantFrom(...REV_IDS), { minLength: 1, maxLength: 4 }),
  deleted: fc.boolean(),
  /** Whether the parent is stored first. */
  stepwise: fc.boolean(),
  doc: fc.dictionary(fc.constantFrom('n', 'ö', '1'), fc.jsonValue(), { maxKeys: 2 }),
})
const DOCUMENTS = fc.uniqueArray(
  fc.record({ id: fc.constantFrom(...IDS), paths: fc.array(PATH, { minLength: 1, maxLength: 3 }) }),
  { selector: ({ id }) => id, minLength: 1 },
)
const FLAGS = fc.record({
  revs: fc.boolean(),
  revsInfo: fc.boolean(),
  conflicts: fc.boolean(),
  deletedConflicts: fc.boolean(),
  localSeq: fc.boolean(),
  latest: fc.boolean(),
})
type Flags = Parameters<Database['open']>[2]

/** The document, not known to have a single leaf. */
function withoutShortcut(doc: DocState): DocState {
  const { id, seq, rev, deleted } = doc
  return {
    id,
    seq,
    rev,
    deleted,
    hasOneLeaf: false,
    get branches() {
      return doc.branches
    },
    revisions: () => doc.revisions(),
    retained: () => doc.retained(),
    isDeleted: (of) => doc.isDeleted(of),
    body: (of) => doc.body(of),
    attachments: (of) => doc.attachments(of),
  }
}

/** The same store, in which no document is known to have a single leaf. */
function withoutShortcuts(store: VersionedStore): VersionedStore {
  return {
    ...store,
    view: () => store.view(),
    countRange: (range) => store.countRange(range),
    skipRange: (range, documents) => store.skipRange(range, documents),
    countChanges: (seq) => store.countChanges(seq),
    readLocals: (ids) => store.readLocals(ids),
    readDocs: (ids, read, readSet, chars) =>
      store.readDocs(
        ids,
        (doc, id, view, place) => read(doc && withoutShortcut(doc), id, view, place),
        readSet,
        chars,
      ),
    readRange: (range, paging, read) =>
      store.readRange(range, paging, (doc, view) => read(withoutShortcut(doc), view)),
    readChanges: (range, paging, read) =>
      store.readChanges(range, paging, (doc, view) => read(withoutShortcut(doc), view)),
  }
}

/** The rows of the feed. A page also ends when its time is up, so there may be several short pages. */
async function wholeFeed(store: DatabaseStore, options: ChangesOptions): Promise<string> {
  const texts: string[] = []
  let since: Since = '0'
  for (;;) {
    const page = await changesPage(store, ADMIN, { options, since, limit: 100 }, FILTER_CONTEXT)
    if (page.rows > 0) texts.push(Buffer.from(page.bytes).toString())
    if (page.atTip) return texts.join(',\r\n')
    since = page.lastSeq
  }
}

async function textOrError(work: Promise<string>): Promise<string> {
  return work.catch((error: unknown) => String(error))
}

/** All answers of a database about its documents. */
async function answers(store: DatabaseStore, database: Database, flags: Flags): Promise<string[]> {
  const { rows } = await store.readChanges({ since: 0 }, { limit: 100 }, (doc) => {
    return { id: doc.id, rev: doc.rev, kept: doc.revisions().map(({ rev }) => rev) }
  })
  const docs = body({
    docs: [...rows, ...rows.map(({ id }) => ({ id })), { id: 'none' }, { id: 'plain', rev: '1-b' }],
  })
  const opened = rows.map(({ id, rev }) =>
    [{ ...flags }, { ...flags, rev, deleted: true }].map(async (options) => {
      const { etag, json } = await database.open(ADMIN, id, options)
      return `${etag} ${Buffer.from(json)}`
    }),
  )
  const feed = (style: 'main_only' | 'all_docs') =>
    wholeFeed(store, { ...OPTIONS, style, includeDocs: true, conflicts: flags.conflicts ?? false })
  return Promise.all(
    [
      text(database.allDocs(ADMIN, 'all', { includeDocs: true, ...flags }, null)),
      text(database.allDocs(ADMIN, 'all', { keys: IDS, includeDocs: true, ...flags }, null)),
      text(database.bulkGet(ADMIN, docs, flags)),
      ...rows.map(({ id }) => text(database.openRevs(ADMIN, id, 'all', flags))),
      ...rows.map(({ id, kept }) => text(database.openRevs(ADMIN, id, kept, flags))),
      ...opened.flat(),
      feed('main_only'),
      feed('all_docs'),
    ].map(textOrError),
  )
}

async function fill(opened: Opened, documents: readonly { id: string; paths: Path[] }[]): Promise<void> {
  for (const { id, paths } of documents) {
    const sound = paths.flatMap((path) => {
      const leaf = { ...path, start: Math.max(path.start, path.ids.length) }
      const parent = { ...leaf, start: leaf.start - 1, ids: leaf.ids.slice(1) }
      return path.stepwise && parent.ids.length > 0 ? [parent, leaf] : [leaf]
    })
    await opened.replicate(id, ...sound)
  }
}

type Path = Parameters<Opened['replicate']>[1] & { readonly stepwise: boolean }

for (const [name, makeEngine] of Object.entries(ENGINES)) {
  t.test(`answers are the same with and without shortcuts: ${name}`, async (t) => {
    await fc.assert(
      fc.asyncProperty(DOCUMENTS, FLAGS, async (documents, flags) => {
        const opened = await openOn(await makeEngine(t))
        await fill(opened, documents)
        const store = withoutShortcuts(opened.store)
        const other = storeDatabase(store, {
          name: 'notes',
          limits: () => DEFAULT_LIMITS,
          rules: () => DEFAULT_RULES,
          onSecured: () => undefined,
          sandbox: FILTER_CONTEXT.sandbox,
          incarnation: 1,
          startCompaction: async () => undefined,
        })
        const short = await answers(opened.store, opened.database, flags)
        const long = await answers(store, other, flags)
        for (const [n, answer] of short.entries()) equal(answer, long[n])
        await opened.store.close()
      }),
      { numRuns: name === 'memory' ? 100 : 25 },
    )
  })
}

type Leaf = { rev: string; deleted: boolean; start: number; ids: readonly string[]; body: string }

/** The leaves of all documents in the order of the feed, each with its winner first. */
async function leavesOf(store: DatabaseStore): Promise<{ id: string; seq: number; leaves: Leaf[] }[]> {
  const { rows } = await store.readChanges({ since: 0 }, { limit: 100 }, (doc) => {
    const leaves = sortLeaves(doc.branches).map((branch) => {
      const rev = leafRev(branch)
      const { pos: start, ids, deleted } = branch
      return { rev, deleted, start, ids: [...ids], body: doc.body(rev) ?? '' }
    })
    return { id: doc.id, seq: doc.seq, leaves }
  })
  return rows
}

function documentText(id: string, { rev, deleted, start, ids, body }: Leaf, withPath = false): string {
  const members = [`"_id":${JSON.stringify(id)}`, `"_rev":${JSON.stringify(rev)}`]
  if (body !== '{}') members.push(body.slice(1, -1))
  if (deleted) members.push('"_deleted":true')
  if (withPath) members.push(`"_revisions":${JSON.stringify({ start, ids })}`)
  return `{${members.join(',')}}`
}

t.test('answers are the same as those built in the simplest way', async (t) => {
  const makeEngine = ENGINES.memory as (typeof ENGINES)[string]
  await fc.assert(
    fc.asyncProperty(DOCUMENTS, async (documents) => {
      const { store, database, ...opened } = await openOn(await makeEngine(t))
      await fill({ store, database, ...opened }, documents)
      const found = await leavesOf(store)
      const { epochs } = await store.view()
      const token = (seq: number) => sequenceToken(epochs, seq)

      const rows = found.map(({ id, seq, leaves }) => {
        const changes = leaves.map(({ rev }) => ({ rev }))
        return JSON.stringify({ seq: token(seq), id, changes, ...(leaves[0]?.deleted && { deleted: true }) })
      })
      equal(await wholeFeed(store, { ...OPTIONS, style: 'all_docs' }), rows.join(',\r\n'))

      const live = found
        .filter(({ leaves }) => !leaves[0]?.deleted)
        .sort((a, b) => Buffer.compare(Buffer.from(a.id), Buffer.from(b.id)))
        .map(({ id, leaves: [leaf] }) => {
          const row = JSON.stringify({ id, key: id, value: { rev: leaf?.rev } })
          return `${row.slice(0, -1)},"doc":${documentText(id, leaf as Leaf)}}`
        })
      equal(
        await text(database.allDocs(ADMIN, 'all', { includeDocs: true }, null)),
        `{"total_rows":${live.length},"offset":0,"rows":[\r\n${live.join(',\r\n')}\r\n]}\n`,
      )

      const requests = found.flatMap(({ id, leaves }) => [{ id }, ...leaves.map(({ rev }) => ({ id, rev }))])
      const got = found.flatMap(({ id, leaves }) => {
        const oks = leaves.map((leaf) => `{"ok":${documentText(id, leaf, true)}}`)
        return [oks.join(','), ...oks].map((docs) => `{"id":${JSON.stringify(id)},"docs":[${docs}]}`)
      })
      equal(
        await text(database.bulkGet(ADMIN, body({ docs: requests }), { revs: true, latest: true })),
        `{"results":[${got.join(',')}]}\n`,
      )
    }),
    { numRuns: 100 },
  )
})
