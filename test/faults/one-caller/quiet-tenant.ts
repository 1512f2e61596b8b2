/**
 * A tenant who saves a note every 50 ms, in a thread of its own, so that the attacker's work in this process delays no
 * measurement. A save counts from the moment it was due: one that waits behind a slow one is slow as well.
 */
import { Agent, request } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'
import { memoryOf } from '../../helpers/memory.ts'

const EVERY_MS = 50

export interface QuietTenantOptions {
  readonly port: number
  /** Of the server's process, whose memory is watched. */
  readonly pid: number
  /** The address that the tenant connects from. */
  readonly localAddress: string
  /** Without a slash at the end. */
  readonly database: string
  readonly headers: Readonly<Record<string, string>>
}

export interface Quiet {
  /** What each save since the last call took, in ms, in ascending order. */
  readonly times: readonly number[]
  /** Saves that were not answered with 201, by status; 0 for a broken connection. */
  readonly failed: Readonly<Record<number, number>>
  /** The most memory that the server took since the last call, in bytes. */
  readonly peakBytes: number
  /** The memory that it takes now, in bytes. */
  readonly bytes: number
}

export interface QuietTenant {
  /** What has been seen since the last call. */
  look(): Promise<Quiet>
  stop(): Promise<void>
}

/** Starts the tenant. */
export function startQuietTenant(options: QuietTenantOptions): QuietTenant {
  const worker = new Worker(new URL(import.meta.url), { workerData: options })
  return {
    look: () =>
      new Promise((resolve, reject) => {
        worker.once('error', reject)
        worker.once('message', (seen: Quiet) => {
          worker.off('error', reject)
          resolve(seen)
        })
        worker.postMessage('look')
      }),
    stop: async () => {
      await worker.terminate()
    },
  }
}

async function main(options: QuietTenantOptions): Promise<never> {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  let times: number[] = []
  let failed: Record<number, number> = {}
  let peakBytes = 0
  const watchMemory = () => {
    peakBytes = Math.max(peakBytes, memoryOf(options.pid))
  }
  parentPort?.on('message', () => {
    watchMemory()
    const bytes = memoryOf(options.pid)
    parentPort?.postMessage({ times: times.sort((a, b) => a - b), failed, peakBytes, bytes } satisfies Quiet)
    times = []
    failed = {}
    peakBytes = 0
  })
  setInterval(watchMemory, 20)
  let due = performance.now()
  for (let n = 0; ; n += 1) {
    const status = await save(options, agent, n)
    times.push(performance.now() - due)
    if (status !== 201) failed[status] = (failed[status] ?? 0) + 1
    due += EVERY_MS
    await sleep(Math.max(0, due - performance.now()))
  }
}

/** @returns the status; 0 when the connection broke */
function save(options: QuietTenantOptions, agent: Agent, n: number): Promise<number> {
  const { port, localAddress, database, headers } = options
  return new Promise((resolve) => {
    const path = `${database}/quiet-${Date.now()}-${n}`
    const asked = request({ port, host: '127.0.0.1', localAddress, agent, method: 'PUT', path, headers })
    asked.on('error', () => resolve(0))
    asked.on('response', (answer) => {
      answer.resume()
      answer.on('end', () => resolve(answer.statusCode ?? 0))
      answer.on('error', () => resolve(0))
    })
    asked.end(JSON.stringify({ n, text: 'a note of a quiet tenant' }))
  })
}

if (!isMainThread) await main(workerData as QuietTenantOptions)
