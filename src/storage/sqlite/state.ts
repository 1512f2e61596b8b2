/**
 * The counters and settings of a database. They are in memory while the file is open, since this connection is its only
 * writer, and are written with each transaction that changes them.
 */
import type { SecurityObject } from '../../core/types.ts'
import type { DatabaseProperties } from '../catalog.ts'
import { agrees, rowChecksum } from '../checksum.ts'
import { type DamageReports, ONLY_ADMINS } from '../damage.ts'
import type { SettingsChange, StoreView } from '../engine.ts'
import { type Epochs, firstEpochs, renewEpochs } from '../sequence.ts'
import type { Connection } from './connection.ts'
import type { WriteEffect } from './documents.ts'
import { DEFAULT_REVS_LIMIT, type GarbageCounters } from './garbage.ts'
import { type Meta, putMeta, RESTORED_KEY, SETTINGS_VERSION_KEY } from './meta.ts'
import type { Statement } from './statement.ts'

/** The view and the counters that only the engine uses. */
interface Counters extends StoreView {
  readonly purgeSeq: number
  /** The size of the leaves' bodies and attachments, in bytes. */
  readonly externalBytes: number
}

/** The key of a row that only partitioned databases have. */
const PARTITIONED_KEY = 'partitioned'
/** The key of the number of shards, which only databases have that were created with one. */
const SHARDS_KEY = 'shards'
const DEFAULT_PURGED_INFOS_LIMIT = 1000

/** Names of databases and positions that are remembered: about 0.2 MB. */
const MAX_CLOSED = 1000

/**
 * The positions of databases that this engine has closed. A database that is opened at the same position continues its epoch:
 * the epoch was begun in this process, so whatever has happened to the file, no later number of it has been given out. At
 * any other position, as after the file was put back, a new epoch begins.
 */
export class ClosedPositions {
  /** By database name, in the order of closing. */
  readonly #positions = new Map<string, string>()

  get(name: string): string | undefined {
    return this.#positions.get(name)
  }

  note(name: string, position: string): void {
    this.#positions.delete(name)
    this.#positions.set(name, position)
    const [oldest] = this.#positions.keys()
    if (this.#positions.size > MAX_CLOSED && oldest !== undefined) this.#positions.delete(oldest)
  }
}

/** What nearly each commit changes, by key. */
export const COUNT_KEYS = {
  update_seq: 'updateSeq',
  doc_count: 'docCount',
  deleted_count: 'deletedCount',
} as const

export type Counts = Pick<StoreView, (typeof COUNT_KEYS)[keyof typeof COUNT_KEYS]>

export class State {
  readonly createdAt: number
  /** When it was last restored, in ms since 1970; 0 if never. */
  readonly restoredAt: number
  readonly partitioned: boolean
  readonly shards: number
  /** Changed in place: a copy cost 3 us of the 75 us that each document of a group took. */
  readonly #now: { -readonly [Name in keyof Counters]: Counters[Name] }
  /** As it was last committed. */
  #written: Counters
  /** The value of {@link view}, made on demand; undefined after a change. */
  #view: StoreView | undefined
  /** Whether the newest epoch is of this process, so that it can be continued. */
  #epochBegun: boolean
  readonly #meta: Meta
  readonly #putSecurity: Statement

