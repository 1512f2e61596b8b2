/**
 * Compaction in PostgreSQL: removes superseded bodies or retains them for the time machine, cuts ancestries to the limit,
 * and removes blobs that no revision names. It works in short statements, and after each it pauses for as long as that
 * took. PostgreSQL's own vacuum makes the space of removed rows free for others.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import type { CompactOptions } from '../upkeep.ts'
import { cutAncestries } from './ancestry-cuts.ts'
import { BlobRemoval } from './blob-removal.ts'
import { CompactionClaim } from './compaction-claim.ts'
import type { Query } from './connections.ts'
import { noteMissingChecksums } from './missing-checksums.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import { storeFault } from './store-fault.ts'
import { countSumsAnew } from './sums-anew.ts'

/** How long a step should take, in ms, and the rows that it works on. */
const STEP_MS = 10
const MIN_ROWS = 16
const FIRST_ROWS = 128
const MAX_ROWS = 2048
const MAX_PAUSE_MS = 50
/** Blobs that one statement looks at, and rows of retained revisions. */
const BLOBS = 1000
const RETAINED_ROWS = 5000
/** Rows of feed_count that one statement looks at. */
const STRETCHES = 10_000
/** What the chunks of an interrupted upload may take, in bytes: enough to be removed by themselves. */
const UNKNOWN_BYTES = 4 * 1024 * 1024
const MINUTE_MS = 60_000

/** The share of each part in the whole, in percent. */
const PARTS = { superseded: 50, ancestries: 10, blobs: 40 } as const
const TOTAL = 100

const BEGUN = {
  name: 'begin_compaction',
  text: `SELECT superseded_bytes, loose_bytes, longest_ancestry, revs_limit, purge_seq, last_blob, update_seq >> 10,
      (SELECT max(superseded_at) FROM revision WHERE db = $1 AND NOT leaf AND NOT retained)
    FROM database WHERE db = $1`,
}
type BegunRow = readonly [
  supersededBytes: number,
  maybeUnreferencedBytes: number,
  longestAncestry: number,
  revsLimit: number,
  purgeSeq: number,
  lastBlob: number,
  newestStretch: number,
  lastSuperseded: number | null,
]

const EXPIRE = { name: 'expire_revisions', text: 'SELECT expire_revisions($1, $2, $3, $4)' }
const RETAIN = { name: 'retain_revisions', text: 'SELECT retain_revisions($1, $2, $3, $4)' }

const RETAINED_BYTES = { name: 'retained_bytes', text: 'SELECT retained_bytes FROM database WHERE db = $1' }

/** Stretches of the feed below the newest one get no rows any more. */
const FORGET_STRETCHES = {
  name: 'forget_stretches',
  text: 'DELETE FROM feed_count WHERE db = $1 AND stretch >= $2 AND stretch < $3 AND rows = 0',
}

/** The next stretch of retained revisions, newest first, from before a place: their bytes by minute, and the last place. */
const BY_MINUTE = {
  name: 'retained_by_minute',
  text: `SELECT superseded_at / ${MINUTE_MS}, sum(octet_length(body)), count(*), min(superseded_at),
      (array_agg(ctid ORDER BY superseded_at, ctid))[1]::text
    FROM (
      SELECT superseded_at, body, ctid FROM revision
      WHERE db = $1 AND retained AND (superseded_at, ctid) < ($2, $3::text::tid)
      ORDER BY superseded_at DESC, ctid DESC LIMIT ${RETAINED_ROWS}
    ) r GROUP BY 1 ORDER BY 1 DESC`,
}
type MinuteRow = readonly [minute: number, bytes: string, rows: number, first: number, place: string]

/** Of the next blobs, the last, and those that no revision names. */
const UNUSED = {
  name: 'unused_blobs',
  text: `SELECT max(blob), coalesce(array_agg(blob ORDER BY blob) FILTER (WHERE is_unused), '{}'),
      coalesce(array_agg(bytes ORDER BY blob) FILTER (WHERE is_unused), '{}')
    FROM (
      SELECT blob, CASE WHEN sha256 IS NULL THEN ${UNKNOWN_BYTES} ELSE length END AS bytes,
        NOT EXISTS (SELECT FROM blob_use u WHERE u.db = $1 AND u.blob = b.blob) AS is_unused
      FROM blob b WHERE db = $1 AND blob > $2 ORDER BY blob LIMIT ${BLOBS}
    ) b`,
}
type UnusedRow = readonly [last: number | null, blobs: readonly number[], bytes: readonly number[]]

