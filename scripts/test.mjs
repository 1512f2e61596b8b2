// Runs a tier of the tests: node scripts/test.mjs quick|full|summary
//
// The quick tier is every test outside test/full/. The full tier is test/full/, and the long forms of some quick tests.
// `summary` adds up the last results of both tiers, in one line.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const results = join(root, '.tap', 'tiers')
const TIERS = ['quick', 'full']
/** Processes at a time, on two cores, beside those for WAITING: many tests wait for a disk, and some measure times. */
const JOBS = 2
/** Files of WAITING at a time. When the first is done, one process more takes others. Three at a time made clocks of tests fail. */
const WAITING_JOBS = 2
/**
 * They wait most of their time, for clocks or for a browser, so they run beside the others: each uses less than 0.45 s of CPU
 * time a second. Files, and folders with a slash at the end. The long ones start first, and before them those that use least,
 * since the long forms start at the same time.
 */
const WAITING = [
  'test/full/replication/many-jobs.test.ts',
  'test/full/proxy/nginx.test.ts',
  'test/full/nodes/protocol.test.ts',
  'test/full/replication/failures.test.ts',
  'test/full/storage/postgres-upgrade.test.ts',
  'test/full/faults/hostile-remotes.test.ts',
  'test/full/nodes/claims.test.ts',
  'test/full/nodes/surface.test.ts',
  'test/full/faults/went-back.test.ts',
  'test/full/move/move-kill.test.ts',
  'test/full/faults/restore-paths.test.ts',
  'test/full/server/store-faults.test.ts',
  'test/full/surface/http2.test.ts',
  'test/full/hosted/rates.test.ts',
  'test/full/standby/safety.test.ts',
  'test/full/faults/upgrade.test.ts',
  'test/full/move/store.test.ts',
  'test/full/storage/postgres-failover.test.ts',
  'test/full/console/',
  'test/full/doctor/',
  'test/full/move/repeated.test.ts',
  'test/full/proxy/advice.test.ts',
  'test/full/sandbox/watch.test.ts',
]
/** They measure how long others' requests take, so nothing runs beside them. */
const ALONE = ['test/full/faults/one-caller.test.ts']
/** Seconds after which a file's test fails, unless it sets a time itself. */
const TIMEOUT = '900'
/** A file that still runs after its tests have failed is killed. */
const KILL_MS = 1_200_000

/** The slowest files of the others. They start first, so that both cores work until the end. */
const SLOWEST = [
  'test/full/nodes/kills.test.ts',
  'test/full/notes/e2e.test.ts',
  'test/full/storage/postgres-two-openers.test.ts',
  'test/full/http/stored-pages.test.ts',
  'test/full/nodes/linearizability.test.ts',
  'test/full/query/index-kills.test.ts',
  'test/full/backup/backups.test.ts',
  'test/full/docs/readme.test.ts',
  'test/full/deploy/dockerfile.test.ts',
  'test/full/docs/commands.test.ts',
  'test/full/storage/sqlite-faults.test.ts',
  'test/storage/postgres.test.ts',
  'test/storage/sqlite.test.ts',
  'test/faults/power-loss/power-loss.test.ts',
  'test/protocol/pouchdb-conflicts.test.ts',
  'test/protocol/pouchdb-sync.test.ts',
  'test/protocol/pouchdb-attachments.test.ts',
  'test/hosted/tenants.test.ts',
]

/**
 * Folders whose files share processes, {@link TOGETHER} files each: loading and compiling the same modules again took up to
 * half of their CPU time.
 */
const SHARING = [
  'test/http/',
  'test/documents/',
  'test/threads/',
  'test/query/',
  'test/auth/',
  'test/config/',
  'test/console/',
  'test/core/',
  'test/examples/notes/',
  'test/metrics/',
  'test/replication/',
  'test/standby/',
  'test/storage/sqlite/',
]
const TOGETHER = 8
/** Of these folders: they are long, or look at what a whole process does. */
const NOT_SHARING = [
  'test/http/connections.test.ts',
  'test/http/floods.test.ts',
  'test/http/hostile.test.ts',
  'test/http/http2.test.ts',
  'test/http/matrix.test.ts',
  'test/http/metrics.test.ts',
  'test/http/nodes-feeds.test.ts',
  'test/http/nodes.test.ts',
  'test/http/revocation.test.ts',
  'test/http/tls.test.ts',
  'test/storage/sqlite/damage.test.ts',
  'test/storage/sqlite/damaged-leaves.test.ts',
  'test/storage/sqlite/server-damage.test.ts',
]

