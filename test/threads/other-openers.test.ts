/** What becomes of the events that a store tells of other openers, from the database's thread to its feeds. */
import t from 'tap'
import { ADMIN } from '../documents/helpers.ts'
import { eventsOf, openFiles, put, serve, until } from './served.ts'

const threadEntry = new URL('./telling-thread.mjs', import.meta.url)

t.test('what another opener does wakes feeds, changes rights, and ends a database', async (t) => {
  const { databases, dataDir } = await serve(t, { threadEntry })
  await databases.create('notes')
  const handle = await databases.get('notes')
  await put(handle, 'a')
  const events = eventsOf(handle)
  const secured: string[] = []
  databases.watchSecurity((name) => secured.push(name))
  /** Asks for the document that makes the store tell. */
  const tell = (what: 'commit' | 'settings' | 'deletion') => handle.open(ADMIN, what, {}).catch(() => null)

  const written = databases.documentsWritten
  await tell('commit')
  await until(() => events.length > 0)
  t.same(events.splice(0), [{ type: 'committed', updateSeq: 77 }])
  t.equal(databases.documentsWritten, written, 'its own opener counts it')

  t.equal(await handle.securityCopy(), null)
  await tell('settings')
  await until(() => secured.length > 0)
  const security = { members: { names: ['ann'], roles: [] } }
  t.same(events.splice(0), [{ type: 'secured', security }])
  t.same(await handle.securityCopy(), security)

  t.same(openFiles(dataDir), ['notes'])
  await tell('deletion')
  await until(() => events.some(({ type }) => type === 'closed'))
  await until(() => openFiles(dataDir).length === 0)
  await t.rejects(handle.info(ADMIN), { code: 'no_database' })
})

t.test('a database stays open while anybody listens, since a closed one hears nothing', async (t) => {
  const { databases, dataDir } = await serve(t, { threadEntry, maxOpen: 1, threads: 1 })
  t.equal(databases.sharedWriters, true)
  for (const name of ['a', 'b', 'notes']) await databases.create(name)
  const useOthers = async () => {
    for (const name of ['a', 'b']) await (await databases.get(name)).info(ADMIN)
  }
  const notes = await databases.get('notes')
  const ends = [notes.watch(() => {}), notes.watch(() => {})]
  await until(() => openFiles(dataDir).includes('notes'))
  await useOthers()
  ends[0]?.()
  await useOthers()
  t.ok(openFiles(dataDir).includes('notes'))
  ends[1]?.()
  await useOthers()
  await until(() => !openFiles(dataDir).includes('notes'))
})
