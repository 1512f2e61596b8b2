/** Load that leaves the processor to the server: requests are prepared here, and sent by load-client.c. */
import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { compile } from './compiler.ts'
import { withCpu } from './load.ts'
import type { Peer } from './peer.ts'
import type { Figure } from './trial.ts'

export interface PlannedRequest {
  readonly method: 'GET' | 'PUT' | 'POST'
  readonly path: string
  readonly body?: string
}

interface Load {
  /** Each sends its next request after an answer. */
  readonly connections: number
  /** The status that every answer must have. */
  readonly status: number
  /** What the figures count, such as `doc`. */
  readonly unit: string
  /** Units in a request. */
  readonly perRequest: number
}

/** What load-client.c prints. Times are in seconds. */
interface Sent {
  readonly seconds: number
  readonly median: number
  readonly within99: number
  readonly statuses: Readonly<Record<string, number>>
}

/**
 * Sends every request once.
 * @returns units per second, and the CPU time of a unit
 * @throws when the program cannot be compiled, a request fails, or an answer has another status
 */
export async function sendAll(
  peer: Peer,
  requests: readonly PlannedRequest[],
  load: Load,
): Promise<{ readonly rate: Figure; readonly times: readonly Figure[]; readonly cpu: readonly Figure[] }> {
  const { connections, status, unit, perRequest } = load
  const count = requests.length * perRequest
  const folder = await mkdtemp(join(tmpdir(), 'settee-load-'))
  try {
    const file = join(folder, 'requests')
    await writeFile(file, encoded(peer, requests))
    const program = await compiled()
    const { hostname, port } = new URL(peer.origin)
    const { result: sent, cpu } = await withCpu(peer, count, unit, () =>
      run(program, [hostname, port, `${connections}`, file]),
    )
    if (sent.statuses[status] !== requests.length) {
      throw new Error(
        `${peer.name}: not all of ${requests.length} answers are ${status}: ${JSON.stringify(sent.statuses)}`,
      )
    }
    return {
      rate: { name: `${unit}s`, unit: `${unit}s/s`, value: count / sent.seconds },
      times: [
        { name: 'median', unit: 'ms', value: sent.median * 1000 },
        { name: '99% within', unit: 'ms', value: sent.within99 * 1000 },
      ],
      cpu,
    }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Repeats a GET that answers with rows, one call at a time.
 * @param rows the number of rows in an answer
 * @returns rows per second, and the CPU time of a row
 * @throws as {@link sendAll}
 */
export async function rowFigures(
  peer: Peer,
  path: string,
  { rounds, rows }: { readonly rounds: number; readonly rows: number },
): Promise<Figure[]> {
  const requests = Array.from({ length: rounds }, (): PlannedRequest => ({ method: 'GET', path }))
  const load = { connections: 1, status: 200, unit: 'row', perRequest: rows }
  await sendAll(peer, requests.slice(0, 1), load)
  const { rate, cpu } = await sendAll(peer, requests, load)
  return [rate, ...cpu]
}

/** @returns as many POST requests as `count`, with the bodies in turn */
export function posts(path: string, bodies: readonly string[], count: number): PlannedRequest[] {
  return Array.from({ length: count }, (_, n) => ({
    method: 'POST',
    path,
    body: bodies[n % bodies.length] as string,
  }))
}

/** The requests in the form that load-client.c reads. */
function encoded({ origin, headers }: Peer, requests: readonly PlannedRequest[]): Buffer {
  const { host } = new URL(origin)
  const common = Object.entries({ host, accept: 'application/json', ...headers })
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('')
  return Buffer.concat(
    requests.flatMap(({ method, path, body }) => {
      const content = Buffer.from(body ?? '')
      const length = body === undefined ? '' : `content-length: ${content.length}\r\n`
      const head = Buffer.from(`${method} ${path} HTTP/1.1\r\n${common}${length}\r\n`)
      const prefix = Buffer.alloc(4)
      prefix.writeUInt32LE(head.length + content.length)
      return [prefix, head, content]
    }),
  )
}

let program: Promise<string> | undefined

function compiled(): Promise<string> {
  program ??= compile('load-client.c', 'load-client')
  return program
}

async function run(command: string, args: readonly string[]): Promise<Sent> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const printed = await text(child.stdout)
  if (printed === '') throw new Error('load-client.c has failed')
  return JSON.parse(printed) as Sent
}
