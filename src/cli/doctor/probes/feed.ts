/** Feeds that are watched as their bytes come. */
import type { ClientRequest, IncomingMessage } from 'node:http'
import { type Client, codeOf, databasePath } from '../client.ts'
import { beatsOf, type FeedFacts } from '../findings/feed.ts'
import type { LongFacts, LongFeed } from '../findings/long-feed.ts'
import type { Pace } from '../pace.ts'

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
