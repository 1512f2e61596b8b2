/** Reads the source's feed, page by page. */
import { isJsonObject } from '../core/json.ts'
import { positionOf } from './checkpoint.ts'
import { jsonParts, parsed } from './json-parts.ts'
import type { ChangesRequest, Peer } from './peer.ts'
import { PeerError } from './peer-error.ts'
import type { Position } from './requests/replication-request.ts'
import type { ChangedDocument } from './transfer.ts'

/** A row of a feed. */
export interface ChangesRow extends ChangedDocument {
  /** The position after it; null: the server does not say. */
  readonly seq: Position | null
  readonly isDeleted: boolean
}

export interface ChangesBatch {
  readonly changes: readonly ChangesRow[]
  /** Where the next page begins. */
  readonly lastSeq: Position
  /** Rows after the page; null: unknown. */
  readonly pending: number | null
  /** Whether the page was ended here, since it became too long. */
  readonly isCut: boolean
}

/** A page may have more revisions than rows, and a server may send more rows than were asked for: it ends here. */
const MAX_REVISIONS = 10_000
const MAX_BYTES = 8 * 1024 * 1024
/** The most characters of an id and of a revision. Addresses, and what is kept of a feed, have room for them. */
const MAX_ID = 64 * 1024
const MAX_REV = 1024
const RESULTS = new Set(['results'])

interface Row {
  readonly id?: unknown
  readonly seq?: unknown
  readonly changes?: readonly unknown[]
  readonly deleted?: unknown
}

/**
 * Reads one page.
 * @throws PeerError; the page can be read again then
 */
export async function readChanges(source: Peer, request: ChangesRequest): Promise<ChangesBatch> {
  const changes: ChangesRow[] = []
  let revisions = 0
  let size = 0
  let lastSeq: Position | null = null
  let rowSeq: Position | null = null
  let pending: number | null = null
  for await (const { member, bytes } of jsonParts(source.changes(request), { lists: RESULTS })) {
    if (member === 'results') {
      const change = changeOf(parsed<Row | null>(bytes))
      changes.push(change)
      rowSeq = change.seq ?? rowSeq
      revisions += Math.max(1, change.revs.length)
      size += bytes.length
      if (revisions <= MAX_REVISIONS && size <= MAX_BYTES) continue
      if (rowSeq === null) throw endless(source)
      return { changes, lastSeq: rowSeq, pending: null, isCut: true }
    }
    if (member === 'last_seq') lastSeq = positionOf(parsed(bytes))
    else if (member === 'pending') pending = numberOf(parsed(bytes))
  }
  const reached = lastSeq ?? rowSeq
  if (reached === null) throw new PeerError('invalid_answer', `${source.address}: _changes has no last_seq`)
  return { changes, lastSeq: reached, pending, isCut: false }
}

function endless({ address }: Peer): PeerError {
  return new PeerError('invalid_answer', `${address}: _changes has too many rows without a seq`)
}

/** @throws PeerError */
function changeOf(row: Row | null): ChangesRow {
  const { id, seq, changes, deleted } = row ?? {}
  if (!isText(id, MAX_ID) || !Array.isArray(changes)) throw invalidRow()
  const revs = changes.map((change: unknown) => revOf(change))
  return { id, revs, seq: positionOf(seq), isDeleted: deleted === true }
}

function revOf(change: unknown): string {
  const rev = isJsonObject(change) ? change.rev : null
  if (!isText(rev, MAX_REV)) throw invalidRow()
  return rev
}

function isText(value: unknown, longest: number): value is string {
  return typeof value === 'string' && value.length <= longest
}

function invalidRow(): PeerError {
  return new PeerError('invalid_answer', 'a row of _changes is not valid')
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null
}
