/**
 * scripts/debian-packages.mjs: it covers every program that tests run, and prints a command if it can install nothing.
 */
import { spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { PROGRAMS, programPath } from '../../../scripts/debian-packages.mjs'
import { ROOT } from '../../cli/child.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const SCRIPT = join(ROOT, 'scripts', 'debian-packages.mjs')
/** Programs that every Debian has, or that come with Node or with initdb. */
const THERE = new Set([
  'mkfifo',
  'sh',
  'bash',
  'env',
  'mktemp',
  'mount',
  'umount',
  'unshare',
  'setpriv',
  'script',
  'npm',
  'postgres',
  'pg_basebackup',
])

function run(env: NodeJS.ProcessEnv, ...names: string[]) {
  return spawnSync(process.execPath, [SCRIPT, ...names], { env, encoding: 'utf8' })
}

/** @returns the programs that the tests start by their names */
function programs(): Set<string> {
  const folder = join(ROOT, 'test')
  const paths = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  const calls =
    /\b(?:spawn|spawnSync|execFile|execFileSync|programOf)\(\s*(?:process\.env\.CC \?\? )?'([\w.-]+)'/g
  const found = paths
    .filter((path) => /\.m?ts$/.test(path))
    .flatMap((path) => [...readFileSync(join(folder, path), 'utf8').matchAll(calls)].map(([, name]) => name!))
  return new Set(found)
}

t.test('the script knows every program that tests start', async (t) => {
  const known = Object.values(PROGRAMS)
  for (const name of programs()) t.ok(THERE.has(name) || known.includes(name), name)
  t.match(run({}, 'none-of-them'), { status: 2, stderr: /none-of-them is not one of nginx, caddy, chromium/ })
})

t.test('if the programs exist, it takes no time and prints nothing', async (t) => {
  t.match(run(process.env), { status: 0, stdout: '', stderr: '' })
  t.ok(programPath('curl'))
  t.equal(programPath('no-such-program'), null)
})

t.test('if it can install nothing, it prints the command to run', async (t) => {
  const { status, stderr } = run({ PATH: await temporaryFolder(t) }, 'curl', 'gcc')
  t.equal(status, 1)
  t.match(stderr, /apt-get install --no-install-recommends curl gcc libc6-dev\n/)
})
