/** Random histories of which random leaves are purged: what is left is what merging the rest alone makes. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import { type Branch, leafRev, makeBranch, winner } from '../../src/revisions/branch.ts'
import { isKnown } from '../../src/revisions/branch-index.ts'
import { merge } from '../../src/revisions/merge.ts'
import { show } from '../revisions/helpers.ts'
import { type Arrival, arrivals, type Node, nodeKey, path, worlds } from '../revisions/histories.ts'
import { ENGINES } from './engines.ts'
import { ADMIN, body, type Opened, openOn, parse } from './helpers.ts'

const IDS = ['a', 'b', '_design/c'] as const

type Step =
  | { readonly kind: 'arrival'; readonly id: string; readonly arrival: Arrival }
  /** Leaves by their index, modulo their number; one too many names a revision that is no leaf. */
  | { readonly kind: 'purge'; readonly picks: readonly { readonly id: string; readonly leaf: number }[] }
  | { readonly kind: 'compact' }

const id = fc.constantFrom(...IDS)
const STEP: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc
      .tuple(id, arrivals(1))
      .map(([of, [arrival]]): Step => ({ kind: 'arrival', id: of, arrival: arrival as Arrival })),
  },
  {
    weight: 3,
    arbitrary: fc
      .array(fc.record({ id, leaf: fc.nat(5) }), { minLength: 1, maxLength: 4 })
      .map((picks): Step => ({ kind: 'purge', picks })),
  },
  { weight: 1, arbitrary: fc.constant<Step>({ kind: 'compact' }) },
)

interface ModelDoc {
  branches: Branch[]
  seq: number
}

class Model {
  readonly docs = new Map<string, ModelDoc>()
  updateSeq = 0
  purgeSeq = 0
  designVersion = 0

  write(of: string, branches: Branch[]): void {
    const before = this.docs.get(of)
    const moves = leaves(branches) !== leaves(before?.branches ?? [])
    if (moves) this.updateSeq += 1
    this.docs.set(of, { branches, seq: moves || before === undefined ? this.updateSeq : before.seq })
  }

  /** @returns the leaves that go */
  purge(of: string, revs: readonly string[]): string[] {
    const all = this.docs.get(of)?.branches ?? []
    const purged = [...new Set(revs)].filter((rev) => all.some((branch) => leafRev(branch) === rev))
    if (purged.length === 0) return []
    this.purgeSeq += 1
    const rest = all.filter((branch) => !purged.includes(leafRev(branch)))
    if (rest.length === 0) this.docs.delete(of)
    else this.write(of, remerged(rest))
    return purged
  }

  feed(): string[] {
    const rows = [...this.docs].sort(([, a], [, b]) => a.seq - b.seq)
    return rows.map(([of, { seq, branches }]) => `${seq} ${of} ${leafRev(winner(branches) as Branch)}`)
  }
}

function leaves(branches: readonly Branch[]): string {
  return branches.map(leafRev).sort().join()
}

/** As if nothing but these branches had ever come. */
function remerged(branches: readonly Branch[]): Branch[] {
  return branches.reduce<Branch[]>((merged, branch) => merge(merged, branch, 1000).branches, [])
}

async function take(opened: Opened, model: Model, world: readonly Node[], step: Step): Promise<void> {
  if (step.kind === 'compact') return opened.store.compact()
  if (step.kind === 'purge') return purge(opened, model, step.picks)
  const nodes = path(world, step.arrival)
  const leaf = nodes[0] as Node
  const ids = nodes.map((node) => node.id)
  const given = { start: leaf.pos, ids, deleted: leaf.deleted, doc: { of: leaf.id } }
  assert.deepEqual(await opened.replicate(step.id, given), [])
  const before = model.docs.get(step.id)?.branches ?? []
  model.write(step.id, merge(before, makeBranch(leaf.pos, ids, leaf.deleted), 1000).branches)
}

