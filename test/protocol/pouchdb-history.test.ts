/** Compaction as PouchDB and LiveSync request it (clients.md 1.1, 1.2), and syncing before and after it. */

import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { settled, startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { call } from './call.ts'
import { body, type Device, device, liveSync, rejectsWith, remote } from './devices.ts'
import { sameEverywhere, untilSame } from './histories.ts'

t.test('db.compact() waits until it is done; then old revisions are gone', async (t) => {
  const server = await startTestServer(t)
  const { db, seen } = remote(`${server.url}/notes`)
  const revs = [(await db.put({ _id: 'note', text: 'first' })).rev]
  for (const text of ['second', 'third']) {
    revs.push((await db.put({ _id: 'note', _rev: revs.at(-1) as string, text })).rev)
  }
  t.match(await db.get('note', { rev: revs[0] as string }), { text: 'first' })
  await db.compact({ interval: 5 })
  const compact = seen.find(({ path }) => path.endsWith('/_compact'))
  t.match(compact, { method: 'POST', status: 202 })
  t.equal(seen.at(-1)?.method, 'GET')
  for (const rev of revs.slice(0, -1)) {
    await rejectsWith(t, db.get('note', { rev }), { status: 404, reason: 'missing' })
  }
  t.match(await db.get('note', { revs_info: true }), {
    text: 'third',
    _revs_info: [{ status: 'available' }, { status: 'missing' }, { status: 'missing' }],
  })
})

t.test('devices continue to sync with a compacted database', async (t) => {
  const server = await startTestServer(t)
  const devices = [await device(t), await device(t)] as const
  const there = remote(`${server.url}/notes`).db
  const [phone, desk] = devices
  for (const id of ['a', 'b', 'c']) {
    let { rev } = await phone.put({ _id: id, n: 0 })
    for (const n of [1, 2]) rev = (await phone.put({ _id: id, _rev: rev, n })).rev
  }
  await phone.sync(there)
  await desk.sync(there)
  for (const [at, db] of devices.entries()) await db.put({ ...(await db.get('a')), at })
  await phone.remove(await phone.get('b'))
  await phone.sync(there)
  await there.compact({ interval: 5 })
  for (const db of [desk, phone, desk]) await db.sync(there)
  const late = await device(t)
  await late.sync(there)
  const all = { server, database: 'notes', devices: [...devices, late] }
  t.match(await sameEverywhere(t, all), { a: { leaves: { length: 2 } }, b: { winner: null } })
})

t.test('a client cleans up: it deletes, pushes, compacts and polls every second', async (t) => {
  const server = await startTestServer(t)
  // Bodies retained for the time machine would still be in the file.
  await call(server, 'PUT', '/_node/_local/_config/settee/keep_days', { body: '"0"' })
  await settled(server)
  const there = remote(`${server.url}/notes`).db
  const chunks = Array.from({ length: 300 }, (_, n) => ({
    _id: `h:${n}`,
    type: 'leaf',
    data: 'x'.repeat(3000),
  }))
  const rows = (await there.bulkDocs(chunks)) as { id: string; rev: string }[]
  const sizeOf = async () =>
    ((await call(server, 'GET', '/notes')).json as { sizes: { file: number } }).sizes.file
  const before = await sizeOf()
  await there.bulkDocs(rows.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true })))
  t.equal((await call(server, 'POST', '/notes/_compact', { body: {} })).status, 202)
  const began = Date.now()
  const isRunning = async () =>
    ((await call(server, 'GET', '/notes')).json as { compact_running: boolean }).compact_running
  while (await isRunning());
  t.ok(Date.now() - began < 60_000)
  const after = await sizeOf()
  t.ok(after < before / 3, `${before} bytes became ${after}`)
})

const NOTES = 60

