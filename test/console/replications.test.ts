/** The console's replications: rows, words, and new ones. */
import t from 'tap'
import { endpointFault, jobBody, jobFaults, NEW_JOB } from '../../console/src/screens/replication/job-body.ts'
import {
  mergedRows,
  plainAddress,
  type SchedulerDocument,
  type SchedulerJob,
} from '../../console/src/screens/replication/job-rows.ts'
import { helpFor, stateWords } from '../../console/src/screens/replication/job-words.ts'
import { shareOf } from '../../console/src/screens/replication/move-answers.ts'

const job: SchedulerJob = {
  id: 'abc+continuous',
  database: null,
  doc_id: null,
  source: 'http://a/x/',
  target: 'http://b/x/',
  user: 'root',
  info: { docs_written: 3, changes_pending: 0 },
  history: [{ timestamp: '2026-01-01T00:00:00Z', type: 'started' }],
  start_time: '2026-01-01T00:00:00Z',
  pid: '<0.1.0>',
}
const doc: SchedulerDocument = {
  database: '_replicator',
  doc_id: 'away',
  id: 'def',
  source: 'http://a/x/',
  target: 'http://b/x/',
  state: 'crashing',
  info: { error: 'unreachable: http://a/x/ could not be reached (ECONNREFUSED)' },
  error_count: 2,
  last_updated: '2026-01-01T00:00:00Z',
  start_time: null,
}
const crashed = (count: number) =>
  Array.from({ length: count }, () => [
    { timestamp: '2026-01-01T00:00:00Z', type: 'crashed', reason: 'unauthorized: no' },
    { timestamp: '2026-01-01T00:00:00Z', type: 'started' },
  ]).flat()

t.test('jobs and documents in one list, those that need attention first', async (t) => {
  const ofDocument = {
    ...job,
    id: 'def',
    database: '_replicator',
    doc_id: 'away',
    pid: null,
    history: crashed(2),
  }
  const ended = { ...job, id: 'z', pid: null, history: crashed(3) }
  const rows = mergedRows(
    [job, ofDocument, ended],
    [doc, { ...doc, doc_id: 'b', state: 'failed', info: null }],
    [{ type: 'replication', replication_id: job.id, continuous: true }],
  )
  t.match(
    rows.map(({ key, state }) => [key, state]),
    [
      ['_replicator b', 'failed'],
      ['_replicator away', 'crashing'],
      ['z', 'crashing'],
      ['abc+continuous', 'running'],
    ],
  )
  t.match(rows[1], { jobId: 'def', user: 'root', failures: 2, history: [{ type: 'crashed' }] })
  t.match(rows[2], { failures: 3, info: { error: 'unauthorized: no' } })
  t.match(stateWords(rows[3]!), { tone: 'good', text: 'Up to date' })
  t.match(stateWords(rows[1]!), { tone: 'warn', text: /2 times/ })
  t.match(helpFor(rows[1]!.info!.error!), /no server listens/)
  t.match(helpFor('unauthorized: Name or password is incorrect.'), /password is wrong/)
  t.equal(helpFor('something else'), null)
  t.equal(plainAddress('http://127.0.0.1:5984/a%2Fb/', '5984'), 'a/b')
  t.equal(plainAddress('http://127.0.0.1:5984/a/', '5985'), 'http://127.0.0.1:5984/a')
  t.equal(plainAddress('http://127.0.0.1:5984/%zz/', '5984'), '%zz')
  t.equal(plainAddress('http://127.0.0.1:5985/a%2Fb/', '5985'), 'a/b')
})

t.test('a new replication', async (t) => {
  t.same(Object.keys(jobFaults(NEW_JOB)), ['source', 'target'])
  const remote = { ...NEW_JOB.source, address: 'https://u:p%40ss@example.com/notes' }
  for (const address of ['', 'example.com/notes', 'ftp://x/y', 'https://', 'https://example.com/'])
    t.type(endpointFault({ ...remote, address }), 'string', address)
  const here = { ...NEW_JOB.target, database: 'notes' }
  const input = { ...NEW_JOB, source: remote, target: here, isContinuous: true, id: ' mine ' }
  t.same(jobFaults(input), {})
  t.same(jobBody(input), {
    _id: 'mine',
    source: { url: 'https://example.com/notes', auth: { basic: { username: 'u', password: 'p@ss' } } },
    target: 'notes',
    create_target: true,
    continuous: true,
  })
  t.same(Object.keys(jobFaults({ ...input, source: here })), ['target'])
  t.same(Object.keys(jobFaults({ ...input, only: 'ids' })), ['ids'])
  t.same(Object.keys(jobFaults({ ...input, only: 'selector', selector: '[' })), ['selector'])
  t.same(Object.keys(jobFaults({ ...input, only: 'function', filter: 'x' })), ['filter'])
  t.match(jobBody({ ...input, only: 'ids', ids: 'a\n\nb \na' }), { doc_ids: ['a', 'b'] })
})

t.test('the share of a move that is done', async (t) => {
  const progress = {
    database: 'a',
    databases_done: 1,
    databases_total: 2,
    phase: 'copying',
    documents: 50,
    total: 100,
  } as const
  t.equal(shareOf({ state: 'moving', progress }), 0.675)
  t.equal(shareOf({ state: 'moving', progress: { ...progress, total: null } }), 0.5)
  t.equal(shareOf({ state: 'done', progress: null }), 1)
})
