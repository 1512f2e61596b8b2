/**
 * Counts, with each transaction, what a compaction could remove. Like state.ts, the counters are in memory while the
 * file is open, and are written with the transaction that changes them.
 */
import type { Connection } from './connection.ts'
import type { Meta } from './meta.ts'
import type { Statement } from './statement.ts'

/** CouchDB's default, protocol.md 2.5. */
export const DEFAULT_REVS_LIMIT = 1000

/** The keys in `meta`. */
export const garbageKeys = {
  /** Superseded revisions that no compaction has processed, and the bytes of their bodies. */
  supersededRows: 'superseded_rows',
  supersededBytes: 'superseded_bytes',
  /** Revisions that are retained only for the time machine. */
  retainedRows: 'kept_rows',
  retainedBytes: 'kept_bytes',
  /** Bytes of attachments that a revision names and its successor does not. Other revisions may still name them. */
  maybeUnreferencedBytes: 'loose_bytes',
  /** A time no later than when the oldest retained revision was superseded, in ms since 1970; 0 if none is retained. */
  oldestRetained: 'oldest_kept',
  /** When the last compaction ended, in ms since 1970, and the number of the last purge before it. */
  compactedAt: 'compacted_at',
  compactedPurge: 'compacted_purge',
  /** The maximum number of ids in any ancestry. */
  longestAncestry: 'longest_ancestry',
  /** 1 while rows from before schema 10 lack their checksums. */
  unsummed: 'unsummed',
  /** Before this time, in ms since 1970, the history is not complete; 0: always. */
  historySince: 'history_since',
} as const

type Name = keyof typeof garbageKeys
type Counts = Record<Name, number>

const NAMES = Object.keys(garbageKeys) as Name[]

export class GarbageCounters {
  readonly #meta: Meta
  readonly #now: Counts
  /** The last committed counters. */
  #written: Readonly<Counts>
  /** Transactions since the file was opened. */
  #writes = 0

  constructor(meta: Meta) {
    this.#meta = meta
    const counts = NAMES.map((name) => [name, meta.number(garbageKeys[name])])
    this.#written = Object.fromEntries(counts) as Counts
    this.#now = { ...this.#written }
    // Older files lack this value. It is the default unless the limit was changed.
    if (this.#now.longestAncestry === 0) {
      const wasSet = meta.has('revs_limit')
      this.#now.longestAncestry = wasSet ? Number.MAX_SAFE_INTEGER : DEFAULT_REVS_LIMIT
    }
  }

  get counts(): Readonly<Counts> {
    return this.#now
  }

  /** Whether rows of an older settee may lack their checksums. */
  get lacksChecksums(): boolean {
    return this.#now.unsummed > 0
  }

  get writes(): number {
    return this.#writes
  }

  /** Adds superseded revisions, or subtracts them. */
  count(kept: boolean, rows: number, bytes: number): void {
    this.#now[kept ? 'retainedRows' : 'supersededRows'] += rows
    this.#now[kept ? 'retainedBytes' : 'supersededBytes'] += bytes
  }

  /** Counts contents that may have lost the last revision that names them. */
  addUnreferenced(bytes: number): void {
    this.#now.maybeUnreferencedBytes += bytes
  }

  /** Notes that leaves may have so many ancestors from now on. */
  allowAncestry(revsLimit: number): void {
    this.#now.longestAncestry = Math.max(this.#now.longestAncestry, revsLimit)
  }

  /** Notes this at once, since an interrupted compaction may not be repeated soon. @param at in ms since 1970 */
  keepsFrom(at: number): void {
    const { oldestRetained } = this.#now
    this.#now.oldestRetained = oldestRetained === 0 ? at : Math.min(oldestRetained, at)
  }

  /** Notes that the history before a time, in ms since 1970, is no longer complete. */
  lostHistory(before: number): void {
    this.#now.historySince = Math.max(this.#now.historySince, before)
  }

