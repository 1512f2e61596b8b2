/** What the server remembers of moved databases, so that a move can be repeated. */
import type { Databases } from '../threads/databases.ts'

export interface MoveRecord {
  /** The uuid of the old server, or its address. */
  readonly oldServer: string
  /** Whether the database was moved completely at least once. */
  readonly isDone: boolean
  /** The end of the local feed after the last move. */
  readonly end: string
}

const KIND = 'move'

export class MoveRecords {
  readonly #databases: Databases

  constructor(databases: Databases) {
    this.#databases = databases
  }

  /** @returns null if the database has not come from a move, or was made anew since */
  async read(name: string): Promise<MoveRecord | null> {
    if (!this.#databases.names().includes(name)) return null
    const { incarnation } = this.#databases.get(name)
    const records = await this.#databases.readRecords(KIND)
    const found = records.find(({ key }) => key === name)
    if (found === undefined) return null
    const record = JSON.parse(found.value) as MoveRecord & { readonly incarnation: number }
    return record.incarnation === incarnation ? record : null
  }

  async write(name: string, record: MoveRecord): Promise<void> {
    const { incarnation } = this.#databases.get(name)
    const value = JSON.stringify({ ...record, incarnation })
    await this.#databases.writeRecords([{ kind: KIND, key: name, value }])
  }
}
