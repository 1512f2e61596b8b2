/** Replicated writes by bulk and PUT, and their results: protocol.md 6.4, 19.1, 19.2. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { extend, merge } from '../../src/revisions/merge.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { show } from '../revisions/helpers.ts'
import { type Arrival, arrivals, path, worlds } from '../revisions/histories.ts'
import { ENGINES } from './engines.ts'
import {
  ADMIN,
  body,
  type Opened,
  openDatabase,
  openOn,
  type Path,
  parse,
  replicated,
  text,
} from './helpers.ts'

type Write = (opened: Opened, path: Path) => Promise<unknown>

const WAYS: [name: string, write: Write][] = [
  [
    'bulk',
    async ({ bulk }, path) => {
      const failures = await bulk({ new_edits: false, docs: [replicated('x', path)] })
      if (failures.length > 0) throw new Error(JSON.stringify(failures))
    },
  ],
  ['PUT', ({ put }, path) => put('x', replicated('x', path), { newEdits: false })],
]

interface Case {
  readonly name: string
  readonly stored: readonly Path[]
  readonly written: Path
  readonly winner: string
  readonly conflicts?: readonly string[]
  /** Whether the document gets a new sequence number. */
  readonly moves: boolean
  readonly known: readonly string[]
  readonly unknown?: readonly string[]
}

const ABC = { start: 3, ids: ['c', 'b', 'a'] }
const CASES: Case[] = [
  {
    name: 'a history arrives whole',
    stored: [],
    written: ABC,
    winner: '3-c',
    moves: true,
    known: ['1-a', '2-b', '3-c'],
    unknown: ['1-b', '3-a', '4-c'],
  },
  {
    name: 'a sibling of the leaf',
    stored: [ABC],
    written: { start: 3, ids: ['d', 'b', 'a'] },
    winner: '3-d',
    conflicts: ['3-c'],
    moves: true,
    known: ['1-a', '2-b', '3-c', '3-d'],
  },
  { name: 'a leaf that is known', stored: [ABC], written: ABC, winner: '3-c', moves: false, known: ['1-a'] },
  {
    name: 'an inner revision that is known',
    stored: [ABC],
    written: { start: 2, ids: ['b', 'a'] },
    winner: '3-c',
    moves: false,
    known: ['2-b'],
  },
  {
    name: 'a descendant with a gap',
    stored: [{ start: 1, ids: ['a'] }],
    written: { start: 4, ids: ['d', 'c', 'b', 'a'] },
    winner: '4-d',
    moves: true,
    known: ['1-a', '2-b', '3-c', '4-d'],
  },
  {
    name: 'no revision in common: another root',
    stored: [{ start: 1, ids: ['a'] }],
    written: { start: 3, ids: ['x'] },
    winner: '3-x',
    conflicts: ['1-a'],
    moves: true,
    known: ['1-a', '3-x'],
  },
  {
    name: 'a known leaf that brings the path to another: the two roots become one',
    stored: [
      { start: 1, ids: ['a'] },
      { start: 3, ids: ['x'] },
    ],
    written: { start: 3, ids: ['x', 'y', 'a'] },
    winner: '3-x',
    moves: true,
    known: ['1-a', '2-y', '3-x'],
  },
  {
    name: 'a later path that connects two roots',
    stored: [
      { start: 1, ids: ['a'] },
      { start: 3, ids: ['x'] },
    ],
    written: { start: 4, ids: ['z', 'x', 'y', 'a'] },
    winner: '4-z',
    moves: true,
    known: ['1-a', '2-y', '3-x', '4-z'],
  },
  {
    name: 'a live sibling of a tombstone',
    stored: [{ start: 2, ids: ['b', 'a'], deleted: true }],
    written: { start: 2, ids: ['c', 'a'] },
    winner: '2-c',
    moves: true,
    known: ['1-a', '2-b', '2-c'],
  },
  {
    name: 'an ancestry that only grew takes no number',
    stored: [{ start: 3, ids: ['c'] }],
    written: ABC,
    winner: '3-c',
    moves: false,
    known: ['1-a', '2-b', '3-c'],
  },
  {
    name: 'a leaf turns out to be an ancestor of another',
    stored: [
      { start: 2, ids: ['e'] },
      { start: 1, ids: ['a'] },
    ],
    written: { start: 2, ids: ['e', 'a'] },
    winner: '2-e',
    moves: true,
    known: ['1-a', '2-e'],
  },
]

