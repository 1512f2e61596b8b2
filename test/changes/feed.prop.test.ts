import fc from 'fast-check'
import t from 'tap'
import type { FeedKind } from '../../src/changes/changes-query.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import { put, remove } from '../storage/conformance/edits.ts'
import { bench, type FakeOutput, feedOptions, openStore, type Running, settled } from './helpers.ts'

interface Write {
  readonly id: string
  readonly seq: number
  readonly rev: string
}

type Step =
  | { readonly edits: readonly { readonly id: string; readonly deletes: boolean }[] }
  | { readonly drain: boolean }

const IDS = ['a', 'b', 'c', 'd', 'e', 'f']

const edit = fc.record({ id: fc.constantFrom(...IDS), deletes: fc.boolean() })
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ edits: fc.array(edit, { minLength: 1, maxLength: 6 }) }) },
  { weight: 1, arbitrary: fc.record({ drain: fc.boolean() }) },
)

/** The store, with pages of these sizes in turn. */
function withPageSizes(store: DatabaseStore, sizes: readonly number[]): DatabaseStore {
  const readChanges = store.readChanges.bind(store) as DatabaseStore['readChanges']
  let reads = 0
  store.readChanges = (range, paging, read) => {
    const limit = Math.min(paging.limit, sizes[reads++ % sizes.length] ?? 1)
    return readChanges(range, { ...paging, limit }, read)
  }
  return store
}

function rowsIn(text: string): Write[] {
  const lines = text.split('\n').filter((line) => line.startsWith('{"seq"'))
  return lines.map((line) => {
    const row = JSON.parse(line) as { seq: string; id: string; changes: [{ rev: string }] }
    return { id: row.id, seq: Number.parseInt(row.seq, 10), rev: row.changes[0].rev }
  })
}

/** Performs the steps. @returns all writes in the order of the feed */
async function perform(store: DatabaseStore, steps: readonly Step[], running: Running[]): Promise<Write[]> {
  const log: Write[] = []
  let drain = () => {}
  for (const step of steps) {
    if ('drain' in step) {
      drain()
      const gate = step.drain ? new Promise<void>((resolve) => (drain = resolve)) : Promise.resolve()
      for (const { out } of running) out.gate = gate
    } else {
      const { updateSeq } = await store.view()
      const outcomes = await store.updateDocs(
        step.edits.map(({ id, deletes }) => (deletes ? remove(id) : put(id))),
      )
      outcomes.forEach((outcome, i) => {
        const id = step.edits[i]?.id ?? ''
        if ('result' in outcome) log.push({ id, seq: updateSeq + 1 + i, rev: outcome.result })
      })
    }
  }
  drain()
  await settled()
  return log
}

/**
 * Checks that rows ascend without repetition, that each is a real write, and that no last write of a document is
 * missing.
 */
function check(rows: readonly Write[], log: readonly Write[], above: number, ids: ReadonlySet<string>): void {
  let last = above
  for (const row of rows) {
    if (row.seq <= last) throw new Error(`${row.seq} after ${last}`)
    last = row.seq
    if (!ids.has(row.id)) throw new Error(`${row.id} was not requested`)
    const written = log.find(({ seq }) => seq === row.seq)
    if (written?.id !== row.id || written.rev !== row.rev)
      throw new Error(`no such write: ${JSON.stringify(row)}`)
  }
  for (const id of ids) {
    const newest = log.findLast((write) => write.id === id)
    if (newest === undefined || newest.seq <= above) continue
    if (!rows.some(({ seq }) => seq === newest.seq)) throw new Error(`missed ${JSON.stringify(newest)}`)
  }
}

t.test('feeds with any page size neither skip, repeat nor reorder rows', async (t) => {
  const scenario = {
    steps: fc.array(step, { minLength: 1, maxLength: 12 }),
    sizes: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 }),
    since: fc.integer({ min: 0, max: 8 }),
    docIds: fc.option(fc.subarray(IDS), { nil: undefined }),
  }
  await fc.assert(
    fc.asyncProperty(fc.record(scenario), async ({ steps, sizes, since, docIds }) => {
      const store = withPageSizes(await openStore(), sizes)
      const early = await perform(
        store,
        [{ edits: [...'abcdefab'].map((id) => ({ id, deletes: false })) }],
        [],
      )
      const { start } = bench(t, store)
      const options = feedOptions(docIds === undefined ? {} : { docIds })
      const request = { kind: 'continuous', options, since: String(since), heartbeat: 1000 } as const
      const running = [await start(request), await start({ ...request, limit: 1000 })]
      const log = [...early, ...(await perform(store, steps, running))]
      for (const { out, done } of running) {
        check(rowsIn(out.text), log, since, new Set(docIds ?? IDS))
        out.disconnect()
        await done
      }
    }),
    { numRuns: 150 },
  )
})

t.test('a client that polls with any limit ends with the state of the database', async (t) => {
  const scenario = {
    rounds: fc.array(fc.array(edit, { minLength: 1, maxLength: 5 }), { minLength: 1, maxLength: 8 }),
    sizes: fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 4 }),
    limit: fc.integer({ min: 1, max: 4 }),
    kind: fc.constantFrom<FeedKind>('normal', 'longpoll'),
  }
  await fc.assert(
    fc.asyncProperty(fc.record(scenario), async ({ rounds, sizes, limit, kind }) => {
      const store = withPageSizes(await openStore(), sizes)
      const { start } = bench(t, store)
      const known = new Map<string, string>()
      let since = '0'
      for (const [round, edits] of rounds.entries()) {
        await perform(store, [{ edits }], [])
        const polls = round === rounds.length - 1 ? Infinity : 2
        for (let poll = 0; poll < polls; poll++) {
          const { out } = await start({ kind, since, limit, timeout: 0 })
          const answer = readAnswer(out)
          if (answer.results.length > limit) throw new Error('more rows than the limit')
          for (const { id, changes } of answer.results) known.set(id, changes[0].rev)
          since = answer.last_seq
          if (answer.results.length === 0) break
        }
      }
      const docs = await store.readDocs(IDS, (doc) => doc?.rev)
      const differing = IDS.filter((id, i) => known.get(id) !== docs[i])
      if (differing.length > 0) throw new Error(`${differing} differ`)
    }),
    { numRuns: 150 },
  )
})

function readAnswer({ text }: FakeOutput) {
  return JSON.parse(text) as {
    readonly results: readonly {
      readonly id: string
      readonly changes: readonly [{ readonly rev: string }]
    }[]
    readonly last_seq: string
  }
}
