import t from 'tap'
import type { Clock } from '../../src/changes/source.ts'
import type { RecordWrite } from '../../src/storage/records.ts'
import { RecordQueue } from '../../src/threads/record-queue.ts'

const record = (key: string): RecordWrite => ({ kind: 'size', key, value: key === 'gone' ? null : '1' })

/** A queue, whose delay is over when the test says so. */
function startQueue() {
  const calls: (() => void)[] = []
  const clock: Clock = {
    now: () => 0,
    after(_, call) {
      calls.push(call)
      return () => calls.splice(calls.indexOf(call), 1)
    },
  }
  const written: RecordWrite[][] = []
  const faults: unknown[] = []
  const state = { isFailing: false }
  const queue = new RecordQueue({
    clock,
    delay: 1000,
    recordOf: record,
    writeRecords: async (writes) => {
      if (state.isFailing) throw new Error('The disk is full.')
      written.push([...writes])
    },
    onFault: (fault) => faults.push(fault),
  })
  return { queue, calls, written, faults, state }
}

t.test('records are written together, each once, in bounded writes', async (t) => {
  const { queue, calls, written } = startQueue()
  for (let n = 0; n < 1200; n++) queue.add(`db${n % 600}`)
  t.equal(calls.length, 1)
  await queue.close()
  t.equal(calls.length, 0)
  t.same(
    written.map(({ length }) => length),
    [500, 100],
  )
})

t.test('records that could not be written are tried again', async (t) => {
  const { queue, calls, written, faults, state } = startQueue()
  state.isFailing = true
  queue.add('gone')
  calls.shift()?.()
  while (faults.length === 0) await new Promise(setImmediate)
  state.isFailing = false
  t.equal(calls.length, 1)
  await queue.close()
  t.same(written, [[record('gone')]])
})
