import t from 'tap'
import type { Space, UserCtx } from '../../src/core/types.ts'
import { BodyFiles } from '../../src/http/transport/body-files.ts'

const MB = 1024 * 1024
const USER: UserCtx = { name: 'anna', roles: [] }

function files(space: () => Space, share = 1): BodyFiles {
  return new BodyFiles(space, () => share)
}

t.test('all files together take a share of what is free, and are no part of that themselves', async (t) => {
  let space: Space = { free: 300 * MB, floor: 100 * MB }
  const all = files(() => space, 0.5)
  t.equal(all.size, 100 * MB)
  all.place('a', USER).take(50 * MB)
  t.equal(all.size, 100 * MB, 'until the disk is looked at again')
  space = { free: 250 * MB, floor: 100 * MB }
  t.equal(all.size, 100 * MB, 'and then as well')
  space = { free: 50 * MB, floor: 100 * MB }
  t.equal(all.size, 16 * MB, 'bulks of deletions come in all the same')
  t.equal(files(() => ({ free: Infinity, floor: 0 })).size, Infinity)
})

t.test('each caller may take as much as stays free', async (t) => {
  const space = { free: 120 * MB, floor: 0 }
  const all = files(() => space)
  const one = all.place('a', USER)
  t.throws(() => one.take(61 * MB), { code: 'insufficient_storage' })
  one.take(60 * MB)
  t.throws(() => all.place('a', USER).take(MB), { code: 'insufficient_storage' })
  const other = all.place('b', USER)
  t.equal(other.refusalOf(30 * MB), null)
  t.not(other.refusalOf(31 * MB), null)
  t.equal(all.place('a', USER).refusalOf(64 * 1024), null, 'small ones are always taken')
  one.leave()
  one.leave()
  t.equal(all.used, 0)
  other.take(60 * MB)
  other.take(60 * MB)
  t.equal(all.used, 60 * MB)
})

t.test('a tenant’s bodies are bounded by what the quota leaves', async (t) => {
  const all = files(() => ({ free: Infinity, floor: 0 }))
  const allowance = {
    bytes: { limit: 100 * MB, others: 60 * MB, here: 30 * MB },
    documents: { limit: Infinity, others: 0 },
    maxDocumentSize: Infinity,
  }
  const tenant = { ...USER, allowance }
  all.place('a', tenant).take(40 * MB)
  const place = all.place('a', tenant)
  t.equal(place.refusalOf(34 * MB), null)
  t.match(place.refusalOf(35 * MB), {
    code: 'forbidden',
    reason: /may store 104857600 bytes and stores 94371840/,
  })
  const over = { ...tenant, allowance: { ...allowance, bytes: { limit: 1, others: 0, here: 30 * MB } } }
  t.equal(all.place('b', over).refusalOf(64 * MB), null, 'to delete and to read goes on')
  t.not(all.place('b', over).refusalOf(65 * MB), null)
})
