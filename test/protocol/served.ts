/** A server in this process whose address survives restarts, and plain calls to it. */
import type { Test } from 'tap'
import { request } from 'undici'
import { type RunningServer, startServer } from '../../src/server.ts'
import { temporaryFolder } from '../helpers/server.ts'

export interface ServedServer {
  /** Without a slash at the end; the same after every start. */
  readonly url: string
  readonly dataDir: string
  start(): Promise<void>
  stop(): Promise<void>
}

/** Starts a server on a free port, and stops it at the end of the test. */
export async function serve(t: Test): Promise<ServedServer> {
  const dataDir = await temporaryFolder(t)
  let port = 0
  let running: RunningServer | undefined
  const stop = async () => {
    await running?.close()
    running = undefined
  }
  const start = async () => {
    running = await startServer({
      dataDir,
      env: {},
      flags: { port, bind: '127.0.0.1', logLevel: 'none' },
      threadEntry: new URL('../helpers/database-thread.mjs', import.meta.url),
      sandboxEntry: new URL('../helpers/sandbox-thread.mjs', import.meta.url),
      maxThreads: 1,
    })
    port = Number(new URL(running.url).port)
  }
  t.teardown(stop)
  await start()
  return { url: `http://127.0.0.1:${port}`, dataDir, start, stop }
}

export interface Answer {
  readonly status: number
  readonly text: string
  /** The body as JSON; undefined if it is not JSON. */
  readonly json: unknown
}

/** One call like curl's, over a separate connection. A string is sent unchanged. */
export async function call(
  server: { readonly url: string },
  method: string,
  path: string,
  { body, auth }: { readonly body?: unknown; readonly auth?: string } = {},
): Promise<Answer> {
  const { statusCode, body: answer } = await request(server.url + path, {
    method: method as 'GET',
    headers: {
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(auth !== undefined && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
    },
    body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
    reset: true,
  })
  const text = await answer.text()
  return { status: statusCode, text, json: parsed(text) }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
