/** What the openers of an engine in memory share: all that a server's disk would hold. */
import { randomBytes } from 'node:crypto'
import type { LastKnownSequence } from '../../../src/storage/sequence.ts'
import { MemoryLeases } from './opener.ts'
import { SharedRecords } from './records.ts'
import type { DatabaseRecord } from './store.ts'
import { MemoryUpdates } from './updates.ts'

export class SharedMemory {
  readonly folderUuid = randomBytes(16).toString('hex')
  serverUuid = this.folderUuid
  readonly databases = new Map<string, DatabaseRecord>()
  readonly updates = new MemoryUpdates()
  readonly sequences = new Map<string, LastKnownSequence>()
  readonly records = new SharedRecords()
  /** Who has the catalog, where only one opener may have it. */
  holder: string | null = null
  #lastIncarnation = 0

  /** Enters a database, in the place of another of its name. */
  enter(entry: Pick<DatabaseRecord, 'name' | 'createdAt' | 'state' | 'now'>): DatabaseRecord {
    const incarnation = ++this.#lastIncarnation
    const record: DatabaseRecord = {
      ...entry,
      incarnation,
      isGone: false,
      numbers: { last: 0 },
      leases: new MemoryLeases(),
      stores: new Set(),
    }
    this.leave(entry.name)
    this.databases.set(entry.name, record)
    return record
  }

  /** Removes a database, which its open stores hear. @returns whether there was one */
  leave(name: string): boolean {
    const record = this.databases.get(name)
    if (record === undefined) return false
    record.isGone = true
    this.databases.delete(name)
    this.sequences.delete(name)
    for (const store of record.stores) store.hear(null)
    return true
  }
}
