/**
 * The power is cut while backups are made and removed, databases are restored in place and under another name, and a
 * file is upgraded from an older schema, all during other writes. Afterwards every backup is complete, acknowledged
 * data is there, a database is the old one or the new one, and replaced files and copies from before an upgrade are
 * kept.
 *
 * `SETTEE_POWER_LOSS=20` cuts at 20 times as many points of 5 times as many rounds; `SETTEE_POWER_LOSS_SEED=n` at
 * others.
 */
import t from 'tap'
import { keepingProblems as check } from '../../faults/power-loss/keeping-check.ts'
import {
  acknowledgements,
  type Cuts,
  checkComplete,
  cutPower,
  cutsOf,
  figuresOf,
  type Recording,
  recorded,
  withoutSyncs,
} from '../../faults/power-loss/replay.ts'
import { stateFolder } from '../../faults/power-loss/states.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const LONG = Number(process.env.SETTEE_POWER_LOSS ?? 0)
const SEED = Number(process.env.SETTEE_POWER_LOSS_SEED ?? 1)
const ROUNDS = LONG > 0 ? 5 : 1
const OTHER_POINTS = 40 * Math.max(1, LONG)
t.setTimeout(LONG > 0 ? 24 * 3_600_000 : 280_000)
const SCRIPT = new URL('../../faults/power-loss/keeping-workload.ts', import.meta.url)

const first: { recording?: Recording } = {}

t.test('copies and restores survive a power cut at any moment', async (t) => {
  t.setTimeout(LONG > 0 ? 24 * 3_600_000 : 250_000)
  const recording = await recorded(t, SCRIPT, `${ROUNDS}`, await temporaryFolder(t))
  await checkComplete(t, recording)
  const folder = await stateFolder(t)
  const cuts = new Map([...cutsOf(recording, SEED, OTHER_POINTS), ...renamings(recording)])
  const { problems, states } = await cutPower(recording, cuts, { folder, seed: SEED, check })
  t.same(problems.slice(0, 10), [], 'nothing is lost, and nothing false is called a copy')
  t.comment(figuresOf(recording, states))
  first.recording = recording
})

/** The points at which a file has just got or lost its name. */
function renamings({ events }: Recording): Cuts {
  const points = events.flatMap(({ kind }, at) => (kind === 'rename' || kind === 'link' ? [at + 1] : []))
  return new Map(points.map((point) => [point, { lost: true, chances: 2 }] as const))
}

/** Records without one kind of sync. The check must distinguish each of them from the true one. */
const MISTAKES: Readonly<Record<string, (path: string) => boolean>> = {
  'the copies of a backup': (path) => /\/backups\/.+\/databases\/[^/]+\.sqlite$/.test(path),
  'the folder of the copies of a backup': (path) => /\/backups\/.+\/databases$/.test(path),
  'the manifest of a backup': (path) => path.endsWith('/manifest.json'),
  'the folder of a backup': (path) => path.endsWith('.unfinished') && path.includes('/backups/'),
  'the folder of backups': (path) => path.endsWith('/backups'),
  'what is to take a database’s place': (path) => /\/databases\/notes\.sqlite\..+\.unfinished$/.test(path),
  'the folder of what was replaced': (path) => path.endsWith('/replaced'),
  'the copy before an upgrade': (path) => path.includes('/before-upgrade/') && path.endsWith('.unfinished'),
  'the folder of copies before an upgrade': (path) => /\/before-upgrade\/databases-\d+$/.test(path),
}

t.test('the check detects broken records', async (t) => {
  const { recording } = first
  if (recording === undefined) throw new Error('there is no record')
  const folder = await stateFolder(t)
  for (const [what, isOmitted] of Object.entries(MISTAKES)) {
    const without = withoutSyncs(recording, isOmitted)
    t.ok(without.events.length < recording.events.length, `${what}: is synced`)
    const { problems } = await cutPower(without, acknowledgements(without), {
      folder,
      seed: SEED,
      enough: 1,
      check,
    })
    t.not(problems.length, 0, `never synced, ${what}: ${problems[0]}`)
  }
})
