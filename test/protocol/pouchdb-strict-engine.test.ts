/** PouchDB against an engine as one over a network will be: it shows only what is declared, and is at times not reached. */
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { startMemoryServer } from '../http/memory-server.ts'
import { Misses, strictDocuments } from '../storage/memory/strict.ts'
import { type Device, device, remote } from './devices.ts'

const PHOTO = { 'a.txt': { content_type: 'text/plain', data: Buffer.from('photo').toString('base64') } }

async function start(t: Test, options: { readonly onOperation?: (operation: string) => void } = {}) {
  const misses = new Misses()
  const server = await startMemoryServer(t, {}, () => {}, {
    ...options,
    withDocument: strictDocuments(misses),
  })
  await fetch(`${server.url}/notes`, { method: 'PUT' })
  return { misses, there: remote(`${server.url}/notes`).db }
}

async function contents(db: Device): Promise<unknown[]> {
  const { rows } = await db.allDocs({ include_docs: true, conflicts: true })
  return rows.map(({ doc }) => {
    const { _attachments, ...rest } = doc as Record<string, unknown>
    return [rest, Object.keys(_attachments ?? {})]
  })
}

t.test('two devices edit, meet, conflict, resolve and delete, and no read was undeclared', async (t) => {
  const { misses, there } = await start(t)
  const [phone, desk] = [await device(t), await device(t)]
  const meet = async () => {
    for (const db of [phone, desk, phone]) await db.sync(there)
  }
  for (let n = 0; n < 60; n++)
    await phone.put({ _id: `note-${n}`, n, ...(n % 10 === 0 && { _attachments: PHOTO }) })
  await meet()
  for (const [at, db] of [phone, desk].entries()) {
    for (let n = 0; n < 20; n++) {
      const doc = await db.get(`note-${n}`)
      await db.put({ ...doc, by: at })
    }
  }
  await meet()
  for (let n = 0; n < 20; n++) {
    const { _conflicts = [] } = await desk.get(`note-${n}`, { conflicts: true })
    for (const rev of _conflicts) await desk.remove(`note-${n}`, rev)
  }
  for (let n = 40; n < 50; n++) await phone.remove(await phone.get(`note-${n}`))
  await meet()
  const doc = await there.get('note-0')
  await there.put({ ...doc, there: true })
  await there.bulkDocs([{ _id: 'new-1' }, { _id: 'new-2' }, { _id: 'note-55' }])
  await meet()
  t.same(await contents(phone), await contents(desk))
  t.same(await contents(there), await contents(desk))
  t.same(misses.take(), [])
})

t.test('a store that fails at random loses nothing', async (t) => {
  let failing = 0
  const onOperation = () => {
    if (Math.random() < failing) throw new CouchError('store_unavailable')
  }
  const { there } = await start(t, { onOperation })
  const [phone, desk] = [await device(t), await device(t)]
  for (let n = 0; n < 60; n++) await phone.put({ _id: `note-${n}`, n })
  failing = 0.006
  let failures = 0
  for (let round = 0; round < 6; round++) {
    for (const db of [phone, desk]) {
      await db.sync(there, { batch_size: 10 }).catch(() => {
        failures += 1
      })
    }
    if (round === 2) for (let n = 0; n < 30; n++) await desk.put({ _id: `desk-${n}`, n })
  }
  failing = 0
  t.comment(`${failures} of 12 replications failed`)
  for (const db of [phone, desk, phone]) await db.sync(there)
  t.same(await contents(phone), await contents(desk))
  t.same(await contents(there), await contents(desk))
  t.equal((await there.info()).doc_count, 90)
})