  /**
   * @param damage gets a damaged security object
   * @param garbage knows whether it may lack its checksum
   * @param closedAt the position at which this process closed the database; undefined if it did not
   */
  constructor(
    connection: Connection,
    meta: Meta,
    damage: DamageReports,
    garbage: Pick<GarbageCounters, 'lacksChecksums'>,
    closedAt?: string,
  ) {
    this.#meta = meta
    this.#putSecurity = connection.prepare(
      'INSERT INTO security (one, version, body, checksum) VALUES (1, 1, ?, ?) ' +
        'ON CONFLICT DO UPDATE SET version = version + 1, body = excluded.body, checksum = excluded.checksum',
    )
    const number = (key: string, absent?: number) => meta.number(key, absent)
    this.createdAt = number('created_at')
    this.restoredAt = number(RESTORED_KEY)
    this.partitioned = meta.has(PARTITIONED_KEY)
    this.shards = number(SHARDS_KEY, 1)
    this.#written = {
      updateSeq: number('update_seq'),
      epochs: JSON.parse(String(meta.get('epochs'))) as Epochs,
      docCount: number('doc_count'),
      deletedCount: number('deleted_count'),
      revsLimit: number('revs_limit', DEFAULT_REVS_LIMIT),
      purgedInfosLimit: number('purged_infos_limit', DEFAULT_PURGED_INFOS_LIMIT),
      designVersion: number('design_version'),
      settingsVersion: number(SETTINGS_VERSION_KEY),
      security: securityOf(connection, damage, garbage.lacksChecksums),
      wasRestored: meta.has(RESTORED_KEY),
      purgeSeq: number('purge_seq'),
      externalBytes: number('external_bytes'),
    }
    this.#now = { ...this.#written }
    this.#epochBegun = closedAt !== undefined && closedAt === this.#position()
  }

  /** Fills the tables of a new file. */
  static create(
    file: Pick<Connection, 'prepare' | 'pragma'>,
    createdAt: number,
    { partitioned = false, shards }: DatabaseProperties,
  ): void {
    putMeta(file, 'created_at', createdAt)
    putMeta(file, 'epochs', JSON.stringify(firstEpochs(createdAt * 1000)))
    if (partitioned) putMeta(file, PARTITIONED_KEY, 1)
    if (shards !== undefined) putMeta(file, SHARDS_KEY, shards)
  }

  /** The current state. The object never changes. */
  get view(): StoreView {
    this.#view ??= viewOf(this.#now)
    return this.#view
  }

  get purgeSeq(): number {
    return this.#now.purgeSeq
  }

  /** The size of the leaves' bodies and attachments, in bytes. */
  get externalBytes(): number {
    return this.#now.externalBytes
  }

  /** The position for {@link ClosedPositions}; null if no number was given out. */
  get closedPosition(): string | null {
    return this.#epochBegun ? this.#position() : null
  }

  /** A restore changes the time of creation. */
  #position(): string {
    const { updateSeq, epochs } = this.#written
    return `${this.createdAt} ${updateSeq} ${epochs.at(-1)?.id}`
  }

  /** Returns to the last committed state, after a rollback. */
  restore(): void {
    Object.assign(this.#change(), this.#written)
  }

  #change(): { -readonly [Name in keyof Counters]: Counters[Name] } {
    this.#view = undefined
    return this.#now
  }

  /** Takes over what another connection has committed. */
  follow(counts: Counts): void {
    Object.assign(this.#change(), counts)
  }

  /** The next sequence number. The first after an opening begins an epoch, unless {@link ClosedPositions} let it continue. */
  takeSeq(): number {
    const now = this.#change()
    now.updateSeq += 1
    if (!this.#epochBegun && now.epochs === this.#written.epochs) {
      now.epochs = renewEpochs(now.epochs, now.updateSeq, { now: Date.now() })
      now.settingsVersion += 1
    }
    return now.updateSeq
  }

  /** Counts a document's write. */
  count(effect: WriteEffect, deleted: boolean): void {
    const now = this.#change()
    if (!effect.isNew) {
      if (effect.wasDeleted) now.deletedCount -= 1
      else now.docCount -= 1
    }
    if (deleted) now.deletedCount += 1
    else now.docCount += 1
    now.externalBytes += effect.externalBytes
  }

  /** Subtracts a document that was purged completely. @param externalBytes the bytes of its leaves */
  uncount(deleted: boolean, externalBytes: number): void {
    const now = this.#change()
    if (deleted) now.deletedCount -= 1
    else now.docCount -= 1
    now.externalBytes -= externalBytes
  }

  /** The number of the next purge. */
  takePurgeSeq(): number {
    const now = this.#change()
    now.purgeSeq += 1
    return now.purgeSeq
  }

  /** Notes that a design document was written or purged. */
  touchDesign(): void {
    const now = this.#change()
    now.designVersion += 1
    now.settingsVersion += 1
  }

  change(change: SettingsChange): void {
    if (Object.keys(change).length === 0) return
    const now = Object.assign(this.#change(), change)
    now.settingsVersion += 1
  }

  /** Writes the changed values, as part of the transaction that changed them. */
  flush(): void {
    const was = this.#written
    const now = this.#now
    const put = (key: string, before: number, after: number) => {
      if (before !== after) this.#meta.put(key, after)
    }
    put('update_seq', was.updateSeq, now.updateSeq)
    put('doc_count', was.docCount, now.docCount)
    put('deleted_count', was.deletedCount, now.deletedCount)
    put('purge_seq', was.purgeSeq, now.purgeSeq)
    put('external_bytes', was.externalBytes, now.externalBytes)
    put('revs_limit', was.revsLimit, now.revsLimit)
    put('purged_infos_limit', was.purgedInfosLimit, now.purgedInfosLimit)
    put('design_version', was.designVersion, now.designVersion)
    put(SETTINGS_VERSION_KEY, was.settingsVersion, now.settingsVersion)
    if (was.wasRestored !== now.wasRestored) this.#meta.put(RESTORED_KEY, Date.now())
    if (was.epochs !== now.epochs) this.#meta.put('epochs', JSON.stringify(now.epochs))
    if (was.security !== now.security) {
      const body = JSON.stringify(now.security)
      this.#putSecurity.run(body, rowChecksum(body))
    }
  }

  /** Called when the transaction is durable. @returns how many sequence numbers it used */
  committed(): number {
    const updates = this.#now.updateSeq - this.#written.updateSeq
    this.#epochBegun ||= updates > 0
    this.#written = { ...this.#now }
    return updates
  }
}

function viewOf({ purgeSeq, externalBytes, ...view }: Counters): StoreView {
  return view
}

function securityOf(
  connection: Connection,
  damage: DamageReports,
  lacksChecksums: boolean,
): SecurityObject | null {
  const row = connection
    .prepare<{ body: string; checksum: number | null }>('SELECT body, checksum FROM security')
    .get()
  if (row === undefined) return null
  if (agrees(row.checksum, rowChecksum(row.body), lacksChecksums))
    return JSON.parse(row.body) as SecurityObject
  damage.damagedSecurity()
  return ONLY_ADMINS
}
