/**
 * What a database's file knows of itself, kept in memory while the file is open (this connection is its only
 * writer) and written with each transaction that changes it.
 */
import { randomBytes } from 'node:crypto'
import type { SecurityObject } from '../../core/types.ts'
import type { SettingsChange, StoreView } from '../engine.ts'
import { beginEpoch, type Epochs, epochId } from '../sequence.ts'
import type { Connection, Statement } from './connection.ts'
import type { WriteEffect } from './documents.ts'

/** A copy stands for one moment: changes make new objects. */
export interface Counters {
  readonly view: StoreView
  readonly purgeSeq: number
  /** Bytes that the leaves' bodies and attachments hold. */
  readonly externalBytes: number
}

const DEFAULT_REVS_LIMIT = 1000
const DEFAULT_PURGED_INFOS_LIMIT = 1000

export class State {
  readonly createdAt: number
  #counters: Counters
  #epochBegun = false
  #written: Counters
  readonly #put: Statement
  readonly #putSecurity: Statement

  constructor(connection: Connection) {
    this.#put = connection.prepare(
      'INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value',
    )
    this.#putSecurity = connection.prepare(
      'INSERT INTO security (one, version, body) VALUES (1, 1, ?) ' +
        'ON CONFLICT DO UPDATE SET version = version + 1, body = excluded.body',
    )
    const meta = new Map(
      connection
        .prepare<{ key: string; value: unknown }>('SELECT key, value FROM meta')
        .all()
        .map(({ key, value }) => [key, value]),
    )
    const number = (key: string, absent = 0) => Number(meta.get(key) ?? absent)
    this.createdAt = number('created_at')
    this.#counters = {
      view: {
        updateSeq: number('update_seq'),
        epochs: JSON.parse(String(meta.get('epochs'))) as Epochs,
        docCount: number('doc_count'),
        deletedCount: number('deleted_count'),
        revsLimit: number('revs_limit', DEFAULT_REVS_LIMIT),
        purgedInfosLimit: number('purged_infos_limit', DEFAULT_PURGED_INFOS_LIMIT),
        designVersion: number('design_version'),
        security: securityOf(connection),
      },
      purgeSeq: number('purge_seq'),
      externalBytes: number('external_bytes'),
    }
    this.#written = this.#counters
  }

  /** Fills the tables of a new file. */
  static create(connection: Connection, createdAt: number): void {
    const put = connection.prepare('INSERT INTO meta (key, value) VALUES (?, ?)')
    put.run('created_at', createdAt)
    put.run('epochs', JSON.stringify([{ id: epochId(randomBytes(9)), firstSeq: 0 }]))
  }

  get now(): Counters {
    return this.#counters
  }

  /** Goes back to an earlier moment, after a rollback. */
  restore(moment: Counters): void {
    this.#counters = moment
  }

  /** The next sequence number; the first after an opening begins an epoch (design.md 3). */
  takeSeq(): number {
    const { view } = this.#counters
    const updateSeq = view.updateSeq + 1
    const isBegun = this.#epochBegun || view.epochs !== this.#written.view.epochs
    const epochs = isBegun ? view.epochs : beginEpoch(view.epochs, epochId(randomBytes(9)), updateSeq)
    this.#counters = { ...this.#counters, view: { ...view, updateSeq, epochs } }
    return updateSeq
  }

  /** Counts a document's write. */
  count(effect: WriteEffect, deleted: boolean): void {
    const { view, externalBytes } = this.#counters
    const wasLive = !effect.isNew && !effect.wasDeleted
    const wasDead = !effect.isNew && effect.wasDeleted
    this.#counters = {
      ...this.#counters,
      view: {
        ...view,
        docCount: view.docCount + Number(!deleted) - Number(wasLive),
        deletedCount: view.deletedCount + Number(deleted) - Number(wasDead),
      },
      externalBytes: externalBytes + effect.externalBytes,
    }
  }

  /** Counts a document that was forgotten whole. @param externalBytes what its leaves held */
  uncount(deleted: boolean, externalBytes: number): void {
    const { view, externalBytes: held } = this.#counters
    this.#counters = {
      ...this.#counters,
      view: {
        ...view,
        docCount: view.docCount - Number(!deleted),
        deletedCount: view.deletedCount - Number(deleted),
      },
      externalBytes: held - externalBytes,
    }
  }

  /** The number of the next purge. */
  takePurgeSeq(): number {
    const purgeSeq = this.#counters.purgeSeq + 1
    this.#counters = { ...this.#counters, purgeSeq }
    return purgeSeq
  }

  /** Notes that a design document was written or purged. */
  touchDesign(): void {
    const { view } = this.#counters
    this.#counters = { ...this.#counters, view: { ...view, designVersion: view.designVersion + 1 } }
  }

  change(change: SettingsChange): void {
    this.#counters = { ...this.#counters, view: { ...this.#counters.view, ...change } }
  }

  /** Writes what differs from the file; part of the transaction that changed it. */
  flush(): void {
    const was = this.#written.view
    const now = this.#counters.view
    const put = (key: string, before: unknown, after: number | string) => {
      if (before !== after) this.#put.run(key, after)
    }
    put('update_seq', was.updateSeq, now.updateSeq)
    put('doc_count', was.docCount, now.docCount)
    put('deleted_count', was.deletedCount, now.deletedCount)
    put('purge_seq', this.#written.purgeSeq, this.#counters.purgeSeq)
    put('external_bytes', this.#written.externalBytes, this.#counters.externalBytes)
    put('revs_limit', was.revsLimit, now.revsLimit)
    put('purged_infos_limit', was.purgedInfosLimit, now.purgedInfosLimit)
    put('design_version', was.designVersion, now.designVersion)
    if (was.epochs !== now.epochs) this.#put.run('epochs', JSON.stringify(now.epochs))
    if (was.security !== now.security) this.#putSecurity.run(JSON.stringify(now.security))
  }

  /** The transaction is durable. @returns whether it gave out sequence numbers */
  committed(): boolean {
    const advanced = this.#counters.view.updateSeq > this.#written.view.updateSeq
    this.#epochBegun ||= advanced
    this.#written = this.#counters
    return advanced
  }
}

function securityOf(connection: Connection): SecurityObject | null {
  const row = connection.prepare<{ body: string }>('SELECT body FROM security').get()
  return row === undefined ? null : (JSON.parse(row.body) as SecurityObject)
}
