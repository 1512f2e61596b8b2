/** A feed that waits for news at a remote, in its turn. */

import type { Position } from '../requests/replication-request.ts'
import { News } from './answer-pace.ts'
import type { FeedTurn } from './feed-turns.ts'
import type { Query } from './remote-client.ts'
import type { RemoteAnswer } from './remote-requests.ts'

/** A feed that has sent this many bytes without news, heartbeats for example, is asked again. */
const MAX_BLANK = 4096

interface WaitingFeed {
  readonly turn: FeedTurn
  readonly since: Position
  /** How long an answer may be silent, in ms. */
  readonly timeoutMs: number
  readonly signal: AbortSignal
  /** Sends the request. */
  open(query: Query, signal: AbortSignal): Promise<RemoteAnswer>
}

/**
 * Reads a page of a feed that waits.
 * @returns the answer; an empty page if another feed took the turn before there was news
 * @throws PeerError; what `signal` is aborted with
 */
export async function* waitingFeed(feed: WaitingFeed): AsyncGenerator<Uint8Array> {
  const { turn, since, signal } = feed
  try {
    yield* untilTaken(feed)
  } catch (error) {
    if (signal.aborted || !turn.signal.aborted) throw error
    yield noNews(since)
  } finally {
    turn.end()
  }
}

async function* untilTaken({
  turn,
  since,
  timeoutMs,
  signal,
  open,
}: WaitingFeed): AsyncGenerator<Uint8Array> {
  const answer = await open(queryOf(turn, timeoutMs), AbortSignal.any([signal, turn.signal]))
  // Until there is news nothing is passed on, so that the turn can be given up.
  const head: Uint8Array[] = []
  const news = new News()
  let bytes = 0
  for await (const chunk of answer.chunks) {
    news.add(chunk)
    head.push(chunk)
    bytes += chunk.length
    if (news.hasCome) {
      turn.keep()
      yield* head.splice(0)
    } else if (bytes > MAX_BLANK) {
      yield noNews(since)
      return
    }
  }
  yield* head
}

function noNews(since: Position): Uint8Array {
  return Buffer.from(JSON.stringify({ results: [], last_seq: since, pending: 0 }))
}

/** CouchDB lets a heartbeat win over a timeout, so a feed asks for one of them. */
function queryOf({ holdMs }: FeedTurn, timeoutMs: number): Query {
  if (holdMs !== null)
    return { feed: 'longpoll', timeout: String(Math.floor(Math.min(holdMs, timeoutMs / 2))) }
  return { feed: 'longpoll', heartbeat: String(Math.max(1000, Math.floor(timeoutMs / 3))) }
}
