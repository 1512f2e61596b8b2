/** What the server remembers of moved databases, so that a move can be repeated. */

import { collectRecords } from '../storage/records.ts'
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
  readonly #records: Map<string, Stored>

  private constructor(databases: Databases, records: Map<string, Stored>) {
    this.#databases = databases
    this.#records = records
  }

  static async open(databases: Databases): Promise<MoveRecords> {
    const records = await collectRecords(databases, KIND)
    return new MoveRecords(
      databases,
      new Map(records.map(({ key, value }) => [key, JSON.parse(value) as Stored])),
    )
  }

  /** @returns null if the database has not come from a move, or was made anew since */
  async read(name: string): Promise<MoveRecord | null> {
    const record = this.#records.get(name)
    if (record === undefined || !(await this.#databases.has(name))) return null
    return record.incarnation === (await this.#databases.get(name)).incarnation ? record : null
  }

  async write(name: string, record: MoveRecord): Promise<void> {
    const stored = { ...record, incarnation: (await this.#databases.get(name)).incarnation }
    await this.#databases.writeRecords([{ kind: KIND, key: name, value: JSON.stringify(stored) }])
    this.#records.set(name, stored)
  }
}
