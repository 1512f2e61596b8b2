/** A server under test, and calls to it. */
import { readFile } from 'node:fs/promises'
import { Pool } from 'undici'
import { processorMsIn } from '../src/threads/watchdog.ts'
import type { Figure } from './trial.ts'

/** More connections than any trial has calls under way through {@link Peer.call}. */
const CONNECTIONS = 16
const TIMEOUT_MS = 300_000

export interface Peer {
  readonly name: string
  /** `http://host:port`, without credentials. */
  readonly origin: string
  /** The same with credentials, for clients that read them from the URL. */
  readonly address: string
  /** Sent with every call. */
  readonly headers: Readonly<Record<string, string>>
  /** How the server makes an acknowledged write durable. */
  readonly durability: string
  /**
   * Makes a call, and reads the complete answer.
   * @param body sent as JSON, unless `type` says otherwise
   * @throws when the status is not the expected one
   */
  call(
    method: string,
    path: string,
    status: number,
    body?: string | Uint8Array,
    type?: string,
  ): Promise<Buffer>
  /** The names of the trials that it can run; undefined: all. */
  readonly trials?: readonly string[]
  /** Milliseconds from the start to the first answer; undefined if the server was already running. */
  readonly startMs: number | undefined
  /** The id of the server's process; undefined if it runs elsewhere. */
  readonly pid: number | undefined
  /** The memory of the server in bytes; null if it runs elsewhere. */
  memory(): Promise<number | null>
  /** The CPU time that the server has taken so far, in seconds, in steps of 10 ms; null if it runs elsewhere. */
  cpuSeconds(): number | null
  /** The same for the database server that it stores in; absent if it has none. */
  storeCpuSeconds?(): number
  /** Watches what its sessions wait for; the returned function ends this, and tells. Absent if nobody asked for it. */
  watchWaits?(): Promise<() => Promise<Figure[]>>
  /** Closes the connections, and ends the server if it was started here. */
  close(): Promise<void>
}

/** Facts about a server that its address does not show. */
export interface PeerProcess {
  readonly durability: string
  /** The id of the process that was started here. */
  readonly pid?: number
  readonly startMs?: number
  stop(): Promise<void>
}

/**
 * A server that is already running.
 * @param url may contain credentials, which are sent with every call, and as its fragment the id of the server's process
 */
export function runningPeer(name: string, url: string): Peer {
  const pid = Number(new URL(url).hash.slice(1))
  const process = { durability: 'as it is set up', stop: async () => undefined }
  return peerAt(name, url.replace(/#.*$/, ''), pid > 0 ? { ...process, pid } : process)
}

export function peerAt(name: string, url: string, { durability, pid, startMs, stop }: PeerProcess): Peer {
  const { origin, username, password } = new URL(url)
  const credentials = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`
  const headers: Record<string, string> = { 'content-type': 'application/json' }
  if (username !== '') headers.authorization = `Basic ${Buffer.from(credentials).toString('base64')}`
  const pool = new Pool(origin, {
    connections: CONNECTIONS,
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
  })
  const call: Peer['call'] = async (method, path, status, body, type) => {
    const sent = type === undefined ? headers : { ...headers, 'content-type': type }
    const answer = await pool.request({ method: method as 'GET', path, headers: sent, body: body ?? null })
    const bytes = Buffer.from(await answer.body.arrayBuffer())
    if (answer.statusCode === status) return bytes
    const said = bytes.toString('utf8', 0, 300)
    throw new Error(`${name}: ${method} ${path} is ${answer.statusCode}, not ${status}: ${said}`)
  }
  const close = async () => {
    await pool.destroy()
    await stop()
  }
  const memory = async () => (pid === undefined ? null : residentBytes(pid))
  const cpuSeconds = () => (pid === undefined ? null : cpuSecondsOf(pid))
  const address = url.replace(/\/+$/, '')
  return { name, origin, address, headers, durability, pid, startMs, call, memory, cpuSeconds, close }
}

function cpuSecondsOf(pid: number): number | null {
  const ms = processorMsIn(`/proc/${pid}/stat`)
  return ms === null ? null : ms / 1000
}

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]) * 1024
}
