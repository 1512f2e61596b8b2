import { setTimeout as delay } from 'node:timers/promises'
import { CouchError } from '../core/errors.ts'
import type { Databases } from '../threads/databases.ts'

const MAX_TRIES = 5
/** How long a database takes to be replaced, in ms. */
const REPLACED_MS = 200

/**
 * Runs work on a database, and runs it again if a restore has replaced the database in the meantime.
 * @throws no_database if it was deleted; what `work` throws
 */
export async function throughReplacement<T>(
  databases: Pick<Databases, 'has'>,
  name: string,
  work: () => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work()
    } catch (error) {
      const isGone = error instanceof CouchError && error.code === 'no_database'
      if (!isGone || tries === MAX_TRIES || !(await databases.has(name))) throw error
      await delay(REPLACED_MS)
    }
  }
}
