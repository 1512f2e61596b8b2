/** Random interactive and replicated writes: the store's branches are those of a model over revisions/merge. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { extend, merge } from '../../src/revisions/merge.ts'
import { parseRev } from '../../src/revisions/rev.ts'
import { show } from '../revisions/helpers.ts'
import { type Arrival, arrivals, path, worlds } from '../revisions/histories.ts'
import { ADMIN, type Opened, openDatabase } from './helpers.ts'

interface Interactive {
  /** Which leaf is the parent, modulo their number and one more for none. */
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

/** What the document must be, decided by nothing but revisions/. */
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

/** The document as the store has it. */
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
  t.test(`a document is what its writes make of it, revs_limit ${revsLimit}`, async () => {
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

t.test('what is written in one bulk is what it makes one by one', async () => {
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

t.test('numbers of many documents strictly increase, one a change', async () => {
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
