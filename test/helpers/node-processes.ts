/** Nodes of settee, each `settee serve` in a process of its own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { cleanEnv, freePort, IS_BUILT, ROOT, WITHOUT_LOADERS } from '../cli/child.ts'
import { temporaryFolder } from './server.ts'

export interface NodeOptions {
  /** Arguments after `settee serve`. */
  readonly args?: readonly string[]
  /** Lines of the node's local.ini. */
  readonly ini?: string
  readonly env?: NodeJS.ProcessEnv
  /** The main file of another version of settee. */
  readonly main?: string
}

export interface NodeProcess {
  /** Without a slash at the end; the same after every start. */
  readonly url: string
  readonly dataDir: string
  pid(): number
  /**
   * Resolves when `/_up` answers 200.
   * @param main of this version; by default as before
   * @throws Error with what it has printed if it ends before that
   */
  start(main?: string): Promise<void>
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>
  /** SIGTERM; resolves with the exit code, or with the signal that ended it. */
  stop(): Promise<number | NodeJS.Signals>
  /** SIGSTOP, and the end of it. */
  freeze(): void
  thaw(): void
  /** What it has printed and logged since its first start. */
  log(): Promise<string>
}

/** The main file of this version. */
export const MAIN: string = join(ROOT, IS_BUILT ? 'dist/cli/main.js' : 'src/cli/main.ts')
const ENDS_WITH_PARENT = new URL('./ends-with-parent.mjs', import.meta.url).href

/** Starts a node. It ends with the test, or with the test's process. */
export async function startNode(
  t: Pick<Test, 'teardown'>,
  { args = [], ini, env = {}, main = MAIN }: NodeOptions = {},
): Promise<NodeProcess> {
  const folder = await temporaryFolder(t)
  const [dataDir, logFile] = [join(folder, 'data'), join(folder, 'settee.log')]
  await mkdir(dataDir, { mode: 0o700 })
  if (ini !== undefined) await appendFile(join(dataDir, 'local.ini'), ini, { mode: 0o600 })
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  let child: ChildProcess | undefined
  let exited: Promise<number | NodeJS.Signals> = Promise.resolve(0)
  let printed = ''
  let version = main
  const command = () => [
    ...WITHOUT_LOADERS.slice(1),
    ...[process.execPath, '--import', ENDS_WITH_PARENT, version, 'serve'],
    ...['--data', dataDir, '--port', String(port), '--log-file', logFile, ...args],
  ]
  const signal = (name: NodeJS.Signals) => {
    child?.kill(name)
    return exited
  }
  const start = async (main = version) => {
    version = main
    const started = spawn('env', command(), {
      cwd: ROOT,
      env: cleanEnv({ SETTEE_BIND: '127.0.0.1', SETTEE_LOG_LEVEL: 'info', ...env }),
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    child = started
    exited = once(started, 'close').then(([code, name]) => code ?? name)
    for (const stream of [started.stdout, started.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        printed += chunk
      })
    }
    for (;;) {
      const answer = await fetch(`${url}/_up`).catch(() => null)
      await answer?.body?.cancel()
      if (answer?.status === 200) return
      if (started.exitCode !== null || started.signalCode !== null) {
        throw new Error(`The node ended before it was up: ${printed.slice(-2000)}`)
      }
      await sleep(20)
    }
  }
  t.teardown(async () => {
    child?.kill('SIGCONT')
    await signal('SIGKILL')
  })
  await start()
  return {
    url,
    dataDir,
    pid: () => child?.pid ?? Number.NaN,
    start,
    kill: async () => {
      await signal('SIGKILL')
    },
    stop: () => signal('SIGTERM'),
    freeze: () => void child?.kill('SIGSTOP'),
    thaw: () => void child?.kill('SIGCONT'),
    log: async () => printed + (await readFile(logFile, 'utf8').catch(() => '')),
  }
}

/** Starts nodes at the same time. */
export function startNodes(
  t: Pick<Test, 'teardown'>,
  count: number,
  options: NodeOptions,
): Promise<NodeProcess[]> {
  return Promise.all(Array.from({ length: count }, () => startNode(t, options)))
}
