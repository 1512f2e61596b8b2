/**
 * A server in a process of its own that is killed again and again. Built, not from the sources: that takes half the
 * time to start, and is what runs at people's homes.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import type { Test } from 'tap'
import { cleanEnv, freePort, IS_BUILT, ROOT, WITHOUT_LOADERS } from '../cli/child.ts'
import { temporaryFolder } from '../helpers/server.ts'

const DIST = pathToFileURL(`${ROOT}/dist/`)

/** As a script, not a module: a database thread takes over the flags, and refuses `--input-type`. */
const SCRIPT = `(async () => {
  const [server, dataDir, port, threadEntry] = process.argv.slice(1)
  // Whoever started it may die without a word; then this ends, too.
  process.stdin.on('end', () => process.exit(1)).resume()
  const { startServer } = await import(server)
  const flags = { port: Number(port), bind: '127.0.0.1', logLevel: 'error' }
  const entry = threadEntry === undefined ? {} : { threadEntry: new URL(threadEntry) }
  await startServer({ dataDir, env: {}, flags, ...entry })
  console.log('listening')
})()`

export interface BuiltServer {
  /** Without a slash at the end; the same after every start. */
  readonly url: string
  readonly dataDir: string
  /** Resolves when it listens; with how many milliseconds that took. */
  start(): Promise<number>
  /** Starts it, and kills it after some milliseconds, wherever it stands then. */
  startAndKill(ms: number): Promise<void>
  /** Sends SIGKILL in this very moment. */
  strike(): void
  /** Resolves when the process is gone. */
  gone(): Promise<void>
}

/**
 * A folder and a port for a server, which is not started yet; it is killed at the end of the test if it runs then.
 * @param options `threadEntry`: what a database thread runs, a module of JavaScript
 */
export async function builtServer(
  t: Test,
  options: { readonly threadEntry?: URL; readonly dataDir?: string } = {},
): Promise<BuiltServer> {
  build()
  const dataDir = options.dataDir ?? (await temporaryFolder(t))
  const port = await freePort()
  const entry = options.threadEntry === undefined ? [] : [options.threadEntry.href]
  let child: ChildProcess | undefined
  const gone = async () => {
    const dying = child
    child = undefined
    if (dying === undefined || dying.exitCode !== null || dying.signalCode !== null) return
    await once(dying, 'exit')
  }
  const strike = () => void child?.kill('SIGKILL')
  t.teardown(async () => {
    strike()
    await gone()
  })
  const spawned = () => {
    child = spawnServer([dataDir, String(port), ...entry])
    return child
  }
  const start = async () => {
    const begun = performance.now()
    await listening(spawned())
    return performance.now() - begun
  }
  const startAndKill = async (ms: number) => {
    const timer = setTimeout(strike, ms)
    await listening(spawned()).catch(() => undefined)
    clearTimeout(timer)
    strike()
    await gone()
  }
  return { url: `http://127.0.0.1:${port}`, dataDir, start, startAndKill, strike, gone }
}

function build(): void {
  if (IS_BUILT) return
  const [env, ...unset] = WITHOUT_LOADERS
  const { status, stdout, stderr } = spawnSync(env, [...unset, process.execPath, 'scripts/build.mjs'], {
    cwd: ROOT,
  })
  if (status !== 0) throw new Error(`${stdout}${stderr}`)
}

function spawnServer(args: readonly string[]): ChildProcess {
  const [env, ...unset] = WITHOUT_LOADERS
  const node = ['--eval', SCRIPT, new URL('server.js', DIST).href, ...args]
  return spawn(env, [...unset, process.execPath, ...node], {
    cwd: ROOT,
    env: cleanEnv(),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
}

/** @throws when the process ends before it listens */
async function listening(child: ChildProcess): Promise<void> {
  const up = once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), 'line')
  const down = once(child, 'exit').then(([code, signal]) => {
    throw new Error(`the server ended before it listened: ${code ?? signal}`)
  })
  down.catch(() => undefined)
  const [line] = (await Promise.race([up, down])) as [string]
  if (line !== 'listening') throw new Error(`the server said: ${line}`)
}
