/** Asks the old server what follows each token of a device, and so finds the local number that the token stands for. */
import type { Peer } from '../replication/peer.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import type { FeedPoint } from './feed-points.ts'
import { localRowsOf } from './local-rows.ts'
import { oldPages } from './old-feed.ts'

/** Rows that are read for one token, and for all tokens of a database. A token beyond them goes on from an older point. */
const MAX_TOKEN_ROWS = 20_000
const MAX_ROWS = 1_000_000

/**
 * @param tokens the newest first
 * @param known points that need no request
 * @param end as in {@link FeedPoints.list}
 * @returns points of the tokens that could be resolved
 * @throws PeerError, except for tokens that the old server does not understand
 */
export async function resolveTokens(
  tokens: readonly string[],
  {
    old,
    here,
    known,
    end,
    signal,
  }: {
    readonly old: Peer
    readonly here: DatabaseHandle
    readonly known: readonly FeedPoint[]
    readonly end: number
    readonly signal: AbortSignal
  },
): Promise<readonly FeedPoint[]> {
  const byToken = new Map(known.map((point) => [point.token, point]))
  const points: FeedPoint[] = []
  let rows = 0
  for (const token of tokens) {
    if (byToken.has(token)) continue
    const budget = Math.min(MAX_TOKEN_ROWS, MAX_ROWS - rows)
    if (budget <= 0) break
    const found = await leastAfter(token, { old, here, budget, signal })
    rows += found.rows
    if (found.least !== null) points.push({ token, seq: Math.min(found.least - 1, end) })
  }
  return points
}

/** @returns the smallest local number of the rows that follow; null if there are too many, or the token is not understood */
async function leastAfter(
  token: string,
  {
    old,
    here,
    budget,
    signal,
  }: {
    readonly old: Peer
    readonly here: DatabaseHandle
    readonly budget: number
    readonly signal: AbortSignal
  },
): Promise<{ readonly least: number | null; readonly rows: number }> {
  let least = Number.POSITIVE_INFINITY
  let rows = 0
  try {
    for await (const page of oldPages(old, token, signal)) {
      rows += page.length
      if (rows > budget) return { least: null, rows }
      const ids = page.map(({ id }) => id)
      const local = await localRowsOf(here, ids)
      for (const { seq } of local.values()) least = Math.min(least, seq)
    }
  } catch (error) {
    if (error instanceof PeerError && isRefusal(error)) return { least: null, rows }
    throw error
  }
  return { least, rows }
}

/** A server may not know a token of its own, and says so in its own way. */
function isRefusal({ isTemporary, fault }: PeerError): boolean {
  return !isTemporary || fault === 'invalid_answer' || fault === 'bad_request'
}