/** Tests of the quick tier that the full tier runs again, with more rounds. */
const LONG_FORMS = {
  'test/faults/kill.test.ts': { SETTEE_KILLS: '12' },
  'test/faults/whole-folder.test.ts': { SETTEE_FOLDER_ROUNDS: '300' },
  'test/fuzz/fuzz.test.ts': { SETTEE_FUZZ: '100000' },
}

/** How many of the files that take the most CPU time are named at the end. */
const NAMED = 5

/** A module that is loaded before a file. */
const TEST_PROCESS = join(root, 'scripts', 'test-process.mjs')
/** What runs several files. */
const TEST_FILES = join(root, 'scripts', 'test-files.mjs')

/** @returns those of WAITING, in its order */
const waitingOf = (files) =>
  WAITING.flatMap((path) =>
    files.filter((file) => (path.endsWith('/') ? file.startsWith(path) : file === path)),
  )
const isFull = (file) => file.startsWith('test/full/')

function filesOf(tier) {
  const sorted = globSync('test/**/*.test.ts', { cwd: root }).sort()
  const files = [...SLOWEST, ...sorted.filter((file) => !SLOWEST.includes(file))]
  return tier === 'quick'
    ? files.filter((file) => !isFull(file))
    : [...Object.keys(LONG_FORMS), ...files.filter(isFull)]
}

/** @returns the files that run in one process each time; those of folders that share one are the first */
function processesOf(files) {
  const folderOf = (file) =>
    NOT_SHARING.includes(file) ? undefined : SHARING.find((folder) => `${dirname(file)}/` === folder)
  const alone = files.filter((file) => folderOf(file) === undefined).map((file) => [file])
  const shared = SHARING.flatMap((folder) => {
    const own = files.filter((file) => folderOf(file) === folder)
    return Array.from({ length: Math.ceil(own.length / TOGETHER) }, (_, at) =>
      own.slice(at * TOGETHER, (at + 1) * TOGETHER),
    )
  })
  return [...shared, ...alone]
}

function envOf(tier) {
  const env = {
    // Tests that start other processes use settee from dist/, which is built before the tiers.
    SETTEE_TEST_BUILT: 'true',
    // The processes load mostly the same modules. With a compile cache, a test with a server takes a quarter less CPU
    // time.
    NODE_COMPILE_CACHE: join(root, '.tap', 'compile-cache'),
    TAP_TIMEOUT: TIMEOUT,
    ...process.env,
  }
  return tier === 'quick' ? env : Object.assign({ SETTEE_FUZZ_SEED: '1' }, ...Object.values(LONG_FORMS), env)
}

