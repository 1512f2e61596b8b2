/** The check of a database that may be in use: it finds what is damaged, in steps that begin where the last one ended. */
import { rmSync } from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { DatabaseStore } from '../../../src/storage/engine.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { attachment, put } from '../conformance/edits.ts'
import { checkedInSteps } from './checks.ts'

const LARGE = Buffer.alloc(3_000_000, 'a picture ')

/** A database with 300 documents, one of which has an attachment of several pieces. */
async function opened(t: Test): Promise<{ store: DatabaseStore; path: string; change(sql: string): void }> {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-check-'))
  const engine = sqliteEngine({ dataDir })
  const path = join(dataDir, 'databases', 'notes.sqlite')
  t.teardown(async () => {
    await engine.close()
    rmSync(dataDir, { recursive: true, force: true })
  })
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  await store.updateDocs(Array.from({ length: 300 }, (_, n) => put(`note-${n}`, `{"n":${n}}`)))
  await store.updateDocs([put('picture', '{}', { attachments: [attachment('a.jpg', LARGE)] })])
  const change = (sql: string) => {
    const file = new Sqlite(path)
    file.exec(sql)
    file.close()
  }
  return { store, path, change }
}

t.test('a whole database has no damage, however long its steps are', async (t) => {
  const { path } = await opened(t)
  const [whole, ...short] = checkedInSteps(path, 0)
  t.equal(whole?.damage, null)
  t.ok(short.length > 10, `${short.length} steps of a stretch each`)
  const shares = short.map(({ share }) => share)
  t.strictSame(
    shares,
    shares.toSorted((a, b) => a - b),
    'the progress only grows',
  )
  const [, ...long] = checkedInSteps(path, 60_000)
  t.strictSame(long, [{ next: null, share: 1, damage: null }], 'one step')
})

t.test('each kind of damage is named by what it belongs to', async (t) => {
  const rev = (await revOf(t)) as string
  for (const [sql, expected] of [
    [`UPDATE revision SET body = '{"n":8}' WHERE num = 8`, { kind: 'revision', id: 'note-7' }],
    [`UPDATE doc SET seq = -5 WHERE num = 9`, { kind: 'document', id: 'note-8' }],
    [`DELETE FROM revision WHERE num = 10`, { kind: 'document', id: 'note-9' }],
    [`UPDATE chunk SET data = zeroblob(5) WHERE rowid = 1`, { kind: 'attachment', name: 'a.jpg', rev }],
    [`DELETE FROM chunk WHERE rowid = 1`, { kind: 'attachment', id: 'picture', name: 'a.jpg' }],
    [`DELETE FROM blob`, { kind: 'attachment', id: 'picture', name: 'a.jpg' }],
    [`DELETE FROM attachment`, { kind: 'revision', id: 'picture' }],
    [`UPDATE meta SET value = 1 WHERE key = 'doc_count'`, { kind: 'counters' }],
  ] as const) {
    const { path, change } = await opened(t)
    change(sql)
    const [found] = checkedInSteps(path, 0)
    t.match(found?.damage?.parts[0], expected, sql)
  }
})

async function revOf(t: Test): Promise<unknown> {
  const { store } = await opened(t)
  const [rev] = await store.readDocs(['picture'], (doc) => doc?.rev)
  return rev
}

t.test('a row whose number is far from all others takes no longer', async (t) => {
  const { path, change } = await opened(t)
  change(`UPDATE doc SET num = ${2 ** 40} WHERE num = 9; UPDATE chunk SET rowid = ${2 ** 52} WHERE rowid = 1`)
  const [found, ...steps] = checkedInSteps(path, 0)
  t.match(found?.damage?.parts[0], { kind: 'document', id: 'note-8' })
  t.ok(steps.length < 400, `${steps.length} steps`)
})

t.test('writes between the steps are no damage', async (t) => {
  const { store, path } = await opened(t)
  const engineWrites = async (n: number) => {
    await store.updateDocs([put(`note-${n}`, `{"again":${n}}`), put(`new-${n}`, '{}')])
    if (n % 10 === 0) await store.compact({})
  }
  const { checkStored } = await import('../../../src/storage/sqlite/database-check.ts')
  let step = checkStored(path, null, 0)
  for (let n = 0; step.next !== null; n++) {
    t.equal(step.damage, null, `step ${n}`)
    await engineWrites(n)
    step = checkStored(path, step.next, 2)
  }
})
