/** Reads the source's feed, page by page. */
import { jsonParts, parsed } from './json-parts.ts'
import type { ChangesRequest, Peer } from './peer.ts'
import { PeerError } from './peer-error.ts'
import type { Position } from './requests/replication-request.ts'
import type { ChangedDocument } from './transfer.ts'

export interface ChangesBatch {
  readonly changes: readonly ChangedDocument[]
  /** Where the next page begins. */
  readonly lastSeq: Position
  /** Rows after the page; null: unknown. */
  readonly pending: number | null
}

/** A page may have more revisions than rows; it ends here. */
const MAX_REVISIONS = 10_000
const RESULTS = new Set(['results'])

interface Row {
  readonly id?: unknown
  readonly seq?: unknown
  readonly changes?: readonly { readonly rev?: unknown }[]
}

/**
 * Reads one page.
 * @throws PeerError; the page can be read again then
 */
export async function readChanges(source: Peer, request: ChangesRequest): Promise<ChangesBatch> {
  const changes: ChangedDocument[] = []
  let revisions = 0
  let lastSeq: Position | null = null
  let rowSeq: Position | null = null
  let pending: number | null = null
  for await (const { member, bytes } of jsonParts(source.changes(request), { lists: RESULTS })) {
    if (member === 'results') {
      const row = parsed<Row>(bytes)
      const change = changeOf(row)
      changes.push(change)
      rowSeq = positionOf(row.seq) ?? rowSeq
      revisions += change.revs.length
      if (revisions > MAX_REVISIONS && rowSeq !== null) return { changes, lastSeq: rowSeq, pending: null }
    } else if (member === 'last_seq') {
      lastSeq = positionOf(parsed(bytes))
    } else if (member === 'pending') {
      pending = numberOf(parsed(bytes))
    }
  }
  const reached = lastSeq ?? rowSeq
  if (reached === null) throw new PeerError('invalid_answer', `${source.address}: _changes has no last_seq`)
  return { changes, lastSeq: reached, pending }
}

/** @throws PeerError */
function changeOf({ id, changes }: Row): ChangedDocument {
  if (typeof id !== 'string' || !Array.isArray(changes)) {
    throw new PeerError('invalid_answer', 'a row of _changes is not valid')
  }
  const revs = changes.map(({ rev }: { rev?: unknown }) => rev).filter((rev) => typeof rev === 'string')
  return { id, revs }
}

function positionOf(value: unknown): Position | null {
  if (typeof value === 'string' || typeof value === 'number') return value
  // BigCouch's sequences are arrays.
  return value === null || value === undefined ? null : JSON.stringify(value)
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null
}
