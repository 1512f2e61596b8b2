import { statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { defaultFloor, isShort, type Space } from '../../src/core/types.ts'
import { shortage } from '../../src/documents/document-policy.ts'
import { Alarms } from '../../src/metrics/alarms.ts'
import { SpaceWatch } from '../../src/metrics/space-watch.ts'
import {
  hasReservedSpace,
  RESERVED_BYTES,
  releaseReservedSpace,
  reserveSpace,
} from '../../src/storage/free-space.ts'
import type { RecordWrite } from '../../src/storage/records.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { MemoryRecords, sharedRecords } from '../storage/memory/records.ts'

/** Records of alarms, and a list of databases. */
class Kept {
  readonly records = new MemoryRecords()
  readonly incarnations = new Map([
    ['notes', 1],
    ['other', 2],
  ])
  readonly warned: string[] = []
  readonly failed: string[] = []
  isBroken = false
  keeps = true

  async open(): Promise<Alarms> {
    return new Alarms({
      records: {
        listRecords: this.records.listRecords.bind(this.records),
        writeRecords: async (writes: readonly RecordWrite[]) => {
          if (this.isBroken) throw new Error('no disk')
          return this.records.writeRecords(writes)
        },
      },
      logger: {
        warn: (_facts: object, text: string) => this.warned.push(text),
        error: (_facts: object, text: string) => this.failed.push(text),
      } as never,
      incarnationOf: async (name) => this.incarnations.get(name),
      keepsVersions: () => this.keeps,
    })
  }
}

const NOTES = { name: 'notes', incarnation: 1 }
const found = (since: number) => ({ since, until: since + 5, deleted: 40, of: 60, account: 'anna' })

t.test('an alarm survives restarts until it is dismissed', async (t) => {
  const kept = new Kept()
  const alarms = await kept.open()
  const device = { token: 'phone', client: 'Obsidian', address: '::1' }
  alarms.raise(NOTES, found(1000), device)
  alarms.raise(NOTES, { ...found(1000), deleted: 60 }, null)
  await alarms.close()
  t.equal(kept.warned.length, 2)
  t.match(
    kept.warned[1],
    "their old versions are kept; to restore them: settee rewind 'notes' --to 1970-01-01T00:00:01.000Z",
  )
  const again = await kept.open()
  t.match(await again.list(), [{ database: 'notes', deleted: 60, device }])
  t.equal((await again.list()).length, 1, 'one for all that was told of it')
  t.strictSame(await again.list('other'), [])
  t.match(await again.health(), [{ name: 'alarms', ok: true, count: 1 }])
  kept.keeps = false
  again.raise(NOTES, found(1000), null)
  t.match(kept.warned[2], 'their old versions are there until the next compaction; to restore them')
  const [alarm] = await again.list()
  t.equal(await again.dismiss(alarm?.id ?? '', 'other'), false)
  t.equal(await again.dismiss(alarm?.id ?? '', 'notes'), true)
  t.equal(await again.dismiss(alarm?.id ?? ''), false)
  t.same(kept.records.all('alarm'), [])
})

t.test('alarms are limited in number, and removed with their database', async (t) => {
  const kept = new Kept()
  const alarms = await kept.open()
  for (let n = 0; n < 30; n++) alarms.raise(NOTES, found(1000 + n), null)
  alarms.raise({ name: 'other', incarnation: 2 }, found(1), null)
  t.equal((await alarms.list('notes')).length, 20)
  t.equal((await alarms.list('notes'))[0]?.since, 1029, 'the newest first')
  kept.incarnations.set('notes', 3)
  t.strictSame(
    (await alarms.list()).map(({ database }) => database),
    ['other'],
  )
  alarms.raise({ name: 'notes', incarnation: 3 }, found(7), null)
  await alarms.close()
  t.equal(kept.records.all('alarm').length, 2)
})

t.test('an invalid record and a failing disk do no harm', async (t) => {
  const kept = new Kept()
  await kept.records.writeRecords([
    { kind: 'alarm', key: 'x', value: '{' },
    { kind: 'alarm', key: 'y', value: '{"database":"notes"}' },
  ])
  const alarms = await kept.open()
  t.strictSame(await alarms.list(), [])
  kept.isBroken = true
  alarms.raise(NOTES, found(1), null)
  await alarms.close()
  t.equal((await alarms.list()).length, 1)
  t.equal(kept.failed.length, 1)
})

t.test('two nodes have the same alarms, and either dismisses them', async (t) => {
  const logger = { warn: () => {}, error: (_facts: object, text: string) => t.fail(text) } as never
  const [one, two] = sharedRecords(2).map(
    (records) => new Alarms({ records, logger, incarnationOf: async () => 1, keepsVersions: () => true }),
  ) as [Alarms, Alarms]
  one.raise(NOTES, found(1000), null)
  two.raise(NOTES, found(2000), null)
  await Promise.all([one.close(), two.close()])
  t.same(await one.list(), await two.list())
  const [newest, oldest] = await two.list()
  t.match([oldest?.since, newest?.since], [1000, 2000])
  t.equal(await two.dismiss(oldest?.id ?? ''), true)
  t.equal((await one.list()).length, 1)
  t.equal(await one.dismiss(oldest?.id ?? ''), false)
})

const MB = 1024 * 1024

/** A watch over a disk whose free bytes the test sets. */
async function watched(t: Test, free: number, floor: number | null = 20 * MB) {
  const dataDir = await temporaryFolder(t)
  const disk = { free, total: 1000 * MB, fails: false }
  const told: Space[] = []
  const lines: string[] = []
  const line = (_facts: object, text: string) => lines.push(text)
  const watch = await SpaceWatch.start({
    dataDir,
    holds: 'databases',
    floor: () => floor,
    onChange: (space) => told.push(space),
    logger: { info: line, warn: line, error: line } as never,
    measure: async () => {
      if (disk.fails) throw new Error('no answer')
      return disk
    },
  })
  t.teardown(() => watch.close())
  return { dataDir, disk, told, lines, watch }
}

t.test('the default floor', async (t) => {
  t.equal(defaultFloor(100 * MB), 64 * MB)
  t.equal(defaultFloor(1_000_000 * MB), 20_000 * MB)
  const { watch } = await watched(t, 100 * MB, null)
  t.equal(watch.space.floor, 64 * MB)
})

t.test('a refusal gives the free and the required space to a server admin only', async (t) => {
  t.equal(shortage({ free: 5, floor: 5 }), null)
  const space = { free: 4_000_000, floor: 64_000_000 }
  t.match(shortage(space, { roles: ['_admin'] }), {
    code: 'insufficient_storage',
    status: 507,
    reason: /4\.0 MB are free, and the last 64\.0 MB/,
  })
  for (const user of [undefined, { roles: ['editor'] }]) {
    t.match(shortage(space, user), { status: 507, reason: /^The server's disk is full\. [^0-9]+$/ })
  }
})

t.test('a refusal tells server admins what frees space, as it was read last', async (t) => {
  const { disk, told, watch } = await watched(t, 100 * MB)
  watch.adviseBy(async () => 'delete the old films')
  disk.free = 1
  watch.check()
  await until('there is advice', () => told.some(({ advice }) => advice !== undefined))
  t.match(shortage(watch.space, { roles: ['_admin'] }), {
    reason: /again: delete the old films\. The refused/,
  })
  t.notMatch(shortage(watch.space)?.reason, /films/)
})

t.test('listeners are called when space becomes short, and when there is enough again', async (t) => {
  const { disk, told, lines, watch } = await watched(t, 100 * MB)
  t.same(
    told.map((space) => isShort(space)),
    [false],
  )
  t.match(await watch.health(), [{ name: 'free_space', ok: true, free: 100 * MB, floor: 20 * MB }])
  disk.free = 10 * MB
  await until(() => told.length === 2)
  t.match(await watch.health(), [{ ok: false, reason: /disk is full/ }])
  disk.free = 9 * MB
  await until(() => told.length === 3)
  disk.free = 200 * MB
  await until(() => told.length === 4)
  t.same(
    told.map((space) => isShort(space)),
    [false, true, true, false],
  )
  t.match(lines, [/^the disk is full/, /^the disk has free space again/])
})

t.test('a requested check reports the free space even if it has not changed', async (t) => {
  const { told, watch } = await watched(t, 100 * MB)
  watch.check()
  await until(() => told.length === 2)
  t.match(told[1], { free: 100 * MB })
})

t.test('a disk that does not answer prevents no writes, but counts as a fault', async (t) => {
  const { disk, watch } = await watched(t, 100 * MB)
  disk.fails = true
  watch.check()
  await until(async () => (await watch.health())[0]?.ok === false)
  t.notOk(isShort(watch.space))
  disk.fails = false
  await until(async () => (await watch.health())[0]?.ok === true)
})

t.test(
  'the ballast is made where there is room beyond the floor, and again when it was given up',
  async (t) => {
    const { dataDir, disk, watch } = await watched(t, 27 * MB)
    watch.check()
    await sleep(50)
    t.notOk(await hasReservedSpace(dataDir), 'it must not be what makes the disk short')
    disk.free = 28 * MB
    await until(() => hasReservedSpace(dataDir))
    const { size, blocks } = statSync(join(dataDir, 'ballast'))
    t.equal(size, RESERVED_BYTES)
    t.ok(blocks * 512 >= size, 'it is no hole')
    releaseReservedSpace(dataDir)
    releaseReservedSpace(dataDir)
    t.notOk(await hasReservedSpace(dataDir))
    await until(() => hasReservedSpace(dataDir))
    await watch.close()
  },
)

t.test('a disk that is short from the start still gets a ballast', async (t) => {
  const { dataDir } = await watched(t, 30 * MB, 64 * MB)
  await until(() => hasReservedSpace(dataDir))
})

t.test('a ballast that cannot be created leaves no file', async (t) => {
  await t.rejects(reserveSpace(join(await temporaryFolder(t), 'absent')), { code: 'ENOENT' })
})
