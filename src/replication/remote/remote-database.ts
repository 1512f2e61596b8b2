/** A database of another server, with what replication does not copy. It is only read; the calls are CouchDB's. */
import { isJsonObject } from '../../core/json.ts'
import { positionOf } from '../checkpoint.ts'
import { type JsonPart, jsonParts, memberIn, NULL, parsed } from '../json-parts.ts'
import { PeerError, type PeerFault } from '../peer-error.ts'
import type { Position, RemoteEndpoint } from '../requests/replication-request.ts'
import { discard, instanceOf, type Query, type RemoteCall, RemoteClient } from './remote-client.ts'
import { RemotePeer } from './remote-peer.ts'
import type { RemoteOptions } from './remote-pools.ts'
import type { RemoteConnections } from './remote-requests.ts'

export interface RemoteDatabaseInfo {
  readonly documents: number
  readonly deleted: number
  /** The size of the file, and of what is in use in it, in bytes; null: the server does not say. */
  readonly fileBytes: number | null
  readonly activeBytes: number | null
  readonly updateSeq: Position
  readonly instanceStartTime: string
  readonly isPartitioned: boolean
  readonly purgeSeq: Position
}

const PAGE_LOCALS = 100
/** The most `_local` documents of a database. */
const MAX_LOCALS = 1_000_000
/** The most bytes of one document, a row of a list or a value. CouchDB and settee store 8,000,000, unless they are told otherwise. */
const MAX_VALUE = 8 * 1024 * 1024
/** What a server answers that does not have a call. */
export const ABSENT: readonly PeerFault[] = ['not_found', 'invalid_answer', 'bad_request', 'rejected']
const ROWS = new Set(['rows'])
const OPEN_OBJECT = 0x7b

export class RemoteDatabase {
  readonly name: string
  readonly endpoint: RemoteEndpoint
  /** Its documents. */
  readonly peer: RemotePeer
  readonly #client: RemoteClient

  constructor(
    name: string,
    endpoint: RemoteEndpoint,
    connections: RemoteConnections,
    options: RemoteOptions,
  ) {
    this.name = name
    this.endpoint = endpoint
    this.peer = new RemotePeer(endpoint, connections, options)
    this.#client = new RemoteClient(endpoint, connections, options)
  }

  /** @throws PeerError */
  async info(signal: AbortSignal): Promise<RemoteDatabaseInfo> {
    const info = await this.#client.object(await this.#client.send({ method: 'GET', path: '', signal }))
    const {
      doc_count,
      doc_del_count,
      sizes,
      disk_size,
      data_size,
      update_seq,
      purge_seq,
      instance_start_time,
      props,
    } = info
    const { file = disk_size, active = data_size } = isJsonObject(sizes) ? sizes : {}
    return {
      documents: numberOr(doc_count, 0),
      deleted: numberOr(doc_del_count, 0),
      fileBytes: numberOr(file, null),
      activeBytes: numberOr(active, null),
      updateSeq: positionOf(update_seq) ?? '0',
      instanceStartTime: instanceOf(instance_start_time),
      purgeSeq: positionOf(purge_seq) ?? '0',
      isPartitioned: isJsonObject(props) && props.partitioned === true,
    }
  }

  /** @returns the security object; null if the server has none @throws PeerError */
  async security(signal: AbortSignal): Promise<Readonly<Record<string, unknown>> | null> {
    const text = await this.#value('/_security', signal)
    const security: unknown = text === null ? null : parsed(text)
    return isJsonObject(security) ? security : null
  }

