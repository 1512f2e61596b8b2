/**
 * Compares all leaves of the old database with those here, in one pass over the old feed and in bounded memory, and
 * finds which local numbers its positions stand for (feed-points.ts).
 */
import { SYSTEM_USER } from '../auth/accounts.ts'
import { BEGINNING } from '../replication/checkpoint.ts'
import { jsonParts, parsed } from '../replication/json-parts.ts'
import type { Peer } from '../replication/peer.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { RemoteDatabase } from '../replication/remote-server.ts'
import type { Position } from '../replication/requests/replication-request.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { FeedPoints } from './feed-points.ts'
import { LeafDigest } from './leaf-digest.ts'
import { type LocalRow, localPages, localRowsOf } from './local-rows.ts'

/** Documents of one kind. */
export interface Differences {
  readonly count: number
  /** The first of them. */
  readonly ids: readonly string[]
}

export interface FeedComparison {
  /** Documents of the old database. */
  readonly live: number
  readonly deleted: number
  readonly leaves: number
  /** Documents with leaves that are not here. */
  readonly missing: Differences
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
  readonly sample: readonly { readonly id: string; readonly rev: string }[]
}

interface ComparisonOptions {
  readonly signal: AbortSignal
  /** Documents whose leaves may differ, since each server makes its own. */
  readonly ownIds: ReadonlySet<string>
  /** @param rows that were compared so far */
  onProgress(rows: number): void
}

/** A row of the old feed. */
export interface OldRow {
  readonly id: string
  /** The position after it; null: the server does not say. */
  readonly seq: Position | null
  readonly leaves: readonly string[]
  readonly isDeleted: boolean
}

const PAGE_ROWS = 1000
const MAX_EXAMPLES = 10
const SAMPLE = 100
/** Winners that are asked for. */
const MAX_DOUBTS = 1000

/** @throws PeerError; what `signal` is aborted with */
export async function compareFeeds(
  old: RemoteDatabase,
  here: DatabaseHandle,
  { signal, ownIds, onProgress }: ComparisonOptions,
): Promise<FeedComparison> {
  const { update_seq, doc_count, doc_del_count } = await here.info(SYSTEM_USER)
  const localEnd = Number.parseInt(update_seq, 10)
  const tally = new Tally(ownIds, localEnd)
  for await (const page of oldPages(old.peer, BEGINNING, signal)) {
    const ids = page.map(({ id }) => id)
    tally.add(page, await localRowsOf(here, ids))
    onProgress(tally.rows)
  }
  const onlyHere = doc_count + doc_del_count - tally.found
  // What no device of the old server has must follow every position.
  const firstOwn = onlyHere > 0 ? await firstUnmarked(here, tally) : Number.POSITIVE_INFINITY
  const end = Math.min(localEnd, tally.firstChangedHere - 1, firstOwn - 1)
  const differentWinners = await otherWinners(old.peer, tally.doubtful, signal)
  return { ...tally.result(), differentWinners, onlyHere, end }
}

/** A document with its winner here; null: it is deleted. */
interface Doubt {
  readonly id: string
  readonly winner: string | null | undefined
}

/** Asks for the winners, since PouchDB's server does not list them first. */
async function otherWinners(
  old: Peer,
  doubtful: readonly Doubt[],
  signal: AbortSignal,
): Promise<Differences> {
  const found = new Examples()
  for (const { id, winner } of doubtful) {
    const doc = (await old.readDocument(id, signal)) as { readonly _rev?: string } | null
    if ((doc?._rev ?? null) !== winner) found.add(id)
  }
  return found.list()
}

class Tally {
  /** Documents that are in both, up to `localEnd`. */
  found = 0
  /** The smallest local number of a document that has been changed here. */
  firstChangedHere = Number.POSITIVE_INFINITY
  readonly #ownIds: ReadonlySet<string>
  readonly #localEnd: number
  /** One bit for each local number: whether its document is in the old database. */
  readonly #marks: Uint8Array
  readonly #points = new FeedPoints()
  readonly #oldDigest = new LeafDigest()
  readonly #newDigest = new LeafDigest()
  readonly #missing = new Examples()
  readonly #changedHere = new Examples()
  /** Documents whose winners may differ. */
  readonly doubtful: Doubt[] = []
  readonly #sample: { id: string; rev: string }[] = []
  #sampleStep = 1
  #live = 0
  #deleted = 0
  #leaves = 0

