import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import type { Test } from 'tap'
import { Agent, request as send } from 'undici'
import { type RunningServer, startServer } from '../../src/server.ts'

/** A request of a test to a server. */
export interface TestRequest {
  /** Strings and bytes are sent unchanged; other values as JSON, with its content type. */
  readonly body?: unknown
  readonly headers?: Record<string, string>
  /** `name:password`. */
  readonly auth?: string
}

export interface TestResponse {
  readonly status: number
  readonly headers: Record<string, string | string[] | undefined>
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
}

export interface TestServer {
  /** Without a slash at the end. */
  readonly url: string
  /** The same with TLS; empty without `tls`. */
  readonly secureUrl: string
  readonly dataDir: string
  /** Whether there is a proxy in between. */
  readonly isProxied?: boolean
  /** How long other nodes may not know of a changed setting, in ms; by default there are none. */
  readonly settingsMs?: number
  request(method: string, path: string, options?: TestRequest): Promise<TestResponse>
  /** Stops the server; its data folder stays until the test ends. */
  stop(): Promise<void>
  /** Starts it again, at the same addresses. */
  start(): Promise<void>
  /** Stops it, and ends the connections of {@link request}. */
  close(): Promise<void>
}

export interface TestServerOptions {
  /** The data folder; by default an empty one, which is removed at the end of the test. */
  readonly dataDir?: string
  readonly env?: NodeJS.ProcessEnv
  readonly logLevel?: string
  readonly logFile?: string
  readonly hosted?: boolean
  /** PEM files, for settee's own TLS. */
  readonly tls?: { readonly certFile: string; readonly keyFile: string }
  /** How often the files are checked, in milliseconds. */
  readonly tlsLookMs?: number
  /** Ends a start that waits for its store. */
  readonly ending?: AbortSignal
  /** How long a start waits for its store, in milliseconds. */
  readonly storeWaitMs?: number
}

/** A folder that is removed when the test ends. */
export async function temporaryFolder(t: Pick<Test, 'teardown'>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-test-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  return folder
}

type Start = (t: Pick<Test, 'teardown'>, options: TestServerOptions) => Promise<TestServer>

let startInstead: Start | null = null
let sharedInstead: (() => Promise<TestServer>) | null = null

/**
 * From now on, {@link startTestServer} starts another kind of server, so that tests of one server run on it.
 * @param shared takes the place of what {@link sharedTestServer} returns
 */
export function startTestServersBy(start: Start, shared: () => Promise<TestServer>): void {
  startInstead = start
  sharedInstead = shared
}

/**
 * For tests that look into the files of a server, or of its own TLS.
 * @returns an option of a test, which skips it if {@link startTestServer} starts another kind of server
 */
export function onlyOneServer(why: string): { readonly skip: string | false } {
  return { skip: startInstead !== null && why }
}

/** Resolves when a setting that was changed before is known everywhere. */
export function settled({ settingsMs = 0 }: Pick<TestServer, 'settingsMs'>): Promise<void> {
  return sleep(settingsMs)
}

/** Each hash of a password with the default of 600,000 rounds takes 0.15 s of CPU time. */
const FEW_ROUNDS = '[chttpd_auth]\niterations = 10\n'

/** Whether a server has an admin, and has its settings for itself: nodes share how passwords are hashed. */
const isAdminsAlone = ({ env = {} }: TestServerOptions): boolean =>
  env.COUCHDB_PASSWORD !== undefined && env.SETTEE_STORE === undefined

/** A listening server on a free port, closed when the test ends. Where it begins with an admin, passwords are hashed in few rounds. */
export async function startTestServer(
  t: Pick<Test, 'teardown'>,
  options: TestServerOptions = {},
): Promise<TestServer> {
  if (startInstead !== null) return startInstead(t, options)
  const dataDir = options.dataDir ?? (await temporaryFolder(t))
  if (options.dataDir === undefined && isAdminsAlone(options))
    await writeFile(join(dataDir, 'local.ini'), FEW_ROUNDS, { mode: 0o600 })
  let ports = { port: 0, tlsPort: 0 }
  let running: RunningServer | undefined
  const start = async () => {
    running = await startServer({
      dataDir,
      env: options.env ?? {},
      flags: {
        port: ports.port,
        bind: '127.0.0.1',
        logLevel: options.logLevel ?? 'none',
        ...(options.logFile !== undefined && { logFile: options.logFile }),
        ...(options.hosted !== undefined && { hosted: options.hosted }),
        ...(options.tls !== undefined && {
          tlsCert: options.tls.certFile,
          tlsKey: options.tls.keyFile,
          tlsPort: ports.tlsPort,
        }),
      },
      ...(options.tlsLookMs !== undefined && { tlsLookMs: options.tlsLookMs }),
      ...(options.ending !== undefined && { ending: options.ending }),
      ...(options.storeWaitMs !== undefined && { storeWaitMs: options.storeWaitMs }),
      threadEntry: new URL('./database-thread.mjs', import.meta.url),
      sandboxEntry: new URL('./sandbox-thread.mjs', import.meta.url),
      threads: 1,
    })
    ports = { port: portOf(running.url), tlsPort: portOf(running.secureUrl) }
    return running
  }
  const { url, secureUrl } = await start()
  return reached(t, url, {
    secureUrl: secureUrl?.replace(/\/$/, '') ?? '',
    dataDir,
    start: async () => {
      await start()
    },
    stop: async () => {
      await running?.close()
      running = undefined
    },
  })
}

