/** Texts of any characters and lengths, in every field of the contract that has one. */
import fc from 'fast-check'
import { CouchError } from '../../../src/core/errors.ts'
import type { SecurityObject } from '../../../src/core/types.ts'
import { normalizeRevId } from '../../../src/revisions/rev.ts'
import type { AttachmentWrite, DatabaseStore, DocWrite, RevisionWrite } from '../../../src/storage/engine.ts'
import type { TokenPart } from '../../../src/storage/token-position.ts'
import { audit, auditContents } from './audit.ts'
import { attachment, readOne, write } from './edits.ts'
import { type OpenStore, only, openNotes, rejectsWith, type StorageCases } from './setup.ts'

/** What engines, SQL, JSON and their escapes take for something else. */
const PARTS = [
  ...[
    '\0',
    '\u0001',
    '\u0001\u0002',
    '\u001f',
    '\u007f',
    '\\u0000',
    '\\ud800',
    '"',
    "'",
    '\\',
    '{}',
    '$1',
    '%',
    '?',
  ],
  ...[
    '"blob":-1}',
    'NULL',
    ' ',
    '\n',
    '\u2028',
    'ü',
    '\uFFFD',
    '\uFFFF',
    '\u{1F600}',
    '\u{10FFFF}',
    'a',
    'é',
  ],
]
const SOME = fc.string({ unit: fc.constantFrom(...PARTS), minLength: 1, maxLength: 6 })
/** As long as a request may have it. */
const long = (length: number) =>
  fc.constantFrom('\0', '\u0001', 'x', '\u{1F600}', '\\').map((unit) => unit.repeat(length / unit.length))
const textOf = (length: number) =>
  fc.oneof({ weight: 6, arbitrary: SOME }, { weight: 1, arbitrary: long(length) })

/** Of 32 characters, none is an id that is not hex. */
const REV_ID = fc
  .oneof({ weight: 6, arbitrary: SOME }, { weight: 1, arbitrary: long(256) })
  .filter((id) => normalizeRevId(id) === id)

/** What one document is made of. */
const DOCUMENT = fc.record({
  id: textOf(600),
  revs: fc.uniqueArray(REV_ID, { minLength: 6, maxLength: 6 }),
  names: fc.uniqueArray(textOf(20_000), { minLength: 2, maxLength: 2 }),
  type: textOf(20_000),
  member: textOf(20_000),
})
type Texts = typeof DOCUMENT extends fc.Arbitrary<infer T> ? T : never

function file(name: string, type: string, text: string): AttachmentWrite {
  return { ...attachment(name, Buffer.from(text)), type }
}

/** All that happens to a document: each step is a write, of which the result is checked. */
function stepsOf({ revs, names, type, member }: Texts): DocWrite[] {
  const [root, left, right, next, last, other] = revs as [string, string, string, string, string, string]
  const content = (text: string, files: readonly string[]) => ({
    body: JSON.stringify({ text, [member]: member }),
    attachments: files.map((name) => file(name, type, `${name} ${text}`)),
  })
  const superseded = (rev: string) => ({ rev, deleted: false, ancestry: null })
  const leaf = (
    pos: number,
    ids: readonly string[],
    files: readonly string[],
    deleted = false,
  ): RevisionWrite => {
    const rev = `${pos}-${ids[0]}`
    return { rev, deleted, ancestry: ids, content: content(rev, files) }
  }
  const step = (rev: string, revisions: readonly RevisionWrite[], deleted = false): DocWrite => ({
    ...{ rev, deleted, sequenced: true, revisions },
  })
  return [
    step(`1-${root}`, [leaf(1, [root], names)]),
    step(`2-${left}`, [superseded(`1-${root}`), leaf(2, [left, root], names.slice(1))]),
    step(`2-${left}`, [leaf(2, [right, root], names)]),
    // A superseded revision whose content comes again.
    step(`3-${next}`, [
      { ...superseded(`2-${left}`), content: content('again', names) },
      leaf(3, [next, left, root], []),
    ]),
    step(`4-${last}`, [superseded(`3-${next}`), leaf(4, [last, next, left, root], names)]),
    step(`4-${last}`, [superseded(`2-${right}`), leaf(3, [other, right, root], names, true)]),
  ]
}

