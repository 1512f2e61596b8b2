/** The newest lines of the log, and those that follow; docs/settee-api.md. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { type FoundLine, type LineFilter, type LogTail, readLevel } from '../../config/log-tail.ts'
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { onRevocation, reauthorize } from '../plugins/revocation.ts'
import { streamJson } from '../replies.ts'
import { count, type Query, queryOf, textParam } from '../request-params.ts'
import { COUNT, registerPaths, type Schema } from '../route-table.ts'
import { openStream, type ResponseStream } from '../transport/json-stream.ts'

const DEFAULT_LINES = 200
const MAX_LINES = 5000
/** Continuous logs at once. */
const MAX_READERS = 64
/** Lines that are logged within this time go out together, in ms. */
const GATHER_MS = 100
const DEFAULT_HEARTBEAT_MS = 25_000
const MIN_HEARTBEAT_MS = 1000
const MAX_HEARTBEAT_MS = 60_000
const MAX_TIMEOUT_MS = 86_400_000

const QUERY: Schema = {
  type: 'object',
  properties: {
    limit: COUNT,
    heartbeat: COUNT,
    timeout: COUNT,
    feed: {
      type: 'string',
      pattern: '^(?:normal|continuous)$',
      refusal: ['bad_request', '`feed` must be normal or continuous.'],
    },
  },
}

/** What a caller asks for. */
interface LogQuery {
  readonly filter: LineFilter
  readonly limit: number
  /** The number of the first line; null: the newest lines. */
  readonly from: number | null
  readonly isContinuous: boolean
  /** In ms. */
  readonly heartbeat: number
  /** In ms; null: until the caller leaves. */
  readonly timeout: number | null
}

/** Ends and wakes the continuous logs. */
interface Readers {
  /** How many there are. */
  open: number
  /** Aborted when the app closes. */
  readonly closing: AbortSignal
  /** Called after a change that may have revoked somebody's rights. */
  readonly onRevocation: Set<() => void>
}

export async function logRoutes(app: FastifyInstance): Promise<void> {
  const closing = new AbortController()
  const readers: Readers = { open: 0, closing: closing.signal, onRevocation: new Set() }
  const stop = onRevocation(app, () => {
    for (const wake of readers.onRevocation) wake()
  })
  app.addHook('preClose', async () => {
    stop()
    closing.abort()
  })
  const handler = (request: FastifyRequest, reply: FastifyReply) => answerLog(readers, request, reply)
  registerPaths(app, [
    {
      url: '/_settee/log',
      allow: 'GET,HEAD',
      access: 'server admin',
      methods: { GET: { handler, query: QUERY } },
    },
  ])
}

async function answerLog(readers: Readers, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  const { log } = request.server.services
  const query = readQuery(log, queryOf(request))
  if (!query.isContinuous || request.method === 'HEAD') {
    return streamJson(request, reply, 200, wholeAnswer(log, query))
  }
  if (readers.open >= MAX_READERS) {
    throw new CouchError(
      'too_many_requests',
      `The log already has ${MAX_READERS} followers. Try again later.`,
    )
  }
  readers.open += 1
  request.isWaitingFeed = true
  try {
    const stream = openStream(request, reply, {
      status: 200,
      type: 'application/x-ndjson',
      headers: {
        'Cache-Control': 'no-store',
        'X-Accel-Buffering': 'no',
      },
      waits: true,
    })
    await new FollowedLog(log, query, stream, request, readers).run()
  } finally {
    readers.open -= 1
  }
}

/** @throws bad_request */
function readQuery(log: LogTail, query: Query): LogQuery {
  const level = readLevel(textParam(query, 'level') ?? 'debug')
  if (level === null) {
    throw new CouchError('bad_request', '`level` must be debug, info, notice, warn, error or fatal.')
  }
  const since = textParam(query, 'since')
  const from = since === undefined ? null : log.after(since)
  if (since !== undefined && from === null) {
    throw new CouchError('bad_request', '`since` must be a seq from an earlier answer.')
  }
  const heartbeat = count(query, 'heartbeat') ?? DEFAULT_HEARTBEAT_MS
  const timeout = count(query, 'timeout') ?? null
  return {
    filter: { level, text: textParam(query, 'filter') ?? '' },
    limit: Math.min(count(query, 'limit') ?? DEFAULT_LINES, MAX_LINES),
    from,
    isContinuous: textParam(query, 'feed') === 'continuous',
    heartbeat: Math.min(Math.max(heartbeat, MIN_HEARTBEAT_MS), MAX_HEARTBEAT_MS),
    timeout: timeout === null ? null : Math.min(timeout, MAX_TIMEOUT_MS),
  }
}

