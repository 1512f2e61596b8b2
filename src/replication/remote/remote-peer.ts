/** A database of another server, as one end of a replication; protocol.md 14.5, 16.1. */
import { Readable } from 'node:stream'
import { LOCAL_PREFIX } from '../../core/ids.ts'
import { fileRange } from '../../documents/temporary-file.ts'
import { positionOf } from '../checkpoint.ts'
import type { ChangesRequest, MultipartRevision, OpenedRevisions, Peer, PeerInfo } from '../peer.ts'
import { PeerError } from '../peer-error.ts'
import { type Position, type RemoteEndpoint, textParams } from '../requests/replication-request.ts'
import { discard, instanceOf, type Query, RemoteClient } from './remote-client.ts'
import type { RemoteOptions } from './remote-pools.ts'
import type { RemoteAnswer, RemoteConnections } from './remote-requests.ts'
import { waitingFeed } from './waiting-feed.ts'

/** A peer that rejects these calls with one of these statuses does not have them. */
const ABSENT: ReadonlySet<number> = new Set([400, 404, 405, 501])

/** The most bytes of a checkpoint: CouchDB's has 50 sessions with three sequences each, of some hundred bytes. */
const MAX_CHECKPOINT = 1024 * 1024

export class RemotePeer implements Peer {
  /** With four, 50 attachments of 50 MB took about 20 MB more memory, and as long. */
  readonly largeFetches = 1
  readonly #client: RemoteClient

  constructor(endpoint: RemoteEndpoint, connections: RemoteConnections, options: RemoteOptions) {
    this.#client = new RemoteClient(endpoint, connections, options)
  }

  get address(): string {
    return this.#client.address
  }

  async info(signal: AbortSignal): Promise<PeerInfo> {
    const answer = await this.#client.send({ method: 'GET', path: '', signal })
    if (answer.status === 404) {
      await discard(answer)
      throw new PeerError('db_not_found', `could not open ${this.address}`)
    }
    const info = await this.#client.object(answer)
    const { update_seq, instance_start_time } = info
    return {
      updateSeq: positionOf(update_seq) ?? '0',
      instanceStartTime: instanceOf(instance_start_time),
    }
  }

  async create(params: Query, signal: AbortSignal): Promise<void> {
    const answer = await this.#client.send({ method: 'PUT', path: '', query: params, signal })
    if (answer.status === 412) return discard(answer)
    await this.#client.object(answer)
  }