async function purge(
  opened: Opened,
  model: Model,
  picks: Extract<Step, { kind: 'purge' }>['picks'],
): Promise<void> {
  const request: Record<string, string[]> = {}
  for (const { id: of, leaf } of picks) {
    const branches = model.docs.get(of)?.branches ?? []
    const picked = branches[leaf % (branches.length + 1)]
    const inner = branches.flatMap(({ pos, ids }) => (ids.length > 1 ? `${pos - 1}-${ids[1]}` : []))
    request[of] = [...(request[of] ?? []), picked === undefined ? (inner[0] ?? '9-none') : leafRev(picked)]
  }
  const { purged } = parse(await opened.database.purge(ADMIN, body(request)))
  const wanted = Object.entries(request).map(([of, revs]) => [of, model.purge(of, revs)])
  assert.deepEqual(purged, Object.fromEntries(wanted))
}

async function check({ store }: Opened, model: Model, world: readonly Node[]): Promise<void> {
  const found = await store.readDocs(IDS, (doc) =>
    doc === null
      ? null
      : {
          branches: doc.branches.map(({ pos, ids, deleted }) => makeBranch(pos, [...ids], deleted)),
          winner: [doc.rev, doc.deleted, doc.seq],
          bodies: doc.branches.map((branch) => doc.body(leafRev(branch))),
          rows: doc.revisions().map(({ rev }) => rev),
        },
  )
  for (const [at, of] of IDS.entries()) {
    const [doc, wanted] = [found[at] ?? null, model.docs.get(of)]
    if (doc === null || wanted === undefined) {
      assert.deepEqual([doc, wanted], [null, undefined])
      continue
    }
    assert.deepEqual(show(doc.branches), show(wanted.branches))
    const best = winner(wanted.branches) as Branch
    assert.deepEqual(doc.winner, [leafRev(best), best.deleted, wanted.seq])
    assert.ok(doc.bodies.every((text) => text !== null))
    for (const node of world) {
      assert.equal(isKnown(doc.branches, node), isKnown(wanted.branches, node), nodeKey(node))
    }
    assert.ok(
      doc.rows.every((rev) => isKnown(wanted.branches, parsedRev(rev))),
      'no row of what is unknown',
    )
  }
  await checkCounts(store, model)
}

async function checkCounts(store: Opened['store'], model: Model): Promise<void> {
  const feed = await store.readChanges(
    { since: 0 },
    { limit: 100 },
    (doc) => `${doc.seq} ${doc.id} ${doc.rev}`,
  )
  assert.deepEqual(feed.rows, model.feed())
  const { updateSeq, docCount, deletedCount, purgeSeq, sizes } = await store.info()
  const dead = [...model.docs.values()].filter(({ branches }) => winner(branches)?.deleted).length
  assert.deepEqual(
    [updateSeq, purgeSeq, docCount, deletedCount],
    [model.updateSeq, model.purgeSeq, model.docs.size - dead, dead],
  )
  const bytes = [...model.docs.values()].flatMap(({ branches }) =>
    branches.map(({ leaf }) => `{"of":"${leaf}"}`.length),
  )
  assert.equal(
    sizes.external,
    bytes.reduce((sum, length) => sum + length, 0),
  )
  for (let since = 0; since <= updateSeq; since += 1) {
    const above = [...model.docs.values()].filter(({ seq }) => seq > since).length
    assert.equal(await store.countChanges(since), above, `pending above ${since}`)
  }
}

function parsedRev(rev: string): { pos: number; id: string } {
  const dash = rev.indexOf('-')
  return { pos: Number(rev.slice(0, dash)), id: rev.slice(dash + 1) }
}

for (const [name, make] of Object.entries(ENGINES)) {
  t.test(`what purging leaves is what the remaining branches make (${name})`, async (t) => {
    const numRuns = name === 'memory' ? 200 : 60
    await fc.assert(
      fc.asyncProperty(worlds(15), fc.array(STEP, { minLength: 1, maxLength: 20 }), async (world, steps) => {
        const engine = await make(t)
        const opened = await openOn(engine)
        const model = new Model()
        for (const step of steps) {
          await take(opened, model, world, step)
          await check(opened, model, world)
        }
        await engine.close()
      }),
      { numRuns },
    )
  })
}