for (const [way, write] of WAYS) {
  t.test(`merges by ${way}`, async (t) => {
    for (const { name, stored, written, winner, conflicts = [], moves, known, unknown = [] } of CASES) {
      const opened = await openDatabase()
      for (const path of stored) await write(opened, path)
      const before = await opened.updateSeq()
      await write(opened, written)
      t.equal(await opened.updateSeq(), before + Number(moves), `${name}: numbers`)
      const doc = await opened.get('x', { conflicts: true })
      t.same([doc._rev, doc._conflicts ?? []], [winner, conflicts], `${name}: leaves`)
      const diff = parse(await opened.database.revsDiff(ADMIN, body({ x: [...known, ...unknown] })))
      t.same(diff.x?.missing ?? [], unknown, `${name}: revisions known`)
    }
  })
}

t.test('a history of which only the leaf was stored', async (t) => {
  const { get, replicate, database } = await openDatabase()
  await replicate('x', { ...ABC, doc: { n: 1 } })
  t.match(await get('x', { revs: true, revsInfo: true }), {
    _rev: '3-c',
    _revisions: { start: 3, ids: ['c', 'b', 'a'] },
    _revs_info: [
      { rev: '3-c', status: 'available' },
      { rev: '2-b', status: 'missing' },
      { rev: '1-a', status: 'missing' },
    ],
  })
  await t.rejects(get('x', { rev: '2-b' }), { code: 'not_found' })
  await replicate('x', { start: 2, ids: ['b', 'a'], doc: { n: 0 } })
  await t.rejects(get('x', { rev: '2-b' }), { code: 'not_found' }, 'an inner revision gets no body later')
  t.same(parse(await database.revsDiff(ADMIN, body({ x: ['1-a', '2-b', '3-c'] }))), {})
})

t.test('the body of a known revision is ignored', async (t) => {
  const { get, replicate } = await openDatabase()
  await replicate('x', { start: 1, ids: ['a'], doc: { n: 1 } })
  await replicate('x', { start: 1, ids: ['a'], doc: { n: 2 }, deleted: true })
  t.match(await get('x'), { _rev: '1-a', n: 1 })
})

t.test('a live leaf revives a deleted document, and a tombstone deletes it', async (t) => {
  const { get, replicate } = await openDatabase()
  await replicate('x', { start: 1, ids: ['a'] }, { start: 2, ids: ['b', 'a'], deleted: true })
  await t.rejects(get('x'), { code: 'deleted' })
  await replicate('x', { start: 2, ids: ['c', 'a'] })
  t.match(await get('x', { deletedConflicts: true }), { _rev: '2-c', _deleted_conflicts: ['2-b'] })
})

const LEAVES: [
  leaves: Path[],
  winner: string,
  conflicts: string[] | undefined,
  deletedConflicts: string[] | undefined,
  order: string[],
][] = [
  [
    [
      { start: 2, ids: ['b'] },
      { start: 2, ids: ['c'] },
      { start: 2, ids: ['d'], deleted: true },
    ],
    '2-c',
    ['2-b'],
    ['2-d'],
    ['2-c', '2-b', '2-d'],
  ],
  [
    [
      { start: 3, ids: ['a'], deleted: true },
      { start: 2, ids: ['z'] },
    ],
    '2-z',
    undefined,
    ['3-a'],
    ['2-z', '3-a'],
  ],
  [
    [
      { start: 10, ids: ['a'] },
      { start: 9, ids: ['f'] },
    ],
    '10-a',
    ['9-f'],
    undefined,
    ['10-a', '9-f'],
  ],
  [
    [
      { start: 2, ids: ['a'], deleted: true },
      { start: 2, ids: ['b'], deleted: true },
    ],
    '2-b',
    undefined,
    ['2-a'],
    ['2-b', '2-a'],
  ],
  [
    [
      { start: 2, ids: [`0aff${'0'.repeat(28)}`] },
      { start: 2, ids: [`0aee${'f'.repeat(28)}`] },
    ],
    `2-0aff${'0'.repeat(28)}`,
    [`2-0aee${'f'.repeat(28)}`],
    undefined,
    [`2-0aff${'0'.repeat(28)}`, `2-0aee${'f'.repeat(28)}`],
  ],
]

