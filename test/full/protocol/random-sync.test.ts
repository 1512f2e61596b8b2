/**
 * Random histories of three devices and a server. A failure prints its seed; RANDOM_SYNC_SEED repeats it,
 * RANDOM_SYNC_RUNS and RANDOM_SYNC_STEPS make more and longer runs (RANDOM_SYNC_RUNS=200 takes some minutes).
 */

import { randomInt } from 'node:crypto'
import t, { type Test } from 'tap'
import { startChildServer } from '../../helpers/child-server.ts'
import { startTestServer } from '../../helpers/server.ts'
import { call } from '../../protocol/call.ts'
import { Random } from '../../protocol/random.ts'
import { RandomRun, type RandomRunOptions } from '../../protocol/random-sync.ts'
import { VALIDATION } from '../../protocol/random-sync-edits.ts'

const { RANDOM_SYNC_SEED, RANDOM_SYNC_RUNS, RANDOM_SYNC_STEPS } = process.env
const RUNS = Number(RANDOM_SYNC_RUNS ?? 2)
const STEPS = Number(RANDOM_SYNC_STEPS ?? 120)
/**
 * More revisions than any device lags behind. Otherwise a device can forget, at the end of a batch, that it knew a leaf
 * of the other. (With 3, this happens in one run of twenty, and PouchDB has the same problem.)
 */
const SMALL_REVS_LIMIT = 10
const FIRST_SEED = RANDOM_SYNC_SEED === undefined ? randomInt(2 ** 31) : Number(RANDOM_SYNC_SEED)

type Made = Omit<RandomRunOptions, 'random'>

/** Whether the server runs validate functions, found out by a write. */
async function runsValidation(server: { readonly url: string }): Promise<boolean> {
  await call(server, 'PUT', '/probe')
  await call(server, 'PUT', `/probe/${VALIDATION._id}`, { body: VALIDATION })
  const { status } = await call(server, 'PUT', '/probe/rejected-probe', { body: {} })
  await call(server, 'DELETE', '/probe')
  return status === 403
}

async function inThisProcess(t: Test): Promise<Made> {
  const server = await startTestServer(t)
  const validates = await runsValidation(server)
  if (!validates) t.comment('validate_doc_update is not enforced yet: no edit is rejected in this run')
  return { server: { url: server.url, start: server.start, down: server.stop }, steps: STEPS, validates }
}

async function inAChild(t: Test): Promise<Made> {
  const server = await startChildServer(t)
  const validates = await runsValidation(server)
  return { server: { url: server.url, start: server.start, down: server.kill }, steps: STEPS, validates }
}

function randomTest(name: string, seed: number, make: (t: Test) => Promise<Made>): void {
  t.test(`${name} (RANDOM_SYNC_SEED=${seed})`, async (t) => {
    const run = new RandomRun(t, { ...(await make(t)), random: new Random(seed) })
    try {
      await run.run()
    } finally {
      if (!t.passing()) t.comment(run.log.join('\n'))
    }
  })
}

for (let run = 0; run < RUNS; run++) {
  const seed = FIRST_SEED + run
  randomTest('restarts', seed, inThisProcess)
  if (run % 3 === 0) randomTest('kill -9', seed, inAChild)
  if (run % 3 === 1) {
    randomTest('a small limit of revisions: leaves only', seed, async (t) => ({
      ...(await inThisProcess(t)),
      revsLimit: SMALL_REVS_LIMIT,
      steps: 2 * STEPS,
    }))
  }
}
