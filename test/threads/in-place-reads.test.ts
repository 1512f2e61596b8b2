/** Reads on the HTTP thread, over real threads and files. */
import { existsSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { mock } from 'node:test'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { DatabaseHandle } from '../../src/threads/databases.ts'
import { ReadCrowd } from '../../src/threads/in-place-reads.ts'
import { OPTIONS } from '../changes/helpers.ts'
import { ADMIN, ANNA, body, parse, text } from '../documents/helpers.ts'
import { put, serve, until } from './served.ts'

const FILLING = 'x'.repeat(60_000)

/** A database whose file has large pages, and which has been read often. */
async function setUp(t: Test, name = 'notes', options: Parameters<typeof serve>[1] = {}) {
  const served = await serve(t, options)
  await served.databases.create(name)
  const handle = await fill(served.databases, name)
  const readers = () => openLogs(served.dataDir, name) - 1
  return { ...served, handle, readers }
}

async function fill(databases: Awaited<ReturnType<typeof serve>>['databases'], name: string) {
  const handle = await databases.get(name)
  for (let n = 0; n < 6; n++) await put(handle, `filling-${n}`, { text: FILLING })
  await put(handle, 'a', { n: 1 })
  return handle
}

/** How often this process has the log of a database open. */
function openLogs(dataDir: string, name: string): number {
  const links = readdirSync('/proc/self/fd').map((file) => {
    try {
      return readlinkSync(`/proc/self/fd/${file}`)
    } catch {
      return ''
    }
  })
  const left = links.find((link) => link.startsWith(dataDir) && link.endsWith('(deleted)'))
  if (left !== undefined) throw new Error(`still open: ${left}`)
  return links.filter((link) => link === join(dataDir, 'databases', `${name}.sqlite-wal`)).length
}

async function read(handle: DatabaseHandle, id: string, user = ADMIN) {
  const { json } = await handle.open(user, id, {})
  return parse(Buffer.from(json as Uint8Array))
}

async function readOften(handle: DatabaseHandle, readers: () => number): Promise<void> {
  await until(async () => {
    await read(handle, 'a')
    return readers() === 1
  })
}

t.test('a database that is read often is read here, and whoever wrote reads what was written', async (t) => {
  const { handle, readers, databases } = await setUp(t)
  t.equal(readers(), 0)
  await readOften(handle, readers)
  const client = async (id: string) => {
    let _rev: string | undefined
    let since: string | number = 'now'
    for (let n = 0; n < 50; n++) {
      _rev = await put(handle, id, { n, ...(_rev !== undefined && { _rev }) })
      const asked = body({ [id]: [_rev] })
      t.match(await read(handle, id), { n, _rev })
      t.equal(Buffer.from((await handle.revsDiff(ADMIN, asked)) as Uint8Array).toString(), '{}\n')
      t.match(await text(handle.bulkGet(ADMIN, body({ docs: [{ id, rev: _rev }] }), {})), `"n":${n}`)
      const page = await handle.changes(ADMIN, { since, limit: Infinity, options: OPTIONS })
      if (n > 0) t.match(Buffer.from(page.bytes).toString(), `"id":"${id}","changes":[{"rev":"${_rev}"}]`)
      since = n % 2 === 0 ? page.lastSeq : page.lastToken
    }
    await handle.remove(ADMIN, id, _rev)
    await t.rejects(read(handle, id), { code: 'deleted' })
  }
  await Promise.all(['b', 'c', 'd'].map(client))
  const nobody = { names: [], roles: [] }
  const secure = (names: readonly string[]) =>
    handle.setSecurity(ADMIN, { admins: nobody, members: { names, roles: [] } })
  await secure(['anna'])
  t.match(await read(handle, 'a', ANNA), { n: 1 })
  await secure(['ben'])
  await t.rejects(read(handle, 'a', ANNA), { code: 'forbidden' })
  t.equal(readers(), 1)
  await databases.close()
  t.equal(readers(), -1)
})

t.test('what is long is read by the thread of the database', async (t) => {
  const { handle, readers } = await setUp(t)
  await readOften(handle, readers)
  const long = 'y'.repeat(200_000)
  await put(handle, 'long', { long })
  t.match(await read(handle, 'long'), { long })
  const docs = Array.from({ length: 40 }, (_, n) => ({ id: n % 2 === 0 ? 'long' : 'a' }))
  const answer = JSON.parse(await text(handle.bulkGet(ADMIN, body({ docs }), {})))
  t.equal(answer.results.length, 40)
  t.equal(answer.results[38].docs[0].ok.long, long)
  const page = await handle.changes(ADMIN, {
    since: 0,
    limit: 3,
    options: { ...OPTIONS, includeDocs: true },
  })
  t.match(page, { rows: 3, pending: 5, atTip: false })
  t.match(Buffer.from(page.bytes).toString(), FILLING)
  t.equal(readers(), 1)
})

t.test('a deletion and a replacement close the reader first', async (t) => {
  const { handle, readers, databases } = await setUp(t)
  await readOften(handle, readers)
  await databases.treatAsRestored('notes')
  t.ok(readers() <= 0)
  const replaced = await databases.get('notes')
  await readOften(replaced, readers)
  await t.rejects(read(handle, 'a'), { code: 'no_database' })
  const reading = Array.from({ length: 50 }, () => read(replaced, 'a').catch((error: unknown) => error))
  await databases.delete('notes')
  for (const outcome of await Promise.all(reading))
    if (outcome instanceof Error) t.match(outcome, { code: 'no_database' })
  t.equal(readers(), -1)
  await databases.create('notes')
  await t.rejects(read(await databases.get('notes'), 'a'), { code: 'not_found' })
})

t.test('a store that closes before its reader leaves no log that must be read again', async (t) => {
  const { databases, dataDir, handle, readers } = await setUp(t, 'notes', { maxOpen: 1 })
  await readOften(handle, readers)
  await put(handle, 'b', { n: 2 })
  await databases.create('others')
  await put(await databases.get('others'), 'a')
  await until(async () => readers() === 0)
  t.equal(statSync(join(dataDir, 'databases', 'notes.sqlite-wal')).size, 0)
  t.match(await read(handle, 'b'), { n: 2 })
  await put(handle, 'c', { n: 3 })
  t.match(await read(handle, 'c'), { n: 3 })
})

t.test('reads are made here until a turn has many, and again after a turn with one', (t) => {
  const crowd = new ReadCrowd()
  const reads = (turn: number, count: number, isHeldUp = false) =>
    Array.from({ length: count }, () => crowd.hasRoom(turn, () => isHeldUp)).filter(Boolean).length
  t.equal(reads(1, 6), 6)
  t.equal(reads(2, 64), 6)
  t.equal(reads(3, 2), 0, 'a turn before had many')
  t.equal(reads(4, 1), 0)
  t.equal(reads(5, 6), 6, 'the turn before had one')
  t.equal(reads(6, 64, true), 16, 'while their thread is held up')
  t.equal(reads(7, 64, true), 16)
  t.end()
})

t.test('there are 32 readers at most, and those that are not used are closed', async (t) => {
  mock.timers.enable({ apis: ['setInterval'] })
  t.teardown(() => mock.timers.reset())
  const { databases, dataDir } = await serve(t)
  const names = Array.from({ length: 34 }, (_, n) => `notes-${n}`)
  const all = () => names.reduce((sum, name) => sum + Math.max(0, openLogs(dataDir, name) - 1), 0)
  for (const name of names) {
    await databases.create(name)
    const handle = await fill(databases, name)
    const readers = () => openLogs(dataDir, name) - 1
    if (all() < 32) await readOften(handle, readers)
    else for (let n = 0; n < 40; n++) t.match(await read(handle, 'a'), { n: 1 })
  }
  t.equal(all(), 32)
  mock.timers.tick(300_000)
  t.equal(all(), 32)
  mock.timers.tick(300_000)
  t.equal(all(), 0)
})

t.test('damage is found by the thread of the database, and no wrong byte is read', async (t) => {
  const { handle, readers, dataDir } = await setUp(t)
  await readOften(handle, readers)
  const path = join(dataDir, 'databases', 'notes.sqlite')
  t.ok(existsSync(path))
  const file = new Sqlite(path)
  file.exec(`UPDATE revision SET body = replace(body, '1', '2') WHERE body LIKE '{"n":1}'`)
  file.close()
  await t.rejects(read(handle, 'a'), { code: 'damaged_document' })
  const [leaf] = await handle.damagedLeaves()
  t.match(leaf, { id: 'a' })
})
