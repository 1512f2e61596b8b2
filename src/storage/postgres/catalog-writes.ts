/** Calls that change the catalog: each happens once, also if its answer is lost or it meets others. */
import { randomBytes } from 'node:crypto'
import { setTimeout as rest } from 'node:timers/promises'
import { CouchError } from '../../core/errors.ts'
import type { CatalogChange } from '../records.ts'
import type { Connections, Query, Run, Statement } from './connections.ts'
import type { Row } from './prepared-query.ts'
import { isConflict, LostAnswer } from './store-fault.ts'

/** How long a call is tried whose answers are lost, in ms, and how long it waits between the attempts. */
const LOST_MS = 8000
const RETRY_MS = 200
/** How often a call is repeated that meets others. */
const MAX_CONFLICTS = 20
/** The maximum size of the changes of one call, in characters; beyond it, others read everything again. */
const MAX_CHANGES = 100_000

/**
 * Decides about a call whose answer was lost: the row has its token already if it is stored, is inserted after it has
 * ended if it is not finished, and keeps it from being stored later.
 */
const FORBID = {
  name: 'forbid_catalog_call',
  text: `INSERT INTO catalog_change (token, node) VALUES ($1, $2) ON CONFLICT (token) DO NOTHING`,
}
const READ_CALL = {
  name: 'read_catalog_call',
  text: 'SELECT changes IS NOT NULL FROM catalog_change WHERE token = $1',
}
const NOTE_CALL = {
  name: 'note_catalog_call',
  text: 'INSERT INTO catalog_change (token, node, changes) VALUES ($1, $2, $3)',
}

/** What identifies a call: the last values of its statement. */
type CallValues = readonly [token: string, node: string, changes: string]

export class CatalogWrites {
  readonly #connections: Connections
  readonly #node: string

  /** @param node identifies this opener of the catalog */
  constructor(connections: Connections, node: string) {
    this.#connections = connections
    this.#node = node
  }

  /**
   * Calls a function of the catalog.
   * @param values without the last ones, which identify the call
   * @param changes that other nodes are told of, if it stores any
   * @returns its row; null if it is stored and its answer was lost
   * @throws the error of `storeFault`; store_unavailable as well if it cannot be found out whether it is stored
   */
  call<R extends Row>(
    statement: Statement,
    values: readonly unknown[],
    changes: readonly CatalogChange[],
  ): Promise<R | null> {
    return this.#attempt(changes, async (last) => {
      const [row] = await this.#connections.write<R>({ ...statement, values: [...values, ...last] })
      return row as R
    })
  }

  /**
   * Runs a transaction that changes the catalog.
   * @param work as of `Connections.transaction`
   * @returns what `work` returns; null if it is stored and the answer was lost
   * @throws as {@link call}, and what `work` throws
   */
  transaction<T>(
    changes: readonly CatalogChange[],
    work: (run: Run, note: () => Promise<unknown>) => Promise<T>,
  ): Promise<T | null> {
    return this.#attempt(changes, (last) =>
      this.#connections.transaction((run) => work(run, () => run({ ...NOTE_CALL, values: last }))),
    )
  }

  async #attempt<T>(
    changes: readonly CatalogChange[],
    attempt: (last: CallValues) => Promise<T>,
  ): Promise<T | null> {
    const text = changesText(changes)
    const since = performance.now()
    for (let conflicts = 0; ; ) {
      const token = randomBytes(12).toString('base64url')
      try {
        return await attempt([token, this.#node, text])
      } catch (error) {
        if (error instanceof LostAnswer) {
          if (await this.#isStored(token, since)) return null
        } else if (!isConflict((error as CouchError).cause) || ++conflicts > MAX_CONFLICTS) throw error
        if (performance.now() - since > LOST_MS) throw unavailable(error)
        await rest(Math.random() * 20)
      }
    }
  }

  async #isStored(token: string, since: number): Promise<boolean> {
    for (;;) {
      try {
        await this.#connections.write({ ...FORBID, values: [token, this.#node] })
        const [row] = await this.#connections.read<[boolean]>({ ...READ_CALL, values: [token] } as Query)
        return row?.[0] === true
      } catch (error) {
        if (performance.now() - since > LOST_MS) throw unavailable(error)
        await rest(RETRY_MS)
      }
    }
  }
}

function unavailable(cause: unknown): CouchError {
  return cause instanceof CouchError ? cause : new CouchError('store_unavailable', undefined, { cause })
}

function changesText(changes: readonly CatalogChange[]): string {
  const text = JSON.stringify(changes)
  return text.length <= MAX_CHANGES ? text : JSON.stringify([{ type: 'any' }])
}
