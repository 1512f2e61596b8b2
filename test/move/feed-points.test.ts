/** What positions of the old feed stand for, and which sequences are found in checkpoints. */
import t from 'tap'
import { CheckpointTokens } from '../../src/move/checkpoint-tokens.ts'
import { FeedPoints } from '../../src/move/feed-points.ts'
import { LeafDigest } from '../../src/move/leaf-digest.ts'
import { Random } from '../protocol/random.ts'

t.test('no document that follows a position has a local number up to its point', async (t) => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = new Random(seed)
    const length = random.below(40)
    // Some documents are not here, some were here before, and the order differs.
    const seqs = Array.from({ length }, () => (random.below(10) === 0 ? Infinity : 1 + random.below(60)))
    const most = 8 + random.below(40)
    const points = new FeedPoints(most)
    for (const [at, seq] of seqs.entries()) points.add(random.below(8) === 0 ? null : `${at + 1}-x`, seq)
    const end = random.below(60)
    const listed = points.list(end)
    t.ok(listed.length <= most)
    for (const { token, seq } of listed) {
      const after = seqs.slice(Number.parseInt(token, 10))
      t.equal(seq, Math.min(end, ...after.map((each) => each - 1)), `seed ${seed}, ${token}`)
    }
    const numbers = listed.map(({ token }) => Number.parseInt(token, 10))
    t.same(
      numbers,
      [...numbers].sort((a, b) => a - b),
    )
  }
})

t.test('the newest positions stay when there are many', async (t) => {
  const points = new FeedPoints(100)
  for (let at = 1; at <= 10_000; at++) points.add(`${at}-x`, at)
  const listed = points.list(10_000)
  t.same(
    listed.slice(-10).map(({ seq }) => seq),
    [9991, 9992, 9993, 9994, 9995, 9996, 9997, 9998, 9999, 10_000],
  )
  t.ok((listed[0]?.seq ?? 10_000) < 1000, 'some of the oldest points are kept')
})

t.test('sequences of both kinds of checkpoints, each once, the newest first', async (t) => {
  const tokens = new CheckpointTokens('9-end')
  tokens.note({
    session_id: 'a',
    last_seq: '7-x',
    version: 1,
    replicator: 'pouchdb',
    history: [
      { session_id: 'a', last_seq: '7-x' },
      { session_id: 'b', last_seq: 12 },
    ],
  })
  tokens.note({
    session_id: 'c',
    source_last_seq: '10-y',
    replication_id_version: 4,
    history: [
      { session_id: 'c', recorded_seq: '10-y' },
      { session_id: 'd', recorded_seq: '2-z' },
    ],
  })
  tokens.note({ salt: 'no checkpoint', last_seq: '5-q' })
  tokens.note(null)
  t.same(tokens.list(), ['10-y', '7-x', '2-z'])
  const numbers = new CheckpointTokens(9)
  numbers.note({ session_id: 'a', last_seq: 7, version: 1, history: [] })
  t.same(numbers.list(), [], 'where sequences are numbers, the rows of the feed give all points')
})

t.test('a digest depends on each leaf, and on no order', async (t) => {
  const digest = (...docs: [string, string[]][]) => {
    const sum = new LeafDigest()
    for (const [id, leaves] of docs) sum.add(id, leaves)
    return sum.toString()
  }
  t.equal(digest(['a', ['1-x', '1-y']], ['b', ['1-z']]), digest(['b', ['1-z']], ['a', ['1-y', '1-x']]))
  t.not(digest(['a', ['1-x']]), digest(['a', ['1-y']]))
  t.not(digest(['a', ['1-x']], ['a', ['1-x']]), digest())
})
