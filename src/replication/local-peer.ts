/** A database of this server, as one end of a replication, with the rights of the user who replicates. */
import { randomBytes } from 'node:crypto'
import type { WriteKind } from '../auth/policy.ts'
import { readFilter } from '../changes/filters.ts'
import { type ChangesOptions, PLAIN_CHANGES } from '../changes/rows.ts'
import { decodeSendable } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { newUuid } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { packRequest } from '../documents/function-request.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { LocalTurns } from './local-turns.ts'
import type { ChangesRequest, MultipartRevision, OpenedRevisions, Peer, PeerInfo } from './peer.ts'
import { faultOf, PeerError } from './peer-error.ts'
import { type Position, type ReplicationFilter, textParams } from './requests/replication-request.ts'

interface LocalPeerOptions {
  readonly databases: Pick<Databases, 'get' | 'has' | 'serverUuid'>
  readonly name: string
  readonly user: UserCtx
  /** For people. */
  readonly address: string
  /** Counts the calls; absent: they are not counted. */
  readonly turns?: LocalTurns
  /** Makes the database with the user's rights. */
  create(params: Readonly<Record<string, unknown>>): Promise<void>
}

/** How long a feed waits before it looks again, in ms. */
const WAIT_MS = 60_000

export class LocalPeer implements Peer {
  /** With one, a push of 50 attachments of 50 MB took half as long again, and no less memory. */
  readonly largeFetches = 4
  readonly #options: LocalPeerOptions

  constructor(options: LocalPeerOptions) {
    this.#options = options
  }

  get address(): string {
    return this.#options.address
  }

  info(): Promise<PeerInfo> {
    return this.#call(async (database, user) => {
      const { update_seq, instance_start_time } = await database.info(user)
      return { updateSeq: update_seq, instanceStartTime: instance_start_time }
    })
  }

  create(params: Readonly<Record<string, unknown>>): Promise<void> {
    return this.#translated(async () => {
      await this.#options.create(params).catch((error: unknown) => {
        if (!(error instanceof CouchError && error.code === 'file_exists')) throw error
      })
    })
  }

  async pouchId(): Promise<string> {
    return this.#options.databases.serverUuid + encodeURIComponent(this.#options.name)
  }

  async *changes(request: ChangesRequest): AsyncIterable<Uint8Array> {
    const { limit, waits, signal } = request
    const options = await this.#call((database, user) => feedOptions(database, user, request))
    let since: string | number = String(request.since)
    for (;;) {
      signal.throwIfAborted()
      const watch = await this.#watch(signal)
      try {
        const page = await this.#call((database, user) => database.changes(user, { options, since, limit }))
        if (page.rows > 0 || (page.atTip && !waits)) {
          const end = `],"last_seq":${JSON.stringify(page.lastToken)},"pending":${page.pending ?? 0}}`
          yield Buffer.concat([Buffer.from('{"results":['), page.bytes, Buffer.from(end)])
          return
        }
        since = page.lastSeq
        if (page.atTip) await watch.after(page.lastSeq)
      } finally {
        watch.end()
      }
    }
  }

  async pending(since: Position): Promise<number | null> {
    const page = await this.#call((database, user) =>
      database.changes(user, {
        options: { ...PLAIN_CHANGES, framing: 'json' },
        since: String(since),
        limit: 0,
      }),
    )
    return page.pending
  }

  async *revsDiff(body: Uint8Array): AsyncIterable<Uint8Array> {
    const answer = await this.#call((database, user) => database.revsDiff(user, { bytes: body }))
    yield Buffer.from(decodeSendable(answer))
  }

  bulkGet(body: Uint8Array): AsyncIterable<Uint8Array> {
    const options = { revs: true, latest: true }
    return this.#stream((database, user) => database.bulkGet(user, { bytes: body }, options))
  }

  async openRevs(
    id: string,
    revs: readonly string[],
    { attsSince, isInline }: { readonly attsSince: readonly string[]; readonly isInline: boolean },
  ): Promise<OpenedRevisions> {
    const since = attsSince.length > 0 ? { attsSince } : {}
    if (isInline) {
      const options = { revs: true, latest: true, attachments: true, ...since }
      const chunks = this.#stream((database, user) => database.openRevs(user, id, revs, options))
      return { type: 'application/json', chunks }
    }
    const boundary = randomBytes(16).toString('hex')
    const options = { revs: true, latest: true, ...since }
    const chunks = this.#stream((database, user) => database.openRevsMixed(user, id, revs, options, boundary))
    return { type: `multipart/mixed; boundary="${boundary}"`, chunks }
  }

  async *bulkDocs(body: Uint8Array): AsyncIterable<Uint8Array> {
    // The answer has rows only for documents that were refused.
    yield* await this.#write(body.length, 'list', async (database, user) => {
      const chunks: Uint8Array[] = []
      for await (const chunk of database.bulkDocs(user, { bytes: body })) chunks.push(chunk)
      return chunks
    })
  }

  async putRevision(id: string, { body, start, end, boundary }: MultipartRevision): Promise<void> {
    await this.#write(end - start, 'document', (database, user) =>
      database.put(user, id, body, { newEdits: false, boundary }),
    )
  }

  async readDocument(id: string): Promise<unknown> {
    try {
      const { json } = await this.#call((database, user) => database.open(user, id, {}))
      return JSON.parse(decodeSendable(json))
    } catch (error) {
      if (error instanceof PeerError && error.fault === 'not_found') return null
      throw error
    }
  }

  async writeLocal(id: string, doc: object): Promise<string> {
    const bytes = Buffer.from(JSON.stringify(doc))
    const { rev } = await this.#write(bytes.length, 'document', (database, user) =>
      database.put(user, id, { bytes }, {}),
    )
    return rev
  }

  async commit(): Promise<string> {
    // Every write that was answered is durable.
    return (await this.info()).instanceStartTime
  }

  async #watch(signal: AbortSignal): Promise<Watch> {
    try {
      return new Watch(await this.#options.databases.get(this.#options.name), signal)
    } catch (error) {
      throw await this.#faultOf(error)
    }
  }

  #call<T>(use: (database: DatabaseHandle, user: UserCtx) => Promise<T>): Promise<T> {
    const { databases, name, user, turns } = this.#options
    return this.#translated(async () =>
      turns === undefined
        ? use(await databases.get(name), user)
        : turns.call(async (caller) => use(await databases.get(name), caller)),
    )
  }

  #write<T>(
    length: number,
    kind: WriteKind,
    use: (database: DatabaseHandle, user: UserCtx) => Promise<T>,
  ): Promise<T> {
    const { databases, name, turns } = this.#options
    if (turns === undefined) return this.#call(use)
    return this.#translated(() =>
      turns.write(length, kind, async (writer) => use(await databases.get(name), writer)),
    )
  }

  async *#stream(
    use: (database: DatabaseHandle, user: UserCtx) => AsyncIterable<Uint8Array>,
  ): AsyncGenerator<Uint8Array> {
    const { databases, name, user, turns } = this.#options
    const leave = await turns?.enter()
    try {
      yield* use(await databases.get(name), user)
    } catch (error) {
      throw await this.#faultOf(error)
    } finally {
      leave?.()
    }
  }

  async #translated<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      throw await this.#faultOf(error)
    }
  }

  async #faultOf(error: unknown): Promise<unknown> {
    if (!(error instanceof CouchError)) return error
    const { databases, name, address } = this.#options
    // A restore or a repair of damage may have replaced it meanwhile; the next try finds it.
    const isReplaced = error.code === 'no_database' && (await databases.has(name).catch(() => true))
    const fault = isReplaced ? new CouchError('unavailable', undefined, { cause: error }) : error
    if (fault.code === 'no_database') return new PeerError('db_not_found', `could not open ${address}`)
    return new PeerError(faultOf(fault.code), `${address}: ${fault.message}`, { cause: fault })
  }
}

