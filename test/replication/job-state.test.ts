/** The life of a job, without a network: each row of the table in docs/replication.md. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import {
  crashDelay,
  type JobEvent,
  type JobState,
  nextState,
  schedule,
  TRANSITIONS,
} from '../../src/replication/jobs/job-state.ts'

const EVENTS: readonly JobEvent[] = ['start', 'stop', 'crash', 'wake', 'finish', 'fail', 'cancel']

t.test('the table of docs/replication.md has every transition', async (t) => {
  const page = await readFile(new URL('../../docs/replication.md', import.meta.url), 'utf8')
  const rows = [...page.matchAll(/^\| `(\w+)` \| `(\w+)` \| `(\w+)` \|/gm)].map(([, from, event, to]) => [
    from,
    event,
    to,
  ])
  const expected = Object.entries(TRANSITIONS).flatMap(([from, events]) =>
    Object.entries(events).map(([event, to]) => [from, event, to]),
  )
  t.strictSame(rows.sort(), expected.sort())
})

t.test('events that a state does not name leave it as it is', async (t) => {
  for (const state of Object.keys(TRANSITIONS) as JobState[]) {
    for (const event of EVENTS) t.equal(nextState(state, event), TRANSITIONS[state][event] ?? state)
  }
  for (const over of ['completed', 'failed', 'cancelled'] as const) {
    for (const event of EVENTS) t.equal(nextState(over, event), over)
  }
})

t.test('waits grow to five minutes, and differ', async (t) => {
  t.equal(crashDelay(1, 0), 500)
  t.equal(crashDelay(1, 1), 1000)
  t.equal(crashDelay(4, 1), 8000)
  t.equal(crashDelay(1000, 1), 300_000)
})

t.test('jobs take turns', async (t) => {
  const job = (name: string, state: JobState, since: number) => ({ name, state, since })
  const jobs = [
    job('a', 'running', 1),
    job('b', 'running', 2),
    job('c', 'pending', 3),
    job('d', 'crashing', 0),
  ]
  const names = ({ start, stop }: ReturnType<typeof schedule<(typeof jobs)[number]>>) => [
    start.map(({ name }) => name),
    stop.map(({ name }) => name),
  ]
  t.strictSame(names(schedule(jobs, { maxJobs: 3, maxChurn: 5 }, false)), [['c'], []])
  t.strictSame(names(schedule(jobs, { maxJobs: 2, maxChurn: 5 }, false)), [[], []])
  t.strictSame(names(schedule(jobs, { maxJobs: 2, maxChurn: 5 }, true)), [['c'], ['a']])
  t.strictSame(names(schedule([...jobs, job('e', 'pending', 1)], { maxJobs: 2, maxChurn: 1 }, true)), [
    ['e'],
    ['a'],
  ])
})
