/** What a disk has changed is never read as what was written. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import type { Damage } from '../../../src/storage/damage.ts'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { checkCopy } from '../../../src/storage/sqlite/snapshot.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { attachment, put, remove, snapshot, write } from '../conformance/edits.ts'
import { ALL } from '../conformance/setup.ts'
import { checkedInSteps } from './checks.ts'

const ROUNDS = Number(process.env.SETTEE_DAMAGE ?? 150)
const SEED = Number(process.env.SETTEE_DAMAGE_SEED ?? Date.now() % 1e6)
const IDS = Array.from({ length: 60 }, (_, n) => `note-${String(n).padStart(3, '0')}`)
const LOCALS = IDS.slice(0, 10).map((id) => `_local/${id}`)

/** A number below `below`, the same in each run with a seed (mulberry32). */
function randomNumbers(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

/** Fills a database with documents of all kinds. */
async function fill(store: DatabaseStore): Promise<void> {
  const text = (n: number) => JSON.stringify({ n, text: `words ${n} `.repeat(1 + (n % 7) * 40) })
  await store.updateDocs(IDS.map((id, n) => put(id, text(n))))
  await store.updateDocs(IDS.slice(0, 30).map((id, n) => put(id, text(n + 100))))
  await store.updateDocs(IDS.slice(0, 5).map((id) => remove(id)))
  for (const id of IDS.slice(20, 40)) {
    const bytes = Buffer.from(`the picture of ${id} `.repeat(id.endsWith('5') ? 20_000 : 20))
    await store.updateDocs([put(id, text(7), { attachments: [attachment('a picture.jpg', bytes)] })])
  }
  const branch = { rev: `1-${'f'.repeat(32)}`, deleted: false, ancestry: ['f'.repeat(32)] }
  for (const id of IDS.slice(40, 50)) {
    const [doc] = await store.readDocs([id], (found) => found && { rev: found.rev, deleted: found.deleted })
    const winner = { rev: doc?.rev ?? '', deleted: doc?.deleted ?? false }
    const revisions = [{ ...branch, content: { body: text(9), attachments: [] } }]
    await store.updateDocs([write(id, { ...winner, sequenced: true, revisions })])
  }
  await store.updateLocals(
    LOCALS.map((id) => ({ id, decide: () => ({ result: null, write: { rev: 1, body: text(id.length) } }) })),
  )
  await store.updateSettings(() => ({
    result: null,
    write: { security: { admins: { names: ['anna'] }, members: { names: ['ben'] } } },
  }))
}

/** All that can be read, by name. */
async function readAll(store: DatabaseStore): Promise<Map<string, unknown>> {
  const found = new Map<string, unknown>()
  const tried = async (name: string, read: () => Promise<unknown>) => {
    try {
      found.set(name, await read())
    } catch (error) {
      found.set(name, error)
    }
  }
  const touches = { body: true, branches: true, ancestry: 'leaves' } as const
  const rows = (read: { rows: unknown[] }) => {
    for (const row of read.rows as { id: string; name?: string }[]) found.set(`${row.name} ${row.id}`, row)
  }
  const lenient = (kind: string) => (doc: Parameters<typeof snapshot>[0]) => {
    try {
      return { name: kind, ...snapshot(doc) }
    } catch (error) {
      return { name: kind, id: doc.id, error }
    }
  }
  for (const id of IDS) {
    await tried(
      `doc ${id}`,
      async () => (await store.readDocs([id], (doc) => doc && snapshot(doc), touches))[0],
    )
    await tried(`plain ${id}`, async () => {
      const [doc] = await store.readDocs(
        [id],
        (one) => one && [one.rev, one.deleted, one.seq, one.body(one.rev)],
      )
      return doc
    })
  }
  await tried('range', async () => rows(await store.readRange({}, { ...ALL, touches }, lenient('range'))))
  await tried('feed', async () => rows(await store.readChanges({ since: 0 }, ALL, lenient('feed'))))
  await tried('locals', async () => {
    for (const local of (await store.readLocalRange({}, ALL)).rows) found.set(`local ${local.id}`, local)
  })
  for (const id of LOCALS) await tried(`one ${id}`, async () => (await store.readLocals([id]))[0])
  for (const blob of Array.from({ length: 20 }, (_, n) => n + 1)) {
    await tried(`blob ${blob}`, async () => {
      const parts: Buffer[] = []
      for (let at = 0; ; at += 100_000) {
        const part = await store.readBlob(blob, at, 100_000)
        if (part === null || part.length === 0) return Buffer.concat(parts).toString()
        parts.push(Buffer.from(part))
      }
    })
  }
  await tried('security', async () => {
    const { security } = await store.view()
    // Of a damaged one nobody knows whom it lets in.
    return security?.members?.roles?.join() === '_admin' ? null : security
  })
  return found
}

interface WithRevisions {
  readonly revisions?: readonly {
    readonly rev: string
    readonly leaf: boolean
    readonly body: string | null
  }[]
}

/** Whether what was read is what was written. Superseded revisions may be missing, and so may their bodies. */
function isTrue(read: unknown, written: unknown): boolean {
  if (JSON.stringify(read) === JSON.stringify(written)) return true
  const [found, expected] = [read, written] as WithRevisions[]
  if (!found?.revisions || !expected?.revisions) return false
  const readRevisions = found.revisions.filter(({ leaf, body }) => leaf || body !== null)
  const isRead = (one: { leaf: boolean }) =>
    one.leaf || readRevisions.some((each) => JSON.stringify(each) === JSON.stringify(one))
  const revisions = expected.revisions.filter(isRead)
  return JSON.stringify({ ...found, revisions: readRevisions }) === JSON.stringify({ ...expected, revisions })
}

/** In a callback, an error of SQLite is not translated yet. */
function isKnown(error: unknown): boolean {
  return error instanceof CouchError || error instanceof Sqlite.SqliteError
}

/** Whether a check of a copy finds damage, and the same check of a database in use, step by step. */
function isFound(path: string): boolean {
  return (
    isDamaged(() => checkCopy(path).damage) && isDamaged(() => checkedInSteps(path, 0)[0]?.damage ?? null)
  )
}

function isDamaged(check: () => Damage | null): boolean {
  try {
    return check() !== null
  } catch {
    return true
  }
}

function damage(file: Buffer, random: (below: number) => number): string {
  const at = random(file.length)
  const kind = random(5)
  if (kind === 0) {
    file.writeUInt8((file[at] as number) ^ (1 << random(8)), at)
    return `one bit at ${at}`
  }
  if (kind === 1) {
    const bytes = 1 + random(64)
    file.fill(0, at, at + bytes)
    return `${bytes} zeros at ${at}`
  }
  if (kind === 2) {
    const bytes = 1 + random(16)
    for (let n = at; n < Math.min(file.length, at + bytes); n++) file[n] = random(256)
    return `${bytes} random bytes at ${at}`
  }
  const page = file.readUInt16BE(16)
  const pages = Math.floor(file.length / page)
  const [a, b] = [random(pages), random(pages)]
  const copy = Buffer.from(file.subarray(a * page, (a + 1) * page))
  if (kind === 3) {
    file.set(file.subarray(b * page, (b + 1) * page), a * page)
    file.set(copy, b * page)
    return `pages ${a} and ${b} swapped`
  }
  file.set(copy, b * page)
  return `page ${a} written over page ${b}`
}

t.test(
  'bytes that were changed are an error, or are missing, and never the content; a backup finds them',
  async (t) => {
    t.comment(`seed ${SEED}`)
    const folder = await mkdtemp(join(tmpdir(), 'settee-damage-'))
    t.teardown(() => rmSync(folder, { recursive: true, force: true }))
    const open = async (name: string) => {
      const dataDir = join(folder, name)
      mkdirSync(dataDir, { recursive: true })
      const engine = sqliteEngine({ dataDir })
      const catalog = await engine.openCatalog()
      return { engine, catalog, path: join(dataDir, 'databases', 'notes.sqlite') }
    }
    const first = await open('first')
    await first.catalog.create('notes')
    const store = await first.engine.openDatabase('notes')
    await fill(store)
    const truth = await readAll(store)
    await first.engine.close()
    const whole = readFileSync(first.path)
    const server = readFileSync(join(folder, 'first', 'server.sqlite'))
    const random = randomNumbers(SEED)
    const counts = { same: 0, error: 0, missing: 0, unopened: 0 }
    for (let round = 0; round < ROUNDS; round++) {
      const name = `round-${round}`
      mkdirSync(join(folder, name, 'databases'), { recursive: true })
      const file = Buffer.from(whole)
      const what = damage(file, random)
      writeFileSync(join(folder, name, 'server.sqlite'), server)
      writeFileSync(join(folder, name, 'databases', 'notes.sqlite'), file)
      const copy = join(folder, name, 'copy.sqlite')
      writeFileSync(copy, file)
      const damaged = await open(name)
      const before = { ...counts }
      try {
        const found = await readAll(await damaged.engine.openDatabase('notes'))
        for (const [key, value] of found) {
          if (value instanceof Error || (value as { error?: unknown } | null)?.error instanceof Error) {
            counts.error += 1
            const error = value instanceof Error ? value : (value as { error: Error }).error
            if (!isKnown(error)) t.fail(`${what}: ${key} failed`, { error })
          } else if (value === null || value === undefined || value === '')
            counts.missing += truth.get(key) ? 1 : 0
          else if (isTrue(value, truth.get(key))) counts.same += 1
          else t.same(value, truth.get(key), `round ${round}, ${what}: ${key} is what was written`)
        }
      } catch (error) {
        counts.unopened += 1
        if (!isKnown(error)) t.fail(`${what}: the database could not be opened`, { error })
      } finally {
        const isRead =
          counts.error + counts.missing + counts.unopened > before.error + before.missing + before.unopened
        if (isRead && !isFound(copy))
          t.fail(`round ${round}, ${what}: a backup does not find what a reader finds`)
        await damaged.engine.close()
        rmSync(join(folder, name), { recursive: true, force: true })
      }
    }
    t.comment(JSON.stringify(counts))
    t.pass(`${ROUNDS} rounds`)
  },
)
