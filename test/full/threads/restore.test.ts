/** Restores of databases over their threads, while clients use these databases. */
import { readdirSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { ADMIN } from '../../documents/helpers.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { DEADLY_ENTRY, eventsOf, idsOf, put, type Served, serve, until } from '../../threads/served.ts'

async function copyOf(t: Test, { dataDir }: Served, name: string): Promise<string> {
  const copy = join(await temporaryFolder(t), `${name}.sqlite`)
  const file = new Sqlite(join(dataDir, 'databases', `${name}.sqlite`), { readonly: true })
  file.prepare('VACUUM INTO ?').run(copy)
  file.close()
  return copy
}

/** Makes a database with `a` and `b`. @returns a copy with `a` only */
async function withCopy(t: Test, served: Served, name = 'notes') {
  await served.databases.create(name)
  await put(await served.databases.get(name), 'a')
  const copy = await copyOf(t, served, name)
  await put(await served.databases.get(name), 'b')
  return copy
}

t.test('the database has its earlier content, and watchers of the old one get its end event', async (t) => {
  const served = await serve(t)
  const { databases, dataDir } = served
  const copy = await withCopy(t, served)
  const old = await databases.get('notes')
  const events = eventsOf(old)
  const secured: string[] = []
  databases.watchSecurity((name) => secured.push(name))
  const prepared = await databases.prepareRestore('notes', copy)
  t.match(prepared, { name: 'notes', docCount: 1, updateSeq: 1 })
  t.same(await idsOf(await databases.get('notes')), ['a', 'b'], 'nothing has changed yet')
  const kept = await prepared.finish()
  t.match(kept, /\/replaced\/notes\.\d{4}-.*Z\.sqlite$/)
  t.same(
    events.map(({ type }) => type),
    ['closed'],
  )
  t.same(secured, ['notes'])
  await t.rejects(put(old, 'c'), { code: 'no_database' })
  const now = await databases.get('notes')
  t.not(now.incarnation, old.incarnation)
  t.same(await idsOf(now), ['a'])
  await put(now, 'c')
  await prepared.discard()
  t.same(
    readdirSync(join(dataDir, 'databases')).filter((file) => file.includes('unfinished')),
    [],
  )
  const undone = await databases.prepareRestore('notes', kept as string)
  await undone.finish()
  t.same(await idsOf(await databases.get('notes')), ['a', 'b'])
})

t.test('the name is never free, and calls during the restore wait or fail with unavailable', async (t) => {
  const served = await serve(t)
  const { databases } = served
  const copy = await withCopy(t, served)
  const writes: Promise<string>[] = []
  const write = () => {
    const writing = Promise.resolve().then(async () => put(await databases.get('notes'), `w${writes.length}`))
    writing.catch(() => undefined)
    writes.push(writing)
  }
  const prepared = await databases.prepareRestore('notes', copy)
  let isOver = false
  const finished = prepared.finish().finally(() => {
    isOver = true
  })
  const made = databases.create('notes')
  made.catch(() => undefined)
  while (!isOver) {
    t.ok(await databases.has('notes'))
    write()
    await new Promise((resolve) => setImmediate(resolve))
  }
  await finished
  await t.rejects(made, { code: 'file_exists' })
  for (const result of await Promise.allSettled(writes)) {
    if (result.status === 'rejected') t.match(result.reason, { code: /^(no_database|unavailable)$/ })
  }
  t.same((await idsOf(await databases.get('notes'))).includes('b'), false)
})

t.test('restores and deletions of one name run one at a time', async (t) => {
  const served = await serve(t)
  const { databases } = served
  const copy = await withCopy(t, served)
  const both = await Promise.all([
    databases.prepareRestore('notes', copy),
    databases.prepareRestore('notes', copy),
  ])
  const kept = await Promise.all(both.map((prepared) => prepared.finish()))
  t.equal(new Set(kept).size, 2)
  t.same(await idsOf(await databases.get('notes')), ['a'])
  const last = await databases.prepareRestore('notes', copy)
  await Promise.all([databases.delete('notes'), last.finish()])
  t.same(await idsOf(await databases.get('notes')), ['a'], 'the database exists again')
  t.same(await Array.fromAsync(databases.allNames()), ['notes'])
})

t.test('a file that is not a copy changes nothing', async (t) => {
  const served = await serve(t)
  const { databases } = served
  const copy = await withCopy(t, served)
  const broken = join(await temporaryFolder(t), 'broken.sqlite')
  await writeFile(broken, 'not a database')
  const empty = join(await temporaryFolder(t), 'empty.sqlite')
  await writeFile(empty, '')
  for (const path of [broken, empty, '/absent/x.sqlite']) {
    await t.rejects(databases.prepareRestore('notes', path), { code: 'bad_request' })
  }
  const newer = new Sqlite(copy)
  newer.pragma('user_version = 99')
  newer.close()
  await t.rejects(databases.prepareRestore('notes', copy), { code: 'bad_request', message: /newer settee/ })
  await t.rejects(databases.prepareRestore('Notes', copy), { code: 'illegal_database_name' })
  t.same(await idsOf(await databases.get('notes')), ['a', 'b'])
})

t.test('a restore survives the death of the database’s thread', async (t) => {
  const served = await serve(t, { threadEntry: DEADLY_ENTRY })
  const { databases } = served
  const copy = await withCopy(t, served)
  const prepared = await databases.prepareRestore('notes', copy)
  const dying = (await databases.get('notes')).open(ADMIN, 'deadly', {})
  dying.catch(() => undefined)
  const finished = await prepared.finish().then(
    () => true,
    () => false,
  )
  await until(() => served.faults.length > 0)
  t.ok(await databases.has('notes'))
  if (!finished) await (await databases.prepareRestore('notes', copy)).finish()
  t.same(await idsOf(await databases.get('notes')), ['a'])
  t.equal((await (await databases.get('notes')).info(ADMIN)).doc_count, 1)
})

t.test('a file that was replaced by hand gets a new epoch', async (t) => {
  const { databases } = await serve(t)
  await databases.create('notes')
  await put(await databases.get('notes'), 'a')
  const before = await (await databases.get('notes')).info(ADMIN)
  await databases.treatAsRestored('notes')
  const after = await (await databases.get('notes')).info(ADMIN)
  t.ok(Number(after.instance_start_time) > Number(before.instance_start_time))
  t.same(await idsOf(await databases.get('notes')), ['a'])
  await t.rejects(databases.treatAsRestored('no'), { code: 'no_database' })
  t.same(await Array.fromAsync(databases.allNames()), ['notes'])
})
