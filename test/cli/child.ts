import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))

export interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** The whole standard input; null: the test writes it; undefined: there is none. */
  readonly input?: string | null
}

export interface Ended {
  /** The exit code, or the signal that ended the process. */
  readonly code: number | NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A running process whose output is collected. It is killed at the end of the test if it is still running. */
export interface Child {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
}

/** This environment, without the variables that would change how a child works. */
export function cleanEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^(SETTEE_(?!TEST_)|COUCHDB_|TAP|NODE_OPTIONS)/.test(name),
  )
  return { ...Object.fromEntries(own), ...more }
}

/** The same for npm on another project, without the variables by which npm describes the project of a script. */
export function cleanNpmEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const foreign = /^(npm_(package|lifecycle|command|execpath|config_local_prefix)|INIT_CWD|NODE_ENV)/
  const own = Object.entries(cleanEnv({ npm_config_prefer_offline: 'true' }))
  return { ...Object.fromEntries(own.filter(([name]) => !foreign.test(name))), ...more }
}

// tap passes its own loaders to every child in NODE_OPTIONS, even if the child gets another environment. The tested
// programs run without them, as for a user.
export const WITHOUT_LOADERS = ['env', '-u', 'NODE_OPTIONS'] as const

export function start(t: Test, command: string, args: readonly string[], options: RunOptions = {}): Child {
  const [env, ...unset] = WITHOUT_LOADERS
  const child = spawn(env, [...unset, command, ...args], {
    cwd: options.cwd ?? ROOT,
    env: cleanEnv(options.env),
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  }) as ChildProcessByStdio<Writable | null, Readable, Readable>
  // The process may have ended without reading.
  child.stdin?.on('error', () => undefined)
  if (typeof options.input === 'string') child.stdin?.end(options.input)
  const output = { stdout: '', stderr: '' }
  child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()))
  child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()))
  const ended = once(child, 'close').then(([code, signal]): Ended => ({ code: code ?? signal, ...output }))
  t.teardown(() => {
    child.kill('SIGKILL')
  })
  return { process: child, ended }
}

/** Whether dist/ is up to date, as under `npm test`, which builds it before the tiers. */
export const IS_BUILT = process.env.SETTEE_TEST_BUILT === 'true'

/** Builds dist/ if it is not up to date, for {@link builtSettee}. */
export async function build(t: Test): Promise<void> {
  if (IS_BUILT) return
  const { code, stdout, stderr } = await start(t, process.execPath, ['scripts/build.mjs'], { cwd: ROOT })
    .ended
  if (code !== 0) throw new Error(`${stdout}${stderr}`)
}

/** `settee <args>` from the sources. */
export function settee(t: Test, args: readonly string[], options: RunOptions = {}): Child {
  return start(t, process.execPath, [MAIN, ...args], options)
}

/** `settee <args>` from dist/, as users run it. */
export function builtSettee(t: Test, args: readonly string[], options: RunOptions = {}): Child {
  return start(t, process.execPath, [join(ROOT, 'dist', 'cli', 'main.js'), ...args], options)
}

/** Below the ports that systems give to outgoing connections and to servers that ask for port 0: 32,768 on Linux. */
const FREE_PORTS = { from: 10_000, to: 32_000 }

/** A port that is free, and that no other test gets by chance before the test's server listens on it. */
export async function freePort(): Promise<number> {
  const server = createServer()
  for (;;) {
    const port = randomInt(FREE_PORTS.from, FREE_PORTS.to)
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true))
    })
    server.removeAllListeners('error')
    if (!isFree) continue
    server.close()
    await once(server, 'close')
    return port
  }
}

/** How long a command that should end by itself may take, in ms. */
const END_TIMEOUT_MS = 60_000

/** How a child ended by itself. @throws if it is still running after a minute, with what it has printed */
export async function endOf(child: Child): Promise<Ended> {
  let output = ''
  for (const stream of [child.process.stdout, child.process.stderr])
    stream?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const timeout = new AbortController()
  const tooLate = sleep(END_TIMEOUT_MS, null, { signal: timeout.signal }).then(() => {
    throw new Error(`It is still running after ${END_TIMEOUT_MS / 1000} s, and has printed: ${output}`)
  })
  try {
    return await Promise.race([child.ended, tooLate])
  } finally {
    tooLate.catch(() => undefined)
    timeout.abort()
  }
}

/** Calls `/_up` until it answers 200. Fails if the process ends before that. */
export async function untilUp(child: Child, url: string): Promise<unknown> {
  let ended: Ended | null = null
  void child.ended.then((end) => {
    ended = end
  })
  for (;;) {
    const answer = await fetch(`${url}/_up`).catch(() => null)
    if (answer?.status === 200) return answer.json()
    await answer?.body?.cancel()
    if (ended) throw new Error(`It ended before it was up: ${JSON.stringify(ended)}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}