  async pouchId(signal: AbortSignal): Promise<string> {
    const path = this.#client.url.pathname.replace(/\/$/, '')
    const root = new URL(path.slice(0, path.lastIndexOf('/') + 1), this.#client.url)
    const answer = await this.#client.sendTo(root, { method: 'GET', path: '', signal })
    const { uuid } = await this.#client.object(answer)
    // generateReplicationId of PouchDB: a server without a uuid is known by the address of the database.
    return typeof uuid === 'string' ? uuid + path.slice(path.lastIndexOf('/') + 1) : this.#client.url.href
  }

  async *changes(request: ChangesRequest): AsyncIterable<Uint8Array> {
    const { since, waits, signal } = request
    if (!waits) {
      yield* (await this.#feed(request, {}, signal)).chunks
      return
    }
    const turn = await this.#client.feedTurn(signal)
    const { timeoutMs } = this.#client
    const open = (query: Query, signal: AbortSignal) => this.#feed(request, query, signal)
    yield* waitingFeed({ turn, since, timeoutMs, signal, open })
  }

  async #feed(
    { since, limit, style, filter, waits }: ChangesRequest,
    waiting: Query,
    signal: AbortSignal,
  ): Promise<RemoteAnswer> {
    const { docIds, selector, filter: name, queryParams } = filter
    const query: Record<string, string> = { style, since: textOf(since), limit: String(limit), ...waiting }
    if (docIds !== undefined) query.filter = '_doc_ids'
    if (selector !== undefined) query.filter = '_selector'
    if (name !== undefined) Object.assign(query, textParams(queryParams), { filter: name })
    const json =
      docIds !== undefined ? { doc_ids: docIds } : selector !== undefined ? { selector } : undefined
    const method = json === undefined ? 'GET' : 'POST'
    const answer = await this.#client.send({
      method,
      path: '/_changes',
      query,
      ...(json && { json }),
      isFeed: waits,
      signal,
    })
    await this.#client.expect(answer)
    return answer
  }

  async pending(since: Position, signal: AbortSignal): Promise<number | null> {
    const query = { since: textOf(since), limit: '0' }
    const answer = await this.#client.send({ method: 'GET', path: '/_changes', query, signal })
    const { pending } = await this.#client.object(answer)
    return typeof pending === 'number' ? pending : null
  }

  async *revsDiff(body: Uint8Array, signal: AbortSignal): AsyncIterable<Uint8Array> {
    yield* await this.#post('/_revs_diff', body, signal)
  }

  async *bulkGet(body: Uint8Array, signal: AbortSignal): AsyncIterable<Uint8Array> {
    const query = { revs: 'true', latest: 'true' }
    const answer = await this.#client.send({ method: 'POST', path: '/_bulk_get', query, json: body, signal })
    if (ABSENT.has(answer.status)) {
      await discard(answer)
      throw new PeerError('not_supported', `${this.address} has no _bulk_get`)
    }
    await this.#client.expect(answer)
    yield* answer.chunks
  }

  async openRevs(
    id: string,
    revs: readonly string[],
    { attsSince, isInline }: { readonly attsSince: readonly string[]; readonly isInline: boolean },
    signal: AbortSignal,
  ): Promise<OpenedRevisions> {
    const query = {
      revs: 'true',
      latest: 'true',
      open_revs: JSON.stringify(revs),
      ...(attsSince.length > 0 && { atts_since: JSON.stringify(newest(attsSince)) }),
      ...(isInline && { attachments: 'true' }),
    }
    const headers = { accept: isInline ? 'application/json' : 'multipart/mixed, application/json;q=0.5' }
    const answer = await this.#client.send({ method: 'GET', path: documentPath(id), query, headers, signal })
    await this.#client.expect(answer)
    return { type: answer.type, chunks: answer.chunks }
  }

  async *bulkDocs(body: Uint8Array, signal: AbortSignal): AsyncIterable<Uint8Array> {
    yield* await this.#post('/_bulk_docs', body, signal)
  }

  async putRevision(id: string, revision: MultipartRevision, signal: AbortSignal): Promise<void> {
    const { body, start, end, boundary } = revision
    const answer = await this.#client.send({
      method: 'PUT',
      path: documentPath(id),
      query: { new_edits: 'false' },
      headers: {
        'content-type': `multipart/related; boundary="${boundary}"`,
        'content-length': String(end - start),
      },
      body:
        'bytes' in body
          ? body.bytes.subarray(start, end)
          : () => Readable.from(fileRange(body, start, end), { objectMode: false }),
      signal,
    })
    // Only an answer of a database shows that the revision is stored: a proxy may say 200, too.
    await this.#client.object(answer)
  }

  async readDocument(id: string, signal: AbortSignal): Promise<unknown> {
    const answer = await this.#client.send({ method: 'GET', path: documentPath(id), signal })
    if (answer.status === 404) {
      await discard(answer)
      return null
    }
    return this.#client.object(answer, id.startsWith(LOCAL_PREFIX) ? MAX_CHECKPOINT : undefined)
  }

  async writeLocal(id: string, doc: object, signal: AbortSignal): Promise<string> {
    const answer = await this.#client.send({ method: 'PUT', path: documentPath(id), json: doc, signal })
    const { rev } = await this.#client.object(answer)
    if (typeof rev === 'string') return rev
    throw new PeerError('invalid_answer', `${this.address}: ${id} was stored without a revision`)
  }

  async commit(signal: AbortSignal): Promise<string> {
    const path = '/_ensure_full_commit'
    const answer = await this.#client.send({ method: 'POST', path, json: {}, signal })
    if (ABSENT.has(answer.status)) {
      await discard(answer)
      return (await this.info(signal)).instanceStartTime
    }
    return instanceOf((await this.#client.object(answer)).instance_start_time)
  }

  async #post(path: string, json: Uint8Array, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const answer = await this.#client.send({ method: 'POST', path, json, signal })
    await this.#client.expect(answer)
    return answer.chunks
  }
}

/** Servers refuse long addresses, often above 8 kB. An ancestor that is not named only costs bytes. */
const MAX_ANCESTORS = 50

/** @returns the revisions with the highest generations */
function newest(revs: readonly string[]): readonly string[] {
  if (revs.length <= MAX_ANCESTORS) return revs
  const generation = (rev: string) => Number.parseInt(rev, 10)
  return [...revs].sort((a, b) => generation(b) - generation(a)).slice(0, MAX_ANCESTORS)
}

/** The first slash of a design or local document stays (protocol.md 2.2). */
function documentPath(id: string): string {
  const special = /^_(?:design|local)\//.exec(id)?.[0] ?? ''
  return `/${special}${encodeURIComponent(id.slice(special.length))}`
}

function textOf(position: Position): string {
  return String(position)
}
