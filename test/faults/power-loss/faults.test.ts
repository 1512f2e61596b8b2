import { join } from 'node:path'
import t from 'tap'
import { temporaryFolder } from '../../helpers/server.ts'
import { Ledger } from './ledger.ts'
import { makeRecorder } from './recorder.ts'
const script = new URL('fault-workload.ts', import.meta.url)
for (const task of (process.env.TASKS ?? 'groups,catalogActs,configuration').split(',')) t.test(task, async (t) => {
  const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
  const began = Date.now()
  const end = await recorder.run(script, task)
  const events = await recorder.events()
  const ledger = new Ledger(events)
  console.error(task, end, events.length, ledger.counts, ledger.problems.length, ledger.problems.slice(0, 12), Date.now() - began)
})
