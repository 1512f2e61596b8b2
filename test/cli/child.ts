import { type ChildProcess, type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import type { Readable, Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import type { Test } from 'tap'

export const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const MAIN = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url))

export interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** All that it reads on its standard input; null: what the test writes; without it there is none. */
  readonly input?: string | null
}

export interface Ended {
  /** Exit code, or the signal that ended it. */
  readonly code: number | NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A running process whose output is collected; it is killed at the end of the test if it still runs. */
export interface Child {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
}

/** The environment of a child: this one without what would change its ways. */
export function cleanEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^(SETTEE_(?!TEST_)|COUCHDB_|TAP|NODE_OPTIONS)/.test(name),
  )
  return { ...Object.fromEntries(own), ...more }
}

/** The same where npm is run on another project: npm hands its scripts a description of the one that they belong to. */
export function cleanNpmEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const foreign = /^(npm_(package|lifecycle|command|execpath|config_local_prefix)|INIT_CWD|NODE_ENV)/
  const own = Object.entries(cleanEnv({ npm_config_prefer_offline: 'true' }))
  return { ...Object.fromEntries(own.filter(([name]) => !foreign.test(name))), ...more }
}

// tap passes its own loaders to every child through NODE_OPTIONS, whatever environment the child is given. What is
// tested runs without them, as it does for a user.
export const WITHOUT_LOADERS = ['env', '-u', 'NODE_OPTIONS'] as const

export function start(t: Test, command: string, args: readonly string[], options: RunOptions = {}): Child {
  const [env, ...unset] = WITHOUT_LOADERS
  const child = spawn(env, [...unset, command, ...args], {
    cwd: options.cwd ?? ROOT,
    env: cleanEnv(options.env),
    stdio: [options.input === undefined ? 'ignore' : 'pipe', 'pipe', 'pipe'],
  }) as ChildProcessByStdio<Writable | null, Readable, Readable>
  // It may have ended without reading.
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

/** Builds dist/ if it is not up to date, for {@link builtSettee}. */
export async function build(t: Test): Promise<void> {
  const { code, stdout, stderr } = await start(t, process.execPath, ['scripts/build.mjs'], { cwd: ROOT })
    .ended
  if (code !== 0) throw new Error(`${stdout}${stderr}`)
}

/** `settee <args>` from the sources. */
export function settee(t: Test, args: readonly string[], options: RunOptions = {}): Child {
  return start(t, process.execPath, [MAIN, ...args], options)
}

/** `settee <args>` as users run it: built. */
export function builtSettee(t: Test, args: readonly string[], options: RunOptions = {}): Child {
  return start(t, process.execPath, [join(ROOT, 'dist', 'cli', 'main.js'), ...args], options)
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

/** Asks `/_up` until it answers 200; fails when the process ends before. */
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
