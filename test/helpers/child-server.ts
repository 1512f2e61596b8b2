/** A server in a separate process, which a test can kill with SIGKILL. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { cleanEnv, freePort, ROOT, WITHOUT_LOADERS } from '../cli/child.ts'
import { moduleUrl } from './built.ts'
import { temporaryFolder } from './server.ts'

export interface ChildServer {
  /** Without a slash at the end; the same after every start. */
  readonly url: string
  readonly dataDir: string
  /** The id of the current process. */
  pid(): number
  /** Restarts the server after a kill, on the same folder and port. */
  start(): Promise<void>
  /** Sends SIGKILL; resolves when the process has ended. */
  kill(): Promise<void>
}

/** A script, not a module, because a database thread takes over the flags, and refuses `--input-type`. */
const SCRIPT = `(async () => {
  const [server, threadEntry, sandboxEntry, dataDir, port, logLevel] = process.argv.slice(1)
  // The parent may die without a signal to this process, which then ends as well.
  process.stdin.on('end', () => process.exit(1)).resume()
  const { startServer } = await import(server)
  const flags = { port: Number(port), bind: '127.0.0.1', logLevel }
  await startServer({ dataDir, env: {}, flags, threadEntry: new URL(threadEntry), sandboxEntry: new URL(sandboxEntry) })
  console.log('listening')
})()`

/** A listening server from the sources. It is killed at the end of the test if it is still running. */
export async function startChildServer(
  t: Test,
  options: { readonly dataDir?: string; readonly logLevel?: 'warning' } = {},
): Promise<ChildServer> {
  const dataDir = options.dataDir ?? (await temporaryFolder(t))
  const port = await freePort()
  let child: ChildProcess | undefined
  const kill = async () => {
    const dying = child
    child = undefined
    if (dying === undefined || dying.exitCode !== null || dying.signalCode !== null) return
    dying.kill('SIGKILL')
    await once(dying, 'exit')
  }
  const start = async () => {
    child = await spawnServer(dataDir, port, options.logLevel ?? 'none')
  }
  t.teardown(kill)
  await start()
  const pid = () => child?.pid ?? Number.NaN
  return { url: `http://127.0.0.1:${port}`, dataDir, pid, start, kill }
}

async function spawnServer(dataDir: string, port: number, logLevel: string): Promise<ChildProcess> {
  const [env, ...unset] = WITHOUT_LOADERS
  const modules = [
    moduleUrl('server'),
    new URL('database-thread.mjs', import.meta.url).href,
    new URL('sandbox-thread.mjs', import.meta.url).href,
  ]
  const node = ['--eval', SCRIPT, ...modules, dataDir, String(port), logLevel]
  const child = spawn(env, [...unset, process.execPath, ...node], {
    cwd: ROOT,
    env: cleanEnv(),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  const lines = createInterface({ input: child.stdout })
  const up = once(lines, 'line')
  const down = once(child, 'exit').then(([code, signal]) => {
    throw new Error(`the server ended before it listened: ${code ?? signal}`)
  })
  await Promise.race([up, down])
  down.catch(() => undefined)
  return child
}
