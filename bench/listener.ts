/** Continuous feeds that are read without delay. */
import { type ClientRequest, type IncomingMessage, request } from 'node:http'
import type { Peer } from './peer.ts'

export interface Listener {
  /** Resolves with the next row of this document, at once if it has already arrived. */
  row(id: string): Promise<void>
  close(): void
}

/**
 * Opens a continuous feed of future changes.
 * Resolves when the headers have arrived.
 * @param heartbeatMs pouchdb-server sends its headers only with the first heartbeat
 * @throws when the feed is refused
 */
export async function listen(peer: Peer, path: string, heartbeatMs = 60_000): Promise<Listener> {
  const waiting = new Map<string, () => void>()
  const seen = new Set<string>()
  const close = await follow(peer, `${path}/_changes?since=now`, heartbeatMs, (line) => {
    const id = /"id":"([^"]*)"/.exec(line)?.[1]
    if (id === undefined) return
    seen.add(id)
    waiting.get(id)?.()
  })
  return {
    row: (id) => new Promise((resolve) => (seen.has(id) ? resolve() : waiting.set(id, resolve))),
    close,
  }
}

/**
 * Opens a continuous feed. Resolves when the headers have arrived.
 * @param path with a query
 * @param onLine called with each line but heartbeats
 * @param localAddress the address of the client, for a server that limits each of them
 * @returns closes the feed
 * @throws when the feed is refused
 */
export async function follow(
  peer: Peer,
  path: string,
  heartbeatMs: number,
  onLine: (line: string) => void,
  localAddress?: string,
): Promise<() => void> {
  const address = `${peer.origin}${path}&feed=continuous&heartbeat=${heartbeatMs}`
  const from = localAddress === undefined ? {} : { localAddress }
  const call = request(address, { headers: { ...peer.headers }, agent: false, ...from })
  const answer = await answerOf(call)
  if (answer.statusCode !== 200) throw new Error(`${peer.name} answered ${answer.statusCode} to a feed`)
  let rest = ''
  answer.setEncoding('utf8').on('data', (text: string) => {
    const lines = (rest + text).split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) if (line !== '') onLine(line)
  })
  return () => call.destroy()
}

function answerOf(call: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    call.on('response', (answer) => {
      // The end of a feed that was closed on purpose is not an error.
      answer.on('error', () => undefined)
      resolve(answer)
    })
    call.on('error', reject)
    call.end()
  })
}
