/**
 * What a compaction would find to do, counted with each transaction, so that nobody has to look for it. Kept in memory
 * while the file is open, as state.ts does, and written with the transaction that changes it.
 */
import type { Connection, Statement } from './connection.ts'

/** CouchDB's, protocol.md 2.5. */
export const DEFAULT_REVS_LIMIT = 1000

/** The names in `meta`. */
export const garbageKeys = {
  /** Superseded revisions that no compaction has come to, and the bytes of their bodies. */
  supersededRows: 'superseded_rows',
  supersededBytes: 'superseded_bytes',
  /** Those that are kept for the time machine alone. */
  retainedRows: 'kept_rows',
  retainedBytes: 'kept_bytes',
  /** Contents that a revision has named and its successor does not: others may name them still. */
  looseBytes: 'loose_bytes',
  /** When the oldest of those that are kept was superseded, or sooner, in ms since 1970; 0: none is. */
  oldestRetained: 'oldest_kept',
  /** Of the last compaction: when it ended, in ms since 1970, and the number of the last purge before it. */
  compactedAt: 'compacted_at',
  compactedPurge: 'compacted_purge',
  /** No ancestry is longer. */
  longestAncestry: 'longest_ancestry',
} as const

type Name = keyof typeof garbageKeys
type Counts = Record<Name, number>

const NAMES = Object.keys(garbageKeys) as Name[]

export class GarbageCounters {
  readonly #put: Statement
  readonly #now: Counts
  /** As they were last committed. */
  #written: Readonly<Counts>
  /** Transactions since the file was opened. */
  #writes = 0

  constructor(connection: Connection) {
    this.#put = connection.prepare(
      'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
    )
    const read = connection.prepare<{ value: number }>('SELECT value FROM meta WHERE key = ?')
    const counts = NAMES.map((name) => [name, read.get(garbageKeys[name])?.value ?? 0])
    this.#written = Object.fromEntries(counts) as Counts
    this.#now = { ...this.#written }
    // Nobody has noted it yet; where the limit was never changed, it is known all the same.
    if (this.#now.longestAncestry === 0) {
      const wasSet = read.get('revs_limit') !== undefined
      this.#now.longestAncestry = wasSet ? Number.MAX_SAFE_INTEGER : DEFAULT_REVS_LIMIT
    }
  }

  get counts(): Readonly<Counts> {
    return this.#now
  }

  get writes(): number {
    return this.#writes
  }

  /** Counts superseded revisions in, or out. */
  count(kept: boolean, rows: number, bytes: number): void {
    this.#now[kept ? 'retainedRows' : 'supersededRows'] += rows
    this.#now[kept ? 'retainedBytes' : 'supersededBytes'] += bytes
  }

  /** Contents may have lost the last revision that names them. */
  addUnreferenced(bytes: number): void {
    this.#now.looseBytes += bytes
  }

  /** So many ancestors may be stored with a leaf from now on. */
  allowAncestry(revsLimit: number): void {
    this.#now.longestAncestry = Math.max(this.#now.longestAncestry, revsLimit)
  }

  /** Noted at once, since a compaction that is broken off may be the last for long. @param at in ms since 1970 */
  keepsFrom(at: number): void {
    const { oldestRetained } = this.#now
    this.#now.oldestRetained = oldestRetained === 0 ? at : Math.min(oldestRetained, at)
  }

  /** A compaction ends. @param found what it has dealt with */
  compacted(
    found: Omit<Counts, 'supersededRows' | 'supersededBytes' | 'retainedRows' | 'retainedBytes'>,
  ): void {
    const looseBytes = Math.max(0, this.#now.looseBytes - found.looseBytes)
    Object.assign(this.#now, found, { looseBytes })
  }

  /** Writes what differs from the file; part of the transaction that changed it. */
  flush(): void {
    for (const name of NAMES) {
      if (this.#now[name] !== this.#written[name]) this.#put.run(garbageKeys[name], this.#now[name])
    }
  }

  /** The transaction is durable. */
  committed(): void {
    this.#writes += 1
    this.#written = { ...this.#now }
  }

  /** Goes back to what was last committed, after a rollback. */
  restore(): void {
    Object.assign(this.#now, this.#written)
  }
}

interface Counted {
  /** ms since 1970 */
  readonly at: number
  readonly kept: number
  /** Of the body. */
  readonly bytes: number
}

export interface SupersededRow extends Counted {
  /** The number of its row in `revision`. */
  readonly revision: number
}

/**
 * Revisions that are no longer leaves but still have their bodies, and since when. Compaction removes these bodies, and the
 * time machine reads them. A separate table, so that neither reads bodies to find them.
 */
export class Superseded {
  readonly #garbage: GarbageCounters
  readonly #add: Statement
  readonly #remove: Statement<Counted>
  readonly #keep: Statement<Counted>
  readonly #page: Statement<SupersededRow>
  readonly #note: Statement
  readonly #noteLoss: Statement
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
    this.#note = connection.prepare(
      "INSERT INTO meta (key, value) SELECT 'history_since', at FROM superseded WHERE revision = ? " +
        'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)',
    )
    this.#noteLoss = connection.prepare(
      "INSERT INTO meta (key, value) VALUES ('history_since', ?) " +
        'ON CONFLICT DO UPDATE SET value = max(value, excluded.value)',
    )
    this.#stamp = connection.prepare('UPDATE revision SET stored_at = ? WHERE num = ?')
  }

  /** @param revision the number of its row @param at ms since 1970 @param bytes of its body */
  add(revision: number, at: number, bytes: number): void {
    this.#add.run(revision, at, bytes)
    this.#garbage.count(false, 1, bytes)
  }

  /** Its row is about to go: what documents were before it was superseded is not known whole any more. */
  noteExpiry(revision: number): void {
    this.#note.run(revision)
  }

  /** Leaves are forgotten beside others: which version ended a document's branch until now is not known any more. */
  noteLoss(at: number): void {
    this.#noteLoss.run(at)
  }

  /**
   * It is a leaf again: it came once more after its ancestry had been cut. A row tells of one time as a leaf, and that
   * is the last.
   */
  revive(revision: number, at: number): void {
    this.noteExpiry(revision)
    this.remove(revision)
    this.#stamp.run(at, revision)
  }

  /**
   * Its row is gone, or new. Of others nothing comes.
   * @returns since when it was superseded, in ms since 1970; undefined: it was not
   */
  remove(revision: number): number | undefined {
    const row = this.#remove.get(revision)
    if (row !== undefined) this.#garbage.count(row.kept === 1, -1, -row.bytes)
    return row?.at
  }

  /** From now on only the time machine knows it. @param at when it was superseded, in ms since 1970 */
  keep(revision: number, at: number): void {
    const row = this.#keep.get(revision)
    if (row === undefined) return
    this.#garbage.keepsFrom(at)
    this.#garbage.count(false, -1, -row.bytes)
    this.#garbage.count(true, 1, row.bytes)
  }

  /** The next of them in the order of their rows. */
  page(above: number, limit: number): SupersededRow[] {
    return this.#page.all(above, limit)
  }
}
