/** Checks whether feeds arrive without delay, and how long they stay open. */
import type { ClientRequest, IncomingMessage } from 'node:http'
import { advise, type CheckContext } from './advice.ts'
import { type Client, codeOf, databasePath, type ProbeLimits } from './doctor-client.ts'
import { adviceToUser, describeFailure, type Finding, fine, note, skipped, wrong } from './finding.ts'
import { GATEWAY } from './server-checks.ts'

/** A longpoll that gets only heartbeats. Times are in ms since the request. */
interface FeedFacts {
  readonly heartbeatMs: number
  /** How long the feed was watched. */
  readonly watchedMs: number
  /** null: no head arrived. */
  readonly status: number | null
  /** When bytes arrived. */
  readonly arrivals: readonly number[]
  /** How the feed ended: normally (`order`) or `cut`; null: it did not end. */
  readonly ended: 'order' | 'cut' | null
  readonly failure: string | null
}

/** Arrivals count as one if they are closer together than this fraction of a heartbeat. */
const APART = 0.3
/** A silence longer than this many heartbeats is a fault. */
const LATE = 2.5

/** Checks whether a proxy buffers the feed. */
export function checkFeed(facts: FeedFacts, { stack, quote }: CheckContext): Finding {
  const { status, arrivals, ended, failure, heartbeatMs, watchedMs } = facts
  if (status !== null && status !== 200) return feedStatus(status, stack)
  if (failure !== null) {
    return wrong('feed', `_changes fails: ${describeFailure(failure, quote)}.`, advise('cut', stack, 'proxy'))
  }
  const [first] = arrivals
  const beat = `a heartbeat every ${seconds(heartbeatMs)} was requested`
  if (ended !== null) {
    const how = ended === 'cut' ? 'was cut' : 'was ended'
    return wrong(
      'feed',
      `_changes ${how} at once, though nothing had changed.`,
      advise('cut', stack, 'proxy'),
    )
  }
  if (first === undefined) {
    return wrong(
      'feed',
      `Nothing of _changes arrived in ${seconds(watchedMs)}, though ${beat}: a proxy buffers it, so changes arrive late.`,
      advise('buffering', stack, 'proxy'),
    )
  }
  const gaps = gapsOf(arrivals, heartbeatMs, watchedMs)
  const longest = Math.max(first, ...gaps)
  if (longest > heartbeatMs * LATE) {
    if (stack.server === 'PouchDB Server') return note('feed', POUCHDB_SERVER)
    return wrong(
      'feed',
      `_changes was silent for ${seconds(longest)}, though ${beat}: a proxy buffers it.`,
      advise('buffering', stack, 'proxy'),
    )
  }
  return fine(
    'feed',
    `Not buffered: first byte after ${Math.round(first)} ms, then every ${seconds(Math.max(...gaps))}.`,
  )
}

/**
 * PouchDB Server ignores the requested interval, and sends a heartbeat every 6 s (express-pouchdb, routes/changes.js).
 */
const POUCHDB_SERVER =
  'PouchDB Server sends a heartbeat only every 6 s, so it cannot be seen whether a proxy buffers the feed.'

/** The database has already answered, so the fault concerns only `_changes`. */
function feedStatus(status: number, stack: CheckContext['stack']): Finding {
  const text = `_changes answers ${status}.`
  if (status === 504 || status === 524) return wrong('feed', text, advise('cut', stack, 'proxy'))
  if (GATEWAY.has(status)) return wrong('feed', text, advise('upstream', stack, 'proxy'))
  return wrong(
    'feed',
    text,
    adviceToUser('Look for a rule about _changes in the proxy or firewall in front of the server.'),
  )
}

/** @returns when heartbeats arrived; arrivals close together, such as the head's first byte, count as one */
function beatsOf(arrivals: readonly number[], heartbeatMs: number): number[] {
  return arrivals.filter(
    (at, index) => at - (arrivals[index - 1] ?? Number.NEGATIVE_INFINITY) > heartbeatMs * APART,
  )
}