t.test('winner and leaf order are those of 19.1 for any order of arrival', async (t) => {
  for (const [leaves, winner, conflicts, deletedConflicts, order] of LEAVES) {
    for (const arrival of [leaves, leaves.toReversed()]) {
      const { replicate, get, database } = await openDatabase()
      for (const leaf of arrival) await replicate('x', leaf)
      const isDeleted = leaves.every(({ deleted }) => deleted)
      if (isDeleted) await t.rejects(get('x'), { code: 'deleted' })
      const doc = await get('x', { conflicts: true, deletedConflicts: true, deleted: true })
      t.equal(doc._rev, winner)
      t.equal(doc._deleted, isDeleted ? true : undefined)
      t.same([doc._conflicts, doc._deleted_conflicts], [conflicts, deletedConflicts])
      const chunks: Uint8Array[] = []
      for await (const chunk of database.openRevs(ADMIN, 'x', 'all', {})) chunks.push(chunk)
      const rows = parse(Buffer.concat(chunks)) as { ok: { _rev: string } }[]
      t.same(
        rows.map(({ ok }) => ok._rev),
        order,
      )
    }
  }
})

t.test('interactive and replicated edits coexist', async (t) => {
  const { put, get, replicate } = await openDatabase()
  const first = await put('x', {})
  const id = first.slice(2)
  const mine = await put('x', { _rev: first, who: 'me' })
  await replicate('x', { start: 2, ids: ['0'.repeat(32), id], doc: { who: 'you' } })
  t.match(await get('x', { conflicts: true }), { _rev: mine, _conflicts: [`2-${'0'.repeat(32)}`], who: 'me' })
})

t.test('the same edit on two servers is one revision', async (t) => {
  const { put, get, replicate, updateSeq } = await openDatabase()
  const other = await openDatabase()
  const first = await put('x', {})
  const second = await put('x', { _rev: first, n: 1 })
  t.equal(await other.put('x', {}), first)
  t.equal(await other.put('x', { _rev: first, n: 1 }), second)
  await replicate('x', { start: 2, ids: [second.slice(2), first.slice(2)], doc: { n: 1 } })
  t.equal(await updateSeq(), 2)
  t.equal((await get('x', { conflicts: true }))._conflicts, undefined)
})

t.test('a known edit without its history merges with the same edit with its history', async (t) => {
  const other = await openDatabase()
  const first = await other.put('x', {})
  const second = await other.put('x', { _rev: first, n: 1 })
  const { put, get, replicate } = await openDatabase()
  await put('x', {})
  await replicate('x', { start: 2, ids: [second.slice(2)], doc: { n: 1 } })
  t.match(await get('x', { conflicts: true }), { _rev: second, _conflicts: [first] })
  t.equal(await put('x', { _rev: first, n: 1 }), second)
  t.same(await get('x', { conflicts: true, revs: true }), {
    _id: 'x',
    _rev: second,
    n: 1,
    _revisions: { start: 2, ids: [second.slice(2), first.slice(2)] },
  })
})

for (const [engine, makeEngine] of Object.entries(ENGINES)) {
  const leaf = (n: number): Path => ({ start: 2, ids: [`x${n}`], doc: { n } })
  const leaves = (count: number) => Array.from({ length: count }, (_, n) => leaf(n))

  t.test(`${engine}: thousands of revisions of one document are stored and read`, async (t) => {
    const { replicate, database, get, put } = await openOn(await makeEngine(t))
    const count = 2500
    // More work than one decision may do, so later decisions take the remaining edits.
    t.same(await replicate('x', ...leaves(count)), [])
    t.same(await replicate('x', ...leaves(count)), [], 'known leaves change nothing')
    const rows = JSON.parse(await text(database.openRevs(ADMIN, 'x', 'all', { revs: true })))
    t.equal(rows.length, count)
    t.ok(rows.every(({ ok }: { ok: { _rev: string; n: number } }) => ok._rev === `2-x${ok.n}`))
    const asked = { x: [...leaves(count).map(({ ids }) => `2-${ids[0]}`), '2-y', '1-x1', '3-x1'] }
    t.same(parse(await database.missingRevs(ADMIN, body(asked))), {
      missing_revs: { x: ['2-y', '1-x1', '3-x1'] },
    })
    const winner = await get('x', { conflicts: true })
    t.equal(winner._conflicts.length, count - 1)
    t.equal(await put('x', { _id: 'x', _rev: '2-x5' }), (await get('x'))._rev, 'a leaf is edited')
  })

  t.test(`${engine}: the leaves of a document are limited`, async (t) => {
    const { replicate, get, put } = await openOn(await makeEngine(t), {}, localSandbox(), Date.now, {
      maxLeaves: 20,
    })
    const failures = await replicate('x', ...leaves(22))
    t.match(failures, [
      {
        id: 'x',
        rev: '2-x20',
        error: 'forbidden',
        reason: /has 20 conflicting revisions.*settee\/max_leaves/,
      },
      { id: 'x', rev: '2-x21', error: 'forbidden' },
    ])
    t.same(await replicate('x', { start: 3, ids: ['y', 'x3'] }), [], 'an edit of a leaf passes')
    t.same(await replicate('x', leaf(4)), [], 'a known revision is accepted')
    await put('x', { _id: 'x', _rev: '2-x5', _deleted: true })
    t.equal((await get('x', { conflicts: true }))._conflicts.length, 18)
    t.equal((await replicate('x', leaf(30))).length, 1, 'deleted leaves count')
  })

  t.test(`${engine}: the ancestries of a document's leaves take at most 16 MiB`, async (t) => {
    const { replicate } = await openOn(await makeEngine(t))
    const trunk = Array.from({ length: 999 }, (_, n) => `${n}`.padEnd(500, '-'))
    const deep = (n: number): Path => ({ start: 1000, ids: [`x${n}`, ...trunk] })
    const failures = await replicate('x', ...Array.from({ length: 40 }, (_, n) => deep(n)))
    t.ok(failures.length > 5 && failures.length < 20, `${failures.length} of 40`)
    t.match(failures[0], { error: 'forbidden', reason: /ancestries/ })
  })
}