/** Every live note of a device as a user sees it, by its id: its members, its files, and its number of conflicts. */
async function notesOf(db: Device): Promise<Record<string, unknown>> {
  const { rows } = await db.allDocs({ include_docs: true, attachments: true, conflicts: true })
  const notes: Record<string, unknown> = {}
  for (const { id, doc } of rows as { id: string; doc?: object }[]) {
    if (doc === undefined) continue
    const { _attachments = {}, _conflicts = [] } = doc as {
      _attachments?: Record<string, { content_type: string; data: string }>
      _conflicts?: string[]
    }
    const files = Object.entries(_attachments).map(([name, { content_type, data }]) => [
      name,
      content_type,
      data,
    ])
    notes[id] = { ...body(doc), files, conflicts: _conflicts.length }
  }
  return notes
}

async function fill(phone: Device, desk: Device, server: TestServer): Promise<void> {
  const docs = Array.from({ length: NOTES }, (_, n) => ({ _id: `note:${n}`, text: `note ${n}`, n }))
  await phone.bulkDocs(docs)
  for (let n = 0; n < 5; n++) {
    const { _rev } = await phone.get(`note:${n}`)
    const file = Buffer.from(`file ${n} `.repeat(1000 * n + 1))
    await phone.putAttachment(`note:${n}`, 'pic.bin', _rev, file, 'application/x-test')
  }
  // Both devices create the same note before they sync.
  await phone.put({ _id: 'both', text: 'from the phone' })
  await desk.put({ _id: 'both', text: 'from the desk' })
  for (const db of [phone, desk, phone]) await db.sync(remote(`${server.url}/notes`).db)
}

async function rewind(t: Test, server: TestServer, at: string): Promise<Record<string, number>> {
  const { status, text } = await call(server, 'POST', '/_settee/databases/notes/rewind', { body: { at } })
  t.equal(status, 200)
  const last = JSON.parse(text.trim().split('\n').at(-1) ?? '{}')
  t.equal(last.done, true)
  return last.counts
}

async function between(): Promise<string> {
  await delay(5)
  const time = new Date().toISOString()
  await delay(5)
  return time
}

t.test('after a rewind, both devices have all notes again', async (t) => {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  const phone = await device(t)
  const desk = await device(t)
  await fill(phone, desk, server)
  const was = await notesOf(desk)
  t.equal(Object.keys(was).length, NOTES + 1)
  t.match(was.both, { conflicts: 1 })
  const then = await between()

  for (const db of [phone, desk]) liveSync(t, db, remote(`${server.url}/notes`).db)
  const { rows } = await phone.allDocs()
  await phone.bulkDocs(rows.map(({ id, value }) => ({ _id: id, _rev: value.rev, _deleted: true })))
  // The deletion made a conflict the winner; it is deleted with the other notes.
  for (const db of [phone, desk]) {
    await until('all is gone', async () => {
      const left = await db.allDocs()
      const both = left.rows.find(({ id }) => id === 'both')
      if (both !== undefined && db === phone) await db.remove('both', both.value.rev)
      return left.rows.length === 0
    })
  }
  await desk.put({ _id: 'later', text: 'made after that' })
  await until('the last note has arrived', async () => (await phone.allDocs()).rows.length === 1)
  const { json } = await call(server, 'GET', '/_settee/databases/notes/alarms')
  const { alarms } = json as { alarms: { deleted: number; since: string }[] }
  t.equal(alarms.length, 1)
  t.ok((alarms[0]?.deleted ?? 0) >= NOTES / 2)
  t.ok((alarms[0]?.since ?? '') >= then, 'the time that it names is after the last that was well')

  const counts = await rewind(t, server, alarms[0]?.since ?? '')
  t.equal(counts.recreated, NOTES + 1)
  for (const db of [phone, desk]) {
    await until('all notes are back', async () => {
      const ids = (await db.allDocs()).rows.map(({ id }) => id)
      return ids.length === NOTES + 1 && !ids.includes('later')
    })
  }
  await untilSame(t, { server, database: 'notes', devices: [phone, desk] })
  const expected = { ...was, both: { ...(was.both as object), conflicts: 0 } }
  for (const db of [phone, desk]) t.strictSame(await notesOf(db), expected)

  const again = await rewind(t, server, then)
  t.match(again, { restored: 0, recreated: 0, deleted: 0 })
})
