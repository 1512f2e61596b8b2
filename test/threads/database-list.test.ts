import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises'
import t from 'tap'
import type { DatabaseEntry } from '../../src/storage/catalog.ts'
import { DatabaseList } from '../../src/threads/database-list.ts'
import type { DatabaseProxy } from '../../src/threads/database-proxy.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { sharedNetwork } from '../storage/memory/network.ts'
import { SharedMemory } from '../storage/memory/shared.ts'

/** A list over a catalog, and what it asks of it. */
function listOver(find: (name: string) => Promise<DatabaseEntry | null>, maxOpen = 1) {
  const asked: string[] = []
  const gone: string[] = []
  const deleting = new Set<string>()
  const list = new DatabaseList({
    maxOpen,
    find: (name) => {
      asked.push(name)
      return find(name)
    },
    names: async () => [],
    count: async () => 0,
    make: (entry) => ({ entry, ...entry }) as unknown as DatabaseProxy,
    isBeingDeleted: (name) => deleting.has(name),
    whenIdle: async () => undefined,
    onGone: (proxy) => {
      gone.push(proxy.name)
      list.leave(proxy.entry)
    },
  })
  return { list, asked, gone, deleting }
}

t.test('a database is looked up once, and a name that is none never', async (t) => {
  const { list, asked } = listOver(async (name) => (name === 'notes' ? { name, incarnation: 1 } : null))
  t.equal(list.known('notes'), undefined)
  const [one, two] = await Promise.all([list.get('notes'), list.get('notes')])
  t.ok(one !== null && one === two && one === list.known('notes'))
  t.equal(await list.get('No Name'), null)
  t.equal(await list.get('missing'), null)
  t.same(asked, ['notes', 'missing'])
  t.equal(list.ofIncarnation(1), one)
})

t.test('a change that overtakes a lookup has it repeated; what is being deleted is not found', async (t) => {
  let release = () => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  let incarnation = 1
  const { list, deleting } = listOver(async (name) => {
    const seen = incarnation
    if (seen === 1) await held
    return { name, incarnation: seen }
  })
  const looking = list.get('notes')
  await turn()
  incarnation = 2
  list.changed(['notes'])
  release()
  t.equal((await looking)?.incarnation, 2)
  list.leave({ name: 'notes', incarnation: 2 })
  deleting.add('notes')
  t.equal(await list.get('notes'), null)
  t.equal(await list.find('notes'), null)
})

t.test('a lookup that fails is repeated by the next call', async (t) => {
  let isBroken = true
  const { list } = listOver(async (name) => {
    if (isBroken) throw new Error('no store')
    return { name, incarnation: 1 }
  })
  await t.rejects(list.get('notes'), { message: 'no store' })
  isBroken = false
  t.ok(await list.get('notes'))
})

t.test('a database that somebody holds has one proxy, however many others are called', async (t) => {
  let incarnation = 0
  const { list, asked } = listOver(async (name) => ({ name, incarnation: ++incarnation }))
  const held = await list.get('held')
  for (let n = 0; n < 10_000; n++) await list.get(`db${n}`)
  t.equal(await list.get('held'), held, 'a database that is held is not opened twice')
  t.equal(asked.length, 10_001)
})

t.test('what another node deletes or replaces is dropped', async (t) => {
  const shared = new SharedMemory()
  const catalog = await memoryEngine({ shared, network: sharedNetwork() }).openCatalog()
  const other = await memoryEngine({ shared, network: sharedNetwork() }).openCatalog()
  const { list, gone } = listOver((name) => catalog.find(name))
  catalog.watch((change) => {
    if (change.type === 'databases') {
      list.changed(change.names)
      void list.verify(change.names)
    }
  })
  for (const name of ['deleted', 'replaced', 'stays']) await other.create(name)
  for (const name of ['deleted', 'replaced', 'stays']) t.ok(await list.get(name), 'made by the other node')
  await other.delete('deleted')
  await other.replace('replaced', null)
  for (let left = 1000; left > 0 && gone.length < 2; left--) await sleep(5)
  t.same(gone.sort(), ['deleted', 'replaced'])
  t.equal(await list.get('deleted'), null)
  t.equal((await list.get('replaced'))?.incarnation, (await other.find('replaced'))?.incarnation)
  t.ok(list.known('stays'))
})
