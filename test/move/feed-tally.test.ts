/**
 * Random moves: an old server with several shards, copies in any order, writes at both servers in between. Whatever
 * happens, a device that goes on from a remembered position gets everything that it cannot have.
 */
import t from 'tap'
import { FeedTally } from '../../src/move/feed-tally.ts'
import type { LocalRow } from '../../src/move/local-rows.ts'
import { Random } from '../protocol/random.ts'

const CASES = 400
const IDS = Array.from({ length: 24 }, (_, n) => `doc${n}`)

interface OldDocument {
  readonly shard: number
  /** The number of its last change in its shard. */
  readonly seq: number
  readonly leaves: readonly string[]
}

class Model {
  readonly random: Random
  readonly old = new Map<string, OldDocument>()
  readonly here = new Map<string, LocalRow>()
  readonly #shardSeqs: number[]
  #localSeq = 0
  #revisions = 0

  constructor(seed: number) {
    this.random = new Random(seed)
    this.#shardSeqs = Array.from({ length: 1 + this.random.below(3) }, () => 0)
  }

  get localSeq(): number {
    return this.#localSeq
  }

  get shards(): number {
    return this.#shardSeqs.length
  }

  /** An edit of a device at the old server: another leaf, or a new one instead of the old ones. */
  writeOld(id: string): void {
    const before = this.old.get(id)
    const shard = before?.shard ?? this.random.below(this.shards)
    const seq = (this.#shardSeqs[shard] ?? 0) + 1
    this.#shardSeqs[shard] = seq
    const leaves = [...(this.random.chance(0.3) ? (before?.leaves ?? []) : []), this.#newRevision()]
    this.old.set(id, { shard, seq, leaves })
  }

  writeHere(id: string): void {
    this.#store(id, [...(this.here.get(id)?.leaves ?? []), `here-${this.#newRevision()}`])
  }

  copy(id: string): void {
    const { leaves = [] } = this.old.get(id) ?? {}
    const known = this.here.get(id)?.leaves ?? []
    // Leaves that are gone at the old server have descendants among the new ones.
    const own = known.filter((leaf) => leaf.startsWith('here'))
    if (leaves.some((leaf) => !known.includes(leaf))) this.#store(id, [...leaves, ...own])
  }

  /** The rows of the old feed with the position after each: how far it is in each shard. */
  rows() {
    const queues = Array.from({ length: this.shards }, (_, shard) =>
      [...this.old].filter(([, doc]) => doc.shard === shard).sort(([, a], [, b]) => a.seq - b.seq),
    )
    const position = queues.map(() => 0)
    const rows: { id: string; leaves: readonly string[]; token: string }[] = []
    while (queues.some(({ length }) => length > 0)) {
      const shard = this.random.pick([...queues.keys()].filter((at) => (queues[at]?.length ?? 0) > 0))
      const [id, { seq, leaves }] = (queues[shard] as [string, OldDocument][]).shift() as [
        string,
        OldDocument,
      ]
      position[shard] = seq
      rows.push({ id, leaves, token: position.join('-') })
    }
    return rows
  }

  #store(id: string, leaves: readonly string[]): void {
    this.#localSeq += 1
    this.here.set(id, { id, seq: this.#localSeq, leaves, isDeleted: false })
  }

  #newRevision(): string {
    this.#revisions += 1
    return `old${this.#revisions}`
  }
}

/** What a device at a position cannot have, although the local number says that it has it. */
function skipped(model: Model, token: string, seq: number): string[] {
  const position = token.split('-').map(Number)
  return [...model.here.values()]
    .filter((row) => row.seq <= seq)
    .filter(({ id, leaves }) => {
      const doc = model.old.get(id)
      if (doc === undefined || doc.seq > (position[doc.shard] ?? 0)) return true
      return leaves.some((leaf) => !doc.leaves.includes(leaf))
    })
    .map(({ id }) => id)
}

t.test(`${CASES} random moves`, async (t) => {
  let exact = 0
  for (let seed = 1; seed <= CASES; seed++) {
    const model = new Model(seed)
    const { random } = model
    for (const id of IDS) if (random.chance(0.8)) model.writeOld(id)
    if (random.chance(0.3)) model.writeHere(random.pick(IDS))
    const copies = random.chance(0.5) ? model.rows().map(({ id }) => id) : IDS
    for (const id of copies) {
      if (random.chance(0.95)) model.copy(id)
      if (random.chance(0.1)) model.writeOld(random.pick(IDS))
      if (random.chance(0.02)) model.writeHere(random.pick([...IDS, 'mine']))
    }
    const tally = new FeedTally(model.localSeq, new Set())
    const rows = model.rows()
    for (const { id, leaves, token } of rows) {
      tally.add({ id, seq: token, leaves, isDeleted: false }, model.here.get(id))
      if (random.chance(0.02)) model.writeHere(random.pick(IDS))
    }
    for (const { id } of tally.missing) if (random.chance(0.9)) model.copy(id)
    for (const missing of tally.missing) {
      const here = model.here.get(missing.id)
      tally.recheck(
        missing,
        here,
        missing.leaves.every((leaf) => here?.leaves.includes(leaf)),
      )
    }
    const own = [...model.here.values()].filter(({ seq }) => tally.isOnlyHere(seq)).map(({ seq }) => seq)
    for (const { token, seq } of tally.points.list(tally.endBefore(Math.min(Infinity, ...own)))) {
      t.same(skipped(model, token, seq), [], `seed ${seed}, position ${token}, number ${seq}`)
      if (seq > 0) exact += 1
    }
  }
  t.ok(exact > CASES, 'most positions are not just the beginning')
})
