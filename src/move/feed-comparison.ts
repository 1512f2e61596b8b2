/**
 * Compares all leaves of the old database with those here, in one pass over the old feed, and finds which local numbers
 * its positions stand for (feed-points.ts).
 */

import { decodeSendable } from '../core/bytes.ts'
import { Yielder } from '../core/event-loop.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { BEGINNING } from '../replication/checkpoint.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import type { FeedPoints } from './feed-points.ts'
import {
  type Differences,
  type DoubtfulWinner,
  Examples,
  FeedTally,
  type MissingDocument,
} from './feed-tally.ts'
import { localPages, localRowsOf } from './local-rows.ts'
import { oldPages } from './old-feed.ts'

export interface FeedComparison {
  /** Documents of the old database. */
  readonly live: number
  readonly deleted: number
  readonly leaves: number
  /** Documents with leaves that are not here. */
  readonly missing: Differences
  /** Whether so much is missing that the database must be compared again after another copy. */
  readonly isOverfull: boolean
  /** Documents with more leaves here, because somebody has written to them here. */
  readonly changedHere: Differences
  /** Documents that only exist here. */
  readonly onlyHere: number
  readonly differentWinners: Differences
  /** Digests of the leaves of the old database, and of the same documents here. */
  readonly oldDigest: string
  readonly newDigest: string
  readonly points: FeedPoints
  /** The local number that the end of the old feed stands for. */
  readonly end: number
  /** A few live documents from all parts of the feed, with their winners. */
  readonly sample: FeedTally['sample']
}

interface ComparisonOptions {
  readonly signal: AbortSignal
  /** Documents whose leaves may differ, since each server makes its own. */
  readonly ownIds: ReadonlySet<string>
  /** Copies what devices have written to the old database meanwhile. */
  copyAgain(): Promise<void>
  /** @param rows that were compared so far */
  onProgress(rows: number): void
}

/** @throws PeerError; what `signal` is aborted with */
export async function compareFeeds(
  old: RemoteDatabase,
  here: DatabaseHandle,
  { signal, ownIds, copyAgain, onProgress }: ComparisonOptions,
): Promise<FeedComparison> {
  const { update_seq, doc_count, doc_del_count } = await here.info(SYSTEM_USER)
  const tally = new FeedTally(Number.parseInt(update_seq, 10), ownIds)
  const yielder = new Yielder()
  for await (const page of oldPages(old.peer, BEGINNING, signal)) {
    const ids = page.map(({ id }) => id)
    const local = await localRowsOf(here, ids)
    for (const row of page) {
      tally.add(row, local.get(row.id))
      await yielder.yieldIfDue()
    }
    onProgress(tally.rows)
  }
  const missing = new Examples()
  if (tally.missing.length > 0) {
    await copyAgain()
    await recheckMissing(tally, here, missing)
  }
  const onlyHere = doc_count + doc_del_count - tally.found
  // What no device of the old server has must follow every position.
  const firstOwn = onlyHere > 0 ? await firstUnmarked(here, tally) : Number.POSITIVE_INFINITY
  const { live, deleted, leaves, isOverfull, points, sample } = tally
  return {
    live,
    deleted,
    leaves,
    missing: missing.list(),
    isOverfull,
    changedHere: tally.changedHere.list(),
    onlyHere,
    differentWinners: await otherWinners(old, tally.doubtful, signal),
    oldDigest: tally.oldDigest.toString(),
    newDigest: tally.newDigest.toString(),
    points,
    end: tally.endBefore(firstOwn),
    sample,
  }
}

/** Checks documents again that were missing. A copied one has a local number beyond the end that was known before. */
async function recheckMissing(tally: FeedTally, here: DatabaseHandle, missing: Examples): Promise<void> {
  const rows = await localRowsOf(
    here,
    tally.missing.map(({ id }) => id),
  )
  const lacking = await lackingOf(here, tally.missing)
  for (const document of tally.missing) {
    const isHere = !lacking.has(document.id)
    if (!isHere) missing.add(document.id)
    tally.recheck(document, rows.get(document.id), isHere)
  }
}

/** @returns the ids of documents with revisions that are still unknown here */
async function lackingOf(
  here: DatabaseHandle,
  documents: readonly MissingDocument[],
): Promise<ReadonlySet<string>> {
  const asked = Object.fromEntries(documents.map(({ id, leaves }) => [id, leaves]))
  const answer = await here.revsDiff(SYSTEM_USER, { bytes: Buffer.from(JSON.stringify(asked)) })
  return new Set(Object.keys(JSON.parse(decodeSendable(answer)) as object))
}

/** Asks for the winners, since PouchDB's server does not list them first. */
async function otherWinners(
  old: RemoteDatabase,
  doubtful: readonly DoubtfulWinner[],
  signal: AbortSignal,
): Promise<Differences> {
  const found = new Examples()
  for (const { id, winner } of doubtful) {
    if ((await old.winner(id, signal)) !== winner) found.add(id)
  }
  return found.list()
}

async function firstUnmarked(here: DatabaseHandle, tally: FeedTally): Promise<number> {
  for await (const page of localPages(here)) {
    const first = page.find(({ seq }) => tally.isOnlyHere(seq))
    if (first !== undefined) return first.seq
  }
  return Number.POSITIVE_INFINITY
}