const COMPACTED = {
  name: 'compacted',
  text: `UPDATE database SET writes = writes + 1, compacted_at = $2, compacted_purge = greatest(compacted_purge, $3),
      loose_bytes = greatest(0, loose_bytes - $4),
      longest_ancestry = CASE WHEN $5::integer IS NULL THEN longest_ancestry ELSE greatest($5, revs_limit) END
    WHERE db = $1`,
}

type Listener = NonNullable<CompactOptions['onProgress']>

export class Compaction {
  readonly #database: OpenDatabase
  readonly #claim: CompactionClaim
  readonly #removal: BlobRemoval
  readonly #listeners = new Set<Listener>()
  #rows = FIRST_ROWS
  #done = 0
  #running: Promise<void> | undefined
  #isClosed = false

  constructor(database: OpenDatabase) {
    this.#database = database
    this.#claim = new CompactionClaim(database)
    this.#removal = new BlobRemoval(database)
  }

  /** Identifies this opener's claim. */
  get claim(): string {
    return this.#claim.id
  }

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /**
   * Compacts, or joins the running compaction, here or of another opener, which keeps its own options.
   * @throws unavailable when the store is closed, no_database, as {@link Connections.write}
   */
  async run({ onProgress, ...options }: CompactOptions = {}): Promise<void> {
    this.#refuseIfClosed()
    if (onProgress !== undefined) this.#listeners.add(onProgress)
    this.#running ??= this.#all(options).finally(() => {
      this.#running = undefined
      this.#listeners.clear()
    })
    return this.#running
  }

  /** Ends a running compaction after its step. Never rejects. Idempotent. */
  async close(): Promise<void> {
    this.#isClosed = true
    await this.#running?.catch(() => undefined)
  }

  #refuseIfClosed(): void {
    if (this.#isClosed) throw new CouchError('unavailable')
  }

  async #all(options: CompactOptions): Promise<void> {
    this.#done = -1
    let isClaimed = false
    let hasSucceeded = false
    try {
      isClaimed = await this.#claim.take(
        (done) => this.#report(done),
        () => this.#refuseIfClosed(),
      )
      if (isClaimed) {
        this.#report(0)
        await this.#compact(options)
      }
      hasSucceeded = true
    } catch (cause) {
      throw storeFault(cause)
    } finally {
      if (isClaimed) await this.#claim.end(hasSucceeded)
    }
    this.#report(TOTAL)
  }

  async #compact({ keepSince = Infinity, keepBytes = Infinity }: CompactOptions): Promise<void> {
    const { db, now } = this.#database
    const [begun] = await this.#read<BegunRow>({ ...BEGUN, values: [db] })
    if (begun === undefined) throw new CouchError('no_database')
    const means = {
      pause: (worked: number) => this.#pause(worked),
      step: (query: Query) => this.#step(query),
    }
    await countSumsAnew(this.#database, means)
    await noteMissingChecksums(this.#database, means)
    const [
      supersededBytes,
      maybeUnreferencedBytes,
      longestAncestry,
      revsLimit,
      purgeSeq,
      lastBlob,
      newest,
      last,
    ] = begun
    await this.#clearSuperseded(Math.min(keepSince, Number.MAX_SAFE_INTEGER), last ?? 0, supersededBytes)
    await this.#limitRetained(keepBytes)
    this.#report(PARTS.superseded)
    const isCut = longestAncestry <= revsLimit || (await this.#cutAncestries(revsLimit))
    this.#report(PARTS.superseded + PARTS.ancestries)
    await this.#removeUnused(lastBlob)
    await this.#forgetStretches(newest)
    const values = [db, now(), purgeSeq, maybeUnreferencedBytes, isCut ? revsLimit : null]
    await this.#step({ ...COMPACTED, values })
  }

  /** @param last when the last of the superseded revisions was superseded: later ones wait for the next compaction */
  async #clearSuperseded(keepSince: number, last: number, bytes: number): Promise<void> {
    const { db } = this.#database
    let cleared = 0
    const note = (stepBytes: number) => {
      cleared += stepBytes
      this.#report(Math.floor((PARTS.superseded * Math.min(cleared, bytes)) / Math.max(bytes, 1)))
    }
    await this.#repeat((rows) => ({ ...EXPIRE, values: [db, false, Math.min(keepSince, last), rows] }), note)
    await this.#repeat((rows) => ({ ...EXPIRE, values: [db, true, keepSince, rows] }))
    if (last > keepSince) {
      await this.#repeat((rows) => ({ ...RETAIN, values: [db, keepSince, last, rows] }), note)
    }
  }

  /** Removes the oldest of the retained revisions if their bodies have more bytes together. */
  async #limitRetained(keepBytes: number): Promise<void> {
    if (keepBytes === Infinity) return
    const { db } = this.#database
    const [row] = await this.#read<readonly [number]>({ ...RETAINED_BYTES, values: [db] })
    if ((row?.[0] ?? 0) <= keepBytes) return
    const keepSince = await this.#keepSinceFor(keepBytes)
    await this.#repeat((rows) => ({ ...EXPIRE, values: [db, true, keepSince, rows] }))
  }

  /** @returns the time, in ms since 1970, such that all bodies superseded after it fit into `bytes` together, by the minute */
  async #keepSinceFor(bytes: number): Promise<number> {
    let left = bytes
    let before: readonly [at: number, place: string] = [Number.MAX_SAFE_INTEGER, '(0,0)']
    for (;;) {
      const values = [this.#database.db, ...before]
      const minutes = await this.#read<MinuteRow>({ ...BY_MINUTE, values })
      for (const [minute, minuteBytes] of minutes) {
        left -= Number(minuteBytes)
        if (left < 0) return (minute + 1) * MINUTE_MS - 1
      }
      const oldest = minutes.at(-1)
      if (oldest === undefined) return 0
      before = [oldest[3], oldest[4]]
    }
  }

  async #cutAncestries(revsLimit: number): Promise<boolean> {
    return cutAncestries(this.#database, revsLimit, async (query) => {
      const [row] = await this.#step(query)
      return row?.[0]
    })
  }

  async #removeUnused(lastBlob: number): Promise<void> {
    for (let last: number | null = 0; last !== null && last < lastBlob; ) {
      const values: readonly unknown[] = [this.#database.db, last]
      const [row]: UnusedRow[] = await this.#read<UnusedRow>({ ...UNUSED, values })
      const [end = null, blobs = [], bytes = []] = row ?? []
      const unused = blobs.map((blob, at) => ({ blob, length: bytes[at] as number }))
      await this.#removal.remove(unused, 'named', (worked) => this.#pause(worked))
      last = end
      const share = Math.min(end ?? lastBlob, lastBlob) / lastBlob
      this.#report(PARTS.superseded + PARTS.ancestries + Math.floor(PARTS.blobs * share))
    }
  }

  /** Removes the counts of those that no document is in any more. @param newest whose count stays */
  async #forgetStretches(newest: number): Promise<void> {
    for (let from = 0; from < newest; from += STRETCHES) {
      const values = [this.#database.db, from, Math.min(from + STRETCHES, newest)]
      await this.#step({ ...FORGET_STRETCHES, values })
    }
  }

  /**
   * Repeats a statement until no rows are left for it.
   * @param query for at most so many rows
   * @param note gets the bytes that a step has worked on
   */
  async #repeat(
    query: (rows: number) => Query,
    note: (bytes: number) => void = () => undefined,
  ): Promise<void> {
    for (;;) {
      const limit = this.#rows
      const began = performance.now()
      const [row] = await this.#step<readonly [readonly number[] | null]>(query(limit))
      const counts = row?.[0]
      if (counts == null) throw new CouchError('no_database')
      const [rows = 0, bytes = 0] = counts
      note(bytes)
      if (rows < limit) return
      this.#fitRows(performance.now() - began)
    }
  }

  /** @param took how long a step took, in ms, with its pause, which is as long */
  #fitRows(took: number): void {
    if (took > 3 * STEP_MS) this.#rows = Math.max(MIN_ROWS, Math.floor(this.#rows / 2))
    else if (took < STEP_MS) this.#rows = Math.min(MAX_ROWS, this.#rows * 2)
  }

  async #read<R extends Row>(query: Query): Promise<R[]> {
    this.#refuseIfClosed()
    return this.#database.connections.read<R>(query)
  }

  async #step<R extends Row>(query: Query): Promise<R[]> {
    this.#refuseIfClosed()
    const began = performance.now()
    const rows = await this.#database.connections.write<R>(query)
    await this.#pause(performance.now() - began)
    return rows
  }

  /** @param worked how long the statement before took, in ms */
  async #pause(worked: number): Promise<void> {
    await sleep(Math.min(worked, MAX_PAUSE_MS))
    this.#refuseIfClosed()
    await this.#claim.renew(Math.max(0, this.#done))
  }

  /** @param done of {@link TOTAL} */
  #report(done: number): void {
    if (done <= this.#done) return
    this.#done = done
    for (const listener of this.#listeners) listener({ done, total: TOTAL })
  }
}
