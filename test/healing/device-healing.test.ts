/** When devices are asked for damaged documents: soon, together, and not all the time. */
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { DeviceHealing } from '../../src/healing/device-healing.ts'
import { until } from '../helpers/until.ts'

function setUp(t: Test, pauseMs: number) {
  const asked: string[] = []
  const healing = new DeviceHealing({ logger: pino({ level: 'silent' }), gatherMs: 20, pauseMs })
  t.teardown(() => healing.close())
  const treatAsRestored = async (name: string) => {
    asked.push(name)
    if (name === 'gone') throw new CouchError('no_database')
  }
  return { asked, healing, start: () => healing.start({ treatAsRestored }) }
}

t.test('damage that is found together is asked for once, also what was found before the start', async (t) => {
  const { asked, healing, start } = setUp(t, 60_000)
  healing.note('notes')
  start()
  for (const name of ['notes', 'gone', 'notes', 'gone']) healing.note(name)
  await until('both were asked for', () => asked.length === 2)
  t.same(asked, ['notes', 'gone'])
})

t.test('damage that is found in the pause is asked for after it', async (t) => {
  const { asked, healing, start } = setUp(t, 200)
  start()
  healing.note('notes')
  await until('it was asked for', () => asked.length === 1)
  const since = performance.now()
  healing.note('notes')
  await until('it was asked for again', () => asked.length === 2)
  t.ok(performance.now() - since > 100, 'after the pause')
})

t.test('nothing is asked after the end', async (t) => {
  const { asked, healing, start } = setUp(t, 1)
  start()
  healing.note('notes')
  await healing.close()
  healing.note('notes')
  await new Promise((resolve) => setTimeout(resolve, 100))
  t.same(asked, [])
})