// Random interactive and replicated writes: the store's branches are those of a model over revisions/merge.

interface Interactive {
  /** The index of the parent leaf, modulo their number plus one; the last means no parent. */
  readonly parent: number
  readonly deleted: boolean
  readonly n: number
}

type Step = { readonly arrival: Arrival } | { readonly edit: Interactive }

const EDIT = fc.record({ parent: fc.nat(10), deleted: fc.boolean(), n: fc.nat(2) })
const STEPS = fc
  .tuple(arrivals(12), fc.array(EDIT, { maxLength: 8 }), fc.infiniteStream(fc.boolean()))
  .map(([replicated, edits, coin]): Step[] => {
    const left = { replicated: [...replicated], edits: [...edits] }
    const steps: Step[] = []
    while (left.replicated.length + left.edits.length > 0) {
      const takesEdit = left.replicated.length === 0 || (left.edits.length > 0 && coin.next().value)
      const edit = takesEdit ? left.edits.shift() : undefined
      const arrival = edit ? undefined : left.replicated.shift()
      if (edit) steps.push({ edit })
      if (arrival) steps.push({ arrival })
    }
    return steps
  })

/** The expected document, computed only with revisions/. */
class Model {
  branches: Branch[] = []
  seq = 0
  readonly revsLimit: number

  constructor(revsLimit: number) {
    this.revsLimit = revsLimit
  }

  replace(branches: Branch[]): void {
    const leaves = (all: readonly Branch[]) => all.map(leafRev).sort().join()
    if (leaves(branches) !== leaves(this.branches)) this.seq += 1
    this.branches = branches
  }
}

async function replicate(opened: Opened, model: Model, nodes: ReturnType<typeof path>): Promise<void> {
  const [leaf] = nodes
  if (leaf === undefined) return
  const ids = nodes.map(({ id }) => id)
  const failures = await opened.replicate('x', {
    start: leaf.pos,
    ids,
    deleted: leaf.deleted,
    doc: { of: leaf.id },
  })
  assert.deepEqual(failures, [])
  // What is known with all its ancestors merges nothing, not even a leaf on another branch that an edit has left (`extend`).
  const isKnown = model.branches.some((one) => ids.every((id, at) => one.ids[one.pos - leaf.pos + at] === id))
  if (!isKnown)
    model.replace(merge(model.branches, makeBranch(leaf.pos, ids, leaf.deleted), model.revsLimit).branches)
}

async function edit(opened: Opened, model: Model, { parent, deleted, n }: Interactive): Promise<void> {
  const chosen = model.branches[parent % (model.branches.length + 1)]
  const best = winner(model.branches)
  const isAllowed =
    chosen === undefined ? best === undefined || (best.deleted && !deleted) : best?.deleted === false
  const doc = { n, ...(chosen && { _rev: leafRev(chosen) }), ...(deleted && { _deleted: true }) }
  const rev = await opened.put('x', doc).catch((error: { code?: string }) => {
    assert.equal(error.code, 'conflict')
    return null
  })
  assert.equal(rev !== null, isAllowed, 'a conflict, or none')
  if (rev === null) return
  const { id, pos } = parseRev(rev)
  const base = chosen ?? best
  model.replace(
    base === undefined
      ? [makeBranch(pos, [id], deleted)]
      : extend(model.branches, base, id, deleted, model.revsLimit),
  )
}

