/** Tokens of a server from which a database has moved: the feed goes on behind them, and skips no change. */
import fc from 'fast-check'
import t from 'tap'
import { changesPage } from '../../src/changes/filtered-page.ts'
import { readSince } from '../../src/changes/since.ts'
import { rememberTokens } from '../../src/documents/remember-tokens.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { sequenceToken } from '../../src/storage/sequence.ts'
import { MAX_REMEMBERED, type RememberedToken } from '../../src/storage/token-position.ts'
import { couchToken } from '../helpers/couch-tokens.ts'
import { put } from '../storage/conformance/edits.ts'
import { rejectsWith } from '../storage/conformance/setup.ts'
import { ADMIN, OPTIONS, openStore } from './helpers.ts'

async function storeOf(docs: number, tokens: readonly RememberedToken[] = []): Promise<DatabaseStore> {
  const store = await openStore()
  await store.updateDocs(Array.from({ length: docs }, (_, at) => put(`doc${at}`)))
  await rememberTokens(store, tokens)
  return store
}

async function read(store: DatabaseStore, token: string) {
  return readSince(store, await store.view(), token)
}

const from = (seq: number) => ({ seq, unknownEpoch: false })
const FROM_0 = { seq: 0, unknownEpoch: true }

t.test('a bare number is a remembered one wherever any is remembered', async (t) => {
  const none = await storeOf(50)
  t.same(await read(none, '20'), from(20))
  const moved = await storeOf(50, [
    { token: '10', seq: 40 },
    { token: '30', seq: 50 },
  ])
  t.same(await read(moved, '10'), from(40))
  t.same(await read(moved, '"29"'), from(40), 'the newest older position counts')
  t.same(await read(moved, '1000'), from(50))
  t.same(await read(moved, '9'.repeat(400)), from(50), 'a number of any length')
  t.same(await read(moved, '9'), FROM_0, 'a number of the old server is not a local number')
  t.same(await read(moved, '0'), from(0))
})

t.test('tokens of this database are never looked up', async (t) => {
  const store = await storeOf(5)
  const { epochs } = await store.view()
  const own = sequenceToken(epochs, 4)
  await rememberTokens(store, [
    { token: own, seq: 1 },
    { token: '4', seq: 1 },
  ])
  t.same(await read(store, own), from(4))
  t.same(await read(store, '4'), from(1))
})

t.test('tokens of another settee count within their epoch', async (t) => {
  const store = await storeOf(9, [
    { token: '100-abcdefghijkl', seq: 3 },
    { token: '200-abcdefghijkl', seq: 6 },
    { token: '300-ABCDEFGHIJKL', seq: 9 },
  ])
  t.same(await read(store, '150-abcdefghijkl'), from(3))
  t.same(await read(store, '999-abcdefghijkl'), from(6))
  t.same(await read(store, '299-ABCDEFGHIJKL'), FROM_0)
  t.same(await read(store, '100-strangerepoch'.slice(0, 16)), FROM_0)
})

t.test('tokens of CouchDB are compared shard by shard', async (t) => {
  const store = await storeOf(9, [
    { token: couchToken([5, 5]), seq: 3 },
    { token: couchToken([9, 2]), seq: 4 },
    { token: couchToken([20, 20]), seq: 9 },
  ])
  t.same(await read(store, couchToken([5, 5])), from(3))
  t.same(await read(store, couchToken([8, 30])), from(3), 'the first shard of the others is newer')
  t.same(await read(store, couchToken([9, 4])), from(4))
  t.same(await read(store, couchToken([4, 100])), FROM_0)
  t.same(await read(store, couchToken([9, 9], ['other', 'files'])), FROM_0)
})

t.test('a feed starts behind the remembered token, with the rows that follow pending', async (t) => {
  const store = await storeOf(9, [{ token: couchToken([5, 5]), seq: 6 }])
  const ask = (limit: number) =>
    changesPage(store, ADMIN, { since: couchToken([5, 6]), limit, options: OPTIONS }, null)
  const page = await ask(1)
  t.same([page.rows, page.lastSeq, page.pending, page.unknownEpoch], [1, 7, 2, false])
  t.same([(await ask(0)).pending, (await ask(9)).rows], [3, 3])
})

