/**
 * What a write under way leaves in the store, so that it can be found out whether it is stored when its answer was lost: a row
 * of `written`, in which each of its tries notes its own token.
 *
 * A try may begin after its connection broke: a server was frozen, or a network that was cut has held the bytes. So whoever
 * finds that a try is not stored raises the token of the row under the same lock, and the functions of write-functions.ts store
 * nothing whose token is not above that of the row.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import type { Run } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'
import { refusals } from './write-functions.ts'

/** The first parameters of each write. */
export interface WriteContext {
  readonly db: number
  /** The settingsVersion that it was decided on. */
  readonly settingsVersion: number
  /** Identifies the row of `written`. */
  readonly opener: string
  /** Identifies this try among all in that row, and is above those before it. */
  readonly token: number
  /** The time, in ms since 1970. */
  readonly now: number
}

/** How long it is tried to learn whether a write is stored, in ms, and how long to wait after a try that failed. */
const INQUIRY_MS = 10_000
const PAUSE_MS = 100

const LOCK = {
  name: 'lock_database',
  text: 'SELECT update_seq FROM database WHERE db = $1 FOR UPDATE',
}
const READ_WRITTEN = {
  name: 'read_written',
  text: 'SELECT 1 FROM written WHERE db = $1 AND opener = $2 AND token = $3',
}
const GIVE_UP = {
  name: 'give_up_write',
  text:
    'INSERT INTO written (db, opener, token, at) VALUES ($1, $2, $3, $4) ' +
    'ON CONFLICT (db, opener) DO UPDATE SET token = excluded.token, at = excluded.at',
}

/** Of all databases of this process, so that a database that is opened again uses none twice. */
let lastToken = 0

/** Of one write at a time: another one would hide whether it is stored. */
export class WriteNote {
  readonly #database: OpenDatabase
  readonly #opener: string
  #token = 0

  /** @param number identifies it among those of the open database */
  constructor(database: OpenDatabase, number: number) {
    this.#database = database
    this.#opener = `${database.opener} ${number}`
  }

  /** The next try, which was decided on this settingsVersion. */
  begin(settingsVersion: number): WriteContext {
    const { db, now } = this.#database
    this.#token = ++lastToken
    return { db, settingsVersion, opener: this.#opener, token: this.#token, now: now() }
  }

  /**
   * Finds out whether the last try is stored. It may be still under way, so this waits for it by the lock that it needs. If
   * it is not stored, it will not be stored later either.
   * @returns the newest sequence number, or `gone` of {@link refusals}; null: it is not stored
   * @throws store_unavailable if it cannot be found out
   */
  async inquire(): Promise<number | null> {
    const deadline = performance.now() + INQUIRY_MS
    for (;;) {
      try {
        return await this.#database.connections.transaction((run) => this.#look(run))
      } catch (cause) {
        if (performance.now() > deadline) throw new CouchError('store_unavailable', undefined, { cause })
        await sleep(PAUSE_MS)
      }
    }
  }

  async #look(run: Run): Promise<number | null> {
    const { db, now } = this.#database
    const updateSeq = await lockDatabase(run, db)
    if (updateSeq === null) return refusals.gone
    const found = await run({ ...READ_WRITTEN, values: [db, this.#opener, this.#token] })
    if (found.length > 0) return updateSeq
    await run({ ...GIVE_UP, values: [db, this.#opener, ++lastToken, now()] })
    return null
  }
}

/** Locks the row of a database, which orders its writes. @returns its newest sequence number; null if it is gone */
export async function lockDatabase(run: Run, db: number): Promise<number | null> {
  const [row] = await run<[updateSeq: number]>({ ...LOCK, values: [db] })
  return row === undefined ? null : row[0]
}