/** @returns the number of the first of the newest fitting lines */
async function startOfNewest(log: LogTail, { filter, limit }: LogQuery): Promise<number> {
  const yielder = new Yielder()
  let from = log.next
  for (let missing = limit; missing > 0; ) {
    const step = log.newest(from, filter, missing)
    from = step.from
    missing -= step.found
    if (step.isAll) break
    await yielder.yieldNow()
  }
  return from
}

async function* wholeAnswer(log: LogTail, query: LogQuery): AsyncGenerator<Uint8Array> {
  const start = query.from ?? (await startOfNewest(log, query))
  const end = log.next
  const yielder = new Yielder()
  let missed = 0
  let found = 0
  let next = start
  yield Buffer.from('{"lines":[')
  while (next < end && found < query.limit) {
    const page = log.page(next, query.filter, query.limit - found)
    const rows = page.lines.map((line) => rowOf(log, line))
    if (rows.length > 0) yield Buffer.from(`${found === 0 ? '\n' : ',\n'}${rows.join(',\n')}`)
    found += rows.length
    missed += page.missed
    next = page.next
    await yielder.yieldIfDue()
  }
  yield Buffer.from(`\n],"last_seq":${JSON.stringify(log.token(next - 1))},"missed":${missed}}\n`)
}

function rowOf(log: LogTail, { number, text }: FoundLine): string {
  return `{"seq":"${log.token(number)}","line":${text}}`
}

const HEARTBEAT = Buffer.from('\n')

/** One continuous log. It reads as fast as its client does, and says how many lines it has missed. */
class FollowedLog {
  readonly #log: LogTail
  readonly #query: LogQuery
  readonly #stream: ResponseStream
  readonly #request: FastifyRequest
  readonly #readers: Readers
  #next = 0

  constructor(
    log: LogTail,
    query: LogQuery,
    stream: ResponseStream,
    request: FastifyRequest,
    readers: Readers,
  ) {
    this.#log = log
    this.#query = query
    this.#stream = stream
    this.#request = request
    this.#readers = readers
  }

  /** Never rejects. */
  async run(): Promise<void> {
    const { timeout } = this.#query
    const signals = [this.#stream.signal, this.#readers.closing]
    const over = AbortSignal.any(timeout === null ? signals : [...signals, AbortSignal.timeout(timeout)])
    try {
      this.#next = this.#query.from ?? (await startOfNewest(this.#log, this.#query))
      let isSilent = false
      while (!over.aborted) {
        // Nothing goes to a caller whose rights are gone.
        await reauthorize(this.#request)
        if (isSilent) await this.#stream.write(HEARTBEAT)
        await this.#sendPages(over)
        isSilent = await this.#wait(over)
      }
      await this.#stream.write(Buffer.from(`{"last_seq":"${this.#log.token(this.#next - 1)}"}\n`))
    } catch {
      // The caller's rights are gone: the next request says why.
    }
    await this.#stream.end()
  }

  async #sendPages(over: AbortSignal): Promise<void> {
    const yielder = new Yielder()
    while (this.#next < this.#log.next && !over.aborted) {
      const { lines, next, missed } = this.#log.page(this.#next, this.#query.filter, MAX_LINES)
      this.#next = next
      const rows = lines.map((line) => `${rowOf(this.#log, line)}\n`)
      if (missed > 0) rows.unshift(`{"missed":${missed}}\n`)
      if (rows.length > 0) await this.#stream.write(Buffer.from(rows.join('')))
      await yielder.yieldIfDue()
    }
  }

  /** @returns whether nothing was logged for as long as the heartbeat takes */
  async #wait(over: AbortSignal): Promise<boolean> {
    const woken = new AbortController()
    const wake = () => woken.abort()
    const forget = this.#log.onLine(wake)
    this.#readers.onRevocation.add(wake)
    over.addEventListener('abort', wake)
    const timer = setTimeout(wake, this.#query.heartbeat)
    const before = this.#log.next
    if (!over.aborted) await once(woken.signal, 'abort')
    clearTimeout(timer)
    over.removeEventListener('abort', wake)
    this.#readers.onRevocation.delete(wake)
    forget()
    if (this.#log.next === before) return true
    await sleep(GATHER_MS, undefined, { signal: over }).catch(() => undefined)
    return false
  }
}
