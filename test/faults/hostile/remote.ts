/**
 * A server that means harm to whoever replicates, moves from it or follows it: a plausible CouchDB, and a plausible settee,
 * but for some answers.
 */

import { randomUUID } from 'node:crypto'
import { createServer, type OutgoingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import type { Test } from 'tap'

export interface Reply {
  readonly status?: number
  readonly headers?: Readonly<Record<string, string | readonly string[]>>
  /** Chunks are sent as fast as they are taken. */
  readonly body: string | Uint8Array | Iterable<Uint8Array> | AsyncIterable<Uint8Array>
}

/** @returns null: the plausible answer */
export type Script = (asked: { readonly method: string; readonly url: URL }) => Reply | object | null

export interface HostileRemote {
  /** Without a slash at the end. */
  readonly url: string
  /** Method and path with parameters of each request so far that the script has answered. */
  readonly scripted: readonly string[]
}

export const REV = `1-${'a'.repeat(32)}`

/** Starts a server with a database `notes` of one document; closed at the end of the test. */
export async function hostileRemote(t: Pick<Test, 'teardown'>, script: Script): Promise<HostileRemote> {
  const requests: string[] = []
  const uuid = randomUUID().replaceAll('-', '')
  const server = createServer({ maxHeaderSize: 1024 * 1024 }, (incoming, outgoing) => {
    const { method = '', url: path = '' } = incoming
    incoming.resume()
    const url = new URL(path, 'http://hostile')
    const found = script({ method, url })
    if (found !== null) requests.push(`${method} ${path}`)
    const scripted = found ?? plausible(method, url, uuid)
    const { status = 200, body, ...reply } = isReply(scripted) ? scripted : { body: JSON.stringify(scripted) }
    outgoing.on('error', () => undefined)
    outgoing.writeHead(status, {
      'content-type': 'application/json',
      ...reply.headers,
    } as OutgoingHttpHeaders)
    if (typeof body === 'string' || body instanceof Uint8Array) outgoing.end(body)
    else
      Readable.from(body, { objectMode: false })
        .on('error', () => undefined)
        .pipe(outgoing)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, scripted: requests }
}

function isReply(scripted: object): scripted is Reply {
  return 'body' in scripted
}

function plausible(method: string, { pathname, searchParams }: URL, uuid: string): Reply | object {
  if (pathname === '/') return { couchdb: 'Welcome', version: '3.3.3', uuid, vendor: { name: 'settee' } }
  if (pathname === '/_settee/standby/settings') return { settings: {}, sealing_key: null }
  if (pathname === '/_settee/standby/tokens') return { tokens: [], next: null }
  if (pathname === '/_db_updates') return { results: [], last_seq: '1-x' }
  if (pathname === '/_all_dbs') return ['notes']
  const [, name, call] = /^\/([^/]+)\/?(.*)$/.exec(pathname) ?? []
  if (method === 'PUT') return { ok: true, rev: '0-1' }
  if (name?.startsWith('_')) return missing()
  switch (call) {
    case '':
      return { update_seq: '1-x', doc_count: 1, doc_del_count: 0, instance_start_time: '0', sizes: {} }
    case '_changes':
      return searchParams.get('since') === '1-x' ? feed([]) : feed([row('a', '1-x')])
    case '_bulk_get':
      return { results: [{ id: 'a', docs: [{ ok: document('a') }] }] }
    case '_all_docs':
      return { rows: [] }
    case '_security':
      return {}
    case '_revs_limit':
      return { body: '1000' }
    case '_ensure_full_commit':
      return { ok: true, instance_start_time: '0' }
    default:
      return missing()
  }
}

export function missing(): Reply {
  return { status: 404, body: '{"error":"not_found","reason":"missing"}' }
}

export function row(id: unknown, seq: unknown, ...revs: readonly unknown[]): object {
  return { id, seq, changes: (revs.length === 0 ? [REV] : revs).map((rev) => ({ rev })) }
}

export function feed(results: readonly unknown[], lastSeq: unknown = '1-x'): object {
  return { results, last_seq: lastSeq, pending: 0 }
}

export function document(id: unknown, members: object = {}): object {
  return { _id: id, _rev: REV, _revisions: { start: 1, ids: ['a'.repeat(32)] }, ...members }
}

const CHUNK = 64 * 1024
/** What one answer has at most, in bytes: more than a server may take in. */
const MOST = 192 * 1024 * 1024

/** `begin`, then `repeated` again and again up to 192 MB, then `end`. */
export function* long(begin: string, repeated: string, end = '', most = MOST): Generator<Uint8Array> {
  yield Buffer.from(begin)
  const chunk = Buffer.from(repeated.repeat(Math.max(1, Math.floor(CHUNK / repeated.length))))
  for (let sent = 0; sent < most; sent += chunk.length) yield chunk
  yield Buffer.from(end)
}

/** A list in a list in a list. */
export function deep(levels = 1_000_000): string {
  return '['.repeat(levels) + ']'.repeat(levels)
}
