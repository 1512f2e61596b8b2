import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../../helpers/server.ts'
import { problemsOf } from './check.ts'
import { ALL_KEPT, ALL_LOST, Disk } from './disk.ts'
import { Ledger } from './ledger.ts'
import { makeRecorder } from './recorder.ts'
import { layOut } from './states.ts'

t.test('try', async (t) => {
  const began = Date.now()
  const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
  const end = await recorder.run(new URL('server-workload.ts', import.meta.url), '1', '60')
  t.equal(end, 'SIGKILL')
  const events = await recorder.events()
  const counts: Record<string, number> = {}
  for (const { kind } of events) counts[kind] = (counts[kind] ?? 0) + 1
  console.error(counts, Date.now() - began)
  const disk = new Disk(recorder.folder)
  for (const event of events) { disk.apply(event) }
  const all = disk.after(ALL_KEPT)
  const found = (await readdir(recorder.folder, { recursive: true })).filter((p) => !p.endsWith('-shm')).sort()
  t.same([...all.keys()].sort(), found)
  for (const [path, bytes] of all) if (bytes !== null) t.ok((await readFile(join(recorder.folder, path))).equals(bytes), path)
  const ledger = new Ledger(events)
  const folder = await temporaryFolder(t)
  const again = new Disk(recorder.folder)
  let opened = 0
  for (const [at, event] of events.entries()) {
    again.apply(event)
    if (!ledger.acknowledged.includes(at + 1)) continue
    await layOut(again.after(ALL_LOST), join(folder, 'state'))
    const problems = await problemsOf(join(folder, 'state'), ledger, at + 1)
    opened += 1
    if (problems.length) { t.fail(`event ${at + 1}: ${problems.slice(0, 5).join('; ')}`); break }
  }
  console.error(opened, ledger.acknowledged.length, Date.now() - began)
})