  /** Notes the end of a compaction. @param found what it processed */
  compacted(
    found: Pick<
      Counts,
      | 'maybeUnreferencedBytes'
      | 'oldestRetained'
      | 'compactedAt'
      | 'compactedPurge'
      | 'longestAncestry'
      | 'unsummed'
    >,
  ): void {
    const maybeUnreferencedBytes = Math.max(
      0,
      this.#now.maybeUnreferencedBytes - found.maybeUnreferencedBytes,
    )
    Object.assign(this.#now, found, { maybeUnreferencedBytes })
  }

  /** Writes the changed counters, as part of the transaction that changed them. */
  flush(): void {
    for (const name of NAMES) {
      if (this.#now[name] !== this.#written[name]) this.#meta.put(garbageKeys[name], this.#now[name])
    }
  }

  /** Called when the transaction is durable. */
  committed(): void {
    this.#writes += 1
    this.#written = { ...this.#now }
  }

  /** Returns to the last committed counters, after a rollback. */
  restore(): void {
    Object.assign(this.#now, this.#written)
  }
}

interface Counted {
  /** ms since 1970 */
  readonly at: number
  readonly kept: number
  /** The size of the body. */
  readonly bytes: number
}

export interface SupersededRow extends Counted {
  /** The number of its row in `revision`. */
  readonly revision: number
}

/**
 * Revisions that are no longer leaves but still have their bodies, and since when. Compaction removes these bodies, and
 * the time machine reads them. They have a separate table, so that neither reads bodies to find them.
 */
export class Superseded {
  readonly #garbage: GarbageCounters
  readonly #add: Statement
  readonly #remove: Statement<Counted>
  readonly #keep: Statement<Counted>
  readonly #page: Statement<SupersededRow>
  readonly #at: Statement<Pick<Counted, 'at'>>
  readonly #stamp: Statement

  constructor(connection: Connection, garbage: GarbageCounters) {
    this.#garbage = garbage
    this.#add = connection.prepare('INSERT INTO superseded (revision, at, kept, bytes) VALUES (?, ?, 0, ?)')
    this.#remove = connection.prepare('DELETE FROM superseded WHERE revision = ? RETURNING at, kept, bytes')
    this.#keep = connection.prepare(
      'UPDATE superseded SET kept = 1 WHERE revision = ? AND NOT kept RETURNING at, kept, bytes',
    )
    this.#page = connection.prepare(
      'SELECT revision, at, kept, bytes FROM superseded WHERE revision > ? ORDER BY revision LIMIT ?',
    )
    this.#at = connection.prepare('SELECT at FROM superseded WHERE revision = ?')
    this.#stamp = connection.prepare('UPDATE revision SET stored_at = ? WHERE num = ?')
  }

  /** @param revision the number of its row @param at ms since 1970 @param bytes of its body */
  add(revision: number, at: number, bytes: number): void {
    this.#add.run(revision, at, bytes)
    this.#garbage.count(false, 1, bytes)
  }

  /** Notes that a row will be deleted, so the history before it was superseded is no longer complete. */
  noteExpiry(revision: number): void {
    const row = this.#at.get(revision)
    if (row !== undefined) this.noteLoss(row.at)
  }

  /** Notes that some leaves of a document were purged, so the history until now is no longer complete. */
  noteLoss(at: number): void {
    this.#garbage.lostHistory(at)
  }

  /**
   * Makes a revision a leaf again: it was sent again after its ancestry had been cut. A row records only the last
   * period as a leaf.
   */
  revive(revision: number, at: number): void {
    this.noteExpiry(revision)
    this.remove(revision)
    this.#stamp.run(at, revision)
  }

  /**
   * Removes a revision whose row was deleted or replaced. Other revisions are ignored.
   * @returns when it was superseded, in ms since 1970; undefined if it was not superseded
   */
  remove(revision: number): number | undefined {
    const row = this.#remove.get(revision)
    if (row !== undefined) this.#garbage.count(row.kept === 1, -1, -row.bytes)
    return row?.at
  }

  /** Retains a revision only for the time machine. @param at when it was superseded, in ms since 1970 */
  keep(revision: number, at: number): void {
    const row = this.#keep.get(revision)
    if (row === undefined) return
    this.#garbage.keepsFrom(at)
    this.#garbage.count(false, -1, -row.bytes)
    this.#garbage.count(true, 1, row.bytes)
  }

  /** The next superseded revisions, in the order of their rows. */
  page(above: number, limit: number): SupersededRow[] {
    return this.#page.all(above, limit)
  }
}
