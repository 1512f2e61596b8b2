/** The server under test: a process of its own, as `settee serve` runs it, whose end, log and memory are watched. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { cleanEnv, freePort, ROOT, WITHOUT_LOADERS } from '../cli/child.ts'
import { moduleUrl } from '../helpers/built.ts'
import { ADMIN } from './world.ts'

export interface Ended {
  /** The exit code, or the signal that ended it. */
  readonly code: number | NodeJS.Signals
  readonly stderr: string
}

export interface ServerProcess {
  readonly port: number
  readonly dataDir: string
  readonly logFile: string
  /** Resolves when the process has ended, for whatever reason. */
  readonly ended: Promise<Ended>
  /** Bytes of memory that it takes now; NaN where the system does not tell. */
  memory(): number
  /** SIGTERM; resolves when it has ended, with the milliseconds that took. */
  stop(): Promise<Ended & { readonly ms: number }>
}

/**
 * Small limits, so that they are met; short waits, so that feeds and runaway functions end; few open databases, so
 * that they are closed and opened again while they are asked.
 */
const LOCAL_INI = `
[admins]
${ADMIN.name} = ${ADMIN.password}
[chttpd]
changes_timeout = 400
max_http_request_size = 3000000
max_uri_length = 20000
[chttpd_auth]
iterations = 10
[chttpd_auth_lockout]
mode = warn
[couchdb]
max_dbs_open = 6
max_document_size = 200000
max_attachment_size = 300000
os_process_timeout = 300
[settee]
body_memory = 1048576
`

/** As a script, not a module: a database thread takes over the flags, and refuses `--input-type`. */
const SCRIPT = `(async () => {
  const [server, lifecycle, threadEntry, sandboxEntry, dataDir, port, logFile] = process.argv.slice(1)
  // Whoever started it may die without a word; then this ends, too.
  process.stdin.on('end', () => process.exit(9)).resume()
  const { startServer } = await import(server)
  const { runUntilSignalled } = await import(lifecycle)
  const flags = { port: Number(port), bind: '127.0.0.1', logLevel: 'info', logFile }
  const entries = { threadEntry: new URL(threadEntry), sandboxEntry: new URL(sandboxEntry) }
  await runUntilSignalled(() => startServer({ dataDir, env: {}, flags, ...entries }))
  console.log('listening')
})()`

/** Starts a server on a folder, which is made if it is not there; killed at the end of the test if it still runs. */
export async function startServerProcess(t: Test, folder: string): Promise<ServerProcess> {
  const dataDir = join(folder, 'data')
  const logFile = join(folder, 'settee.log')
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  await writeFile(join(dataDir, 'local.ini'), LOCAL_INI, { mode: 0o600 })
  const port = await freePort()
  const child = spawnServer([dataDir, String(port), logFile])
  t.teardown(() => child.kill('SIGKILL'))
  const ended = endOf(child)
  const up = once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), 'line')
  const down = ended.then((end) => {
    throw new Error(`the server ended before it listened: ${JSON.stringify(end)}`)
  })
  await Promise.race([up, down])
  down.catch(() => undefined)
  const stop = async () => {
    const begun = performance.now()
    child.kill('SIGTERM')
    const end = await ended
    return { ...end, ms: performance.now() - begun }
  }
  return { port, dataDir, logFile, ended, memory: () => memoryOf(child.pid), stop }
}

function spawnServer(args: readonly string[]): ChildProcess {
  const [env, ...unset] = WITHOUT_LOADERS
  const modules = [
    moduleUrl('server'),
    moduleUrl('cli/serve-command'),
    new URL('../helpers/database-thread.mjs', import.meta.url).href,
    new URL('../helpers/sandbox-thread.mjs', import.meta.url).href,
  ]
  const node = ['--eval', SCRIPT, ...modules, ...args]
  return spawn(env, [...unset, process.execPath, ...node], {
    cwd: ROOT,
    env: cleanEnv(),
    stdio: ['pipe', 'pipe', 'pipe'],
  })
}

async function endOf(child: ChildProcess): Promise<Ended> {
  let stderr = ''
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr += chunk.toString()
  })
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
  return { code: code ?? (signal as NodeJS.Signals), stderr }
}

function memoryOf(pid: number | undefined): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return Number(/^VmRSS:\s+(\d+) kB/m.exec(status)?.[1]) * 1024
  } catch {
    return Number.NaN
  }
}