/** @returns the times between heartbeats, and the silence at the end if it is too long */
function gapsOf(arrivals: readonly number[], heartbeatMs: number, watchedMs: number): number[] {
  const beats = beatsOf(arrivals, heartbeatMs)
  const gaps = beats.slice(1).map((at, index) => at - beats[index]!)
  const silence = watchedMs - (arrivals.at(-1) ?? 0)
  return gaps.length === 0 || silence > heartbeatMs * LATE ? [...gaps, silence] : gaps
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}

/** A feed that was kept open. */
interface LongFeed {
  /** In ms, like all times here. */
  readonly lasted: number
  /** `open`: it was still open at the end of the check. */
  readonly ended: 'open' | 'order' | 'cut'
  readonly status: number | null
  readonly failure: string | null
  /** When the first byte arrived; null: none did. */
  readonly firstMs: number | null
  /** The longest silence. */
  readonly silentMs: number
}

interface LongFacts {
  /** A continuous feed with heartbeats, which never ends by itself. */
  readonly beating: LongFeed
  /** Its requested interval. */
  readonly heartbeatMs: number
  /** A longpoll without heartbeats, as apps request that rely on time-outs. */
  readonly silent: LongFeed
}

/** Checks how long feeds stay open. @param facts null: not tried */
export function checkLongFeed(facts: LongFacts | null, context: CheckContext): Finding {
  if (facts === null)
    return skipped('long feed', 'Use --long to find out whether feeds are cut after a minute or two.')
  return heartbeatFault(facts, context) ?? silentFeed(facts, context)
}

/** @returns null if the feed with heartbeats has no fault */
function heartbeatFault({ beating, heartbeatMs }: LongFacts, context: CheckContext): Finding | null {
  const { stack } = context
  const lasted = wholeSeconds(beating.lasted)
  if (isCut(beating)) {
    const text = `A feed with heartbeats was cut after ${lasted}: ${how(beating, context)}.`
    return wrong('long feed', text, advise('cut', stack, 'proxy'))
  }
  // In HTTP/1.0, closing the connection ends the answer, so a cut looks like a normal end.
  if (beating.ended === 'order') {
    const text = `A feed with heartbeats was ended after ${lasted}, though it never ends by itself.`
    return wrong('long feed', text, advise('cut', stack, 'proxy'))
  }
  if (beating.silentMs <= heartbeatMs * LATE) return null
  const silence = beating.firstMs === null ? 'was silent' : `was silent for ${wholeSeconds(beating.silentMs)}`
  const text = `A feed with heartbeats ${silence} during ${lasted}: a proxy buffers it.`
  return wrong('long feed', text, advise('buffering', stack, 'proxy'))
}

function silentFeed({ beating, silent }: LongFacts, context: CheckContext): Finding {
  const lasted = wholeSeconds(silent.lasted)
  if (isCut(silent)) {
    return note(
      'long feed',
      `A feed without heartbeats was cut after ${lasted}: ${how(silent, context)}. With heartbeats it stays open.`,
      advise('cut', context.stack, 'proxy'),
    )
  }
  const other = silent.ended === 'open' ? 'stayed open as long' : `ended normally after ${lasted}`
  return fine(
    'long feed',
    `A feed with heartbeats stayed open for ${wholeSeconds(beating.lasted)}, never silent for more than ${wholeSeconds(beating.silentMs)}; one without heartbeats ${other}.`,
  )
}

function isCut({ ended, status }: LongFeed): boolean {
  return ended === 'cut' || (status !== null && status >= 400)
}

function how({ status, failure }: LongFeed, { quote }: CheckContext): string {
  if (status !== null && status >= 400) return `${status}`
  return failure === null ? 'the connection was closed' : describeFailure(failure, quote)
}

function wholeSeconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`
}

/**
 * Watches a longpoll that no change can end, because it filters for a document that never exists.
 * @param id of that document
 */
export async function watchFeed(client: Client, id: string, limits: ProbeLimits): Promise<FeedFacts> {
  const { heartbeatMs, feedMs, beats } = limits
  const query = `feed=longpoll&since=now&filter=_doc_ids&style=all_docs&heartbeat=${heartbeatMs}`
  const request = ask(client, query, { doc_ids: [id] })
  const watched = new FeedRecorder(request)
  // The first byte may arrive with the head, before the first heartbeat.
  const isEnough = () => beatsOf(watched.arrivals, heartbeatMs).length > beats
  await watched.until(feedMs, isEnough)
  return {
    heartbeatMs,
    watchedMs: watched.elapsed(),
    status: watched.status,
    arrivals: watched.arrivals,
    ended: watched.ended,
    failure: watched.failure,
  }
}

/** Keeps two feeds open at the same time, and records whether they are cut. */
export async function watchLongFeeds(
  client: Client,
  id: string,
  ms: number,
  heartbeatMs: number,
): Promise<LongFacts> {
  const one = `since=now&filter=_doc_ids`
  const body = { doc_ids: [id] }
  const [beating, silent] = await Promise.all([
    recordLongFeed(ask(client, `feed=continuous&heartbeat=${heartbeatMs}&${one}`, body), ms),
    recordLongFeed(ask(client, `feed=longpoll&${one}`, body), ms),
  ])
  return { beating, heartbeatMs, silent }
}

async function recordLongFeed(request: ClientRequest, ms: number): Promise<LongFeed> {
  const watched = new FeedRecorder(request)
  await watched.until(ms, () => false)
  const { status, ended, failure, arrivals } = watched
  const lasted = watched.elapsed()
  const silences = [...arrivals, lasted].map((at, index) => at - (arrivals[index - 1] ?? 0))
  return {
    lasted,
    status,
    ended: failure === null ? (ended ?? 'open') : 'cut',
    failure,
    firstMs: arrivals[0] ?? null,
    silentMs: Math.max(...silences),
  }
}

function ask(client: Client, query: string, body: unknown): ClientRequest {
  const text = JSON.stringify(body)
  const headers = {
    'content-type': 'application/json',
    'content-length': String(Buffer.byteLength(text)),
    // As in browsers: a proxy that compresses may buffer the feed.
    'accept-encoding': 'gzip, deflate',
  }
  const request = client.begin({
    method: 'POST',
    path: `${databasePath(client.address)}/_changes?${query}`,
    headers,
  })
  request.end(text)
  return request
}

/** Records when the bytes of an answer arrive. Times are in ms since the request. */
class FeedRecorder {
  readonly arrivals: number[] = []
  status: number | null = null
  ended: 'order' | 'cut' | null = null
  failure: string | null = null
  readonly #request: ClientRequest
  readonly #started = performance.now()
  #wake: () => void = () => undefined

  constructor(request: ClientRequest) {
    this.#request = request
    request.on('response', (response) => this.#read(response))
    request.on('error', (error) => {
      this.failure ??= codeOf(error)
      this.#wake()
    })
  }

  elapsed(): number {
    return performance.now() - this.#started
  }

  /** Records until `isEnough`, the end of the answer, or the time-out. Then closes the connection. */
  async until(ms: number, isEnough: () => boolean): Promise<void> {
    const step = Math.max(10, Math.min(100, ms / 20))
    while (this.elapsed() < ms && this.ended === null && this.failure === null && !isEnough()) {
      await this.#pause(Math.min(step, ms - this.elapsed()))
    }
    const { failure, ended } = this
    this.#request.destroy()
    this.failure = failure
    this.ended = ended
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(1, ms))
      this.#wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  }

  #read(response: IncomingMessage): void {
    this.status = response.statusCode ?? null
    response.on('data', () => {
      if (this.arrivals.length === MAX_ARRIVALS) this.arrivals.pop()
      this.arrivals.push(this.elapsed())
    })
    response.on('end', () => this.#end('order'))
    response.on('error', () => this.#end('cut'))
    response.on('close', () => this.#end(response.complete ? 'order' : 'cut'))
  }

  #end(how: 'order' | 'cut'): void {
    this.ended ??= how
    this.#wake()
  }
}

/** How many arrivals are recorded. The last entry is overwritten by later arrivals. */
const MAX_ARRIVALS = 1000
