/** Which opener of a database compacts it: one at a time, over all nodes. */
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import { lapsed } from '../blob-leases.ts'
import type { OpenDatabase } from './open-database.ts'

/** How often the holder of the claim renews it and tells how far it is, in ms. */
const RENEWAL_MS = 1000
/** How often others look whether it has ended, in ms. */
const POLL_MS = 200

const CLAIM = { name: 'claim_compaction', text: 'SELECT claim_compaction($1, $2, $3, $4)' }

const STATE = {
  name: 'compaction_state',
  text: `SELECT c.opener IS NOT NULL AND c.renewed_at > $2, coalesce(c.done, 0), coalesce(c.finished, 0)
    FROM database d LEFT JOIN compaction c ON c.db = $1 WHERE d.db = $1`,
}

const RENEW = {
  name: 'renew_compaction',
  text: 'UPDATE compaction SET renewed_at = $3, done = $4 WHERE db = $1 AND opener = $2',
}

const END = {
  name: 'end_compaction',
  text: 'UPDATE compaction SET opener = NULL, finished = finished + $3 WHERE db = $1 AND opener = $2',
}

type StateRow = readonly [isRunning: boolean, done: number, finished: number]

export class CompactionClaim {
  readonly #database: OpenDatabase
  /** Identifies this opener of the database among all. */
  readonly id = randomBytes(12).toString('hex')
  #renewed = 0

  constructor(database: OpenDatabase) {
    this.#database = database
  }

  /**
   * Takes the claim, or waits for the compaction of another opener. If that one does not succeed, takes the claim after it.
   * @param onProgress gets the progress of the other compaction, in percent
   * @param refuseIfClosed ends the wait when it throws
   * @returns whether the caller has the claim; else another has compacted the database since the call
   * @throws no_database, as {@link Connections.write}
   */
  async take(onProgress: (done: number) => void, refuseIfClosed: () => void): Promise<boolean> {
    const { connections, db, now } = this.#database
    let before: number | undefined
    for (;;) {
      refuseIfClosed()
      const [claimed] = await connections.write<readonly [number | null]>({
        ...CLAIM,
        values: [db, this.id, now(), lapsed(now())],
      })
      if (claimed?.[0] != null) {
        this.#renewed = performance.now()
        return true
      }
      for (let isRunning = true; isRunning; await sleep(POLL_MS)) {
        refuseIfClosed()
        const [state] = await connections.read<StateRow>({ ...STATE, values: [db, lapsed(now())] })
        if (state === undefined) throw new CouchError('no_database')
        const [, done, finished] = state
        before ??= finished
        if (finished > before) return false
        isRunning = state[0]
        if (isRunning) onProgress(done)
      }
    }
  }

  /** Renews the claim if it is time to. @throws as {@link Connections.write} */
  async renew(done: number): Promise<void> {
    if (performance.now() - this.#renewed < RENEWAL_MS) return
    this.#renewed = performance.now()
    const { connections, db, now } = this.#database
    await connections.write({ ...RENEW, values: [db, this.id, now(), done] })
  }

  /** Ends the claim. Never rejects: a claim that could not be ended lapses. */
  async end(hasSucceeded: boolean): Promise<void> {
    const { connections, db } = this.#database
    const values = [db, this.id, hasSucceeded ? 1 : 0]
    await connections.write({ ...END, values }).catch(() => undefined)
  }
}
