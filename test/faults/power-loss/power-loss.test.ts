/**
 * A whole server is written to, and everything that it does to its files is recorded. Then the power goes: at every
 * point where something was acknowledged, with all that was not synced lost, and there and at other points with some
 * of it kept by chance. Each time the real engine opens what is left, and finds all that was acknowledged.
 *
 * `SETTEE_POWER_LOSS=20` records 20 times as many acts, in records of 200; each has a seed of its own, counted from
 * `SETTEE_POWER_LOSS_SEED` (default 1).
 */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { problemsOf } from './check.ts'
import { ALL_KEPT, ALL_LOST, Disk } from './disk.ts'
import { Ledger } from './ledger.ts'
import { randomFrom } from './random.ts'
import { makeRecorder, type RecordedEvent, type Recorder } from './recorder.ts'
import { byChance, layOut, stateFolder } from './states.ts'
import { ADMIN } from './world.ts'

const LONG = Number(process.env.SETTEE_POWER_LOSS ?? 0)
const SEED = Number(process.env.SETTEE_POWER_LOSS_SEED ?? 1)
const ACTS = LONG > 0 ? 200 : 70
const RECORDS = LONG > 0 ? Math.ceil((70 * LONG) / ACTS) : 1
/** Points between acknowledgements, a record. */
const OTHER_POINTS = LONG > 0 ? 400 : 90
t.setTimeout(LONG > 0 ? 24 * 3_600_000 : 280_000)
const SCRIPT = new URL('server-workload.ts', import.meta.url)

interface Recording {
  readonly recorder: Recorder
  readonly events: readonly RecordedEvent[]
  readonly ledger: Ledger
}

async function recorded(t: Test, seed: number): Promise<Recording> {
  const recorder = await makeRecorder(t, join(await temporaryFolder(t), 'data'))
  t.equal(await recorder.run(SCRIPT, `${seed}`, `${ACTS}`), 'SIGKILL', 'the workload came to its end')
  const events = await recorder.events()
  return { recorder, events, ledger: new Ledger(events) }
}

function count(events: readonly RecordedEvent[], ...kinds: readonly RecordedEvent['kind'][]): number {
  return events.filter(({ kind }) => kinds.includes(kind)).length
}

/** Nothing has escaped the recorder: replayed whole, the files are byte for byte what the process has left. */
async function checkComplete(t: Test, { recorder, events }: Recording): Promise<void> {
  const disk = new Disk(recorder.folder)
  for (const event of events) disk.apply(event)
  const replayed = disk.after(ALL_KEPT)
  const left = (await readdir(recorder.folder, { recursive: true })).filter(
    (path) => !path.endsWith('-shm') && !path.endsWith('.sock'),
  )
  t.same([...replayed.keys()].sort(), left.sort(), 'the replay has the names that are there')
  const different: string[] = []
  for (const [path, bytes] of replayed) {
    if (bytes !== null && !bytes.equals(await readFile(join(recorder.folder, path)))) different.push(path)
  }
  t.same(different, [], 'and the same bytes in every file')
}

/** Where the power goes, and what was not synced is kept of by chance; everything is lost where it is not said. */
type Cuts = ReadonlyMap<number, { readonly lost: boolean; readonly chances: number }>

function cutsOf({ events, ledger }: Recording, seed: number): Cuts {
  const random = randomFrom(seed)
  const cuts = new Map<number, { lost: boolean; chances: number }>()
  for (const point of ledger.acknowledged) cuts.set(point, { lost: true, chances: 1 })
  for (let n = 0; n < OTHER_POINTS; n++) {
    const point = 1 + random.below(events.length)
    cuts.set(point, { lost: true, chances: 1, ...cuts.get(point) })
  }
  return cuts
}

/** @returns what was not as acknowledged, and how many states were opened */
async function cutPower(
  { recorder, events, ledger }: Recording,
  cuts: Cuts,
  { folder, seed, enough = Number.POSITIVE_INFINITY }: { folder: string; seed: number; enough?: number },
): Promise<{ problems: string[]; states: number }> {
  const random = randomFrom(seed)
  const disk = new Disk(recorder.folder)
  const problems: string[] = []
  let states = 0
  for (const [at, event] of events.entries()) {
    disk.apply(event)
    const cut = cuts.get(at + 1)
    if (cut === undefined) continue
    const chances = Array.from({ length: cut.chances }, () => byChance(random))
    for (const chance of cut.lost ? [ALL_LOST, ...chances] : chances) {
      await layOut(disk.after(chance), folder, chance === ALL_LOST ? undefined : GARBAGE)
      const found = await problemsOf(folder, ledger, at + 1)
      problems.push(...found.map((problem) => `after event ${at + 1}: ${problem}`))
      states += 1
      if (problems.length >= enough) return { problems, states }
    }
  }
  return { problems, states }
}

/** SQLite's index of a log is memory that is never synced: anything may stand there. */
const GARBAGE = Buffer.alloc(32_768, 0x5a)

const first: { recording?: Recording } = {}

for (let n = 0; n < RECORDS; n++) {
  const seed = SEED + n
  t.test(`everything acknowledged outlasts a power cut at any moment (seed ${seed})`, async (t) => {
    t.setTimeout(LONG > 0 ? 3_600_000 : 250_000)
    const recording = await recorded(t, seed)
    const { events, ledger } = recording
    await checkComplete(t, recording)
    const folder = await stateFolder(t)
    const { problems, states } = await cutPower(recording, cutsOf(recording, seed), { folder, seed })
    t.same(problems.slice(0, 10), [], 'nothing is lost, and nothing half-written')
    const [writes, syncs] = [count(events, 'write', 'truncate'), count(events, 'sync')]
    const names = count(events, 'rename', 'remove', 'makeFolder')
    t.comment(
      `${writes} writes, ${syncs} syncs, ${names} changes of names; ${ledger.acknowledged.length} points`,
    )
    t.comment(`acknowledged; ${states} states of the disk were opened`)
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
  t.equal(put.status, 201, 'and writes')
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

t.test('the check has teeth', async (t) => {
  const { recording } = first
  if (recording === undefined) throw new Error('there is no record')
  const folder = await stateFolder(t)
  for (const [mistake, isOmitted] of Object.entries(MISTAKES)) {
    const events = withoutSyncs(recording.events, isOmitted)
    const ledger = new Ledger(events)
    t.ok(events.length < recording.events.length, `${mistake}: there are such syncs`)
    const points = ledger.acknowledged.map((point) => [point, { lost: true, chances: 1 }] as const)
    const options = { folder, seed: 1, enough: 1 }
    const { problems } = await cutPower({ ...recording, events, ledger }, new Map(points), options)
    t.not(problems.length, 0, `${mistake}: ${problems[0]}`)
  }
})

function withoutSyncs(
  events: readonly RecordedEvent[],
  isOmitted: (path: string) => boolean,
): RecordedEvent[] {
  const paths = new Map<number, string>()
  return events.filter((event) => {
    if (event.kind === 'open') paths.set(event.file, event.path)
    return event.kind !== 'sync' || !isOmitted(paths.get(event.file) ?? '')
  })
}