/** What a write must leave of its leaves. */
function checkLeaves(found: Awaited<ReturnType<typeof readOne>>, { rev, revisions }: DocWrite): void {
  const equal = (a: unknown, b: unknown, what: string) => {
    if (JSON.stringify(a) !== JSON.stringify(b))
      throw new Error(`${what}: ${JSON.stringify(a)} is not ${JSON.stringify(b)}`)
  }
  equal(found?.rev, rev, 'winner')
  for (const { rev, ancestry, content } of revisions) {
    const row = found?.revisions.find((row) => row.rev === rev)
    equal(row?.leaf, ancestry !== null, 'leaf')
    if (ancestry !== null)
      equal(found?.branches.find((branch) => branch.rev === rev)?.ids, ancestry, 'ancestry')
    if (content === undefined) continue
    equal(row?.body, content.body, 'body')
    const facts = ({ name, type, digest, length }: AttachmentWrite) => ({ name, type, digest, length })
    equal(
      row?.attachments.map((stored) => facts(stored as never)),
      content.attachments.map(facts),
      'attachments',
    )
  }
}

/** A purge of all that a document has. */
function forget(id: string) {
  return {
    id,
    decide: (doc: Parameters<Parameters<DatabaseStore['purgeDocs']>[0][number]['decide']>[0]) => {
      const rows = doc?.revisions() ?? []
      const purged = rows.flatMap(({ rev, leaf }) => (leaf ? rev : []))
      const removed = [...rows.map(({ rev }) => rev), ...(doc?.retained() ?? [])]
      return { result: purged, write: { purged, removed, rest: null } }
    },
  }
}

/** Shrinking a failure would take minutes. */
const RUNS = { numRuns: 25, endOnFailure: true }
/** Each compacts. */
const FEW = { ...RUNS, numRuns: 10 }

async function checkDocument(opened: OpenStore, texts: Texts): Promise<void> {
  const { store } = opened
  const id = `doc ${texts.id}`
  for (const docWrite of stepsOf(texts)) {
    await only(store.updateDocs([write(id, docWrite)]))
    checkLeaves(await readOne(store, id), docWrite)
  }
  await store.compact({ keepSince: 0 })
  const rows = await store.history.readDocs([id], (doc) => doc?.versions().length, { versions: {} })
  if ((rows[0] ?? 0) < 6) throw new Error(`${rows[0]} versions after compaction`)
  const [found] = (await store.readRange({ start: { id, inclusive: true } }, { limit: 1 }, (doc) => doc.id))
    .rows
  if (found !== id) throw new Error(`the range begins with ${JSON.stringify(found)}`)
  const measured = await store.measureRange({ start: { id, inclusive: true }, end: { id, inclusive: true } })
  if (measured.docCount !== 1 || measured.active === 0) throw new Error(JSON.stringify(measured))
  await store.countAttachments(1_000_000)
  await store.sizes()
}

