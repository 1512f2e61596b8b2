/**
 * A whole server is written to, and everything that it does to its files is recorded. Then the power goes: at every
 * point where something was acknowledged, with all that was not synced lost, and there and at other points with some
 * of it kept by chance. Each time the real engine opens what is left, and finds all that was acknowledged.
 *
 * `SETTEE_POWER_LOSS=20` records 20 times as many acts, in records of 200; each has a seed of its own, counted from
 * `SETTEE_POWER_LOSS_SEED` (default 1).
 */
import t, { type Test } from 'tap'
import { startTestServer } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { problemsOf } from './check.ts'
import { ALL_LOST, Disk } from './disk.ts'
import type { Ledger } from './ledger.ts'
import {
  acknowledgements,
  checkComplete,
  cutPower,
  cutsOf,
  figuresOf,
  type Recording,
  recorded,
  withoutSyncs,
} from './replay.ts'
import { layOut, stateFolder } from './states.ts'
import { ADMIN } from './world.ts'

const LONG = Number(process.env.SETTEE_POWER_LOSS ?? 0)
const SEED = Number(process.env.SETTEE_POWER_LOSS_SEED ?? 1)
const ACTS = LONG > 0 ? 200 : 70
const RECORDS = LONG > 0 ? Math.ceil((70 * LONG) / ACTS) : 1
/** Points between acknowledgements, a record. */
const OTHER_POINTS = LONG > 0 ? 400 : 90
t.setTimeout(LONG > 0 ? 24 * 3_600_000 : 900_000)
const SCRIPT = new URL('server-workload.ts', import.meta.url)

const first: { recording?: Recording } = {}

for (let n = 0; n < RECORDS; n++) {
  const seed = SEED + n
  t.test(`everything acknowledged outlasts a power cut at any moment (seed ${seed})`, async (t) => {
    t.setTimeout(LONG > 0 ? 3_600_000 : 900_000)
    const recording = await recorded(t, SCRIPT, `${seed}`, `${ACTS}`)
    await checkComplete(t, recording)
    const folder = await stateFolder(t)
    const cuts = cutsOf(recording, seed, OTHER_POINTS)
    const { problems, states } = await cutPower(recording, cuts, { folder, seed, check: problemsOf })
    t.same(problems.slice(0, 10), [], 'nothing is lost, and nothing half-written')
    t.comment(figuresOf(recording, states))
    first.recording ??= recording
  })
}

t.test('a server starts from what is left', async (t) => {
  const { recording } = first
  if (recording === undefined) throw new Error('there is no record')
  const { recorder, events, ledger } = recording
  const points = [0.35, 0.7, 1].map(
    (share) => ledger.acknowledged[Math.ceil(ledger.acknowledged.length * share) - 1] as number,
  )
  const disk = new Disk(recorder.folder)
  for (const [at, event] of events.entries()) {
    disk.apply(event)
    if (!points.includes(at + 1)) continue
    const folder = await stateFolder(t)
    await layOut(disk.after(ALL_LOST), folder)
    await checkServer(t, folder, ledger, at + 1)
  }
})

async function checkServer(t: Test, dataDir: string, ledger: Ledger, events: number): Promise<void> {
  const server = await startTestServer(t, { dataDir })
  const auth = `${ADMIN.name}:${ADMIN.password}`
  for (const key of ledger.keys('db|')) {
    const { status } = await server.request('GET', `/${key.slice('db|'.length)}`, { auth })
    const allowed: number[] = ledger.allowed(key, events).map((value) => (value === null ? 404 : 200))
    t.ok(allowed.includes(status), `${key} answers ${status}`)
  }
  for (const key of ledger.keys('account|')) {
    if (ledger.allowed(key, events).includes(null)) continue
    const name = key.slice('account|org.couchdb.user:'.length)
    const { status } = await server.request('GET', '/_session', { auth: `${name}:secret` })
    t.equal(status, 200, `${name} logs in`)
  }
  const put = await server.request('PUT', '/notes/after', { auth, body: {} })
  t.equal(put.status, 201, 'a logged-in user can write')
  t.equal((await server.request('POST', '/_settee/check', { auth, body: {} })).status, 202)
  const found = async () => (await server.request('GET', '/_settee/check', { auth })).json
  await until('everything is read', async () => {
    const { running, last } = await found()
    return running === null && last !== null
  })
  t.same((await found()).damaged, [], 'nothing is damaged')
  await server.close()
}

/** Records that say of one kind of sync that it never was: the check must tell every one of them from the true one. */
const MISTAKES: Readonly<Record<string, (path: string) => boolean>> = {
  'synchronous=NORMAL: the log is not synced': (path) => path.endsWith('.sqlite-wal'),
  'the file is not synced after a checkpoint': (path) => path.endsWith('notes.sqlite'),
  'a new database is not synced before it gets its name': (path) => path.endsWith('.unfinished'),
  'the folder of the databases is not synced': (path) => path.endsWith('/databases'),
  'the data folder is not synced': (path) => path.endsWith('/data'),
  'the configuration is not synced': (path) => path.endsWith('/local.ini.tmp'),
}

t.test('the check detects broken records', async (t) => {
  const { recording } = first
  if (recording === undefined) throw new Error('there is no record')
  const folder = await stateFolder(t)
  for (const [mistake, isOmitted] of Object.entries(MISTAKES)) {
    const without = withoutSyncs(recording, isOmitted)
    t.ok(without.events.length < recording.events.length, `${mistake}: there are such syncs`)
    const cuts = new Map(
      [...acknowledgements(without)].map(([point, cut]) => [point, { ...cut, chances: 1 }]),
    )
    const { problems } = await cutPower(without, cuts, { folder, seed: 1, enough: 1, check: problemsOf })
    t.not(problems.length, 0, `${mistake}: ${problems[0]}`)
  }
})
