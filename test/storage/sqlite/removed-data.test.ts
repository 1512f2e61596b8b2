/**
 * What is purged, superseded or removed leaves the file and its log. When SQLite distributes rows over pages anew, it does not
 * overwrite the unallocated part of a page, so that a part of a row may stay there until other rows take its place
 * (docs/gotchas.md). Random histories ignore these parts.
 */
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import { decidePurge } from '../../../src/documents/purge.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { attachment, put } from '../conformance/edits.ts'
import { only } from '../conformance/setup.ts'

async function notes(t: Test, now?: () => number) {
  const dataDir = await temporaryFolder(t)
  const engine = sqliteEngine({ dataDir, ...(now && { now }) })
  t.teardown(() => engine.close())
  await (await engine.openCatalog()).create('notes')
  const path = join(dataDir, 'databases', 'notes.sqlite')
  const log = `${path}-wal`
  const logHolds = (marker: string) => existsSync(log) && readFileSync(log).includes(marker)
  const holds = (marker: string) => readFileSync(path).includes(marker) || logHolds(marker)
  const holdsAllocated = (marker: string) =>
    withoutUnallocated(readFileSync(path)).includes(marker) || logHolds(marker)
  return { store: await engine.openDatabase('notes'), holds, holdsAllocated }
}

/** The sizes of the headers of SQLite's B-tree pages, by the page's first byte (https://sqlite.org/fileformat2.html#b_tree_pages). */
const HEADER_BYTES = new Map([
  [2, 12],
  [5, 12],
  [10, 8],
  [13, 8],
])

/** Fills the unallocated part of each B-tree page of a file with zeros: from the end of its cell pointers to its first cell. */
function withoutUnallocated(file: Buffer): Buffer {
  const pageSize = file.readUInt16BE(16)
  for (let at = 0; at < file.length; at += pageSize) {
    const header = at === 0 ? 100 : at
    const headerBytes = HEADER_BYTES.get(file.readUInt8(header))
    if (headerBytes === undefined) continue
    const pointersEnd = header + headerBytes + 2 * file.readUInt16BE(header + 3)
    const firstCell = at + file.readUInt16BE(header + 5)
    if (pointersEnd < firstCell) file.fill(0, pointersEnd, Math.min(firstCell, at + pageSize))
  }
  return file
}

/** A text that nothing else has, of some length. */
function body(marker: string, length: number): string {
  const filling = createHash('sha256').update(marker).digest('hex')
  return JSON.stringify({
    marker: `<${marker}>`,
    text: filling.repeat(Math.ceil(length / 64)).slice(0, length),
  })
}

function purge(store: DatabaseStore, id: string): Promise<readonly string[]> {
  const decide = (doc: Parameters<typeof decidePurge>[0]) => decidePurge(doc, doc === null ? [] : [doc.rev])
  return only(store.purgeDocs([{ id, decide }]))
}

const step = fc.record({
  id: fc.integer({ min: 0, max: 5 }),
  act: fc.constantFrom('put', 'put', 'put', 'put', 'purge', 'compact'),
  length: fc.oneof(fc.integer({ min: 0, max: 300 }), fc.integer({ min: 1000, max: 40_000 })),
})

t.test(
  'whatever was done: after a compaction only leaves are in the allocated parts of the file',
  async (t) => {
    let run = 0
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 60 }), async (steps) => {
        run += 1
        const { store, holdsAllocated: holds } = await notes(t)
        // What keeps other bytes company in the same pages.
        await store.updateDocs(Array.from({ length: 40 }, (_, n) => put(`other${n}`, body(`other${n}`, 200))))
        const live = new Map<string, string>()
        const gone: string[] = []
        for (const [at, { id, act, length }] of steps.entries()) {
          const name = `doc${id}`
          const before = live.get(name)
          if (act === 'compact') await store.compact()
          else if (before !== undefined) gone.push(before)
          if (act === 'put') {
            const marker = `marker-${run}-${at}-end`
            await store.updateDocs([put(name, body(marker, length))])
            live.set(name, marker)
          } else if (act === 'purge') {
            await purge(store, name)
            live.delete(name)
          } else if (before !== undefined) gone.pop()
        }
        await store.compact()
        const left = gone.filter((marker) => holds(`<${marker}>`) && ![...live.values()].includes(marker))
        if (left.length > 0) throw new Error(`still there: ${left}`)
        const lost = [...live.values()].filter((marker) => !holds(`<${marker}>`))
        if (lost.length > 0) throw new Error(`not there: ${lost}`)
        await store.close()
      }),
      { numRuns: Number(process.env.LEAVING_RUNS ?? 25) },
    )
  },
)

t.test('contents of attachments leave with the last revision that names them', async (t) => {
  const { store, holds } = await notes(t)
  const bytes = (marker: string, size: number) => Buffer.concat([randomBytes(size), Buffer.from(marker)])
  for (const [at, size] of [10, 5000, 300_000, 1_500_000].entries()) {
    const marker = `content-${at}-of-something`
    await store.updateDocs([put('a', '{}', { attachments: [attachment('x', bytes(marker, size))] })])
    t.ok(holds(marker))
    if (at % 2 === 0) await purge(store, 'a')
    else await store.updateDocs([put('a', '{}')])
    await store.compact()
    t.notOk(holds(marker), `${size} bytes`)
  }
})

t.test('kept bodies leave when their time is over, and with a purge', async (t) => {
  let now = 1_700_000_000_000
  const { store, holds } = await notes(t, () => now)
  for (const id of ['a', 'b']) {
    await store.updateDocs([put(id, body(`first-of-${id}`, 3000))])
    await store.updateDocs([put(id, body(`second-of-${id}`, 3000))])
  }
  await store.compact({ keepSince: now - 1000 })
  t.ok(holds('first-of-a') && holds('first-of-b'))
  await purge(store, 'a')
  await store.compact({ keepSince: now - 1000 })
  t.notOk(holds('first-of-a') || holds('second-of-a'), 'purged')
  t.ok(holds('first-of-b'))
  now += 10_000
  await store.compact({ keepSince: now - 1000 })
  t.notOk(holds('first-of-b'))
  t.ok(holds('second-of-b'))
})
