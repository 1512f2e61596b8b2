/**
 * Each file system call fails in turn. Acknowledged data must be there, also after a power cut, and refused data must
 * not. The calls fail in a separate process (fault-workload.ts). The replay shows the content of its disk, on which a
 * failed sync has stored nothing, and no later sync makes up for it.
 */
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ALL_LOST, Disk } from '../../faults/power-loss/disk.ts'
import { Ledger } from '../../faults/power-loss/ledger.ts'
import { makeRecorder, type Recorder } from '../../faults/power-loss/recorder.ts'
import { layOut, stateFolder } from '../../faults/power-loss/states.ts'
import { untold } from '../../faults/power-loss/told.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const SCRIPT = new URL('../../faults/power-loss/fault-workload.ts', import.meta.url)

/** How many points of a record are replayed, evenly spread, in addition to the last one. */
const POINTS = Number(process.env.SETTEE_POWER_LOSS_POINTS ?? 60)
t.setTimeout(280_000)

/** Replays a record, and opens the disk's content at some of the points where a write was acknowledged. */
async function replay(t: Test, recorder: Recorder): Promise<void> {
  const events = await recorder.events()
  const ledger = new Ledger(events)
  t.same(ledger.problems, [], 'no acknowledgement was wrong, and the store continued')
  for (const { counted, number } of ledger.counts) t.comment(`${counted}: ${number} calls failed in turn`)
  const step = Math.max(1, Math.floor(ledger.acknowledged.length / POINTS))
  const chosen = ledger.acknowledged.filter((_, at, { length }) => (length - 1 - at) % step === 0)
  const points = new Set(chosen)
  const disk = new Disk(recorder.folder)
  const folder = await stateFolder(t)
  const problems: string[] = []
  for (const [at, event] of events.entries()) {
    disk.apply(event)
    if (!points.has(at + 1)) continue
    await layOut(disk.after(ALL_LOST), folder)
    problems.push(...(await untold(folder, ledger, at + 1)).map((problem) => `event ${at + 1}: ${problem}`))
  }
  t.same(
    problems.slice(0, 10),
    [],
    `${points.size} of ${ledger.acknowledged.length} points survive a power cut`,
  )
}

const TASKS = {
  groups: 'faults at every write and sync of a group of commits',
  catalogActs: 'faults at every call of making and deleting a database',
  configuration: 'faults at every call of a change of the configuration',
}

for (const [task, name] of Object.entries(TASKS)) {
  t.test(name, async (t) => {
    t.setTimeout(250_000)
    const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
    t.equal(await recorder.run(SCRIPT, task), 0)
    await replay(t, recorder)
  })
}

t.test('faults at every call of replacing a database by a copy', async (t) => {
  t.setTimeout(250_000)
  const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
  t.equal(
    await recorder.run(
      new URL('../../faults/power-loss/replacing-faults.ts', import.meta.url),
      await temporaryFolder(t),
    ),
    0,
  )
  await replay(t, recorder)
})

t.test('syncs that fail until the process dies, and the process after that one', async (t) => {
  const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
  t.equal(await recorder.run(SCRIPT, 'dying'), 'SIGKILL')
  const events = await recorder.events()
  const ledger = new Ledger(events)
  const told = ledger.keys('stored|').map((key) => {
    const [marks] = ledger.allowed(key, events.length)
    return [key.slice('stored|'.length), JSON.parse(marks ?? '[]') as string[]] as const
  })
  t.ok(
    told.some(([, marks]) => marks.length > 0),
    'some writes came before the faults',
  )
  t.equal(await recorder.run(SCRIPT, 'restarted', JSON.stringify(Object.fromEntries(told))), 'SIGKILL')
  await replay(t, recorder)
})
