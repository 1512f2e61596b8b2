/** What a disk has changed is never read as what was written. */
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import type { Damage } from '../../../src/storage/damage.ts'
import { checkCopy } from '../../../src/storage/sqlite/snapshot.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { fillNotes, isTrue, readAll } from '../conformance/readings.ts'
import { checkedInSteps } from './checks.ts'
import { randomNumbers } from './random-damage.ts'

const ROUNDS = Number(process.env.SETTEE_DAMAGE ?? 75)
const SEED = Number(process.env.SETTEE_DAMAGE_SEED ?? Date.now() % 1e6)

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

/** The pages of the schema: damage there may change no row, and only the next start refuses the file. */
const SCHEMA_PAGES = 2

function damage(file: Buffer, random: (below: number) => number): string {
  const isInSchema = random(4) === 0
  const at = random(isInSchema ? SCHEMA_PAGES * file.readUInt16BE(16) : file.length)
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
    await fillNotes(store)
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
