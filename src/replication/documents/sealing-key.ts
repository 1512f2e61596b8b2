/** The key of the credentials in `_replicator`, which this server has made for itself or taken from its primary. */

import { Listeners } from '../../core/listeners.ts'
import { readRecord } from '../../storage/records.ts'
import type { Databases } from '../../threads/databases.ts'
import { isSealingKey, newSealingKey } from '../requests/sealed-credentials.ts'

const RECORD = { kind: 'replication', key: 'sealing key' }

type Records = Pick<Databases, 'readRecords' | 'writeRecords' | 'watchCatalog'>

/** The key is in server.sqlite, apart from the databases, so the file of a database alone opens no credentials. */
export class SealingKey {
  readonly #records: Records
  readonly #listeners = new Listeners<[]>()
  #value: string | null = null

  /** @param onFault the key could not be read or made, so there is none */
  static async open(records: Records, onFault: (fault: unknown) => void): Promise<SealingKey> {
    const key = new SealingKey(records)
    await key.#open().catch(onFault)
    records.watchCatalog((change) => {
      const isOwn =
        change.type === 'records' && change.kind === RECORD.kind && change.keys.includes(RECORD.key)
      if (isOwn || change.type === 'any') key.#refresh().catch(onFault)
    })
    return key
  }

  private constructor(records: Records) {
    this.#records = records
  }

  /** null: there is none. */
  get value(): string | null {
    return this.#value
  }

  /**
   * Takes another server's key, whose documents this one has; durable and in effect when resolved. Texts that are no keys
   * are ignored.
   * @throws as the catalog
   */
  async adopt(value: string): Promise<void> {
    if (value === this.#value || !isSealingKey(value)) return
    await this.#records.writeRecords([{ ...RECORD, value }])
    this.#set(value)
  }

  /** Calls the listener after the key has changed. */
  onChange(listener: () => void): void {
    this.#listeners.add(listener)
  }

  async #open(): Promise<void> {
    const made = { ...RECORD, value: newSealingKey(), expected: null }
    const found = await readRecord(this.#records, RECORD.kind, RECORD.key)
    // Another node may be making one.
    if (found === null && (await this.#records.writeRecords([made]))) this.#value = made.value
    else this.#value = found ?? (await readRecord(this.#records, RECORD.kind, RECORD.key))
  }

  /** Another node may have adopted a key. */
  async #refresh(): Promise<void> {
    const found = await readRecord(this.#records, RECORD.kind, RECORD.key)
    if (found !== null) this.#set(found)
  }

  #set(value: string): void {
    if (value === this.#value) return
    this.#value = value
    this.#listeners.tell()
  }
}
