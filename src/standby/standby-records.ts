/**
 * What a standby knows of its primary, in records of the server, so that it survives a restart. The record holds the
 * credentials for the primary; no answer, log line or list shows it.
 */
import { isJsonObject } from '../core/json.ts'
import type { Position, RemoteEndpoint } from '../replication/requests/replication-request.ts'
import { collectRecords, type Records, type RecordWrite, type ServerRecord } from '../storage/records.ts'
import { acceptsWrites, nextState, type StandbyEvent, type StandbyState } from './standby-state.ts'

/** The record of kind `standby`; its members are named as on disk. */
export interface StandbyRecord {
  readonly state: Exclude<StandbyState, 'none'>
  /** The root of the primary, with its credentials. */
  readonly first: RemoteEndpoint
  readonly uuid: string
  /** Why copying has stopped; null unless `halted`. */
  readonly reason: string | null
  /** An operator has accepted a primary whose databases were made anew. */
  readonly acceptsOthers: boolean
  /** Where the primary's `_db_updates` go on; null: from its end, after all databases are compared. */
  readonly updatesSeq: Position | null
  /** Time up to which everything of the primary is here, in ms since 1970; null: the initial copy is not complete. */
  readonly syncedAt: number | null
  /** The keys of settings that came from the primary (settings-copy.ts). */
  readonly settings: readonly string[]
}

/** What a standby knows of one database of its primary. */
export interface FollowedDatabase {
  /** Its `instance_start_time`: another one means another database. */
  readonly instance: string
  /** Everything up to here is copied. */
  readonly seq: Position
  /** How many purges of the primary are repeated here. */
  readonly purges: number
  /** Revisions that could not be stored here. */
  readonly refused: number
}

type RecordStore = Pick<Records, 'listRecords' | 'writeRecords'>

const KIND = 'standby'
const KEY = 'first'
const DATABASE_KIND = 'standby-database'

/** The records of a standby, in memory and on disk. */
export class StandbyRecords {
  readonly #store: RecordStore
  readonly #databases: Map<string, FollowedDatabase>
  readonly #listeners = new Set<() => void>()
  #record: StandbyRecord | null
  #lastWrite: Promise<unknown> = Promise.resolve()

  private constructor(
    store: RecordStore,
    record: StandbyRecord | null,
    databases: Map<string, FollowedDatabase>,
  ) {
    this.#store = store
    this.#record = record
    this.#databases = databases
  }

  /** Reads the records. @throws Error for a damaged record, since a standby must not take writes by mistake */
  static async open(store: RecordStore): Promise<StandbyRecords> {
    const [record] = await store.listRecords(KIND, {}, 1)
    const databases = await collectRecords(store, DATABASE_KIND)
    return new StandbyRecords(
      store,
      record === undefined ? null : parsed<StandbyRecord>(record, 'state'),
      new Map(databases.map((each) => [each.key, parsed<FollowedDatabase>(each, 'instance')])),
    )
  }

  /** null: this server is no standby. */
  get current(): StandbyRecord | null {
    return this.#record
  }

  get state(): StandbyState {
    return this.#record?.state ?? 'none'
  }

  get acceptsWrites(): boolean {
    return acceptsWrites(this.state)
  }

  /** Calls the listener after each change of the state, until the returned function is called. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /**
   * Enters the state that an event leads to; durable and in effect when resolved.
   * @param change what else is recorded with it; of a new standby, all of it
   * @returns false if the state refuses the event
   */
  async enter(event: Exclude<StandbyEvent, 'finish'>, change: Partial<StandbyRecord> = {}): Promise<boolean> {
    return this.#inTurn(async () => {
      const state = nextState(this.state, event)
      if (state === null || state === 'none') return false
      await this.#write({ ...(this.#record as StandbyRecord), ...change, state })
      return true
    })
  }

  /** Ends a promotion: the records go, with the credentials, in one transaction. */
  async finish(): Promise<void> {
    await this.#inTurn(async () => {
      if (nextState(this.state, 'finish') === null) return
      const databases = [...this.#databases.keys()].map((key) => removal(DATABASE_KIND, key))
      await this.#store.writeRecords([removal(KIND, KEY), ...databases])
      this.#databases.clear()
      this.#record = null
      this.#notify()
    })
  }

  /** Records facts beside the state. Does nothing once this server is no standby. */
  async note(change: Partial<Omit<StandbyRecord, 'state'>>): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#record !== null) await this.#write({ ...this.#record, ...change })
    })
  }

  /** The databases that are followed. */
  databases(): ReadonlyMap<string, FollowedDatabase> {
    return this.#databases
  }

  /**
   * Does nothing once this server is no standby: a copy may end after a promotion.
   * @param followed null: the database is no longer followed
   */
  async noteDatabase(name: string, followed: FollowedDatabase | null): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#record === null) return
      const value = followed === null ? null : JSON.stringify(followed)
      await this.#store.writeRecords([{ kind: DATABASE_KIND, key: name, value }])
      if (followed === null) this.#databases.delete(name)
      else this.#databases.set(name, followed)
    })
  }

  async #write(record: StandbyRecord): Promise<void> {
    const isOther = record.state !== this.#record?.state
    await this.#store.writeRecords([{ kind: KIND, key: KEY, value: JSON.stringify(record) }])
    this.#record = record
    if (isOther) this.#notify()
  }

  #notify(): void {
    for (const listener of this.#listeners) listener()
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#lastWrite.then(work)
    this.#lastWrite = done.catch(() => undefined)
    return done
  }
}

function removal(kind: string, key: string): RecordWrite {
  return { kind, key, value: null }
}

function parsed<T>({ kind, key, value }: ServerRecord, member: keyof T & string): T {
  const read: unknown = JSON.parse(value)
  if (!isJsonObject(read) || typeof read[member] !== 'string') {
    throw new Error(`the record ${kind} ${key} is damaged`)
  }
  return read as T
}
