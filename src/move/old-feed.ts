/** Reads the feed of the old database, with all leaves. */
import { jsonParts, parsed } from '../replication/json-parts.ts'
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
const RESULTS = new Set(['results'])

/** The rows of the old feed after a position, in pages. @throws PeerError */
export async function* oldPages(
  peer: Peer,
  after: Position,
  signal: AbortSignal,
): AsyncGenerator<readonly OldRow[]> {
  for (let since = after; ; ) {
    const rows: OldRow[] = []
    let lastSeq: Position | null = null
    const request = { since, limit: PAGE_ROWS, style: 'all_docs', filter: {}, waits: false, signal } as const
    for await (const { member, bytes } of jsonParts(peer.changes(request), { lists: RESULTS })) {
      if (member === 'results') rows.push(oldRow(parsed(bytes)))
      else if (member === 'last_seq') lastSeq = positionOf(parsed(bytes))
    }
    if (rows.length > 0) yield rows
    if (rows.length < PAGE_ROWS) return
    const next = lastSeq ?? rows.at(-1)?.seq ?? null
    if (next === null || next === since) {
      throw new PeerError('invalid_answer', `${peer.address}: _changes does not go on`)
    }
    since = next
  }
}

function oldRow(row: {
  readonly id?: unknown
  readonly seq?: unknown
  readonly changes?: readonly { readonly rev?: unknown }[]
  readonly deleted?: unknown
}): OldRow {
  const { id, seq, changes, deleted } = row
  if (typeof id !== 'string' || !Array.isArray(changes)) {
    throw new PeerError('invalid_answer', 'a row of _changes is not valid')
  }
  const leaves = changes.map(({ rev }: { rev?: unknown }) => rev).filter((rev) => typeof rev === 'string')
  return { id, seq: positionOf(seq), leaves, isDeleted: deleted === true }
}

function positionOf(value: unknown): Position | null {
  return typeof value === 'string' || typeof value === 'number' ? value : null
}