/** The stored document. */
async function stored({ store }: Opened) {
  const [doc] = await store.readDocs(['x'], (state) =>
    state === null
      ? null
      : {
          seq: state.seq,
          rev: state.rev,
          deleted: state.deleted,
          branches: state.branches.map(({ pos, ids, deleted }) => makeBranch(pos, [...ids], deleted)),
          bodies: state.branches.map((branch) => state.body(leafRev(branch))),
        },
  )
  return doc ?? null
}

async function check(opened: Opened, model: Model): Promise<void> {
  const doc = await stored(opened)
  const { updateSeq, docCount, deletedCount } = await opened.store.view()
  assert.equal(updateSeq, model.seq, 'a number exactly when the leaves changed')
  if (doc === null) {
    assert.equal(model.branches.length, 0)
    return
  }
  assert.deepEqual(show(doc.branches), show(model.branches))
  const best = winner(model.branches) as Branch
  assert.deepEqual([doc.rev, doc.deleted], [leafRev(best), best.deleted])
  assert.deepEqual([docCount, deletedCount], best.deleted ? [0, 1] : [1, 0])
  assert.ok(doc.seq <= updateSeq)
  assert.ok(
    doc.bodies.every((body) => body !== null),
    'every leaf has a body',
  )
}

for (const revsLimit of [1000, 3]) {
  t.test(`a document is the result of its writes, revs_limit ${revsLimit}`, async () => {
    await fc.assert(
      fc.asyncProperty(worlds(20), STEPS, async (world, steps) => {
        const opened = await openDatabase()
        await opened.database.setRevsLimit(ADMIN, revsLimit)
        const model = new Model(revsLimit)
        for (const step of steps) {
          if ('edit' in step) await edit(opened, model, step.edit)
          else await replicate(opened, model, path(world, step.arrival))
          await check(opened, model)
        }
      }),
      { numRuns: 150 },
    )
  })
}

t.test('writes in one bulk have the same result as one by one', async () => {
  await fc.assert(
    fc.asyncProperty(worlds(20), arrivals(12), async (world, all) => {
      const paths = all.map((arrival) => {
        const nodes = path(world, arrival)
        const { pos, id, deleted } = nodes[0] as (typeof nodes)[number]
        return { start: pos, ids: nodes.map((node) => node.id), deleted, doc: { of: id } }
      })
      const [together, apart] = [await openDatabase(), await openDatabase()]
      assert.deepEqual(await together.replicate('x', ...paths), [])
      for (const one of paths) await apart.replicate('x', one)
      const [a, b] = [await stored(together), await stored(apart)]
      assert.deepEqual(show(a?.branches ?? []), show(b?.branches ?? []))
      assert.deepEqual([a?.rev, a?.deleted], [b?.rev, b?.deleted])
      assert.equal(await together.updateSeq(), 1)
    }),
    { numRuns: 150 },
  )
})

t.test('sequence numbers strictly increase, one per change', async () => {
  const writes = fc.array(fc.record({ id: fc.constantFrom('a', 'b', 'c'), n: fc.nat(3) }), { maxLength: 30 })
  await fc.assert(
    fc.asyncProperty(writes, async (edits) => {
      const { put, get, store } = await openDatabase()
      let last = 0
      for (const { id, n } of edits) {
        const now = await get(id, { deleted: true }).catch(() => null)
        const deleted = n === 3 && now !== null && !now._deleted
        await put(id, {
          ...(now && !now._deleted && { _rev: now._rev }),
          n,
          ...(deleted && { _deleted: true }),
        })
        const [seq] = await store.readDocs([id], (doc) => doc?.seq)
        assert.equal(seq, last + 1)
        last += 1
      }
      const { rows } = await store.readChanges({ since: 0 }, { limit: 100 }, ({ seq }) => seq)
      assert.deepEqual(
        rows,
        [...new Set(rows)].sort((a, b) => a - b),
      )
      assert.equal(rows.length, new Set(edits.map(({ id }) => id)).size)
    }),
    { numRuns: 60 },
  )
})
