/** What the server remembers of moved databases, so that a move can be repeated. */

import { readRecord } from '../storage/records.ts'
import type { Databases } from '../threads/databases.ts'

export interface MoveRecord {
  /** The uuid of the old server, or its address. */
  readonly oldServer: string
  /** Whether the database was moved completely at least once. */
  readonly isDone: boolean
  /** The end of the local feed after the last move. */
  readonly end: string
  /** The old server whose sequences are plain numbers, which those of another one must not be taken for; null: none. */
  readonly numbersOf: string | null
}

const KIND = 'move'

type Stored = MoveRecord & { readonly incarnation: number }

export class MoveRecords {
  readonly #databases: Databases

  constructor(databases: Databases) {
    this.#databases = databases
  }

  /** @returns null if the database has not come from a move, or was made anew since */
  async read(name: string): Promise<MoveRecord | null> {
    const value = await readRecord(this.#databases, KIND, name)
    if (value === null || !(await this.#databases.has(name))) return null
    const record = JSON.parse(value) as Stored
    return record.incarnation === (await this.#databases.get(name)).incarnation ? record : null
  }

  async write(name: string, record: MoveRecord): Promise<void> {
    const stored = { ...record, incarnation: (await this.#databases.get(name)).incarnation }
    await this.#databases.writeRecords([{ kind: KIND, key: name, value: JSON.stringify(stored) }])
  }
}
