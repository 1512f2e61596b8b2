/** Follows the changes of `_users` on the HTTP thread: after each commit, the names of the changed accounts. */
import { type ChangesOptions, PLAIN_CHANGES } from '../changes/rows.ts'
import { CouchError } from '../core/errors.ts'
import { userNameOf } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseEvent, DatabaseHandle, Databases } from '../threads/databases.ts'
import { ADMIN_ROLE } from './accounts.ts'

/** The server itself, which reads and writes accounts for logins. */
export const SYSTEM_USER: UserCtx = { name: null, roles: [ADMIN_ROLE] }

const PAGE_ROWS = 1000
/** Changed accounts that are listed by name; above that, `all`. */
const MAX_NAMES = 5000

/** A feed of `_users` with one row per line. */
export const PLAIN_FEED: ChangesOptions = { ...PLAIN_CHANGES, framing: 'lines' }

/** A row of {@link PLAIN_FEED} about an account. */
export interface UserChange {
  /** Its sequence number. */
  readonly seq: number
  readonly name: string
  readonly deleted: boolean
}

/** @returns the accounts in a page of {@link PLAIN_FEED}, in order */
export function userChanges(bytes: Uint8Array): UserChange[] {
  const lines = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString().split('\n')
  return lines.flatMap((line) => {
    if (line === '') return []
    const { seq, id, deleted } = JSON.parse(line) as { seq: string; id: string; deleted?: boolean }
    const name = userNameOf(id)
    return name === null ? [] : [{ seq: Number.parseInt(seq, 10), name, deleted: deleted === true }]
  })
}

/** @returns null if there is no such database */
export function findDatabase(databases: Pick<Databases, 'get'>, name: string): DatabaseHandle | null {
  try {
    return databases.get(name)
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return null
    throw error
  }
}

export type ChangedNames = ReadonlySet<string> | 'all'

export class UsersFeed {
  readonly #databases: Pick<Databases, 'get' | 'usersDatabase'>
  readonly #onChange: (names: ChangedNames) => void
  #handle: DatabaseHandle | null = null
  #unwatch: () => void = () => {}
  /** Where the next page begins; null until it is known. */
  #since: number | null = null
  #reading: Promise<void> | null = null
  #version = 0

  /** @param onChange called with the changed accounts before {@link isSettled} is true again */
  constructor(databases: Pick<Databases, 'get' | 'usersDatabase'>, onChange: (names: ChangedNames) => void) {
    this.#databases = databases
    this.#onChange = onChange
  }

  /** Increases with everything that may have changed an account. */
  get version(): number {
    return this.#version
  }

  /**
   * Follows the database from now on.
   * @returns the database; null while there is none
   * @throws unavailable
   */
  async database(): Promise<DatabaseHandle | null> {
    const handle = findDatabase(this.#databases, this.#databases.usersDatabase)
    if (handle !== this.#handle) this.#follow(handle)
    if (handle !== null && this.#since === null) this.#reading ??= this.#begin(handle)
    while (this.#reading !== null) await this.#reading
    return handle
  }

  /** Whether known accounts are up to date, since no changes are being read. */
  get isSettled(): boolean {
    return this.#reading === null && this.#since !== null && this.#handle !== null
  }

  #follow(handle: DatabaseHandle | null): void {
    this.#unwatch()
    this.#handle = handle
    this.#since = null
    this.#changed('all')
    this.#unwatch = handle?.watch((event) => this.#onEvent(event)) ?? (() => {})
  }

  #changed(names: ChangedNames): void {
    this.#version += 1
    this.#onChange(names)
  }

  #onEvent(event: DatabaseEvent): void {
    if (event.type === 'secured') return
    if (event.type === 'gone') {
      // It was deleted, or its thread died with commits that were not reported.
      this.#since = null
      this.#changed('all')
      return
    }
    this.#version += 1
    this.#wake()
  }

  async #begin(handle: DatabaseHandle): Promise<void> {
    const before = this.#version
    try {
      const { lastSeq } = await handle.changes(SYSTEM_USER, { options: PLAIN_FEED, since: 'now', limit: 0 })
      if (handle === this.#handle) this.#since = lastSeq
    } finally {
      this.#reading = null
    }
    // A commit was reported before this answer.
    if (this.#version !== before) this.#wake()
  }

  #wake(): void {
    if (this.#handle !== null && this.#since !== null) this.#reading ??= this.#read(this.#handle)
  }

  /** Reads up to the end, with new commits. Never rejects: after a failure all accounts count as changed. */
  async #read(handle: DatabaseHandle): Promise<void> {
    try {
      for (let seen = -1; seen !== this.#version && this.#since !== null; ) {
        seen = this.#version
        const names = await this.#namesSince(handle, this.#since)
        if (handle !== this.#handle) return
        this.#onChange(names)
      }
    } catch {
      this.#since = null
      this.#changed('all')
    } finally {
      this.#reading = null
    }
  }

  async #namesSince(handle: DatabaseHandle, since: number): Promise<ChangedNames> {
    const names = new Set<string>()
    for (let at = since; ; ) {
      const page = await handle.changes(SYSTEM_USER, { options: PLAIN_FEED, since: at, limit: PAGE_ROWS })
      for (const { name } of userChanges(page.bytes)) names.add(name)
      at = page.lastSeq
      if (this.#since !== null) this.#since = at
      if (page.atTip) return names.size > MAX_NAMES ? 'all' : names
    }
  }

  /** Stops following. */
  close(): void {
    this.#unwatch()
    this.#unwatch = () => {}
  }
}
