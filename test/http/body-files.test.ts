import t from 'tap'
import type { Space, UserCtx } from '../../src/core/types.ts'
import { BodyFiles } from '../../src/http/transport/body-limits.ts'

const MB = 1024 * 1024
const USER: UserCtx = { name: 'anna', roles: [] }

function files(space: () => Space, share = 1): BodyFiles {
  return new BodyFiles(space, () => share)
}

t.test('all files together take a share of what is free, and are no part of that themselves', async (t) => {
  let space: Space = { free: 300 * MB, floor: 100 * MB }
  const all = files(() => space, 0.5)
  t.equal(all.size, 100 * MB)
  all.allocation('a', USER).resize(50 * MB)
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
  const one = all.allocation('a', USER)
  t.throws(() => one.resize(61 * MB), { code: 'insufficient_storage' })
  one.resize(60 * MB)
  t.throws(() => all.allocation('a', USER).resize(MB), { code: 'insufficient_storage' })
  const other = all.allocation('b', USER)
  t.equal(other.refusalOf(30 * MB), null)
  t.not(other.refusalOf(31 * MB), null)
  t.equal(all.allocation('a', USER).refusalOf(64 * 1024), null, 'small ones are always taken')
  one.release()
  one.release()
  t.equal(all.used, 0)
  other.resize(60 * MB)
  other.resize(60 * MB)
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
  all.allocation('a', tenant).resize(40 * MB)
  const place = all.allocation('a', tenant)
  t.equal(place.refusalOf(34 * MB), null)
  t.match(place.refusalOf(35 * MB), {
    code: 'forbidden',
    reason: /may store 104857600 bytes and stores 94371840/,
  })
  const over = { ...tenant, allowance: { ...allowance, bytes: { limit: 1, others: 0, here: 30 * MB } } }
  t.equal(all.allocation('b', over).refusalOf(64 * MB), null, 'to delete and to read goes on')
  t.not(all.allocation('b', over).refusalOf(65 * MB), null)
})