  /** @returns null if the server has none @throws PeerError */
  async revsLimit(signal: AbortSignal): Promise<number | null> {
    const text = (await this.#value('/_revs_limit', signal))?.toString().trim() ?? ''
    return /^\d+$/.test(text) ? Number(text) : null
  }

  /** @returns the winning revision; null if the document is deleted or missing @throws PeerError */
  async winner(id: string, signal: AbortSignal): Promise<string | null> {
    const call = { path: '/_all_docs', query: { key: JSON.stringify(id) }, signal }
    for await (const { member, bytes } of partsFrom(this.#client, call, ROWS)) {
      if (member !== 'rows') continue
      const row = parsed<unknown>(bytes)
      const value = isJsonObject(row) && isJsonObject(row.value) ? row.value : {}
      return value.deleted === true ? null : textOrNull(value.rev)
    }
    return null
  }

  /** The ids and languages of the design documents. @throws PeerError */
  async *designDocs(signal: AbortSignal): AsyncGenerator<{ readonly id: string; readonly language: string }> {
    const query: Query = { include_docs: 'true', startkey: '"_design/"', endkey: '"_design0"' }
    const call = { path: '/_all_docs', query, signal }
    for await (const { member, bytes } of partsFrom(this.#client, call, ROWS)) {
      if (member !== 'rows') continue
      const doc = bytes[0] === OPEN_OBJECT ? await memberIn(bytes, 'doc') : null
      if (doc?.[0] !== OPEN_OBJECT) continue
      const text = async (member: string) => textOrNull(parsed((await memberIn(doc, member)) ?? NULL))
      const id = await text('_id')
      if (id !== null) yield { id, language: (await text('language')) ?? 'javascript' }
    }
  }

  /**
   * The `_local` documents as JSON texts, in pages.
   * @returns null if the server cannot list them, as CouchDB 1 and PouchDB's server
   * @throws PeerError
   */
  async localDocs(signal: AbortSignal): Promise<AsyncIterable<Buffer> | null> {
    const query: Query = { limit: '0' }
    const answer = await this.#client.send({ method: 'GET', path: '/_local_docs', query, signal })
    try {
      const { rows } = await this.#client.object(answer)
      if (!Array.isArray(rows)) return null
    } catch (error) {
      if (isOneOf(ABSENT, error)) return null
      throw error
    }
    return this.#pagesOfLocalDocs(signal)
  }

  async *#pagesOfLocalDocs(signal: AbortSignal): AsyncGenerator<Buffer> {
    let all = 0
    for (let last: string | null = null; ; ) {
      const query: Query = {
        include_docs: 'true',
        limit: String(PAGE_LOCALS),
        ...(last !== null && { start_key: JSON.stringify(last) }),
      }
      const before: string | null = last
      let rows = 0
      for await (const { member, bytes } of partsFrom(
        this.#client,
        { path: '/_local_docs', query, signal },
        ROWS,
      )) {
        if (member !== 'rows') continue
        if (bytes[0] !== OPEN_OBJECT) continue
        const id: string | null = textOrNull(parsed((await memberIn(bytes, 'id')) ?? NULL))
        const doc = await memberIn(bytes, 'doc')
        if (id === null) continue
        rows += 1
        all += 1
        last = id
        if (all > MAX_LOCALS) {
          throw new PeerError('invalid_answer', `${this.#client.address}_local_docs does not end`)
        }
        if (last !== before && doc?.[0] === OPEN_OBJECT) yield doc
      }
      if (rows < PAGE_LOCALS || last === before) return
    }
  }

  /** @param id without `_local/` @returns the document's JSON text; null if there is none @throws PeerError */
  localDoc(id: string, signal: AbortSignal): Promise<Buffer | null> {
    return this.#value(`/_local/${encodeURIComponent(id)}`, signal)
  }

  /** @returns null if the server does not have it */
  async #value(path: string, signal: AbortSignal): Promise<Buffer | null> {
    const answer = await this.#client.send({ method: 'GET', path, signal })
    if (answer.status === 404 || answer.status === 405) {
      await discard(answer)
      return null
    }
    await this.#client.expect(answer)
    const chunks: Uint8Array[] = []
    let bytes = 0
    for await (const chunk of answer.chunks) {
      chunks.push(chunk)
      bytes += chunk.length
      if (bytes > MAX_VALUE) {
        throw new PeerError(
          'invalid_answer',
          `${this.#client.address}${path} has more than ${MAX_VALUE} bytes`,
        )
      }
    }
    return Buffer.concat(chunks)
  }
}

/** The parts of an answer. @throws PeerError */
export async function* partsFrom(
  client: RemoteClient,
  call: Pick<RemoteCall, 'path' | 'query' | 'signal' | 'mayWait'>,
  lists?: ReadonlySet<string>,
): AsyncGenerator<JsonPart> {
  const answer = await client.send({ method: 'GET', ...call })
  await client.expect(answer)
  yield* jsonParts(answer.chunks, { maxPart: MAX_VALUE, ...(lists && { lists }) })
}

/** Whether an error is one of these faults of a server. */
export function isOneOf(faults: readonly PeerFault[], error: unknown): boolean {
  return error instanceof PeerError && faults.includes(error.fault)
}

/** A text of an answer; null for anything else. */
export function textOrNull(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}

function numberOr<Otherwise>(value: unknown, otherwise: Otherwise): number | Otherwise {
  return typeof value === 'number' ? value : otherwise
}
