/** Sends load with load-client.c, which leaves the processor to the server. */
import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { compile } from './compiler.ts'
import type { Peer } from './peer.ts'
import type { PlannedRequest, Sent } from './planned-request.ts'

/**
 * Writes the requests to a file, so that nothing but sending them is measured.
 * @param connections each sends its next request after an answer
 * @returns a function that sends every request once
 * @throws when there is no C compiler
 */
export async function prepareForC(
  peer: Peer,
  requests: readonly PlannedRequest[],
  connections: number,
): Promise<() => Promise<Sent>> {
  const folder = await mkdtemp(join(tmpdir(), 'settee-load-'))
  const file = join(folder, 'requests')
  await writeFile(file, encoded(peer, requests))
  const program = await compiledClient()
  const { hostname, port } = new URL(peer.origin)
  return () =>
    run(program, [hostname, port, `${connections}`, file]).finally(() => rm(folder, { recursive: true }))
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

/** @returns the path of the program @throws when there is no C compiler */
export function compiledClient(): Promise<string> {
  program ??= compile('load-client.c', 'load-client')
  return program
}

async function run(command: string, args: readonly string[]): Promise<Sent> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] })
  const printed = await text(child.stdout)
  if (printed === '') throw new Error('load-client.c has failed')
  return JSON.parse(printed) as Sent
}
