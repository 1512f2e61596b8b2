// Installs the Debian packages that the tests need: node scripts/debian-packages.mjs [nginx] [chromium] ...
//
// Without names it installs all of them. It does nothing if the programs exist, from whatever source. `npm test` runs
// it every time. It installs only with apt-get, as root or through sudo. On other systems it prints the missing
// programs, and fails.
import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** The program that each Debian package provides. */
export const PROGRAMS = {
  nginx: 'nginx',
  caddy: 'caddy',
  chromium: 'chromium',
  curl: 'curl',
  git: 'git',
  gcc: 'cc',
  systemd: 'systemd-analyze',
  postgresql: 'initdb',
}

/** Packages that another package recommends, but that the tests need. */
const WITH = { gcc: ['libc6-dev'] }

/** Servers are in folders that only root's PATH contains. */
const FOLDERS = [...new Set([...(process.env.PATH ?? '').split(':'), '/usr/sbin', '/usr/local/sbin'])].filter(
  Boolean,
)

const POSTGRES = '/usr/lib/postgresql'

/**
 * Where PostgreSQL's own programs are: in the folder PGBIN, if it is set, otherwise in those that Debian's packages have
 * made, the newest version first, since they are in no PATH.
 */
function postgresFolders() {
  if (process.env.PGBIN) return [process.env.PGBIN]
  const versions = existsSync(POSTGRES) ? readdirSync(POSTGRES) : []
  return versions.sort((a, b) => Number(b) - Number(a)).map((version) => join(POSTGRES, version, 'bin'))
}

/** @returns the path of a program; null if there is none of this name */
export function programPath(name) {
  for (const folder of [...postgresFolders(), ...FOLDERS]) {
    const path = join(folder, name)
    try {
      accessSync(path, constants.X_OK)
      return path
    } catch {
      // The next folder may have it.
    }
  }
  return null
}

/** The words before a command that run it as root; null if that is not possible. */
function asRoot() {
  if (process.getuid?.() === 0) return []
  if (programPath('sudo') === null) return null
  // Without a terminal, sudo must not wait for a password.
  return process.stdin.isTTY ? ['sudo'] : ['sudo', '-n']
}

function run(command) {
  const [program, ...args] = command
  return spawnSync(program, args, { stdio: ['inherit', 'inherit', 'inherit'] }).status === 0
}

function install(packages) {
  const root = asRoot()
  if (root === null || programPath('apt-get') === null) return false
  const apt = [...root, 'env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', '-q', '-y']
  const options = ['-o', 'DPkg::Lock::Timeout=300', '-o', 'Acquire::Retries=3']
  const wanted = [...apt, ...options, 'install', '--no-install-recommends', ...withNeeded(packages)]
  // A new machine has no package lists, or old ones.
  return run(wanted) || (run([...apt, ...options, 'update']) && run(wanted))
}

function withNeeded(packages) {
  return packages.flatMap((name) => [name, ...(WITH[name] ?? [])])
}

function missingOf(packages) {
  return packages.filter((name) => programPath(PROGRAMS[name]) === null)
}

function main(names) {
  const unknown = names.find((name) => !Object.hasOwn(PROGRAMS, name))
  if (unknown !== undefined) {
    console.error(`settee: ${unknown} is not one of ${Object.keys(PROGRAMS).join(', ')}.`)
    return 2
  }
  const packages = names.length > 0 ? names : Object.keys(PROGRAMS)
  const missing = missingOf(packages)
  if (missing.length === 0) return 0
  console.error(`settee: tests run ${missing.join(', ')}, which this machine lacks; installing from Debian.`)
  install(missing)
  const left = missingOf(missing)
  if (left.length === 0) return 0
  console.error(
    `settee: the tests need ${left.join(', ')}. On Debian or Ubuntu run, as root:\n` +
      `    apt-get update && apt-get install --no-install-recommends ${withNeeded(left).join(' ')}\n` +
      'On other systems, install these programs so that they are in PATH.',
  )
  return 1
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = main(process.argv.slice(2))
