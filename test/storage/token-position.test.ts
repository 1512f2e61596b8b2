import fc from 'fast-check'
import t from 'tap'
import { readCouchSequence } from '../../src/storage/couch-sequence.ts'
import {
  forgotten,
  isAtOrBefore,
  MAX_REMEMBERED,
  positionOf,
  type TokenPosition,
} from '../../src/storage/token-position.ts'
import { couchToken } from '../helpers/couch-tokens.ts'

/** Of CouchDB 2 and 3, as the documentation and users have published them. */
const PUBLISHED = {
  // 2 shards on one node, 1 update in each
  small: '2-g1AAAABPeJzLYWBgYMpgTmHgzcvPy09JdcjLz8gvLskBCeexAEmGBiD1HwiyEhlxqEtkSKqHKMgCAIUbGWA',
  // 8 shards; the feed is at its third row, and has not read all of them
  row: '3-g1AAAAG3eJzLYWBg4MhgTmHgz8tPSTV0MDQy1zMAQsMcoARTIkOS_P___7MSGXAqSVIAkkn2IFUZzIkMuUAee5pRqnGiuXkKA2dpXkpqWmZeagpu_Q4g_fGEbEkAqaqH2sIItsXAyMjM2NgUUwdOU_JYgCRDA5ACGjQfn30QlQsgKvcjfGaQZmaUmmZClM8gZhyAmHGfsG0PICrBPmQC22ZqbGRqamyIqSsLAAArcXo',
  last: '5-g1AAAAIreJyVkEsKwjAURZ-toI5cgq5A0sQ0OrI70XyppcaRY92J7kR3ojupaSPUUgotgRd4yTlwbw4A0zRUMLdnpaMkwmyF3Ily9xBwEIuiKLI05KOTW0wkV4rruP29UyGWbordzwKVxWBNOGMKZhertDlarbr5pOT3DV4gudUC9-MPJX9tpEAYx4TQASns2E24ucuJ7rXJSL1BbEgf3vTwpmedCZkYa7Pulck7Xt7x_usFU2aIHOD4eEfVTVA5KMGUkqhNZV-8_o5i',
}

t.test('published tokens of CouchDB are read', async (t) => {
  t.same(positionOf(PUBLISHED.small)?.parts, [
    ['', 1],
    ['', 1],
  ])
  const [row, last] = [position(PUBLISHED.row), position(PUBLISHED.last)]
  t.same(
    row.parts.map(([, count]) => count),
    [0, 0, 1, 0, 0, 0, 2, 0],
  )
  t.same(
    last.parts.map(([, count]) => count),
    [1, 0, 1, 1, 0, 0, 2, 0],
  )
  t.same([row.parts[6], row.family], [['5325531', 2], last.family])
  t.same([isAtOrBefore(row, last), isAtOrBefore(last, row)], [true, false])
})

t.test('which tokens can be compared', async (t) => {
  const pairs: [says: string, older: string, newer: string, isOlder: boolean][] = [
    ['numbers', '5', '30', true],
    ['numbers, the greater first', '30', '5', false],
    ['a number and its JSON text', '"5"', '5', true],
    ['numbers within an epoch of settee', '5-abcdefghijkl', '7-abcdefghijkl', true],
    ['numbers of two epochs', '5-abcdefghijkl', '7-abcdefghijkX', false],
    ['a number and settee', '5', '7-abcdefghijkl', false],
    ['opaque tokens that are equal', '5-x', '5-x', true],
    ['opaque tokens that differ', '5-x', '7-x', false],
    ['no shard is newer', couchToken([1, 2]), couchToken([1, 3]), true],
    ['one shard is newer', couchToken([2, 2]), couchToken([1, 9]), false],
    ['another number of shards', couchToken([1]), couchToken([1, 1]), false],
    [
      'a shard without updates has no file',
      couchToken([0, 2], ['x', 'b']),
      couchToken([1, 2], ['a', 'b']),
      true,
    ],
    ['another file', couchToken([1, 2], ['x', 'b']), couchToken([1, 2], ['a', 'b']), false],
  ]
  for (const [says, older, newer, isOlder] of pairs) {
    const [a, b] = [position(older), position(newer)]
    t.equal(a.family === b.family && isAtOrBefore(a, b), isOlder, says)
  }
})

t.test('a beginning that is no number and text that no server sends have no position', async (t) => {
  for (const text of ['0-x', `0-${PUBLISHED.small.slice(2)}`, '', 'now', '-1', '[5,"x"]', 'a-b']) {
    t.equal(positionOf(text), null, text)
  }
})

t.test('a token that is damaged or hostile is only equal to itself', async (t) => {
  const bomb = couchToken([1, 2], undefined, { padding: 10_000_000 })
  t.match(position(bomb).family, /^token /)
  const liar = couchToken([1, 2], undefined, { padding: 10_000_000, statedBytes: 100 })
  t.match(position(liar).family, /^token /)
  const opaque = PUBLISHED.last.slice(2)
  fc.assert(
    fc.property(fc.nat(opaque.length - 1), fc.constantFrom('A', '_', '9', ''), (at, character) => {
      const damaged = opaque.slice(0, at) + character + opaque.slice(at + 1)
      const shards = readCouchSequence(damaged)
      return shards === null || shards.every(({ seq }) => Number.isInteger(seq))
    }),
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
      const text = Buffer.from([131, ...bytes]).toString('base64url')
      const shards = readCouchSequence(text)
      return shards === null || shards.length > 0
    }),
  )
})

t.test('a token of CouchDB is read as it was made, compressed or not', async () => {
  const counts = fc.array(fc.integer({ min: 0, max: 2 ** 40 }), { minLength: 1, maxLength: 64 })
  fc.assert(
    fc.property(counts, fc.boolean(), (seqs, isCompressed) => {
      const shards = readCouchSequence(couchToken(seqs, undefined, { isCompressed }).replace(/^\d+-/, ''))
      const total = (shards ?? []).reduce((sum, { seq }) => sum + seq, 0)
      return shards?.length === seqs.length && total === seqs.reduce((sum, seq) => sum + seq, 0)
    }),
  )
})

t.test('who follows another server for long forgets the points that others stand for', async (t) => {
  let points: { family: string; seq: number }[] = []
  const end = 200_000
  for (let seq = 1; seq <= end; seq++) {
    points.push({ family: 'a', seq })
    const gone = new Set(forgotten(points, seq))
    if (gone.size > 0) points = points.filter((point) => !gone.has(point))
    if (points.length > MAX_REMEMBERED) t.fail(`${points.length} points`)
  }
  let at = 0
  for (const device of [1, 10, 1000, 50_000, 150_000, 190_000, end - 500, end]) {
    while ((points[at + 1]?.seq ?? Infinity) <= device) at += 1
    const found = points[at]?.seq ?? 0
    const extra = (device - found) / (end - device + 100)
    t.ok(extra < 0.03, `${device}: from ${found}`)
  }
})

t.test('exact tokens are forgotten only as far as there are too many', async (t) => {
  const points = Array.from({ length: MAX_REMEMBERED + 3 }, (_, at) => ({ family: `token ${at}`, seq: 5 }))
  t.same(forgotten(points, 9), points.slice(0, 3))
  t.same(forgotten(points.slice(3), 9), [])
})

function position(token: string): TokenPosition {
  const found = positionOf(token)
  if (found === null) throw new Error(`${token} has no position`)
  return found
}
