import type { ClientRequest, IncomingMessage } from 'node:http'
import { advise } from './advice.ts'
import { type Client, codeOf, databasePath } from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Finding, fine, note, skipped, toldFailure, toYou, wrong } from './finding.ts'
import { GATEWAY } from './server-checks.ts'
import type { Pace } from './timing.ts'

/** A longpoll that nothing but heartbeats can reach. Times in ms since it was asked. */
interface FeedFacts {
  readonly heartbeatMs: number
  /** How long was waited at the most. */
  readonly watchedMs: number
  /** null: no head came. */
  readonly status: number | null
  /** When bytes came, each turn of the event loop once. */
  readonly arrivals: readonly number[]
  /** How it ended by itself; null: it did not. */
  readonly ended: 'order' | 'cut' | null
  readonly failure: string | null
}

/** Arrivals closer to one another than this share of a heartbeat are one. */
const APART = 0.3
/** A beat may be late by this much of itself. */
const LATE = 2.5

/** Judges whether the feed passes at once, or is kept back until there is more of it. */
export function judgeFeed(facts: FeedFacts, { stage, quote }: Scene): Finding {
  const { status, arrivals, ended, failure, heartbeatMs, watchedMs } = facts
  if (status !== null && status !== 200) return judgeStatus(status, stage)
  if (failure !== null) {
    return wrong('feed', `_changes fails: ${toldFailure(failure, quote)}.`, advise('cut', stage, 'proxy'))
  }
  const [first] = arrivals
  const beat = `a heartbeat every ${seconds(heartbeatMs)} was requested`
  if (ended !== null) {
    const how = ended === 'cut' ? 'was cut' : 'was ended'
    return wrong(
      'feed',
      `_changes ${how} at once, though nothing had changed.`,
      advise('cut', stage, 'proxy'),
    )
  }
  if (first === undefined) {
    return wrong(
      'feed',
      `Nothing of _changes arrived in ${seconds(watchedMs)}, though ${beat}: a proxy buffers it, so changes arrive late.`,
      advise('buffering', stage, 'proxy'),
    )
  }
  const gaps = gapsOf(arrivals, heartbeatMs, watchedMs)
  const still = Math.max(first, ...gaps)
  if (still > heartbeatMs * LATE) {
    if (stage.server === 'PouchDB Server') return note('feed', POUCH)
    return wrong(
      'feed',
      `_changes was silent for ${seconds(still)}, though ${beat}: a proxy buffers it.`,
      advise('buffering', stage, 'proxy'),
    )
  }
  return fine(
    'feed',
    `Not buffered: first byte after ${Math.round(first)} ms, then every ${seconds(Math.max(...gaps))}.`,
  )
}

/** It sends the first bytes at once, and then one every 6 s, whatever was asked for (express-pouchdb, routes/changes.js). */
const POUCH =
  'PouchDB Server sends a heartbeat only every 6 s, so it cannot be seen whether a proxy buffers the feed.'

/** The database has answered before: what is wrong is about `_changes` alone. */
function judgeStatus(status: number, stage: Scene['stage']): Finding {
  const text = `_changes answers ${status}.`
  if (status === 504 || status === 524) return wrong('feed', text, advise('cut', stage, 'proxy'))
  if (GATEWAY.has(status)) return wrong('feed', text, advise('upstream', stage, 'proxy'))
  return wrong(
    'feed',
    text,
    toYou('Look for a rule about _changes in the proxy or firewall in front of the server.'),
  )
}

/** @returns when beats came: what comes with another, such as the head's first byte, is one with it */
function beatsOf(arrivals: readonly number[], heartbeatMs: number): number[] {
  return arrivals.filter(
    (at, index) => at - (arrivals[index - 1] ?? Number.NEGATIVE_INFINITY) > heartbeatMs * APART,
  )
}

/** Between beats, and the silence at the end where it is longer than it may be. */
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
  /** In ms, as all here. */
  readonly lasted: number
  /** `open`: as long as was waited. */
  readonly ended: 'open' | 'order' | 'cut'
  readonly status: number | null
  readonly failure: string | null
  /** When the first byte came; null: none did. */
  readonly firstMs: number | null
  /** The longest time in which nothing came. */
  readonly silentMs: number
}