export const textCases: StorageCases = {
  'a document with any texts is written, read, forked, compacted and purged': async (t, makeEngine) => {
    const opened = await openNotes(t, makeEngine)
    const { store } = opened
    await fc.assert(
      fc.asyncProperty(DOCUMENT, async (texts) => {
        await checkDocument(opened, texts)
        const id = `doc ${texts.id}`
        const purged = await only(store.purgeDocs([forget(id)]))
        if ((await readOne(store, id)) !== null) throw new Error('it was purged')
        const newest = (await store.readPurges()).at(-1)
        if (JSON.stringify(newest && [newest.id, newest.revs]) !== JSON.stringify([id, purged])) {
          throw new Error(`the newest purge is ${JSON.stringify(newest)}`)
        }
      }),
      FEW,
    )
    await store.compact()
    await audit(t, store, 'purged', { purged: true })
    await auditContents(t, opened, 'purged')
  },

  'a `_local` document has any id and any body': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const written = new Map<string, string>()
    await fc.assert(
      fc.asyncProperty(textOf(1200), textOf(20_000), async (name, text) => {
        const [id, body] = [`_local/${name}`, JSON.stringify({ text, [name]: text })]
        await only(store.updateLocals([{ id, decide: () => ({ result: null, write: { rev: 1, body } }) }]))
        written.set(id, body)
      }),
      RUNS,
    )
    const from = (await reopen()).store
    const ids = [...written.keys()]
    t.strictSame(
      (await from.readLocals(ids)).map((doc) => [doc?.id, doc?.body]),
      [...written],
    )
    await only(from.updateLocals([{ id: ids[0] as string, decide: () => ({ result: null, write: null }) }]))
    t.equal(await from.countLocals({}), ids.length - 1)
  },

  'a security object has any members': async (t, makeEngine) => {
    const { store } = await openNotes(t, makeEngine)
    const half = fc.constantFrom('\ud800', '\udfff', 'a\udc00b')
    await fc.assert(
      fc.asyncProperty(fc.array(fc.oneof(textOf(20_000), half)), textOf(100), async (names, other) => {
        const security: SecurityObject = { members: { names, roles: names }, [other]: names }
        await store.updateSettings(() => ({ result: null, write: { security } }))
        const found = (await store.view()).security
        if (JSON.stringify(found) !== JSON.stringify(security)) throw new Error(JSON.stringify(found))
      }),
      RUNS,
    )
  },

  'a remembered point has any parts, also of a thousand shards': async (t, makeEngine) => {
    const { store, reopen } = await openNotes(t, makeEngine)
    const parts = fc.oneof(
      fc.array(fc.tuple(SOME, fc.nat(1e9)), { maxLength: 5 }),
      // Nothing repeats that could be compressed.
      fc.array(fc.tuple(fc.uuid(), fc.nat(1e9)), { minLength: 1024, maxLength: 1024 }),
    ) as fc.Arbitrary<TokenPart[]>
    const points: { family: string; parts: TokenPart[]; total: number; seq: number }[] = []
    await fc.assert(
      fc.asyncProperty(SOME, parts, async (name, some) => {
        const point = { family: `family ${points.length} ${name}`, parts: some, total: 5, seq: points.length }
        await store.rememberPoints([point])
        points.push(point)
      }),
      RUNS,
    )
    const from = (await reopen()).store
    for (const point of points) {
      const found = await from.findPoint(point.family, 5, () => true)
      // Whoever sends this token gets more changes than it needs.
      if (found !== null || point.parts.length < 100) t.strictSame(found, point)
    }
  },

  'a record has any key and any value': async (t, makeEngine) => {
    const { catalog } = await openNotes(t, makeEngine)
    await fc.assert(
      fc.asyncProperty(textOf(1200), textOf(20_000), textOf(2000), async (key, value, next) => {
        if (!(await catalog.writeRecords([{ kind: 'k', key, value, expected: null }])))
          throw new Error('not new')
        const [read] = await catalog.readRecords('k', [key])
        if (read !== value) throw new Error(`read ${JSON.stringify(read)}`)
        const [listed] = await catalog.listRecords('k', { prefix: key }, 1)
        if (listed?.key !== key || listed.value !== value) throw new Error(`listed ${JSON.stringify(listed)}`)
        await catalog.writeRecords([{ kind: 'k', key, value: next, expected: value }])
        if (!(await catalog.writeRecords([{ kind: 'k', key, value: null, expected: next }])))
          throw new Error('changed')
      }),
      RUNS,
    )
    t.strictSame(await catalog.listRecords('k', {}, 10), [])
  },

  'a name that no database can have is found nowhere': async (t, makeEngine) => {
    const { engine, catalog } = await openNotes(t, makeEngine)
    await fc.assert(
      fc.asyncProperty(textOf(20_000), async (name) => {
        if ((await catalog.find(name)) !== null) throw new Error('found')
        for (const range of [{ prefix: `!${name}` }, { after: `z${name}` }, { from: `z${name}` }]) {
          if ((await catalog.names(range, 9)).length > 0) throw new Error('listed')
        }
        await catalog.noteUpdated([name])
        await catalog.readUpdates({ since: 0, names: [name] }, 9)
      }),
      RUNS,
    )
    await rejectsWith(t, catalog.delete('a\0'), 'no_database')
    await rejectsWith(t, engine.openDatabase('a\0'), 'no_database')
  },

  'an id, a revision or a key that is too long is refused, and poisons nothing': async (t, makeEngine) => {
    const { store, catalog } = await openNotes(t, makeEngine)
    const [root] = stepsOf({ id: '', revs: ['a', 'b', 'c', 'd', 'e', 'f'], names: [], type: '', member: '' })
    const ids = ['x'.repeat(20_000), '\0'.repeat(2000), '\u{1F600}'.repeat(2000)]
    for (const id of ids) {
      const [outcome] = await store.updateDocs([write(id, root as DocWrite)])
      if (outcome !== undefined && 'error' in outcome) {
        t.ok(outcome.error instanceof CouchError && outcome.error.code === 'illegal_docid')
        t.equal(await readOne(store, id), null)
      } else t.equal((await readOne(store, id))?.rev, '1-a')
      const local = { id: `_local/${id}`, decide: () => ({ result: 1, write: { rev: 1, body: '{}' } }) }
      const [saved] = await store.updateLocals([local])
      if (saved !== undefined && 'error' in saved) {
        t.ok(saved.error instanceof CouchError && saved.error.code === 'illegal_docid')
      }
      await store.readLocals([local.id])
      const wrote = catalog.writeRecords([{ kind: 'k', key: id, value: 'v', expected: null }])
      const isWritten = await wrote.catch((error: CouchError) => error.code !== 'bad_request')
      t.strictSame(await catalog.readRecords('k', [id]), [isWritten ? 'v' : null])
    }
    await audit(t, store, 'long ids')
  },
}
