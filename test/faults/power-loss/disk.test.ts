/** The model of a disk, held against what it must keep and what it may lose. */
import { constants } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { ALL_KEPT, ALL_LOST, Disk, type DiskState } from './disk.ts'
import { randomFrom } from './random.ts'
import type { RecordedEvent } from './recorder.ts'
import { byChance } from './states.ts'

const ROOT = '/data'
const { O_CREAT, O_TRUNC } = constants

function texts(state: DiskState): Record<string, string | null> {
  return Object.fromEntries([...state].map(([path, bytes]) => [path, bytes?.toString() ?? null]).sort())
}

/** A disk after events. */
function after(...events: readonly RecordedEvent[]): Disk {
  const disk = new Disk(ROOT)
  for (const event of events) disk.apply(event)
  return disk
}

const folder: RecordedEvent = { kind: 'open', file: 1, path: ROOT, flags: 0 }
const open = (file: number, name: string, flags = O_CREAT): RecordedEvent => ({
  kind: 'open',
  file,
  path: `${ROOT}/${name}`,
  flags,
})
const write = (file: number, at: number, text: string): RecordedEvent => ({
  kind: 'write',
  file,
  at,
  bytes: Buffer.from(text),
})
const sync = (file: number, failed = false): RecordedEvent => ({ kind: 'sync', file, failed })
const rename = (from: string, to: string): RecordedEvent => ({
  kind: 'rename',
  path: `${ROOT}/${from}`,
  to: `${ROOT}/${to}`,
})

t.test('data need a sync of the file, names one of the folder', async (t) => {
  const made = [folder, open(2, 'a'), write(2, 0, 'one'), sync(2)]
  t.same(texts(after(...made).after(ALL_LOST)), {}, 'a file without a durable name')
  t.same(texts(after(...made, sync(1)).after(ALL_LOST)), { a: 'one' })
  const more = after(...made, sync(1), write(2, 3, 'two'))
  t.same(texts(more.after(ALL_LOST)), { a: 'one' })
  t.same(texts(more.after(ALL_KEPT)), { a: 'onetwo' })
  const emptied = after(...made, sync(1), open(3, 'a', O_TRUNC))
  t.same([emptied.after(ALL_LOST), emptied.after(ALL_KEPT)].map(texts), [{ a: 'one' }, { a: '' }])
})

t.test(
  'a renamed file has its old name, its new one, both or neither until the folder is synced',
  async (t) => {
    const disk = after(folder, open(2, 'a'), write(2, 0, 'x'), sync(2), sync(1), rename('a', 'b'))
    const seen = new Set<string>()
    for (let seed = 0; seed < 200; seed++) {
      seen.add(Object.keys(texts(disk.after(byChance(randomFrom(seed))))).join())
    }
    t.same([...seen].sort(), ['', 'a', 'a,b', 'b'])
    disk.apply(sync(1))
    t.same(texts(disk.after(ALL_LOST)), { b: 'x' })
  },
)

t.test('a write is torn at the borders of sectors, and nowhere else', async (t) => {
  const disk = after(folder, open(2, 'a'), sync(2), sync(1), write(2, 100, 'y'.repeat(3000)))
  for (let seed = 0; seed < 300; seed++) {
    const bytes = disk.after(byChance(randomFrom(seed))).get('a') as Buffer
    for (let at = 101; at < bytes.length; at++) {
      const isBorder = (bytes[at] === 121) !== (bytes[at - 1] === 121)
      if (isBorder && at % 512 !== 0) t.fail(`torn at ${at}`)
    }
  }
  t.pass('looked at 300 states')
})

t.test(
  'what a failed sync was to keep is not kept by the next one, unless it is written again',
  async (t) => {
    const made = [folder, open(2, 'a'), sync(2), sync(1), write(2, 0, 'lost'), sync(2, true)]
    t.same(texts(after(...made, write(2, 4, 'kept'), sync(2)).after(ALL_LOST)), { a: '\0\0\0\0kept' })
    t.same(texts(after(...made, write(2, 0, 'lost'), sync(2)).after(ALL_LOST)), { a: 'lost' })
    const name = [folder, open(2, 'a'), sync(2), sync(1, true), sync(1)]
    t.same(texts(after(...name).after(ALL_LOST)), {})
  },
)

/** Random changes of two files, with syncs between them. */
const step = fc.oneof(
  fc.record({
    file: fc.constantFrom(2, 3),
    at: fc.nat(2000),
    length: fc.integer({ min: 1, max: 1500 }),
    byte: fc.nat(255),
  }),
  fc.record({ file: fc.constantFrom(2, 3), truncated: fc.nat(2500) }),
  fc.record({ synced: fc.constantFrom(2, 3) }),
)

t.test('every byte of every state is one that stood there since the last sync, or fills a gap', async (t) => {
  const property = fc.property(fc.array(step, { maxLength: 25 }), fc.nat(), (steps, seed) => {
    const disk = after(folder, open(2, 'a'), open(3, 'b'), sync(1))
    /** Of each file: its content now, what stood there since the last sync, and its content at that sync. */
    const known = [0, 1].map(() => ({
      now: Buffer.alloc(0),
      since: [Buffer.alloc(0)],
      synced: Buffer.alloc(0),
    }))
    for (const change of steps) {
      const file = 'synced' in change ? change.synced : change.file
      const its = known[file - 2] as (typeof known)[number]
      if ('synced' in change) {
        disk.apply(sync(file))
        its.synced = its.now
        its.since = [its.now]
        continue
      }
      if ('truncated' in change) {
        disk.apply({ kind: 'truncate', file, length: change.truncated })
        its.now = resized(its.now, change.truncated)
      } else {
        const bytes = Buffer.alloc(change.length, change.byte)
        disk.apply({ kind: 'write', file, at: change.at, bytes })
        its.now = resized(its.now, Math.max(its.now.length, change.at + change.length))
        its.now.set(bytes, change.at)
      }
      its.since.push(its.now)
    }
    const chance = byChance(randomFrom(seed))
    return known.every(({ now, since, synced }, n) => {
      const name = n === 0 ? 'a' : 'b'
      const state = disk.after(chance).get(name) as Buffer
      const isKnown = (byte: number, at: number) =>
        byte === 0 || byte === chance.filler || since.some((content) => content[at] === byte)
      const lost = disk.after(ALL_LOST).get(name) as Buffer
      const kept = disk.after(ALL_KEPT).get(name) as Buffer
      return state.every(isKnown) && lost.equals(synced) && kept.equals(now)
    })
  })
  fc.assert(property, { numRuns: 400 })
  t.pass('400 histories')
})

function resized(content: Buffer<ArrayBuffer>, length: number): Buffer<ArrayBuffer> {
  const made = Buffer.alloc(length)
  content.copy(made)
  return made
}
