import t from 'tap'
import {
  logText,
  MOST_EVENTS,
  type SyncEvent,
  SyncLog,
  withoutCredentials,
} from '../../../examples/notes/src/log.ts'
import type { Shelf } from '../../../examples/notes/src/settings.ts'

function shelf(): Shelf & { readonly kept: Map<string, string> } {
  const kept = new Map<string, string>()
  return {
    kept,
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, value) => kept.set(key, value),
    removeItem: (key) => kept.delete(key),
  }
}

function event(time: number, error: string | null = null): SyncEvent {
  return {
    time,
    mode: 'advanced',
    direction: 'push',
    act: error === null ? 'documents' : 'error',
    docs: 1,
    error,
  }
}

t.test(`the last ${MOST_EVENTS} events are kept, and found again`, async (t) => {
  const kept = shelf()
  const log = new SyncLog(kept, true)
  for (let time = 1; time <= MOST_EVENTS + 3; time++) log.note(event(time))
  log.write()
  const { value } = new SyncLog(kept, true)
  t.equal(value.length, MOST_EVENTS)
  t.equal(value[0]?.time, 4)
  t.equal(value.at(-1)?.time, MOST_EVENTS + 3)
})

t.test('off, nothing is noted, and what was is gone', async (t) => {
  const kept = shelf()
  const log = new SyncLog(kept, true)
  log.note(event(1))
  log.write()
  log.turn(false)
  t.equal(kept.kept.size, 0)
  log.note(event(2))
  log.write()
  t.same(log.value, [])
  t.equal(kept.kept.size, 0)
  kept.kept.set('notes.log', '[{"time":1}]')
  t.same(new SyncLog(kept, false).value, [])
  t.equal(kept.kept.size, 0, 'entries of an earlier page are removed')
})

t.test('a shelf that is full costs no event', async (t) => {
  const log = new SyncLog(
    {
      ...shelf(),
      setItem: () => {
        throw new Error('full')
      },
    },
    true,
  )
  log.note(event(1))
  log.write()
  t.equal(log.value.length, 1)
})

t.test('the file has a line for each event', async (t) => {
  t.equal(
    logText([event(0), event(1000, '401 unauthorized')]),
    'time\tmode\tdirection\tevent\tdocuments\terror\n' +
      '1970-01-01T00:00:00.000Z\tadvanced\tpush\tdocuments\t1\t\n' +
      '1970-01-01T00:00:01.000Z\tadvanced\tpush\terror\t1\t401 unauthorized\n',
  )
})

t.test('credentials are taken out of what others have worded', async (t) => {
  const address = { username: 'anna', password: 'p@ss:/ü' }
  const clean = (text: string) => withoutCredentials(text, address)
  t.equal(clean('GET https://anna:p%40ss@h:1/n failed'), 'GET https://h:1/n failed')
  t.equal(clean('wrong: p@ss:/ü'), 'wrong: ***')
  t.equal(clean(`wrong: ${encodeURIComponent(address.password)}`), 'wrong: ***')
  t.equal(clean(`Basic ${Buffer.from('anna:p@ss:/ü').toString('base64')}`), 'Basic ***')
  t.equal(clean('x'.repeat(10_000)).length, 500, 'a server that says much is cut short')
  t.equal(clean('anna is not let into annals (403)'), '*** is not let into annals (403)')
  t.equal(clean('two\tcolumns\nand a line'), 'two columns and a line')
  t.equal(withoutCredentials('plain', {}), 'plain')
})