/** @returns 0 without an address */
const portOf = (url: string | null): number => (url === null ? 0 : Number(new URL(url).port))

/** A listening server as tests use it. It is closed when the test ends. */
export function reached(
  t: Pick<Test, 'teardown'>,
  address: string,
  server: Omit<TestServer, 'url' | 'request' | 'close'>,
): TestServer {
  const agent = new Agent({ connections: 16 })
  const close = async () => {
    await agent.destroy()
    await server.stop()
  }
  t.teardown(close)
  const url = address.replace(/\/$/, '')
  return { ...server, url, close, request: (method, path, asked) => ask(agent, url, method, path, asked) }
}

/**
 * One server for many cases of a file, since each start takes about half a second of CPU time. A case must not depend
 * on a server without a past, such as its metrics.
 * @param t the test that has the cases
 * @returns a server without databases of earlier cases and with the initial settings: the shared one, or another if a
 *   case has made an admin or a user, or has closed it
 */
export function sharedTestServer(
  t: Pick<Test, 'teardown'>,
  start: (t: Pick<Test, 'teardown'>) => Promise<TestServer> = startTestServer,
): () => Promise<TestServer> {
  if (sharedInstead !== null) return sharedInstead
  let shared: { readonly server: TestServer; readonly config: Sections } | undefined
  return async () => {
    if (shared !== undefined && (await isReset(shared.server, shared.config).catch(() => false))) {
      return shared.server
    }
    const server = await start(t)
    shared = { server, config: (await server.request('GET', CONFIG)).json as Sections }
    return server
  }
}

/** They differ between nodes. */
const OF_NODE = new Set(['chttpd/port', 'log/file'])

/** @returns the answer of `_config` without what differs between nodes */
export function sharedSettings(sections: Sections): Sections {
  const shared: Record<string, Record<string, string>> = {}
  for (const [section, keys] of Object.entries(sections)) {
    const rest = Object.entries(keys).filter(([key]) => !OF_NODE.has(`${section}/${key}`))
    if (rest.length > 0) shared[section] = Object.fromEntries(rest)
  }
  return shared
}

type Sections = Readonly<Record<string, Readonly<Record<string, string>>>>

const CONFIG = '/_node/_local/_config'

/** @returns false if the server cannot be reset */
async function isReset({ request, settingsMs = 0 }: TestServer, initial: Sections): Promise<boolean> {
  const users = await request('GET', '/_users/_all_docs?startkey="org.couchdb.user:"')
  if (users.status !== 200 || users.json.rows.length > 0) return false
  const names = (await request('GET', '/_all_dbs')).json as string[]
  for (const name of names) {
    if (name !== '_users') await request('DELETE', `/${encodeURIComponent(name)}`)
  }
  // Another node may not know yet that they are deleted.
  if (names.length > 1) await sleep(settingsMs)
  const current = (await request('GET', CONFIG)).json as Sections
  for (const [section, keys] of Object.entries(current)) {
    for (const [key, value] of Object.entries(keys)) {
      if (OF_NODE.has(`${section}/${key}`)) continue
      const before = initial[section]?.[key]
      const path = `${CONFIG}/${encodeURIComponent(section)}/${encodeURIComponent(key)}`
      if (before === undefined) await request('DELETE', path)
      else if (before !== value) await request('PUT', path, { body: JSON.stringify(before) })
    }
  }
  const [now, left] = [await request('GET', CONFIG), await request('GET', '/_all_dbs')]
  return (
    isDeepStrictEqual(sharedSettings(now.json), sharedSettings(initial)) && left.text.trim() === '["_users"]'
  )
}

async function ask(
  dispatcher: Agent,
  url: string,
  method: string,
  path: string,
  { body, headers = {}, auth }: TestRequest = {},
): Promise<TestResponse> {
  const isRaw = body === undefined || typeof body === 'string' || body instanceof Uint8Array
  const answer = await send(url + path, {
    method: method as 'GET',
    dispatcher,
    headers: {
      ...(!isRaw && { 'content-type': 'application/json' }),
      ...(auth !== undefined && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
      ...headers,
    },
    body: isRaw ? ((body ?? null) as string | null) : JSON.stringify(body),
  })
  const text = await answer.body.text()
  return { status: answer.statusCode, headers: answer.headers, text, json: parsed(text) }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
