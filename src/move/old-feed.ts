/** Reads the feed of the old database, with all leaves. */
import { readChanges } from '../replication/changes-reader.ts'
import type { Peer } from '../replication/peer.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { Position } from '../replication/requests/replication-request.ts'

/** A row of the old feed. */
export interface OldRow {
  readonly id: string
  /** The position after it; null: the server does not say. */
  readonly seq: Position | null
  readonly leaves: readonly string[]
  readonly isDeleted: boolean
}

const PAGE_ROWS = 1000

/** The rows of the old feed after a position, in pages. @throws PeerError */
export async function* oldPages(
  peer: Peer,
  after: Position,
  signal: AbortSignal,
): AsyncGenerator<readonly OldRow[]> {
  for (let since = after; ; ) {
    const request = { since, limit: PAGE_ROWS, style: 'all_docs', filter: {}, waits: false, signal } as const
    const { changes, lastSeq, isCut } = await readChanges(peer, request)
    if (changes.length > 0) yield changes.map(({ revs, ...row }) => ({ ...row, leaves: revs }))
    if (changes.length < PAGE_ROWS && !isCut) return
    if (lastSeq === since) throw new PeerError('invalid_answer', `${peer.address}: _changes does not go on`)
    since = lastSeq
  }
}
