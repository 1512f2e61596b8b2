import { inspect } from 'node:util'
import fc from 'fast-check'
import type { DatabaseStore, DocUpdate, IdRange } from '../../../src/storage/engine.ts'
import { snapshot, sortIds } from './edits.ts'
import { type Command, Model, plan } from './model.ts'
import { ALL, openNotes, type StorageCases } from './setup.ts'

const IDS = ['a', 'a\u0000', 'b', '\uFFFD', '\u{1F600}', '_design/x']

interface Step {
  readonly updates: readonly { readonly id: string; readonly command: Command }[]
  readonly reopen: boolean
  readonly range: IdRange
  readonly feed: { readonly since: number; readonly before?: number; readonly descending: boolean }
  readonly limit: number
}

const deleted = fc.boolean()
const index = fc.nat(5)
const edit = fc.record({ kind: fc.constant('edit' as const), leaf: index, deleted, keep: fc.boolean() })
const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 5, arbitrary: edit },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('graft' as const),
      pos: fc.integer({ min: 1, max: 12 }),
      deleted,
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('grow' as const), leaf: index }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('revive' as const), row: index, rewrite: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constantFrom('look' as const, 'need' as const, 'throw' as const) }),
  },
)
const bound = fc.record({ id: fc.constantFrom(...IDS, '', 'aa', '\u{10FFFF}'), inclusive: fc.boolean() })
const step: fc.Arbitrary<Step> = fc.record({
  updates: fc.array(fc.record({ id: fc.constantFrom(...IDS), command }), { maxLength: 8 }),
  reopen: fc.nat(5).map((n) => n === 0),
  range: fc.record({ start: bound, end: bound, descending: fc.boolean() }, { requiredKeys: [] }),
  feed: fc.record(
    { since: fc.nat(40), before: fc.nat(40), descending: fc.boolean() },
    { requiredKeys: ['since', 'descending'] },
  ),
  limit: fc.integer({ min: 0, max: 4 }),
})

const thrown = new Error('thrown by a command')

/** Gives a step's updates to the engine in one call, and to the model one by one; both must answer the same. */
async function writeBoth(store: DatabaseStore, model: Model, { updates }: Step, nextMark: () => string) {
  const marked = updates.map((update) => ({ ...update, mark: nextMark() }))
  const outcomes = await store.updateDocs<unknown, string>(
    marked.map(
      ({ id, command, mark }): DocUpdate<unknown, string> => ({
        id,
        bytes: 10,
        decide(doc, view) {
          const seen = doc && snapshot(doc)
          if (command.kind === 'throw') throw thrown
          if (command.kind === 'need') return { needs: [mark] }
          const write = plan(seen, command, mark)
          const { updateSeq, docCount, deletedCount } = view
          const result = { seen, counts: { updateSeq, docCount, deletedCount }, write }
          return write === null ? { result } : { result, write }
        },
      }),
    ),
  )
  const wanted = marked.map(({ id, command, mark }) => {
    if (command.kind === 'throw') return { error: thrown }
    if (command.kind === 'need') return { needs: [mark] }
    const seen = model.docs.get(id) ?? null
    const write = plan(seen, command, mark)
    const result = { seen, counts: model.counts(), write }
    if (write !== null) model.apply(id, write)
    return { result }
  })
  equal(outcomes, wanted, 'outcomes')
}

/** Compares everything that can be read with the model. */
async function compare(store: DatabaseStore, model: Model, { range, feed, limit }: Step): Promise<void> {
  const { updateSeq, docCount, deletedCount } = await store.view()
  equal({ updateSeq, docCount, deletedCount }, model.counts(), 'view')
  equal(
    await store.readDocs(IDS, (doc) => doc && snapshot(doc)),
    IDS.map((id) => model.docs.get(id) ?? null),
    'docs',
  )
  const inRange = model.live().filter(({ id }) => isWithin(id, range))
  if (range.descending === true) inRange.reverse()
  const page = await store.readRange(range, { limit }, snapshot)
  equal([page.rows, page.more], [inRange.slice(0, limit), inRange.length > limit], 'range')
  equal((await store.readRange(range, ALL, snapshot)).rows, inRange, 'whole range')
  equal(await store.countRange(range), inRange.length, 'countRange')
  const { before = Number.POSITIVE_INFINITY, since, descending } = feed
  const rows = model.feed().filter((doc) => doc.seq > since && doc.seq < before)
  if (descending) rows.reverse()
  const changes = await store.readChanges(feed, { limit }, snapshot)
  equal([changes.rows, changes.more], [rows.slice(0, limit), rows.length > limit], 'feed')
  equal(await store.countChanges(since), model.feed().filter((doc) => doc.seq > since).length, 'countChanges')
}

function isWithin(id: string, { start, end, descending }: IdRange): boolean {
  const [low, high] = descending === true ? [end, start] : [start, end]
  const isFirst = (one: string, other: string) => one !== other && sortIds([one, other])[0] === one
  if (low !== undefined && (low.inclusive ? isFirst(id, low.id) : !isFirst(low.id, id))) return false
  return high === undefined || (high.inclusive ? !isFirst(high.id, id) : isFirst(id, high.id))
}

function equal(found: unknown, wanted: unknown, what: string): void {
  const [a, b] = [found, wanted].map((value) => inspect(value, { depth: 9, sorted: true }))
  if (a !== b) throw new Error(`${what}: found ${a}, wanted ${b}`)
}

/** Random histories, against a simple model. */
export const propertyCases: StorageCases = {
  'random histories leave what a simple model says': async (t, makeEngine) => {
    let mark = 0
    const history = fc.array(step, { minLength: 1, maxLength: 8 })
    await fc.assert(
      fc.asyncProperty(history, async (steps) => {
        let opened = await openNotes(t, makeEngine)
        const model = new Model()
        for (const each of steps) {
          await writeBoth(opened.store, model, each, () => `m${++mark}`)
          if (each.reopen) opened = await opened.reopen()
          await compare(opened.store, model, each)
        }
        const { file } = await opened.store.sizes()
        equal(file, (await opened.store.info()).sizes.file, 'the sum of the parts')
        await opened.engine.close()
      }),
      { numRuns: 60 },
    )
    t.pass(`${mark} updates`)
  },
}