  constructor(ownIds: ReadonlySet<string>, localEnd: number) {
    this.#ownIds = ownIds
    this.#localEnd = localEnd
    this.#marks = new Uint8Array((localEnd >> 3) + 1)
  }

  /** Whether a document that only exists here, or was written to meanwhile, has this local number. */
  isOnlyHere(seq: number): boolean {
    return seq <= this.#localEnd && ((this.#marks[seq >> 3] as number) & (1 << (seq & 7))) === 0
  }

  get rows(): number {
    return this.#live + this.#deleted
  }

  add(page: readonly OldRow[], local: ReadonlyMap<string, LocalRow>): void {
    for (const row of page) this.#addRow(row, local.get(row.id))
  }

  #addRow(row: OldRow, here: LocalRow | undefined): void {
    const { id, leaves } = row
    this.#note(row)
    this.#points.add(row.seq, here?.seq ?? Number.POSITIVE_INFINITY)
    if (here !== undefined) this.#mark(here.seq)
    if (this.#ownIds.has(id)) return
    this.#oldDigest.add(id, leaves)
    if (here !== undefined) this.#newDigest.add(id, here.leaves)
    const known = new Set(here?.leaves)
    if (leaves.some((leaf) => !known.has(leaf))) this.#missing.add(id)
    else if (here !== undefined && here.leaves.length > leaves.length) this.#changedHere.add(id)
    const isChanged = here?.leaves.some((leaf) => !leaves.includes(leaf))
    if (here !== undefined && isChanged) this.firstChangedHere = Math.min(this.firstChangedHere, here.seq)
    if (here === undefined) return
    const isSame = here.leaves[0] === leaves[0] && here.isDeleted === row.isDeleted
    if (!isSame && this.doubtful.length < MAX_DOUBTS)
      this.doubtful.push({ id, winner: here.isDeleted ? null : here.leaves[0] })
  }

  /** A row may come twice if its document changes meanwhile. */
  #mark(seq: number): void {
    if (!this.isOnlyHere(seq)) return
    this.#marks[seq >> 3] = (this.#marks[seq >> 3] as number) | (1 << (seq & 7))
    this.found += 1
  }

  #note({ id, leaves, isDeleted }: OldRow): void {
    if (isDeleted) this.#deleted += 1
    else this.#live += 1
    this.#leaves += leaves.length
    const [rev] = leaves
    if (isDeleted || rev === undefined || this.#live % this.#sampleStep !== 0) return
    this.#sample.push({ id, rev })
    if (this.#sample.length <= SAMPLE) return
    for (let at = this.#sample.length - 1; at >= 0; at -= 2) this.#sample.splice(at, 1)
    this.#sampleStep *= 2
  }

  result(): Omit<FeedComparison, 'onlyHere' | 'end' | 'differentWinners'> {
    return {
      live: this.#live,
      deleted: this.#deleted,
      leaves: this.#leaves,
      missing: this.#missing.list(),
      changedHere: this.#changedHere.list(),
      oldDigest: this.#oldDigest.toString(),
      newDigest: this.#newDigest.toString(),
      points: this.#points,
      sample: this.#sample,
    }
  }
}

class Examples {
  #count = 0
  readonly #ids: string[] = []

  add(id: string): void {
    this.#count += 1
    if (this.#ids.length < MAX_EXAMPLES) this.#ids.push(id)
  }

  list(): Differences {
    return { count: this.#count, ids: this.#ids }
  }
}

async function firstUnmarked(here: DatabaseHandle, tally: Tally): Promise<number> {
  for await (const page of localPages(here)) {
    const first = page.find(({ seq }) => tally.isOnlyHere(seq))
    if (first !== undefined) return first.seq
  }
  return Number.POSITIVE_INFINITY
}

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
