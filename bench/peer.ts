/** A server under test, and calls to it; settee itself is started as a process of its own. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Pool } from 'undici'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** More than any trial has calls in flight through {@link Peer.call}. */
const CONNECTIONS = 16

export interface Peer {
  readonly name: string
  /** `http://host:port`, without credentials. */
  readonly origin: string
  /** Sent with every call. */
  readonly headers: Readonly<Record<string, string>>
  /** What an answered write has survived. */
  readonly durability: string
  /**
   * Makes a call, and reads all of its answer.
   * @param body sent as JSON
   * @throws when the status is another than the one that is expected
   */
  call(method: string, path: string, status: number, body?: string): Promise<Buffer>
  /** Lets the connections go, and ends the server if it was started here. */
  close(): Promise<void>
}

/**
 * Starts settee from dist/ on a folder of its own.
 * @throws when it cannot be built, or ends before it is ready
 */
export async function startSettee(): Promise<Peer> {
  const built = spawnSync(process.execPath, ['scripts/build.mjs'], { cwd: ROOT, stdio: 'inherit' })
  if (built.status !== 0) throw new Error('settee cannot be built')
  const folder = await mkdtemp(join(tmpdir(), 'settee-bench-'))
  const main = join(ROOT, 'dist', 'cli', 'main.js')
  const child = spawn(process.execPath, [main, 'serve', '--port', '0', '--data', folder], {
    env: { ...process.env, NODE_OPTIONS: '' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const ended = once(child, 'close')
  const stop = async () => {
    child.kill('SIGTERM')
    await ended
    await rm(folder, { recursive: true, force: true })
  }
  const url = await readyAddress(child).catch(async (error: unknown) => {
    await stop()
    throw error
  })
  return peerAt('settee', url, 'fsync before every answer', stop)
}

/** Reads the address from the line that tells that settee is ready. */
async function readyAddress(child: ChildProcess): Promise<string> {
  let text = ''
  for await (const chunk of child.stdout as AsyncIterable<Buffer>) {
    text += chunk.toString()
    const [, address] = /is ready at (http:[^"\s]+)/.exec(text) ?? []
    if (address === undefined) continue
    // Left unread, the log would fill the pipe.
    child.stdout?.resume()
    return address
  }
  throw new Error(`settee has ended before it was ready: ${text}`)
}

/** A server that runs already. @param url may hold credentials, which are sent with every call */
export function runningPeer(name: string, url: string): Peer {
  return peerAt(name, url, 'as it is set up', async () => undefined)
}

function peerAt(name: string, url: string, durability: string, stop: () => Promise<void>): Peer {
  const { origin, username, password } = new URL(url)
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  const headers: Record<string, string> = { 'content-type': 'application/json' }
  if (username !== '') headers.authorization = `Basic ${Buffer.from(credentials).toString('base64')}`
  const pool = new Pool(origin, { connections: CONNECTIONS, headersTimeout: 300_000, bodyTimeout: 300_000 })
  const call: Peer['call'] = async (method, path, status, body) => {
    const answer = await pool.request({ method: method as 'GET', path, headers, body: body ?? null })
    const bytes = Buffer.from(await answer.body.arrayBuffer())
    if (answer.statusCode === status) return bytes
    const said = bytes.toString('utf8', 0, 300)
    throw new Error(`${name}: ${method} ${path} is ${answer.statusCode}, not ${status}: ${said}`)
  }
  const close = async () => {
    await pool.destroy()
    await stop()
  }
  return { name, origin, headers, durability, call, close }
}