/** The counts at the end of a file's output, such as `# { total: 3, pass: 2, fail: 1 }`. */
function countsIn(output) {
  const last = [...output.matchAll(/^# \{ (.+) \}$/gm)].at(-1)?.[1]
  if (last === undefined) return undefined
  const counts = Object.fromEntries(last.split(', ').map((pair) => pair.split(': ')))
  const count = (name) => Number(counts[name] ?? 0)
  return { passed: count('pass'), failed: count('fail'), skipped: count('skip') + count('todo') }
}

/** @returns 0 if the process was killed */
const cpuSecondsIn = (output) => Number(/^# CPU time: ([\d.]+) s$/m.exec(output)?.[1] ?? 0)

/** The failed assertions in a file's TAP output, with their diagnostics. */
function failuresIn(output) {
  const lines = []
  let isFailure = false
  for (const line of output.split('\n')) {
    if (/^\s*(not )?ok \d/.test(line)) isFailure = /^\s*not ok/.test(line) && !/# (TODO|SKIP)/.test(line)
    if (isFailure) lines.push(line)
    if (/^\s*\.\.\.$/.test(line)) isFailure = false
  }
  return lines.length > 0 ? lines : output.split('\n').slice(-50)
}

/** How files that share a process are named. */
const nameOf = ([file, ...others]) => (others.length === 0 ? file : `${file} and ${others.length} beside it`)

/**
 * Runs files without tap's command: that loads its hooks into every process, which took a fifth of the CPU time.
 * @returns their counts, and their CPU time in seconds
 */
async function runFiles(files, env) {
  const started = performance.now()
  const name = nameOf(files)
  const program = files.length === 1 ? files : [TEST_FILES, ...files]
  const child = spawn(process.execPath, ['--import', TEST_PROCESS, ...program], {
    cwd: root,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: KILL_MS,
    killSignal: 'SIGKILL',
  })
  let [output, errors] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text
  })
  child.stderr.setEncoding('utf8').on('data', (text) => {
    errors += text
  })
  const [code, signal] = await once(child, 'close')
  const counts = countsIn(output) ?? { passed: 0, failed: 0, skipped: 0 }
  const cpu = cpuSecondsIn(output)
  const times = `${((performance.now() - started) / 1000).toFixed(1)} s, ${cpu.toFixed(1)} s of CPU`
  if (code === 0 && counts.failed === 0 && countsIn(output) !== undefined) {
    console.log(`ok ${name} (${times})`)
    return { counts, cpu }
  }
  console.log(`FAILED ${name} (${times}, ${signal ?? `exit code ${code}`})`)
  console.log([...failuresIn(output), errors].join('\n'))
  return { counts: { ...counts, failed: Math.max(1, counts.failed) }, cpu }
}

/** @returns the exit code */
async function run(tier) {
  const result = join(results, `${tier}.json`)
  rmSync(result, { force: true })
  const env = envOf(tier)
  const files = filesOf(tier)
  const sum = { passed: 0, failed: 0, skipped: 0 }
  const costs = []
  const worker = async (queue) => {
    for (const files of queue) {
      const { counts, cpu } = await runFiles(files, env)
      costs.push({ name: nameOf(files), cpu })
      for (const name of Object.keys(sum)) sum[name] += counts[name]
    }
  }
  const waitingFiles = waitingOf(files)
  const busy = files.filter((file) => !ALONE.includes(file) && !waitingFiles.includes(file))
  const queue = processesOf(busy).values()
  const waiting = processesOf(waitingFiles).values()
  const beside = Array.from({ length: WAITING_JOBS }, () => worker(waiting))
  const oneMore = Promise.race(beside).then(() => worker(queue))
  await Promise.all([...beside, oneMore, ...Array.from({ length: JOBS }, () => worker(queue))])
  await worker(processesOf(files.filter((file) => ALONE.includes(file))))
  mkdirSync(results, { recursive: true })
  writeFileSync(result, JSON.stringify(sum))
  const most = costs.sort((a, b) => b.cpu - a.cpu).slice(0, NAMED)
  console.log(`most CPU time: ${most.map(({ name, cpu }) => `${name} ${cpu.toFixed(1)} s`).join(', ')}`)
  console.log(`${tier} tier: ${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`)
  return sum.failed === 0 ? 0 : 1
}

/** @returns 0 when every tier ran and passed */
function summarise() {
  const sum = { passed: 0, failed: 0, skipped: 0 }
  for (const tier of TIERS) {
    try {
      const counts = JSON.parse(readFileSync(join(results, `${tier}.json`), 'utf8'))
      for (const name of Object.keys(sum)) sum[name] += counts[name]
    } catch {
      console.error(`settee: the ${tier} tier has no result.`)
      sum.failed += 1
    }
  }
  console.log(`${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`)
  return sum.failed === 0 ? 0 : 1
}

const [command] = process.argv.slice(2)
if (command === 'summary') process.exitCode = summarise()
else if (TIERS.includes(command)) process.exitCode = await run(command)
else {
  console.error('usage: node scripts/test.mjs quick|full|summary')
  process.exitCode = 2
}
