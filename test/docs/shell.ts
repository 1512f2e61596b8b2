/** A folder in which the commands of a page are run, with a server of its own. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import type { Test } from 'tap'
import {
  builtSettee,
  type Child,
  cleanNpmEnv,
  freePort,
  ROOT,
  untilUp,
  WITHOUT_LOADERS,
} from '../cli/child.ts'

/** Passwords and consent are asked for at a terminal, which a test has not: they are given with every such command. */
const SETTEE = `#!/bin/sh
run() { "$NODE" "$ROOT/dist/cli/main.js" "$@"; }
case "$*" in
  *--stdin*|*--yes*) run "$@" ;;
  passwd*|"account add"*|setup*) printf %s secret | run "$@" --stdin ;;
  restore*|rewind*) run "$@" --yes ;;
  *) run "$@" ;;
esac
`
/** A refusal is a failure, and a feed without an end is watched for some seconds. */
const CURL = `#!/bin/sh
case "$*" in
  *feed=continuous*) /usr/bin/curl --silent --show-error --fail-with-body --max-time 3 "$@"; [ $? = 28 ] ;;
  *--fail*) exec /usr/bin/curl --silent --show-error "$@" ;;
  *) exec /usr/bin/curl --silent --show-error --fail-with-body "$@" ;;
esac
`

/** Each hash of a password with the default of 600,000 rounds takes 0.15 s of CPU time. */
const FEW_ROUNDS = '[chttpd_auth]\niterations = 10\n'

/** Makes the folder of a server that hashes passwords in few rounds. */
async function makeData(folder: string): Promise<string> {
  await mkdir(folder, { mode: 0o700 })
  await writeFile(join(folder, 'local.ini'), FEW_ROUNDS, { mode: 0o600 })
  return folder
}

interface ShellOptions {
  readonly variables?: NodeJS.ProcessEnv
  /** The folder is to hold a clone, whose own programs are run. */
  readonly isClone?: boolean
}

export interface Shell {
  readonly folder: string
  readonly port: number
  /** Runs it by bash, which ends at the first command that fails. */
  run(text: string): Promise<{ readonly code: number | null; readonly output: string }>
  startServer(...args: string[]): Promise<void>
  /** By what a page says. */
  startByCommand(text: string): Promise<void>
  stopServer(): Promise<void>
  /** A second server with the admin `admin`, in the place of one that a page speaks of; its port. */
  startOther(password: string): Promise<number>
}

export async function openShell(t: Test, { variables = {}, isClone = false }: ShellOptions): Promise<Shell> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-docs-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  const bin = join(folder, '.bin')
  const temporary = join(bin, 'tmp')
  await mkdir(temporary, { recursive: true })
  for (const [name, script] of Object.entries(isClone ? { curl: CURL } : { settee: SETTEE, curl: CURL })) {
    await writeFile(join(bin, name), script)
    await chmod(join(bin, name), 0o755)
  }
  const port = await freePort()
  const path = isClone ? [bin] : [bin, join(ROOT, 'node_modules', '.bin')]
  const env = cleanNpmEnv({
    PATH: [...path, process.env.PATH].join(delimiter),
    NODE: process.execPath,
    // Some programs, such as couchbackup, leave temporary files.
    TMPDIR: temporary,
    ROOT,
    SETTEE_PORT: String(port),
    SETTEE_DATA: isClone ? join(folder, 'data') : await makeData(join(folder, 'data')),
    ...variables,
  })
  let server: Child | null = null
  return {
    folder,
    port,
    async run(text) {
      const [unsetting, ...unset] = WITHOUT_LOADERS
      const script = `set -euo pipefail\n${text.replaceAll(/(127\.0\.0\.1|localhost):5984/g, `$1:${port}`)}`
      const child = spawn(unsetting, [...unset, 'bash', '-c', script], { cwd: folder, env })
      t.teardown(() => child.kill('SIGKILL'))
      let output = ''
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (chunk: Buffer) => (output += chunk.toString()))
      }
      child.stdin.end()
      const [code] = (await once(child, 'close')) as [number | null]
      return { code, output }
    },
    async startByCommand(text) {
      // A group of processes, since npm starts others, and a test leaves none behind.
      const [unsetting, ...unset] = WITHOUT_LOADERS
      const options = { cwd: folder, env, detached: true, stdio: 'ignore' } as const
      const group = spawn(unsetting, [...unset, 'bash', '-c', text], options)
      const ended = once(group, 'close').then(([code]) => ({
        code: code as number | null,
        stdout: '',
        stderr: '',
      }))
      t.teardown(async () => {
        if (group.exitCode === null && group.pid !== undefined) process.kill(-group.pid, 'SIGKILL')
        await ended
      })
      await untilUp({ process: group, ended }, `http://127.0.0.1:${port}`)
    },
    async startServer(...args) {
      server = builtSettee(t, ['serve', ...args], { cwd: folder, env })
      await untilUp(server, `http://127.0.0.1:${port}`)
    },
    async startOther(password) {
      const free = await freePort()
      const own = { SETTEE_PORT: String(free), SETTEE_DATA: await makeData(join(folder, 'other')) }
      const admin = { COUCHDB_USER: 'admin', COUCHDB_PASSWORD: password }
      await untilUp(builtSettee(t, ['serve'], { env: { ...own, ...admin } }), `http://127.0.0.1:${free}`)
      return free
    },
    async stopServer() {
      server?.process.kill('SIGTERM')
      await server?.ended
      server = null
    },
  }
}