interface LongFacts {
  /** A continuous feed with heartbeats, which never ends by itself. */
  readonly beating: LongFeed
  /** What it was asked for. */
  readonly heartbeatMs: number
  /** A longpoll without, as apps ask for that use time-outs in their place. */
  readonly silent: LongFeed
}

/** Judges how long feeds live; null: they were not waited for. */
export function judgeLongFeed(facts: LongFacts | null, scene: Scene): Finding {
  if (facts === null)
    return skipped('long feed', 'Use --long to find out whether feeds are cut after a minute or two.')
  return judgeBeating(facts, scene) ?? judgeSilent(facts, scene)
}

/** @returns null where nothing is wrong with the feed that has heartbeats */
function judgeBeating({ beating, heartbeatMs }: LongFacts, scene: Scene): Finding | null {
  const { stage } = scene
  const lasted = wholeSeconds(beating.lasted)
  if (isCut(beating)) {
    const text = `A feed with heartbeats was cut after ${lasted}: ${how(beating, scene)}.`
    return wrong('long feed', text, advise('cut', stage, 'proxy'))
  }
  // Where an answer's end is the connection's, as with HTTP/1.0, a cut looks like this.
  if (beating.ended === 'order') {
    const text = `A feed with heartbeats was ended after ${lasted}, though it never ends by itself.`
    return wrong('long feed', text, advise('cut', stage, 'proxy'))
  }
  if (beating.silentMs <= heartbeatMs * LATE) return null
  const silence = beating.firstMs === null ? 'was silent' : `was silent for ${wholeSeconds(beating.silentMs)}`
  const text = `A feed with heartbeats ${silence} during ${lasted}: a proxy buffers it.`
  return wrong('long feed', text, advise('buffering', stage, 'proxy'))
}

function judgeSilent({ beating, silent }: LongFacts, scene: Scene): Finding {
  const lasted = wholeSeconds(silent.lasted)
  if (isCut(silent)) {
    return note(
      'long feed',
      `A feed without heartbeats was cut after ${lasted}: ${how(silent, scene)}. With heartbeats it stays open.`,
      advise('cut', scene.stage, 'proxy'),
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

function how({ status, failure }: LongFeed, { quote }: Scene): string {
  if (status !== null && status >= 400) return `${status}`
  return failure === null ? 'the connection was closed' : toldFailure(failure, quote)
}

function wholeSeconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`
}

// Feeds that are watched as their bytes come.

/**
 * Watches a longpoll that no change can end, since it asks for one document that is never there.
 * @param id of that document
 */
export async function watchFeed(client: Client, id: string, pace: Pace): Promise<FeedFacts> {
  const { heartbeatMs, feedMs, beats } = pace
  const query = `feed=longpoll&since=now&filter=_doc_ids&style=all_docs&heartbeat=${heartbeatMs}`
  const request = ask(client, query, { doc_ids: [id] })
  const watched = new Watched(request)
  // The first byte may come with the head, before any beat.
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

/** Keeps two feeds open at once, as long as it takes to see whether they are cut. */
export async function watchLong(
  client: Client,
  id: string,
  ms: number,
  heartbeatMs: number,
): Promise<LongFacts> {
  const one = `since=now&filter=_doc_ids`
  const body = { doc_ids: [id] }
  const [beating, silent] = await Promise.all([
    keep(ask(client, `feed=continuous&heartbeat=${heartbeatMs}&${one}`, body), ms),
    keep(ask(client, `feed=longpoll&${one}`, body), ms),
  ])
  return { beating, heartbeatMs, silent }
}

async function keep(request: ClientRequest, ms: number): Promise<LongFeed> {
  const watched = new Watched(request)
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
    // As browsers ask: what compresses may keep back, too.
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

/** An answer as it comes. Times in ms since it was asked for. */
class Watched {
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

  /** Watches until there is enough, the answer has ended, or the time is over; then lets go of it. */
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

/** A busy feed is not one that is to be listed: of what is beyond, the last alone. */
const MAX_ARRIVALS = 1000
