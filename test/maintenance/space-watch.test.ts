import { statSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { defaultFloor, isShort, type Space, shortage } from '../../src/core/types.ts'
import { SpaceWatch } from '../../src/metrics/space-watch.ts'
import { BALLAST_BYTES, giveUpBallast, hasBallast, makeBallast } from '../../src/storage/free-space.ts'
import { temporaryFolder } from '../helpers/server.ts'

const MB = 1024 * 1024

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await sleep(5)
}

/** A watch over a disk whose free bytes the test says. */
async function watched(t: Test, free: number, floor: number | null = 20 * MB) {
  const dataDir = await temporaryFolder(t)
  const disk = { free, total: 1000 * MB, fails: false }
  const told: Space[] = []
  const lines: string[] = []
  const line = (_facts: object, text: string) => lines.push(text)
  const watch = await SpaceWatch.start({
    dataDir,
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

t.test('the floor where none is configured', async (t) => {
  t.equal(defaultFloor(100 * MB), 64 * MB)
  t.equal(defaultFloor(1_000_000 * MB), 20_000 * MB)
  const { watch } = await watched(t, 100 * MB, null)
  t.equal(watch.space.floor, 64 * MB)
})

t.test('what is refused tells a server admin how much there is and must be, and nobody else', async (t) => {
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

t.test('who must know is told when it becomes short, and when there is room again', async (t) => {
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

t.test('whoever has met the end of the disk is told what there is, changed or not', async (t) => {
  const { told, watch } = await watched(t, 100 * MB)
  watch.look()
  await until(() => told.length === 2)
  t.match(told[1], { free: 100 * MB })
})

t.test('a disk that does not answer keeps nobody from writing, and is no good sign', async (t) => {
  const { disk, watch } = await watched(t, 100 * MB)
  disk.fails = true
  watch.look()
  await until(async () => (await watch.health())[0]?.ok === false)
  t.notOk(isShort(watch.space))
  disk.fails = false
  await until(async () => (await watch.health())[0]?.ok === true)
})

t.test(
  'the ballast is made where there is room beyond the floor, and again when it was given up',
  async (t) => {
    const { dataDir, disk, watch } = await watched(t, 27 * MB)
    watch.look()
    await sleep(50)
    t.notOk(await hasBallast(dataDir), 'it must not be what makes the disk short')
    disk.free = 28 * MB
    await until(() => hasBallast(dataDir))
    const { size, blocks } = statSync(join(dataDir, 'ballast'))
    t.equal(size, BALLAST_BYTES)
    t.ok(blocks * 512 >= size, 'it is no hole')
    giveUpBallast(dataDir)
    giveUpBallast(dataDir)
    t.notOk(await hasBallast(dataDir))
    await until(() => hasBallast(dataDir))
    await watch.close()
  },
)

t.test('where the disk is short from the start, some room is kept all the same', async (t) => {
  const { dataDir } = await watched(t, 30 * MB, 64 * MB)
  await until(() => hasBallast(dataDir))
})

t.test('a ballast that cannot be made leaves nothing', async (t) => {
  await t.rejects(makeBallast(join(await temporaryFolder(t), 'absent')), { code: 'ENOENT' })
})
