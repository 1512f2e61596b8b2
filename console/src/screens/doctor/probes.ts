/** The requests of the doctor, sent as apps send them. They collect facts; verdicts.ts says what these mean. */
import { addressOf, pathOf } from '../../api/client.ts'
import type { BodyFacts, FeedFacts, Reply } from './facts.ts'

interface RequestOptions {
  readonly method?: string
  readonly query?: Readonly<Record<string, string>>
  readonly json?: unknown
  readonly body?: Blob
  /** Sent instead of the session's cookie. */
  readonly authorization?: string
  /** In ms. Default: {@link ANSWER_MS}. */
  readonly timeoutMs?: number
}

const ANSWER_MS = 10_000
/** In characters. */
const MAX_TEXT = 10_000

/** Sends a request. @throws the signal's reason when it aborts; nothing else */
export async function request(path: string, options: RequestOptions, signal: AbortSignal): Promise<Reply> {
  const { timeoutMs = ANSWER_MS } = options
  const late = AbortSignal.timeout(timeoutMs)
  const started = performance.now()
  try {
    const answer = await begin(path, options, AbortSignal.any([signal, late]))
    const [at, ms] = [Date.now(), performance.now() - started]
    const text = await answer.text()
    const { status, headers, url } = answer
    const known = { text: text.slice(0, MAX_TEXT), json: parsed(text), protocol: protocolOf(url) }
    return { status, headers: [...headers], at, ms, ...known }
  } catch {
    signal.throwIfAborted()
    return { failure: late.aborted ? 'late' : 'none' }
  }
}

function begin(
  path: string,
  { method, query, json, body, authorization }: RequestOptions,
  signal: AbortSignal,
): Promise<Response> {
  const sent = json === undefined ? body : JSON.stringify(json)
  return fetch(addressOf(path, query), {
    method: method ?? (sent === undefined ? 'GET' : 'POST'),
    cache: 'no-store',
    // A proxy that sends elsewhere is found, not followed.
    redirect: 'follow',
    credentials: authorization === undefined ? 'same-origin' : 'omit',
    headers: {
      Accept: 'application/json',
      'X-CouchDB-WWW-Authenticate': 'Cookie',
      ...(sent !== undefined && { 'Content-Type': 'application/json' }),
      ...(authorization !== undefined && { Authorization: authorization }),
    },
    ...(sent !== undefined && { body: sent }),
    signal,
  })
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function protocolOf(url: string): string {
  const [entry] = performance.getEntriesByName(url, 'resource').slice(-1)
  return (entry as PerformanceResourceTiming | undefined)?.nextHopProtocol ?? ''
}

interface FeedOptions {
  readonly feed: 'longpoll' | 'continuous'
  readonly heartbeatMs: number
  /** How long it is watched, in ms. */
  readonly watchMs: number
  /** It is closed earlier after so many arrivals. */
  readonly enough: number
}

/** Arrivals that are recorded at most. */
const MAX_ARRIVALS = 500

/**
 * Watches a feed that no change can end, because it is about a document that does not exist.
 * @throws the signal's reason when it aborts
 */
export async function watchFeed(
  database: string,
  { feed, heartbeatMs, watchMs, enough }: FeedOptions,
  signal: AbortSignal,
): Promise<FeedFacts> {
  const closing = new AbortController()
  const timer = setTimeout(() => closing.abort(), watchMs)
  const started = performance.now()
  const arrivals: number[] = []
  let status: number | null = null
  let ended: FeedFacts['ended'] = 'open'
  try {
    const query = { feed, since: 'now', filter: '_doc_ids', heartbeat: String(heartbeatMs) }
    const answer = await begin(
      pathOf(database, '_changes'),
      { query, json: { doc_ids: [crypto.getRandomValues(new Uint32Array(4)).join('-')] } },
      AbortSignal.any([signal, closing.signal]),
    )
    status = answer.status
    for await (const _bytes of answer.body as unknown as AsyncIterable<Uint8Array>) {
      if (arrivals.length === MAX_ARRIVALS) arrivals.pop()
      arrivals.push(performance.now() - started)
      if (arrivals.length >= enough) closing.abort()
    }
    ended = 'order'
  } catch {
    signal.throwIfAborted()
    if (!closing.signal.aborted) ended = 'cut'
  } finally {
    clearTimeout(timer)
  }
  return { status, arrivals, ended, watchedMs: performance.now() - started, heartbeatMs }
}

/** Just above whole mebibytes, which are common limits of proxies. */
export const BODIES: readonly number[] = [1, 10].map((mebibytes) => mebibytes * 1_048_576 + 1024)
const BODY_MS = 120_000
const HEAD = '{"new_edits":false,"docs":['
const TAIL = ']}'

/** Sends a large body that stores nothing: a bulk without documents, filled with white space. */
export async function sendBody(database: string, bytes: number, signal: AbortSignal): Promise<BodyFacts> {
  const started = performance.now()
  const body = new Blob([HEAD, ' '.repeat(bytes - HEAD.length - TAIL.length), TAIL])
  const reply = await request(pathOf(database, '_bulk_docs'), { body, timeoutMs: BODY_MS }, signal)
  return { bytes, reply, ms: performance.now() - started }
}
