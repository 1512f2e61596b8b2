/** The check of a database in PostgreSQL: rows that are missing, that are out of order, and that PostgreSQL cannot read. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import type { DamagedPart } from '../../../src/storage/damage.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import type { CheckPosition } from '../../../src/storage/storage-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { attachment, put } from '../conformance/edits.ts'

t.setTimeout(120_000)
const server = await startPostgres(t)
const LARGE = Buffer.alloc(1_500_000, 'a picture ')

async function openStore(t: Test) {
  const url = await server.createDatabase()
  const engine = postgresEngine({ address: await readStoreAddress(url, null), poolSize: 4 })
  t.teardown(() => engine.close())
  await (await engine.openCatalog()).create('notes')
  const store = await engine.openDatabase('notes')
  const ids = Array.from({ length: 120 }, (_, n) => `note-${String(n).padStart(3, '0')}`)
  await store.updateDocs(ids.map((id) => put(id, `{"id":"${id}"}`)))
  await store.updateDocs(ids.slice(0, 60).map((id) => put(id, '{"n":2}')))
  await store.updateDocs([put('picture', '{}', { attachments: [attachment('a.jpg', LARGE)] })])
  const name = new URL(url).pathname.slice(1)
  const sql = (text: string) => server.query(text, [], name)
  const checked = async () => {
    const parts: DamagedPart[] = []
    let steps = 0
    for (let from: CheckPosition | null = null; ; steps++) {
      const step = await engine.checkDatabase('notes', from, 0)
      parts.push(...(step.damage?.parts ?? []))
      if (step.next === null) return { parts, steps }
      from = step.next
    }
  }
  return { store, checked, sql }
}

t.test('rows that are missing are named by what they belong to', async (t) => {
  for (const [change, expected] of [
    ["UPDATE settee.doc SET leaves = 2 WHERE id = 'note-003'", { kind: 'document', id: 'note-003' }],
    ['DELETE FROM settee.chunk WHERE position = 1', { kind: 'attachment', id: 'picture', name: 'a.jpg' }],
    ['DELETE FROM settee.blob', { kind: 'attachment', id: 'picture', name: 'a.jpg' }],
    ["UPDATE settee.doc SET attachments = NULL WHERE id = 'picture'", { kind: 'revision', id: 'picture' }],
    ["DELETE FROM settee.doc WHERE id = 'note-005'", { kind: 'counters' }],
    ['UPDATE settee.database SET doc_count = doc_count + 1', { kind: 'counters' }],
  ] as const) {
    const { checked, sql } = await openStore(t)
    t.strictSame((await checked()).parts, [])
    await sql(change)
    const { parts } = await checked()
    t.match(parts[0], expected, change)
    t.equal(parts.length, 1, change)
  }
})

t.test('rows whose keys were changed hide no others', async (t) => {
  const { checked, sql } = await openStore(t)
  // As the last of the rows that one statement reads, and as many as two of them.
  await sql("UPDATE settee.doc SET id = 'zzzz' WHERE id = 'note-049'")
  await sql("UPDATE settee.doc SET body = '{}' WHERE id IN ('note-060', 'note-119')")
  await sql("UPDATE settee.revision SET body = '{}' WHERE id < 'note-055'")
  const { parts } = await checked()
  const of = (kind: string) => parts.flatMap((part) => (part.kind === kind && 'id' in part ? part.id : []))
  t.strictSame(of('document'), ['zzzz'])
  t.equal(of('revision').length, 57)
  t.ok(['note-060', 'note-119'].every((id) => of('revision').includes(id)))
})

t.test('what PostgreSQL cannot read is damaged, and the check goes on', async (t) => {
  const { store, checked, sql } = await openStore(t)
  await store.updateDocs([put('note-070', JSON.stringify({ text: randomBytes(20_000).toString('hex') }))])
  await sql("UPDATE settee.doc SET body = '{}' WHERE id = 'note-100'")
  const [found] = await sql(
    "SELECT reltoastrelid::regclass::text AS long FROM pg_class WHERE oid = 'settee.doc'::regclass",
  )
  await sql(
    `CREATE EXTENSION pg_surgery; SELECT heap_force_kill('${found?.long}', array_agg(ctid)) FROM ${found?.long}`,
  )
  const { parts, steps } = await checked()
  const known = parts.map((part) => [part.kind, 'id' in part ? part.id : null])
  t.strictSame(known, [
    ['document', 'note-070'],
    ['revision', 'note-100'],
  ])
  t.ok(steps < 200, `${steps} steps`)
})
