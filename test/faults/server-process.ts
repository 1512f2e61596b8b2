/** A server in a process of its own, run as `settee serve` runs it, that faults are done to. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { appendFile, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Test } from 'tap'
import { Agent, request } from 'undici'
import { memorySettings } from '../../src/cli/serve-command.ts'
import { cleanEnv, freePort, ROOT, WITHOUT_LOADERS } from '../cli/child.ts'
import { moduleUrl } from '../helpers/built.ts'
import { temporaryFolder } from '../helpers/server.ts'

export interface ServerProcess {
  /** Without a slash at the end; the same after every start. */
  readonly url: string
  readonly port: number
  readonly dataDir: string
  /** Of the process that runs now. */
  pid(): number
  start(): Promise<void>
  /** SIGTERM; resolves with the exit code, or the signal that ended it. */
  stop(): Promise<End>
  kill(): Promise<void>
  /** Resolves when the process that runs now has ended, for whatever reason. */
  ended(): Promise<End>
  /** The log so far, a line an object. */
  log(): readonly LogLine[]
  ask(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>
}

export interface End {
  readonly code: number | NodeJS.Signals
  readonly stderr: string
}

export interface Answer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

export interface LogLine {
  readonly level: string
  readonly msg: string
  readonly [more: string]: unknown
}

export interface ServerProcessOptions {
  /** By default a folder that goes with the test. */
  readonly dataDir?: string
  /** Lines of local.ini. */
  readonly ini?: string
  readonly threadEntry?: URL
  readonly sandboxEntry?: URL
  /** Threads for users' databases; by default as many as the server chooses. */
  readonly threads?: number
  /** A module that is loaded before the server. */
  readonly preload?: URL
  /** Runs what `npm run build` has made: from the sources a server takes twice the memory. */
  readonly isBuilt?: boolean
  /** The program that runs it, by default this process's own Node; and its flags. */
  readonly node?: string
  readonly nodeFlags?: readonly string[]
  /** Further variables of its environment. */
  readonly env?: NodeJS.ProcessEnv
}

const THREAD = new URL('../helpers/database-thread.mjs', import.meta.url)
const SANDBOX = new URL('../helpers/sandbox-thread.mjs', import.meta.url)

/** As a script, not a module: a database thread takes over the flags, and refuses `--input-type`. */
const SCRIPT = `(async () => {
  const [preload, server, lifecycle, threadEntry, sandboxEntry, threads, dataDir, port, logFile] =
    process.argv.slice(1)
  // Whoever started it may die without a word; then this ends, too.
  process.stdin.on('end', () => process.exit(9)).resume()
  if (preload !== '') await import(preload)
  const { startServer } = await import(server)
  const { runUntilSignalled } = await import(lifecycle)
  const flags = { port: Number(port), bind: '127.0.0.1', logLevel: 'info', logFile }
  const entries = threadEntry === '' ? {} : { threadEntry: new URL(threadEntry), sandboxEntry: new URL(sandboxEntry) }
  const options = { dataDir, env: {}, flags, ...(threads !== '' && { threads: Number(threads) }), ...entries }
  await runUntilSignalled(() => startServer(options))
  console.log('listening')
})()`

/** Starts a server; killed at the end of the test if it still runs. */
export async function startServerProcess(
  t: Pick<Test, 'teardown'>,
  options: ServerProcessOptions = {},
): Promise<ServerProcess> {
  const folder = await temporaryFolder(t)
  const dataDir = options.dataDir ?? join(folder, 'data')
  const logFile = join(folder, 'settee.log')
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  if (options.ini !== undefined) await appendFile(join(dataDir, 'local.ini'), options.ini, { mode: 0o600 })
  const port = await freePort()
  const agent = new Agent({ connections: 64, headersTimeout: 120_000, bodyTimeout: 120_000 })
  const run = {
    child: undefined as ChildProcess | undefined,
    ended: Promise.resolve<End>({ code: 0, stderr: '' }),
  }
  const signal = (name: NodeJS.Signals) => {
    run.child?.kill(name)
    return run.ended
  }
  t.teardown(async () => {
    await signal('SIGKILL')
    await agent.destroy()
  })
  const start = async () => {
    run.child = spawnServer(options, [dataDir, String(port), logFile])
    run.ended = endOf(run.child)
    await listening(run.child, run.ended)
  }
  await start()
  const url = `http://127.0.0.1:${port}`
  return {
    url,
    port,
    dataDir,
    pid: () => run.child?.pid ?? Number.NaN,
    start,
    stop: () => signal('SIGTERM'),
    kill: async () => {
      await signal('SIGKILL')
    },
    ended: () => run.ended,
    log: () => linesOf(logFile),
    ask: (method, path, body, headers) => ask(agent, `${url}${path}`, method, body, headers),
  }
}

function spawnServer(options: ServerProcessOptions, args: readonly string[]): ChildProcess {
  const [env, ...unset] = WITHOUT_LOADERS
  const isBuilt = options.isBuilt ?? false
  const { threadEntry = THREAD, sandboxEntry = SANDBOX } = options
  const modules = [
    options.preload?.href ?? '',
    isBuilt ? new URL('../../dist/server.js', import.meta.url).href : moduleUrl('server'),
    isBuilt
      ? new URL('../../dist/cli/serve-command.js', import.meta.url).href
      : moduleUrl('cli/serve-command'),
    ...(isBuilt ? ['', ''] : [threadEntry.href, sandboxEntry.href]),
    String(options.threads ?? ''),
  ]
  const { node = process.execPath, nodeFlags = [] } = options
  const plain = { execArgv: nodeFlags, env: cleanEnv(options.env) }
  // What is built runs with the settings for memory that `settee serve` gives itself.
  const started = (isBuilt ? memorySettings(plain) : null) ?? plain
  return spawn(env, [...unset, node, ...started.execArgv, '--eval', SCRIPT, ...modules, ...args], {
    cwd: ROOT,
    env: started.env,
    stdio: ['pipe', 'pipe', 'pipe'],
  })
}

async function endOf(child: ChildProcess): Promise<End> {
  let stderr = ''
  child.stderr?.on('data', (chunk: Buffer) => {
    stderr += chunk.toString()
  })
  const [code, signal] = (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
  return { code: code ?? (signal as NodeJS.Signals), stderr }
}

async function listening(child: ChildProcess, ended: Promise<End>): Promise<void> {
  const up = once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), 'line')
  const down = ended.then((end) => {
    throw new Error(`the server ended before it listened: ${JSON.stringify(end)}`)
  })
  down.catch(() => undefined)
  await Promise.race([up, down])
}

function linesOf(logFile: string): LogLine[] {
  const lines = readFileSync(logFile, 'utf8').split('\n')
  return lines.filter((line) => line !== '').map((line) => JSON.parse(line) as LogLine)
}

async function ask(
  dispatcher: Agent,
  url: string,
  method: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const isRaw = body === undefined || typeof body === 'string' || body instanceof Uint8Array
  const answer = await request(url, {
    method: method as 'GET',
    dispatcher,
    headers: { ...(!isRaw && { 'content-type': 'application/json' }), ...headers },
    body: isRaw ? ((body ?? null) as string | null) : JSON.stringify(body),
  })
  const text = await answer.body.text()
  return { status: answer.statusCode, json: parsed(text) }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
