/** A folder with very many databases: what a start reads of it, and what stays in memory. */
import { copyFileSync, linkSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t from 'tap'
import { collectAll } from '../../../src/core/event-loop.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { put, serve } from '../../threads/served.ts'

PouchDB.plugin(memoryAdapter)

const MANY = 20_000
/** Of the lists of names that passed through, in bytes: the names alone would take 1.5 MB. */
const MAX_KEPT = 1_000_000

const nameOf = (n: number) => `db${String(n).padStart(5, '0')}`

t.test('20,000 databases that came while the server was stopped', async (t) => {
  const dataDir = await temporaryFolder(t)
  const file = (name: string) => join(dataDir, 'databases', `${name}.sqlite`)
  const first = (await serve(t, { dataDir })).databases
  await first.create('db')
  await first.close()
  for (let n = 0; n < MANY; n++) linkSync(file('db'), file(nameOf(n)))
  // What is opened needs a file of its own.
  const last = nameOf(MANY - 1)
  copyFileSync(file('db'), `${file(last)}.copy`)
  renameSync(`${file(last)}.copy`, file(last))

  const began = performance.now()
  const { databases } = await serve(t, { dataDir })
  await put(await databases.get(last), 'x')
  const took = performance.now() - began
  t.ok(took < 3000, `a start and the first save do not wait for the others: ${Math.round(took)} ms`)
  t.equal(await databases.has('no'), false)
  t.equal(await databases.count(), MANY + 1)
  t.same(await databases.names({ from: 'db00010' }, 2), ['db00010', 'db00011'])

  const usedAfterPass = async () => {
    let names = 0
    for await (const _ of databases.allNames({ prefix: 'db0' })) names += 1
    t.equal(names, 10_000)
    collectAll()
    return process.memoryUsage().heapUsed
  }
  const before = await usedAfterPass()
  const kept = (await usedAfterPass()) - before
  t.ok(kept < MAX_KEPT, `${kept} bytes`)

  for (const name of ['db', nameOf(7)]) rmSync(file(name))
  await databases.close()
  const again = (await serve(t, { dataDir })).databases
  await t.rejects(again.get('db'), { code: 'no_database' }, 'before the folder is looked through')
  t.equal(await again.count(), MANY - 1)
  t.same(await again.names({ prefix: 'db0000', from: 'db00006' }, 2), ['db00006', 'db00008'])
})

t.test(
  'PouchDB syncs with one of them, while a caller without a login asks for names that do not exist',
  async (t) => {
    const dataDir = await temporaryFolder(t)
    const file = (name: string) => join(dataDir, 'databases', `${name}.sqlite`)
    const env = { COUCHDB_USER: 'admin', COUCHDB_PASSWORD: 'secret' }
    const address = (url: string) => `${url.replace('//', '//admin:secret@')}/notes`
    const first = await startTestServer(t, { dataDir, env })
    const before = new PouchDB(address(first.url))
    await before.put({ _id: 'a' })
    await first.close()
    for (let n = 0; n < 5000; n++) linkSync(file('notes'), file(nameOf(n)))

    const server = await startTestServer(t, { dataDir, env })
    const statuses = new Set<number>()
    let isOver = false
    const ask = async (caller: number) => {
      for (let n = 0; !isOver && n < 10_000; n++) {
        statuses.add((await server.request('GET', `/no-${caller}-${n}`)).status)
      }
    }
    const asking = Promise.all(Array.from({ length: 8 }, (_, caller) => ask(caller)))
    const device = new PouchDB('device', { adapter: 'memory' })
    const remote = new PouchDB(address(server.url))
    await device.put({ _id: 'b' })
    await device.sync(remote)
    isOver = true
    await asking
    t.same([...statuses], [401], 'as for a database that exists')
    t.same(
      (await remote.allDocs()).rows.map(({ id }) => id),
      ['a', 'b'],
    )
    t.same(
      (await device.allDocs()).rows.map(({ id }) => id),
      ['a', 'b'],
    )
    await device.destroy()
  },
)
