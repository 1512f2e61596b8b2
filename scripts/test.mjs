// Runs a tier of the tests: node scripts/test.mjs quick|full|summary
//
// The quick tier is every test outside test/full/. The full tier is test/full/, and the long forms of some quick tests.
// `summary` adds up the last results of both tiers, in one line.
import { spawn } from 'node:child_process'
import { globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const results = join(root, '.tap', 'tiers')
const TIERS = ['quick', 'full']
/** Files at a time, on two cores: many quick tests wait for a disk, and some tests of the full tier measure times. */
const JOBS = { quick: 3, full: 2 }

/** The slowest files. They start first, so that both cores work until the end. */
const SLOWEST = [
  'test/full/notes/e2e.test.ts',
  'test/full/proxy/nginx.test.ts',
  'test/full/backup/backups.test.ts',
  'test/full/docs/readme.test.ts',
  'test/full/deploy/dockerfile.test.ts',
  'test/full/docs/commands.test.ts',
  'test/full/storage/sqlite-faults.test.ts',
  'test/protocol/pouchdb-conflicts.test.ts',
  'test/protocol/pouchdb-sync.test.ts',
  'test/protocol/pouchdb-attachments.test.ts',
  'test/hosted/tenants.test.ts',
]

/** Tests of the quick tier that the full tier runs again, with more rounds. */
const LONG_FORMS = {
  'test/faults/kill.test.ts': { SETTEE_KILLS: '12' },
  'test/fuzz/fuzz.test.ts': { SETTEE_FUZZ: '100000' },
}

const isFull = (file) => file.startsWith('test/full/')

function filesOf(tier) {
  const sorted = globSync('test/**/*.test.ts', { cwd: root }).sort()
  const files = [...SLOWEST, ...sorted.filter((file) => !SLOWEST.includes(file))]
  return tier === 'quick'
    ? files.filter((file) => !isFull(file))
    : [...Object.keys(LONG_FORMS), ...files.filter(isFull)]
}

function envOf(tier) {
  const env = {
    // Tests that start other processes use settee from dist/, which is built before the tiers.
    SETTEE_TEST_BUILT: 'true',
    // The processes load mostly the same modules. With a compile cache, a test with a server takes a quarter less CPU
    // time.
    NODE_COMPILE_CACHE: join(root, '.tap', 'compile-cache'),
    ...process.env,
  }
  return tier === 'quick' ? env : Object.assign({ SETTEE_FUZZ_SEED: '1' }, ...Object.values(LONG_FORMS), env)
}

/** The counts that tap prints at its end, such as `# { total: 3, pass: 2, fail: 1 }`. */
function countsIn(output) {
  const last = [...output.matchAll(/^# \{ (.+) \}$/gm)].at(-1)?.[1]
  if (last === undefined) return undefined
  const counts = Object.fromEntries(last.split(', ').map((pair) => pair.split(': ')))
  const count = (name) => Number(counts[name] ?? 0)
  return { passed: count('pass'), failed: count('fail'), skipped: count('skip') + count('todo') }
}

/** @returns the exit code */
async function run(tier, args) {
  const result = join(results, `${tier}.json`)
  rmSync(result, { force: true })
  const manifest = createRequire(join(root, 'package.json')).resolve('tap/package.json')
  const tap = join(dirname(manifest), JSON.parse(readFileSync(manifest, 'utf8')).bin.tap)
  const files = filesOf(tier)
  const child = spawn(
    process.execPath,
    [tap, 'run', '--reporter=terse', `--jobs=${JOBS[tier]}`, ...args, ...files],
    {
      cwd: root,
      env: envOf(tier),
      stdio: ['inherit', 'pipe', 'inherit'],
    },
  )
  let tail = ''
  child.stdout.setEncoding('utf8')
  child.stdout.on('data', (text) => {
    process.stdout.write(text)
    tail = (tail + text).slice(-10_000)
  })
  const code = await new Promise((resolve) => child.once('close', (code) => resolve(code ?? 1)))
  const counts = countsIn(tail)
  if (counts === undefined) {
    console.error('settee: the test runner ended without a result.')
    return 1
  }
  mkdirSync(results, { recursive: true })
  writeFileSync(result, JSON.stringify({ ...counts, code }))
  return code === 0 && counts.failed > 0 ? 1 : code
}

/** @returns 0 when every tier ran and passed */
function summarise() {
  const sum = { passed: 0, failed: 0, skipped: 0 }
  let code = 0
  for (const tier of TIERS) {
    try {
      const counts = JSON.parse(readFileSync(join(results, `${tier}.json`), 'utf8'))
      for (const name of Object.keys(sum)) sum[name] += counts[name]
      if (counts.code !== 0) code = 1
    } catch {
      console.error(`settee: the ${tier} tier has no result.`)
      code = 1
    }
  }
  // A tier that ended with an error is a failure, even if all its tests passed.
  if (code !== 0 && sum.failed === 0) sum.failed = 1
  console.log(`${sum.passed} passed, ${sum.failed} failed, ${sum.skipped} skipped`)
  return code
}

const [command, ...args] = process.argv.slice(2)
if (command === 'summary') process.exitCode = summarise()
else if (TIERS.includes(command)) process.exitCode = await run(command, args)
else {
  console.error('usage: node scripts/test.mjs quick|full|summary')
  process.exitCode = 2
}