t.test('what cannot be remembered is refused, or left out', async (t) => {
  const store = await storeOf(3)
  for (const seq of [-1, 0.5, 4, Number.NaN]) {
    await rejectsWith(t, rememberTokens(store, [{ token: '7', seq }]), 'bad_request')
  }
  const many = Array.from({ length: MAX_REMEMBERED + 1 }, () => ({ token: '7', seq: 0 }))
  await rejectsWith(t, rememberTokens(store, many), 'bad_request')
  await rememberTokens(store, [
    { token: 'no token', seq: 3 },
    { token: '9'.repeat(30), seq: 3 },
  ])
  t.same(await read(store, '2'), from(2), 'a number without a remembered position is a local number')
  await rememberTokens(store, [{ token: '0', seq: 3 }])
  t.same([await read(store, '2'), await read(store, '0')], [from(0), from(0)])
})

/**
 * A server with shards: each update counts in the shard of its document. A token is a state that a device may have
 * reached: for each shard, how many of its updates the device has read.
 */
interface OldServer {
  /** The documents in the order of their last update: the shard, and its count then. */
  readonly docs: readonly { readonly shard: number; readonly count: number }[]
  readonly counts: readonly number[]
}

function oldServer(shards: number, updates: readonly (readonly [shard: number, doc: number])[]): OldServer {
  const counts = new Array<number>(shards).fill(0)
  const docs = new Map<string, { shard: number; count: number }>()
  for (const [any, doc] of updates) {
    const shard = any % shards
    counts[shard] = (counts[shard] as number) + 1
    const id = `${shard}/${doc}`
    docs.delete(id)
    docs.set(id, { shard, count: counts[shard] as number })
  }
  return { docs: [...docs.values()], counts }
}

/** Reads of the feed by a device: a part of each shard's updates. */
const reached = fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 3, maxLength: 3 })

/** An epoch of settee has a stretch of the numbers. */
const setteeToken = ([count = 0]: readonly number[]) =>
  `${count}-epoch${'a'.repeat(6)}${count < 7 ? 'a' : 'b'}`

const MAKERS: Record<string, { readonly shards: number; token(counts: readonly number[]): string }> = {
  'bare numbers': { shards: 1, token: ([count]) => String(count) },
  'tokens of settee': { shards: 1, token: setteeToken },
  'tokens of CouchDB': { shards: 3, token: (counts) => couchToken(counts) },
}

for (const [says, { shards, token }] of Object.entries(MAKERS)) {
  t.test(`${says}: whatever a device has read, the feed skips no change that it lacks`, async () => {
    const updates = fc.array(fc.tuple(fc.nat(2), fc.nat(12)), { minLength: 1, maxLength: 40 })
    const property = fc.asyncProperty(
      updates,
      fc.array(reached, { maxLength: 8 }),
      reached,
      fc.array(fc.nat()),
      async (made, remembered, device, order) => {
        const { docs, counts } = oldServer(shards, made)
        const at = (parts: readonly number[]) => counts.map((count, n) => Math.floor(count * (parts[n] ?? 0)))
        const isAfter = (position: readonly number[]) => (doc: (typeof docs)[number]) =>
          doc.count > (position[doc.shard] as number)
        // The copy has the documents in any order, and each number belongs to one of them.
        const copied = docs.map((doc, n) => ({ doc, key: order[n] ?? n })).sort((a, b) => a.key - b.key)
        const before = (position: readonly number[]) => {
          const first = copied.findIndex(({ doc }) => isAfter(position)(doc))
          return first === -1 ? copied.length : first
        }
        const positions = [counts.map(() => 0), ...remembered.map(at)]
        const points = positions.map((position) => ({ token: token(position), seq: before(position) }))
        const store = await storeOf(copied.length, points)
        const own = at(device)
        const { seq } = await read(store, token(own))
        const skipped = copied.slice(0, seq).filter(({ doc }) => isAfter(own)(doc))
        const isKnown = points.some((point) => point.token === token(own))
        return skipped.length === 0 && (!isKnown || seq === before(own) || token(own) === token([0]))
      },
    )
    await fc.assert(property, { numRuns: 150 })
  })
}