async function feedOptions(
  database: DatabaseHandle,
  user: UserCtx,
  { style, filter }: ChangesRequest,
): Promise<ChangesOptions> {
  const { docIds, selector, filter: name } = filter
  const params = textParams(filter.queryParams)
  const body = {
    ...(docIds && { docIds }),
    ...(selector && { selector: JSON.stringify(selector) }),
  }
  const query = { filter: filterName(filter), docIds: undefined, view: params.view }
  const options = await readFilter(query, body, async () =>
    packRequest({
      info: await database.info(user),
      uuid: newUuid(),
      id: null,
      method: 'GET',
      path: [database.name, '_changes'],
      rawPath: `/${encodeURIComponent(database.name)}/_changes`,
      query: { ...params, filter: name },
      headers: {},
      body: undefined,
      peer: '127.0.0.1',
      form: {},
    }),
  )
  return { ...PLAIN_CHANGES, framing: 'json', style, ...options }
}

function filterName({ docIds, selector, filter = '' }: ReplicationFilter): string {
  if (docIds !== undefined) return '_doc_ids'
  return selector === undefined ? filter : '_selector'
}

/** Waits for a commit, from before a page is read so that none is missed. */
class Watch {
  readonly #signal: AbortSignal
  readonly #unwatch: () => void
  #seq = -1
  #wake: () => void = () => {}

  constructor(database: Pick<DatabaseHandle, 'watch'>, signal: AbortSignal) {
    this.#signal = signal
    this.#unwatch = database.watch((event) => {
      if (event.type === 'committed') this.#seq = Math.max(this.#seq, event.updateSeq)
      else if (event.type === 'closed') this.#seq = Number.POSITIVE_INFINITY
      this.#wake()
    })
  }

  /** Resolves after a commit beyond `seq`, the end of the database, an abort, or a minute. */
  async after(seq: number): Promise<void> {
    if (this.#seq > seq || this.#signal.aborted) return
    let timer: NodeJS.Timeout | undefined
    await new Promise<void>((resolve) => {
      this.#wake = () => {
        if (this.#seq > seq || this.#signal.aborted) resolve()
      }
      this.#signal.addEventListener('abort', this.#wake)
      timer = setTimeout(resolve, WAIT_MS)
    })
    clearTimeout(timer)
    this.#signal.removeEventListener('abort', this.#wake)
  }

  end(): void {
    this.#unwatch()
  }
}
